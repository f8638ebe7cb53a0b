//! Switched off, by `Builder::enabled` or by the feature: the whole API exists, and does nothing.

use std::time::{Duration, SystemTime};

use astracer_sdk::{
    Astracer, Clock, ContextMode, DroppedSpans, Key, OnFault, OpenTelemetrySpanExt as _, ParentDecision,
    Propagator, SpanLimits, Stats, get_otel_context,
};
use astracer_testing::Collector;
use opentelemetry::trace::{SpanContext, SpanKind, Status, TraceContextExt as _};
use opentelemetry::{Context, InstrumentationScope, TraceFlags, TraceId};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{RandomIdGenerator, SamplingDecision, ShouldSample as _};
use tracing::{Dispatch, info, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Identity, SubscriberExt as _};

#[test]
fn everything_can_be_called() {
    let (clock, hand) = Clock::manual(SystemTime::UNIX_EPOCH);
    let collector = Collector::default();
    let astracer = Astracer::builder()
        .with_sampler("always".parse().unwrap())
        .with_sampler_limits(astracer_samplers::Limits::default())
        .with_key(Key::default().with_attribute("http.route"))
        .with_key(Key::custom(|root, out| out.push_str(root.name())))
        .with_parent_decision(ParentDecision::Ignore)
        .with_propagators([Propagator::TraceContext])
        .with_on_fault(OnFault::UseDefault)
        .with_variables(|_| None)
        .with_parameters_file("there is no such file")
        .with_exporter(collector.clone())
        .with_resource(Resource::builder_empty().build())
        .with_scope(InstrumentationScope::builder("test").build())
        .with_dropped_spans(DroppedSpans::Disabled)
        .with_context_mode(ContextMode::Recording)
        .with_span_limits(SpanLimits::default())
        .with_location(true)
        .with_threads(true)
        .with_level(true)
        .with_target(true)
        .with_tracked_inactivity(true)
        .with_error_fields_to_exceptions(true)
        .with_error_records_to_exceptions(true)
        .with_error_events_to_exceptions(true)
        .with_error_events_to_status(true)
        .with_open_traces_max(1)
        .with_spans_per_trace_max(1)
        .with_queue_bytes_max(1)
        .with_batch_spans(1)
        .with_batch_delay(Duration::ZERO)
        .with_id_generator(RandomIdGenerator::default())
        .with_clock(clock)
        .with_enabled(false)
        .build()
        .unwrap();
    // Another layer asks for spans. With ours alone none would be created.
    let dispatch = Dispatch::new(Registry::default().with(Identity::new()).with(astracer.layer.clone()));
    tracing::dispatcher::with_default(&dispatch, || {
        let root = info_span!("root", n = 1, late = tracing::field::Empty).entered();
        hand.advance(Duration::from_secs(1));
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
