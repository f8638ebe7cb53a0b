//! Where ours differs from tracing-opentelemetry on purpose. Each difference has a row in
//! docs/tracing-layer.md, generated from these tests.

use astracer_sdk::{Builder, ContextMode, SpanLimits};
use astracer_testing::Ids;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TracerProvider as _};
use opentelemetry::{Context, SpanId, TraceFlags, TraceId};
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::dispatcher::with_default;
use tracing::field::Empty;
use tracing::{Dispatch, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::support::{Row, World, draw, one, sampling, world};

#[test]
fn unsigned_numbers_are_numbers_where_they_fit() {
    let spans = world(|builder| builder).run(|| {
        info_span!("root", small = 7u8, large = u64::MAX, huge = 1i128 << 100).in_scope(|| ());
    });
    let expected = "root small=7 large=\"18446744073709551615\" huge=\"1267650600228229401496703205376\"\n";
    assert_eq!(draw(&spans), expected);
}

#[test]
fn an_attribute_that_is_set_again_is_exported_once() {
    let spans = world(|builder| builder).run(|| {
        let root = info_span!("root", n = 1, other = Empty);
        (0..1_000).for_each(|n| _ = root.record("n", n));
        root.in_scope(|| _ = root.record("other", 1));
    });
    assert_eq!((draw(&spans).as_str(), spans[0].dropped_attributes_count), ("root n=999 other=1\n", 0));
}

/// The attributes of the first event of a span that records `error`.
fn exception(record: impl FnOnce()) -> Vec<(String, String)> {
    let spans = world(|builder| builder).run(|| info_span!("root").in_scope(record));
    let event = &spans[0].events.events[0];
    let own = event.attributes.iter().filter(|pair| pair.key.as_str().starts_with("exception."));
    own.map(|pair| (pair.key.to_string(), pair.value.to_string())).collect()
}

#[derive(Debug)]
struct Failed(#[expect(dead_code, reason = "shown by Debug")] u32);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it failed")
    }
}

impl std::error::Error for Failed {}

#[tracing::instrument(err)]
fn displayed() -> Result<(), Failed> {
    Err(Failed(7))
}

#[tracing::instrument(err(Debug))]
fn debugged() -> Result<(), Failed> {
    Err(Failed(7))
}

/// Datadog and Sentry group exceptions by their type, and show none without.
#[test]
fn an_exception_has_a_type() {
    let pair = |key: &str, value: &str| (format!("exception.{key}"), value.to_owned());
    // `tracing` passes on the text only.
    let expected = [pair("message", "it failed"), pair("type", "Error")];
    assert_eq!(exception(|| _ = displayed()), expected);
    assert_eq!(exception(|| _ = debugged()), [pair("message", "Failed(7)"), pair("type", "Failed")]);
    let dynamic = |error: &(dyn std::error::Error + 'static)| {
        let recorded = exception(|| tracing::error!(cause = error, "failed"));
        recorded.into_iter().filter(|(key, _)| key == "exception.type").collect::<Vec<_>>()
    };
    assert_eq!(dynamic(&Failed(7)), [pair("type", "Failed")]);
    assert_eq!(dynamic(&std::io::Error::other("no")), [pair("type", "std::io::Error")]);
    assert_eq!(dynamic(&std::fmt::Error), [pair("type", "Error")]);
}

#[test]
fn a_backtrace_is_the_stack_trace() {
    // As anyhow 1.0 writes an error with a cause and a backtrace.
    let text = "no price\n\nCaused by:\n    no row\n\nStack backtrace:\n   0: shop::price\n   1: main\n";
    let pair = |key: &str, value: &str| (format!("exception.{key}"), value.to_owned());
    let expected = [
        pair("message", "no price\n\nCaused by:\n    no row"),
        pair("type", "Error"),
        pair("stacktrace", "   0: shop::price\n   1: main"),
    ];
    assert_eq!(exception(|| tracing::error!(error = %text)), expected);
}

/// If the user sets an attribute that the layer also adds to spans and events, only the user's
/// value is exported.
#[test]
fn an_attribute_of_the_layer_s_does_not_double_the_user_s() {
    let names =
        ["code.file.path", "code.line.number", "thread.id", "thread.name", "level", "target", "busy_ns"];
    let change = |builder: Builder| {
        let builder = builder.with_location(true).with_threads(true).with_level(true).with_target(true);
        builder.with_tracked_inactivity(true)
    };
    let spans = world(change).run(|| {
        let root = info_span!(
            "root",
            code.file.path = "own",
            code.line.number = "own",
            thread.id = "own",
            thread.name = "own",
            level = "own",
            target = "own",
            busy_ns = Empty
        );
        root.in_scope(|| {
            root.record("busy_ns", "own");
            tracing::info!(code.file.path = "own", code.line.number = "own", level = "own", "event");
        });
    });
    let root = one(&spans, "root");
    let values = |attributes: &[opentelemetry::KeyValue], name: &str| {
        let found = attributes.iter().filter(|attribute| attribute.key.as_str() == name);
        found.map(|attribute| attribute.value.to_string()).collect::<Vec<_>>()
    };
    for name in names {
        assert_eq!(values(&root.attributes, name), ["own"], "{name}");
    }
    assert_eq!((values(&root.attributes, "idle_ns").len(), root.dropped_attributes_count), (1, 0));
    let event = &root.events.events[0].attributes;
    for name in ["code.file.path", "code.line.number", "level"] {
        assert_eq!(values(event, name), ["own"], "{name} of an event");
    }
    assert_eq!(values(event, "code.module.name"), [module_path!()]);
}

#[test]
fn a_name_and_a_kind_that_come_late_are_taken() {
    let spans = world(|builder| builder).run(|| {
        let root = info_span!("root", otel.name = Empty, otel.kind = Empty);
        root.in_scope(|| {
            root.record("otel.name", "GET /orders/{id}");
            root.record("otel.kind", "server");
        });
    });
    assert_eq!(one(&spans, "GET /orders/{id}").span_kind, opentelemetry::trace::SpanKind::Server);
}

#[test]
fn a_status_code_does_not_take_the_description_away() {
    let spans = world(|builder| builder).run(|| {
        info_span!("root", otel.status_description = "why", otel.status_code = "ERROR").in_scope(|| ());
    });
    assert_eq!(draw(&spans), "root [error \"why\"]\n");
}

#[test]
fn limits_cut_what_the_layer_adds_before_what_the_user_gave() {
    let mut limits = SpanLimits::default();
    limits.attributes = 2;
    let spans = world(|builder| builder.with_location(true).with_span_limits(limits)).run(|| {
        info_span!("root", a = 1).in_scope(|| ());
    });
    let root = one(&spans, "root");
    let keys: Vec<&str> = root.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
    assert_eq!((keys, root.dropped_attributes_count), (vec!["a", "code.file.path"], 2));
}

#[test]
fn limits_are_counted_on_span_and_event() {
    let mut limits = SpanLimits::default();
    (limits.attributes, limits.events, limits.links, limits.attributes_per_event, limits.text_length) =
        (1, 2, 1, 1, 4);
    let spans = world(|builder| builder.with_span_limits(limits)).run(|| {
        let others = [info_span!("x"), info_span!("x")];
        let root = info_span!("root", a = "größer", b = 2, c = 3).entered();
        others.iter().for_each(|other| {
            root.follows_from(other);
        });
        (0..3).for_each(|n| tracing::info!(n, m = n));
    });
    let root = one(&spans, "root");
    assert_eq!((root.attributes.len(), root.dropped_attributes_count), (1, 2));
    assert_eq!(root.attributes[0].value.as_str(), "größ");
    assert_eq!((root.events.events.len(), root.events.dropped_count), (2, 1));
    assert_eq!(root.events.events[0].dropped_attributes_count, 1);
    assert_eq!((root.links.links.len(), root.links.dropped_count), (1, 1));
}

#[test]
fn ok_is_final() {
    let spans = world(|builder| builder).run(|| {
        let root = info_span!("root", otel.status_code = "OK", otel.status_description = Empty);
        root.in_scope(|| {
            root.record("otel.status_description", "too late");
            tracing::error!(error = "neither");
        });
    });
    assert_eq!(one(&spans, "root").status, opentelemetry::trace::Status::Ok);
}

/// An event belongs to the span that its thread entered last. tracing-opentelemetry asks the
/// registry, for which a span entered again inside another one is not the current span.
#[test]
fn an_event_in_a_span_entered_again_belongs_to_it() {
    let body = || {
        let (a, b) = (info_span!("a"), info_span!("b"));
        a.in_scope(|| b.in_scope(|| a.in_scope(|| tracing::info!("an event"))));
    };
    let events = |spans: &[opentelemetry_sdk::trace::SpanData], name| one(spans, name).events.events.len();
    let ours = crate::parity::ours(|builder| builder, body);
    assert_eq!((events(&ours, "a"), events(&ours, "b")), (1, 0));
    let stock = crate::parity::stock(|layer| layer, body);
    assert_eq!((events(&stock, "a"), events(&stock, "b")), (0, 1));
}

/// The description of a status Ok has no meaning (OpenTelemetry specification, "Set Status":
/// "Description MUST be IGNORED for StatusCode Ok & Unset values").
#[test]
fn a_description_does_not_make_an_error_of_ok() {
    use opentelemetry::trace::Status;
    let body =
        || info_span!("root", otel.status_code = "OK", otel.status_description = "fine").in_scope(|| ());
    assert_eq!(one(&crate::parity::ours(|builder| builder, body), "root").status, Status::Ok);
    assert_eq!(one(&crate::parity::stock(|layer| layer, body), "root").status, Status::error("fine"));
}

/// The last of two calls counts (same section). The SDK takes the description that is greater as
/// text.
#[test]
fn the_last_of_two_errors_counts() {
    use opentelemetry::trace::Status;
    let body = || {
        let root = info_span!("root", otel.status_description = Empty);
        root.in_scope(|| {
            root.record("otel.status_description", "timed out");
            root.record("otel.status_description", "refused");
        });
    };
    assert_eq!(one(&crate::parity::ours(|builder| builder, body), "root").status, Status::error("refused"));
    assert_eq!(one(&crate::parity::stock(|layer| layer, body), "root").status, Status::error("timed out"));
}

/// The stock layer on a registry.
fn stock(sampler: Sampler) -> Dispatch {
    let provider = SdkTracerProvider::builder().with_sampler(sampler).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("stock"));
    Dispatch::new(Registry::default().with(layer))
}

/// Two spans of two subscribers have the same id there and are exited out of order.
/// tracing-opentelemetry finds the context to detach by the id alone, and detaches the other
/// span's.
#[test]
fn spans_of_two_subscribers_with_one_id_keep_their_own_contexts() {
    fn current_after(first: &Dispatch, second: &Dispatch) -> (SpanId, SpanId) {
        let current = || Context::current().span().span_context().span_id();
        let a = with_default(first, || info_span!("a").entered());
        let b = with_default(second, || info_span!(parent: None, "b").entered());
        assert_eq!(a.id(), b.id(), "both are the first on their registry");
        let inside = current();
        with_default(first, || drop(a));
        let after = current();
        with_default(second, || drop(b));
        (inside, after)
    }
    let world = world(|builder| builder);
    let ours = || Dispatch::new(Registry::default().with(world.astracer.layer.clone()));
    let (inside, after) = current_after(&ours(), &ours());
    assert_eq!(after, inside, "the thread is still in b");
    let stock = || stock(Sampler::AlwaysOn);
    let (inside, after) = current_after(&stock(), &stock());
    assert_ne!(after, inside);
}

/// A dropped span is entered where its own context was attached by hand and is current; then that
/// context is detached while the thread is inside. Attaching another one on every entry would cost
/// each dropped span 150 instructions.
#[test]
fn a_dropped_span_relies_on_its_context_where_that_is_current() {
    fn is_current_after(dispatch: &Dispatch, context_of: fn(&tracing::Span) -> Context) -> bool {
        with_default(dispatch, || {
            let span = info_span!("dropped");
            let _outer = span.clone().entered();
            let own = context_of(&span);
            let ids = own.span().span_context().clone();
            let _other = Context::new().attach();
            let by_hand = own.attach();
            let _inner = span.clone().entered();
            drop(by_hand);
            Context::current().span().span_context().trace_id() == ids.trace_id()
        })
    }
    let dropping = sampling("never", |builder| builder);
    assert!(!is_current_after(&dropping.dispatch, astracer_sdk::OpenTelemetrySpanExt::context));
    let stock = stock(Sampler::AlwaysOff);
    assert!(is_current_after(&stock, tracing_opentelemetry::OpenTelemetrySpanExt::context));
}

/// Our ids are random, and the flag lets callees rely on it.
#[test]
fn traces_that_begin_here_say_that_their_ids_are_random() {
    let flags = |dispatch: &Dispatch| {
        with_default(dispatch, || {
            info_span!("root").in_scope(|| Context::current().span().span_context().trace_flags().to_u8())
        })
    };
    let header = |world: &World| {
        world.inside(|| {
            let _root = info_span!("root").entered();
            let _child = info_span!("child").entered();
            let mut headers = std::collections::HashMap::new();
            world.astracer.propagator().inject_context(&Context::current(), &mut headers);
            headers["traceparent"].rsplit_once('-').unwrap().1.to_owned()
        })
    };
    let ones = || Ids(|| TraceId::from(1), || SpanId::from(1));
    for mode in [ContextMode::Ids, ContextMode::Recording] {
        for (sampler, sampled) in [("always", 1), ("never", 0)] {
            let with = |change: &dyn Fn(Builder) -> Builder| {
                let sampler = sampler.parse().unwrap();
                world(|builder| change(builder.with_context_mode(mode).with_sampler(sampler)))
            };
            let own = with(&|builder| builder);
            assert_eq!((flags(&own.dispatch), header(&own)), (2 + sampled, format!("0{}", 2 + sampled)));
            assert!(own.exported().iter().all(|span| span.span_context.trace_flags().to_u8() == 3));
            // Another generator's ids may not be random, unless the service says so.
            let custom = with(&|builder| builder.with_id_generator(ones()));
            assert_eq!(header(&custom), format!("0{sampled}"));
            let promised = with(&|builder| builder.with_random_id_generator(ones()));
            assert_eq!(header(&promised), format!("0{}", 2 + sampled));
            // A remote parent sets the flag for its own ids.
            assert_eq!([1, 3].map(|flags| flags_below(&own, flags)), [1, 3]);
        }
    }
    assert_eq!(flags(&stock(Sampler::AlwaysOn)), 1);
}

/// The flags inside a root whose remote parent has `flags`.
fn flags_below(world: &World, flags: u8) -> u8 {
    let flags = TraceFlags::new(flags);
    let parent = SpanContext::new(TraceId::from(7u128), SpanId::from(7u64), flags, true, Default::default());
    let _remote = Context::new().with_remote_span_context(parent).attach();
    let inside = || Context::current().span().span_context().trace_flags().to_u8();
    world.inside(|| info_span!("root").in_scope(inside))
}

/// The rows of the document's table.
pub(crate) const ROWS: &[Row] = &[
    ("unsigned and 128-bit numbers", unsigned_numbers_are_numbers_where_they_fit),
    ("an attribute set twice", an_attribute_that_is_set_again_is_exported_once),
    (
        "an attribute that the layer adds under a name that the user also set",
        an_attribute_of_the_layer_s_does_not_double_the_user_s,
    ),
    (
        "`otel.name`, `otel.kind` recorded after the span was entered",
        a_name_and_a_kind_that_come_late_are_taken,
    ),
    ("`otel.status_code` after `otel.status_description`", a_status_code_does_not_take_the_description_away),
    (
        "`otel.status_description` after `otel.status_code = \"OK\"`",
        a_description_does_not_make_an_error_of_ok,
    ),
    ("a status that is Ok", ok_is_final),
    ("two error statuses with different descriptions", the_last_of_two_errors_counts),
    ("the attributes that a limit cuts first", limits_cut_what_the_layer_adds_before_what_the_user_gave),
    ("the type of an exception", an_exception_has_a_type),
    ("the backtrace in an anyhow error's `Debug` text", a_backtrace_is_the_stack_trace),
    ("text attributes", limits_are_counted_on_span_and_event),
    (
        "an event after entering `a`, `b` and `a` again on one thread",
        an_event_in_a_span_entered_again_belongs_to_it,
    ),
    (
        "spans of two subscribers that have the same id and are exited out of order",
        spans_of_two_subscribers_with_one_id_keep_their_own_contexts,
    ),
    (
        "inside a dropped span whose own context was attached by hand, over another one, before the span was entered: the current context once the attached one is detached",
        a_dropped_span_relies_on_its_context_where_that_is_current,
    ),
    (
        "the flag `random` of a trace that begins here (W3C Trace Context level 2)",
        traces_that_begin_here_say_that_their_ids_are_random,
    ),
];
