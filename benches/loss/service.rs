//! A service that creates traces of ten spans, at a rate or at full speed, with one SDK and
//! exporter.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use astracer_exporters::{Destination, Otlp, Spooled, spool};
use astracer_sdk::{Astracer, Builder, Handle, WhenQueueFull};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, WithExportConfig as _};
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde::{Deserialize, Serialize};
use tracing::info_span;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::process::{own_time, resident};

/// The SDK, exporter and policy for a full queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum World {
    /// tracing-opentelemetry, the batch processor and opentelemetry-otlp, all at their defaults.
    Stock,
    /// Ours at its defaults: a full queue drops spans.
    Default,
    /// Ours with one export in flight.
    OneInFlight,
    /// Ours, with the service waiting for space in the queue.
    Block,
    /// Ours with a spool before the destination, and the service waiting for space in the queue.
    Spool,
}

impl World {
    const ALL: [World; 5] = [World::Stock, World::Default, World::OneInFlight, World::Block, World::Spool];

    pub(crate) fn name(self) -> &'static str {
        match self {
            World::Stock => "stock",
            World::Default => "ours, sheds",
            World::OneInFlight => "ours, 1 in flight",
            World::Block => "ours, waits",
            World::Spool => "ours, spool",
        }
    }
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    pub(crate) made: u64,
    /// Spans lost by the service's own count; `None` for stock, which does not count them.
    pub(crate) lost: Option<u64>,
    pub(crate) reasons: String,
    pub(crate) cpu_s: f64,
    pub(crate) rss_max: u64,
}

/// Bytes of the export queue.
const QUEUE_BYTES: usize = 32 << 20;
const THREADS: u32 = 2;
const SPANS_PER_TRACE: u32 = 10;

fn trace(number: u64) {
    let root =
        info_span!("GET /orders/{id}", number, http.request.method = "GET", tenant = "a-tenant").entered();
    for part in 1..SPANS_PER_TRACE {
        info_span!("SELECT orders", part, db.system = "postgresql", rows = 17).in_scope(|| ());
    }
    drop(root);
}

enum Running {
    Stock(SdkTracerProvider),
    Ours(Handle, Option<std::sync::Arc<Spooled>>),
}

/// A spool that this program can inspect while the SDK owns it.
#[derive(Debug)]
struct Shared(std::sync::Arc<Spooled>);

impl Destination for Shared {
    fn deliver(&self, spans: &[astracer_exporters::Span<'_>]) -> astracer_exporters::DeliveryReport {
        self.0.deliver(spans)
    }

    fn counter(&self) -> astracer_exporters::Counter {
        self.0.counter()
    }

    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }

    fn flush(&self) -> Result<(), astracer_exporters::ExportError> {
        self.0.flush()
    }

    fn shut_down(&self, timeout: Duration) -> Result<(), astracer_exporters::ExportError> {
        self.0.shut_down(timeout)
    }
}

fn start(world: World, url: &str, folder: &std::path::Path) -> Running {
    if world == World::Stock {
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{url}/v1/traces"))
            .build()
            .expect("an exporter");
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("bench"));
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))
            .expect("the first");
        return Running::Stock(provider);
    }
    let otlp = || Otlp::builder().with_endpoint(url).build().expect("good settings");
    let builder = Astracer::builder().with_sampler("always".parse().expect("a sampler"));
    let builder = builder.with_queue_bytes_max(QUEUE_BYTES);
    let (builder, spooled) = match world {
        World::OneInFlight => (ours(builder.with_exports_in_flight(1), otlp()), None),
        World::Block => {
            (ours(builder.with_when_full(WhenQueueFull::Block(Duration::from_secs(60))), otlp()), None)
        }
        World::Spool => {
            let settings = spool::Settings::default().with_max_bytes(8 << 30);
            let spooled = Spooled::builder(folder).with_settings(settings).open(otlp()).expect("a spool");
            let spooled = std::sync::Arc::new(spooled);
            let builder = builder.with_when_full(WhenQueueFull::Block(Duration::from_secs(60)));
            (ours(builder, Shared(std::sync::Arc::clone(&spooled))), Some(spooled))
        }
        World::Stock | World::Default => (ours(builder, otlp()), None),
    };
    let astracer = builder.build().expect("good settings");
    let subscriber = tracing_subscriber::registry().with(astracer.layer.clone());
    tracing::subscriber::set_global_default(subscriber).expect("the first");
    Running::Ours(astracer.handle, spooled)
}

fn ours(builder: Builder, destination: impl Destination + 'static) -> Builder {
    builder.with_destination(destination)
}

pub(crate) fn run(world: &str, url: &str, rate: &str, seconds: &str) {
    let world = World::ALL.into_iter().find(|known| known.name() == world).expect("a world");
    let (rate, seconds): (u32, u64) = (rate.parse().expect("a rate"), seconds.parse().expect("seconds"));
    let folder = tempfile::tempdir().expect("a folder");
    let running = start(world, url, folder.path());
    let (begin, end) = (Instant::now(), Duration::from_secs(seconds));
    let (made, is_done, rss_max) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mut own = 0_u64;
                    while begin.elapsed() < end {
                        if rate > 0 {
                            let due = begin.elapsed().as_secs_f64() * f64::from(rate)
                                / f64::from(THREADS * SPANS_PER_TRACE);
                            if own as f64 >= due {
                                std::thread::sleep(Duration::from_millis(2));
                                continue;
                            }
                        }
                        trace(own);
                        own += 1;
                    }
                    made.fetch_add(own * u64::from(SPANS_PER_TRACE), Ordering::SeqCst);
                })
            })
            .collect();
        scope.spawn(|| {
            let mut last = Instant::now();
            while !is_done.load(Ordering::SeqCst) {
                rss_max.fetch_max(resident("self"), Ordering::SeqCst);
                if last.elapsed() > Duration::from_millis(500)
                    && let Running::Ours(_, Some(spooled)) = &running
                {
                    last = Instant::now();
                    println!("pending {:.1} {}", begin.elapsed().as_secs_f64(), spooled.pending());
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        is_done.store(true, Ordering::SeqCst);
    });
    let (lost, reasons) = match running {
        Running::Stock(provider) => {
            let error = provider.shutdown().err();
            (None, error.map(|error| error.to_string()).unwrap_or_default())
        }
        Running::Ours(handle, spooled) => {
            let flushed = handle.flush(Duration::from_secs(60)).err();
            if let Some(spooled) = spooled {
                spooled.drain(Duration::from_secs(120));
            }
            let ended = handle.shutdown(Duration::from_secs(60)).err();
            let stats = handle.stats();
            let errors =
                flushed.into_iter().chain(ended).map(|error| format!("; {error}")).collect::<String>();
            (Some(stats.spans_lost.total()), format!("{stats}{errors}"))
        }
    };
    let report = Report {
        made: made.load(Ordering::SeqCst),
        lost,
        reasons,
        cpu_s: own_time().as_secs_f64(),
        rss_max: rss_max.load(Ordering::SeqCst),
    };
    println!("report {}", serde_json::to_string(&report).expect("JSON"));
}
