//! The sampler for code on the OpenTelemetry API.

use opentelemetry::trace::{Span as _, SpanKind, TraceContextExt as _, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue, TraceId};
use opentelemetry_sdk::trace::{SamplingDecision, SdkTracerProvider, ShouldSample as _};
use tracing::info_span;

use crate::support::{Collector, draw, one, sampling, world};
use astracer_sdk::Key;

#[test]
fn roots_are_put_to_the_sampler_by_their_key() {
    // One token per key, and the clock stands still.
    let bucket = "bucket:capacity=1,rate=1".parse().unwrap();
    let world =
        world(|builder| builder.with_sampler(bucket).with_key(Key::default().with_attribute("http.route")));
    let decide = |name: &str, route: &'static str| {
        let attributes = [KeyValue::new("http.route", route)];
        let sampler = &world.astracer.sampler;
        sampler.should_sample(None, TraceId::from(1u128), name, &SpanKind::Server, &attributes, &[]).decision
    };
    assert_eq!(decide("get 1234", "/a"), SamplingDecision::RecordAndSample);
    assert_eq!(decide("get 5678", "/a"), SamplingDecision::Drop);
    assert_eq!(decide("get 5678", "/b"), SamplingDecision::RecordAndSample);
    let keys: Vec<String> = world.handle.snapshot().unwrap().keys.into_iter().map(|key| key.key).collect();
    assert_eq!(keys, ["get *;http.route=/a", "get *;http.route=/b"]);
}

/// Layer and provider share one sampler. The layer decides on a trace, and the provider's sampler
/// follows for a child of it; then the other way round.
#[test]
fn a_trace_is_decided_once_whichever_api_begins_it() {
    for (sampler, kept) in [("every:2", true), ("never", false)] {
        let world = sampling(sampler, |builder| builder);
        let exporter = Collector::default();
        let provider = SdkTracerProvider::builder()
            .with_sampler(world.astracer.sampler.clone())
            .with_simple_exporter(exporter.clone())
            .build();
        let tracer = provider.tracer("api");
        let spans = world.run(|| {
            let _outer = info_span!("outer").entered();
            let mut by_api = tracer.start("by api");
            assert_eq!(by_api.span_context().trace_id(), Context::current().span().span_context().trace_id());
            by_api.end();
        });
        assert_eq!(draw(&spans), if kept { "outer\n" } else { "" });
        assert_eq!(exporter.spans().len(), usize::from(kept));
        if kept {
            assert_eq!(exporter.spans()[0].parent_span_id, one(&spans, "outer").span_context.span_id());
        }
        let stats = world.handle.stats();
        assert_eq!(stats.roots_kept + stats.roots_dropped, 1);

        // every:2 drops the second root.
        let spans = world.run(|| {
            tracer.in_span("root by api", |_| {
                info_span!("inner").in_scope(|| info_span!("innermost").in_scope(|| ()));
            });
        });
        assert_eq!(draw(&spans), if kept { "outer\n" } else { "" });
        let stats = world.handle.stats();
        assert_eq!(
            (stats.roots_kept + stats.roots_dropped, stats.parents_kept + stats.parents_dropped),
            (2, 1)
        );
    }
}
