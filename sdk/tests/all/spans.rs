//! The contents of a kept trace's spans.

use tracing::{info, info_span};

use crate::late::{late, tail};
use crate::support::{one, world};

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
