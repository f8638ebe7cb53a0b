//! The exporters under OpenTelemetry's own tracer provider and batch processor.

use std::time::Duration;

use astracer_exporters::{Exporter, Otlp, Protocol};
use astracer_testing::Server;
use opentelemetry::KeyValue;
use opentelemetry::trace::{Span as _, Tracer as _, TracerProvider as _};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_sdk::trace::SdkTracerProvider;
use prost::Message as _;

use super::otlp_grpc::GrpcSink;
use super::sample;

/// Makes a span in a provider that exports to `url`, and shuts the provider down.
fn run(protocol: Protocol, url: String) {
    let exporter = Exporter::new(Otlp::builder().with_protocol(protocol).with_endpoint(url).build().unwrap());
    let counter = exporter.counter();
    let provider =
        SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(sample::resource()).build();
    let mut span = provider.tracer("lib").start("work");
    span.set_attribute(KeyValue::new("n", 1));
    span.end();
    provider.shutdown_with_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(counter.read().sent, 1);
}

#[track_caller]
fn check(message: &ExportTraceServiceRequest) {
    let unit = &message.resource_spans[0];
    let keys: Vec<_> =
        unit.resource.as_ref().unwrap().attributes.iter().map(|own| own.key.as_str()).collect();
    assert_eq!(keys, ["service.instance.id", "service.name"]);
    let scope = &unit.scope_spans[0];
    assert_eq!((scope.scope.as_ref().unwrap().name.as_str(), scope.spans.len()), ("lib", 1));
    assert_eq!((scope.spans[0].name.as_str(), scope.spans[0].attributes.len()), ("work", 1));
}

#[test]
fn spans_of_a_provider_arrive_by_its_shutdown() {
    let server = Server::new([]);
    run(Protocol::HttpProtobuf, server.url("http"));
    check(&ExportTraceServiceRequest::decode(&server.requests()[0].body[..]).unwrap());
    let sink = GrpcSink::new([]);
    run(Protocol::Grpc, sink.url("http"));
    check(&sink.requests()[0].1);
}
