//! The contents of a kept trace's spans.

use tracing::{info, info_span};

use crate::late::{late, tail};
use crate::support::{draw, one, world};

/// A long-lived root, such as a server's loop. Its children are exported before it ends.
#[test]
fn what_is_closed_leaves_a_trace_that_grows() {
    let world = world(|builder| builder.with_spans_per_trace_max(4));
    let spans = world.run(|| {
        let root = info_span!("root", otel.name = "renamed", a = "root's own");
        let _root = root.enter();
        info!(parent: &root, n = 0, "before");
        for n in 0..10 {
            let child = info_span!("child", n, text = tracing::field::Empty);
            let _child = child.enter();
            child.record("text", format!("text {n}"));
            info!(n, "inside {n}");
            root.record("a", format!("at {n}"));
        }
        // All ten children are exported, the last ones by the flush, although the root is open.
        let left = world.exported();
        assert_eq!(left.iter().filter(|span| span.name == "child").count(), 10, "{}", draw(&left));
        assert!(left.iter().all(|span| span.name != "renamed"));
    });
    let children: Vec<_> = spans.iter().filter(|span| span.name == "child").collect();
    let root = one(&spans, "renamed");
    let mut expected =
        "renamed a=\"at 9\"\n  * before level=\"INFO\" target=\"tests::spans\" n=0\n".to_owned();
    assert_eq!(children.len(), 10);
    for (n, child) in children.into_iter().enumerate() {
        expected.push_str(&format!(
            "  child n={n} text=\"text {n}\"\n    * inside {n} level=\"INFO\" target=\"tests::spans\" n={n}\n"
        ));
        assert_eq!(child.parent_span_id, root.span_context.span_id());
    }
    assert_eq!(draw(&spans), expected);
}

/// A trace that is kept because of a panic shows why: each span that the panic unwinds through has
/// the status, unless the service set another description.
#[test]
fn spans_that_a_panic_unwinds_through_are_errors() {
    use opentelemetry::trace::Status;
    for sampler in ["always", "never"] {
        let world = late(tail("error"), |builder| builder.with_sampler(sampler.parse().unwrap()));
        let spans = world.run(|| {
            let _ = std::panic::catch_unwind(|| {
                let _request = info_span!("request").entered();
                info_span!("before").in_scope(|| ());
                let own = info_span!("own", otel.status_description = "out of stock").entered();
                let _inner = info_span!("inner").entered();
                let _ = own.id();
                std::panic::resume_unwind(Box::new("boom"));
            });
        });
        for (name, status) in [
            ("request", Status::error("panicked")),
            ("inner", Status::error("panicked")),
            ("own", Status::error("out of stock")),
            ("before", Status::Unset),
        ] {
            assert_eq!(one(&spans, name).status, status, "{name}, {sampler}");
        }
    }
}

/// The event for which a policy keeps the trace is not the one that a limit cuts.
#[test]
fn an_error_event_replaces_another_at_the_limit() {
    let spans = world(|builder| builder).run(|| {
        let _root = info_span!("root").entered();
        for n in 0..200 {
            info!(n, text = "x", "step");
        }
        tracing::error!(code = 7, "the error");
        info!("after");
    });
    let events = &one(&spans, "root").events;
    assert_eq!((events.events.len(), events.dropped_count), (128, 74));
    let last = events.events.last().unwrap();
    assert_eq!(last.name, "the error");
    assert!(last.attributes.iter().any(|attribute| attribute.key.as_str() == "code"), "{last:?}");
    let before = &events.events[126];
    assert!(before.attributes.iter().any(|own| own.value == opentelemetry::Value::I64(126)), "{before:?}");
}
