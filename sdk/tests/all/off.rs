//! Switched off, by `Builder::enabled` or by the feature: the whole API exists, and does nothing.

use std::time::{Duration, SystemTime};

use astracer_sdk::{Astracer, ContextMode, Key, OpenTelemetrySpanExt as _, Stats, get_otel_context};
use astracer_testing::Collector;
use opentelemetry::trace::{SpanContext, SpanKind, Status, TraceContextExt as _};
use opentelemetry::{Context, TraceFlags, TraceId};
use opentelemetry_sdk::trace::{SamplingDecision, ShouldSample as _};
use tracing::{Dispatch, info, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Identity, SubscriberExt as _};

#[test]
fn everything_can_be_called() {
    let collector = Collector::default();
    let astracer = Astracer::builder()
        .with_sampler("always".parse().unwrap())
        .with_key(Key::custom(|_, _| panic!("no root has a key")))
        .with_parameters_file("there is no such file")
        .with_exporter(collector.clone())
        .with_context_mode(ContextMode::Recording)
        .with_heartbeat(Duration::ZERO)
        .with_tail("error".parse().unwrap())
        .with_enabled(false)
        .build()
        .unwrap();
    // Another layer asks for spans. With ours alone none would be created.
    let dispatch = Dispatch::new(Registry::default().with(Identity::new()).with(astracer.layer.clone()));
    tracing::dispatcher::with_default(&dispatch, || {
        let root = info_span!("root", n = 1, late = tracing::field::Empty).entered();
        assert!(!root.is_disabled());
        root.record("late", 1);
        root.follows_from(info_span!(parent: None, "other"));
        info!("an event");
        assert!(!Context::current().has_active_span());
        assert_eq!(root.set_parent(Context::new()), Ok(()));
        root.add_link(SpanContext::NONE);
        root.add_link_with_attributes(SpanContext::NONE, vec![]);
        root.set_attribute("n", 2);
        root.set_status(Status::Ok);
        root.add_event("event", vec![]);
        root.add_event_with_timestamp("event", SystemTime::UNIX_EPOCH, vec![]);
        assert!(!root.context().has_active_span());
        let dispatch = tracing::dispatcher::get_default(Dispatch::clone);
        assert!(get_otel_context(&root.id().unwrap(), &dispatch).is_none());
    });
    let sampler = &astracer.sampler;
    let sampled = sampler.should_sample(None, TraceId::from(1u128), "x", &SpanKind::Internal, &[], &[]);
    assert_eq!(sampled.decision, SamplingDecision::Drop);
    let _ = astracer.propagator();
    let handle = &astracer.handle;
    assert_eq!((handle.is_enabled(), handle.stats()), (false, Stats::default()));
    assert_eq!((handle.snapshot(), handle.sampler_config()), (None, None));
    handle.flush(Duration::ZERO).unwrap();
    handle.shutdown(Duration::ZERO).unwrap();
    assert!(collector.spans().is_empty());
}

/// OpenTelemetry specification, "ShouldSample": "If the sampler returns an empty Tracestate here,
/// the Tracestate will be cleared, so samplers SHOULD normally return the passed-in Tracestate if
/// they do not intend to change it".
#[test]
fn the_sampler_passes_the_trace_state_on() {
    let astracer = Astracer::builder().with_enabled(false).build().unwrap();
    let passed_on = |flags, state: &str| {
        let ids = SpanContext::new(1u128.into(), 2u64.into(), flags, true, state.parse().unwrap());
        let parent = Context::new().with_remote_span_context(ids);
        let trace_id = TraceId::from(1u128);
        let kind = SpanKind::Server;
        let sampled = astracer.sampler.should_sample(Some(&parent), trace_id, "x", &kind, &[], &[]);
        assert_eq!(sampled.decision, SamplingDecision::Drop);
        sampled.trace_state.header()
    };
    for flags in [TraceFlags::SAMPLED, TraceFlags::NOT_SAMPLED] {
        assert_eq!(passed_on(flags, "a=1,ot=rv:00000000000001"), "a=1,ot=rv:00000000000001");
        // By this threshold and randomness the trace would be kept.
        assert_eq!(passed_on(flags, "a=1,ot=th:8;rv:80000000000000"), "ot=rv:80000000000000,a=1");
        assert_eq!(passed_on(flags, "a=1,ot=th:8;rv:70000000000000"), "a=1,ot=th:8;rv:70000000000000");
    }
}
