//! OpenTelemetry's current context inside our spans: its contents, wherever a span is entered.

use astracer_sdk::ContextMode;
use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt as _;
use tracing::{Span, info_span};

use crate::support::{one, sampling, world};

/// A value that user code put into the context is visible inside spans that begin and are entered
/// there.
#[test]
fn values_around_a_span_are_seen_inside() {
    struct Mine(u8);
    for sampler in ["always", "never"] {
        let world = sampling(sampler, |builder| builder);
        world.run(|| {
            let seen = || Context::current().get::<Mine>().map(|mine| mine.0);
            let _outer = Context::current_with_value(Mine(1)).attach();
            info_span!("root").in_scope(|| {
                assert_eq!(seen(), Some(1));
                let _inner = Context::current_with_value(Mine(2)).attach();
                info_span!("child").in_scope(|| assert_eq!(seen(), Some(2)));
            });
        });
    }
}

/// Code that sends telemetry suppresses its own spans. A service's span that is entered there, or
/// whose context is read there, is not suppressed afterwards.
#[test]
fn suppression_around_a_span_does_not_stay_with_it() {
    use astracer_sdk::OpenTelemetrySpanExt as _;
    let suppressed = |work: &dyn Fn()| {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        work();
    };
    struct Mine;
    for mode in [ContextMode::Ids, ContextMode::Recording] {
        let world = world(|builder| builder.with_context_mode(mode));
        let spans = world.run(|| {
            let _around = Context::current_with_value(Mine).attach();
            let root = info_span!("root");
            suppressed(&|| assert!(root.context().span().span_context().is_valid()));
            root.in_scope(|| {
                assert!(Context::current().get::<Mine>().is_some(), "{mode:?}");
                let child = info_span!("child");
                (0..4).for_each(|_| suppressed(&|| child.in_scope(|| ())));
                child.in_scope(|| info_span!("leaf").in_scope(|| ()));
            });
        });
        assert_eq!(crate::support::draw(&spans), "root\n  child\n    leaf\n", "{mode:?}");
    }
}

/// Traces inside a span while telemetry is suppressed, as an exporter's client does.
fn suppressed_inside() {
    let root = info_span!("root", status = tracing::field::Empty).entered();
    let suppressed = Context::enter_telemetry_suppressed_scope();
    let sending = info_span!("sending", status = tracing::field::Empty).entered();
    tracing::info!("of the sending");
    sending.record("status", "sent");
    Span::current().record("status", "sent");
    drop(suppressed);
    info_span!("below").in_scope(|| tracing::info!("of the one below"));
    drop(sending);
    tracing::info!("of the root");
    drop(root);
}

/// Events and fields of a suppressed span do not go to the span around it. The stock layer begins a
/// new trace for the spans below.
#[test]
fn events_of_suppressed_spans_belong_to_no_span() {
    for mode in [ContextMode::Off, ContextMode::Ids, ContextMode::Recording] {
        let world = world(|builder| builder.with_context_mode(mode));
        let spans = world.run(suppressed_inside);
        let drawn = crate::support::draw(&spans);
        if mode == ContextMode::Off {
            assert!(drawn.contains("sending"), "without contexts nothing is suppressed: {drawn}");
            continue;
        }
        let names = |name: &str| {
            one(&spans, name).events.events.iter().map(|event| event.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names("root"), ["of the root"], "{mode:?}");
        assert_eq!(names("below"), ["of the one below"], "{mode:?}");
        assert_eq!(one(&spans, "below").parent_span_id, one(&spans, "root").span_context.span_id());
        assert!(one(&spans, "root").attributes.is_empty(), "{drawn}");
        assert_eq!(spans.len(), 2);
    }
    let stock = crate::parity::stock(|layer| layer, suppressed_inside);
    let root = one(&stock, "root");
    assert_eq!(root.events.events.iter().map(|event| &*event.name).collect::<Vec<_>>(), ["of the root"]);
}

/// However often the span was entered before: the stored context equals the one that is built for
/// an entry.
#[test]
fn a_span_that_is_entered_where_telemetry_is_suppressed_leaves_it_so() {
    for entries in 0..5 {
        let spans = world(|builder| builder).run(|| {
            let root = info_span!("root");
            (0..entries).for_each(|_| root.in_scope(|| ()));
            let _suppressed = Context::enter_telemetry_suppressed_scope();
            root.in_scope(|| info_span!("own").in_scope(|| ()));
        });
        assert_eq!(crate::support::draw(&spans), "root\n", "{entries}");
    }
}

/// No span exists below a dropped root, for any layer, and a suppressed span there changes nothing.
#[test]
fn below_a_dropped_root_a_suppressed_span_enables_nothing() {
    let world = sampling("never", |builder| builder.with_dropped_spans(astracer_sdk::DroppedSpans::Disabled));
    world.run(|| {
        let _root = info_span!("root").entered();
        let suppressed = Context::enter_telemetry_suppressed_scope();
        let _client = info_span!("client", otel.kind = "client").entered();
        assert!(info_span!("plain").is_disabled());
        drop(suppressed);
        assert!(info_span!("plain").is_disabled());
    });
}
