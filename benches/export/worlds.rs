//! The exporters under test.

use std::time::Duration;

use astracer_exporters::{Exporter, Otlp};
use opentelemetry_otlp::{SpanExporter as StockExporter, WithExportConfig};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter, SpanProcessor,
};
use tokio::runtime::Runtime;

use crate::{BATCH, BATCHES, spans};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Grpc,
    Http,
}

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Grpc => "grpc",
            Protocol::Http => "http/protobuf",
        }
    }
}

/// Exports batches and returns when the last has a response.
type Export = Box<dyn Fn(Vec<Vec<SpanData>>)>;

pub(crate) struct World {
    name: &'static str,
    export: Export,
}

impl World {
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn export(&self, batches: Vec<Vec<SpanData>>) {
        (self.export)(batches);
    }
}

/// All worlds, the stock one first.
pub(crate) fn worlds(protocol: Protocol, url: &str) -> Vec<World> {
    vec![
        World { name: "stock: processor + otlp", export: by_processor(stock(protocol, url)) },
        World { name: "processor, ours", export: by_processor(ours(protocol, url)) },
        World { name: "otlp alone", export: directly(stock(protocol, url)) },
        World { name: "ours", export: directly(ours(protocol, url)) },
    ]
}

fn ours(protocol: Protocol, url: &str) -> impl SpanExporter + 'static {
    let protocol = match protocol {
        Protocol::Grpc => astracer_exporters::Protocol::Grpc,
        Protocol::Http => astracer_exporters::Protocol::HttpProtobuf,
    };
    let otlp = Otlp::builder().with_protocol(protocol).with_endpoint(url).build().expect("an exporter");
    let mut exporter = Exporter::new(otlp);
    exporter.set_resource(&spans::resource());
    exporter
}

/// opentelemetry-otlp's exporter, with the runtime that its gRPC client needs.
#[derive(Debug)]
struct Stock {
    exporter: StockExporter,
    _runtime: Option<Runtime>,
}

impl SpanExporter for Stock {
    fn export(
        &self,
        batch: Vec<SpanData>,
    ) -> impl Future<Output = opentelemetry_sdk::error::OTelSdkResult> + Send {
        self.exporter.export(batch)
    }
}

fn stock(protocol: Protocol, url: &str) -> Stock {
    let (mut exporter, runtime) = match protocol {
        Protocol::Grpc => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let runtime = runtime.expect("a runtime");
            let _inside = runtime.enter();
            let exporter =
                StockExporter::builder().with_tonic().with_endpoint(url).build().expect("an exporter");
            (exporter, Some(runtime))
        }
        Protocol::Http => {
            let builder =
                StockExporter::builder().with_http().with_protocol(opentelemetry_otlp::Protocol::HttpBinary);
            (builder.with_endpoint(format!("{url}/v1/traces")).build().expect("an exporter"), None)
        }
    };
    exporter.set_resource(&spans::resource());
    Stock { exporter, _runtime: runtime }
}

fn by_processor(exporter: impl SpanExporter + 'static) -> Export {
    let config = BatchConfigBuilder::default()
        .with_max_queue_size(2 * BATCH * BATCHES)
        .with_max_export_batch_size(BATCH)
        .with_scheduled_delay(Duration::from_secs(3600))
        .build();
    let processor = BatchSpanProcessor::builder(Checked(exporter)).with_batch_config(config).build();
    Box::new(move |batches| {
        for span in batches.into_iter().flatten() {
            processor.on_end(span);
        }
        processor.force_flush().expect("a flush");
    })
}

fn directly(exporter: impl SpanExporter + 'static) -> Export {
    Box::new(move |batches| {
        for batch in batches {
            futures_executor::block_on(exporter.export(batch)).expect("an export");
        }
    })
}

/// Fails the benchmark if an export fails; the processor would only log it.
#[derive(Debug)]
struct Checked<E>(E);

impl<E: SpanExporter> SpanExporter for Checked<E> {
    async fn export(&self, batch: Vec<SpanData>) -> opentelemetry_sdk::error::OTelSdkResult {
        self.0.export(batch).await.expect("an export");
        Ok(())
    }
}
