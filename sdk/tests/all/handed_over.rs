//! Spans that are handed to another thread while a third thread flushes, and contexts that are used
//! after their spans. Small enough for Miri, which explores memory orders that the hardware rarely
//! shows: see CONTRIBUTING.md.

use std::sync::mpsc;

use astracer_sdk::DroppedSpans;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, KeyValue, SpanId};
use tracing::{Span, info, info_span};

use crate::support::{TIMEOUT, one, world};

const TRACES: i64 = 2;

#[test]
fn spans_go_from_thread_to_thread_while_another_flushes() {
    let world = world(|builder| builder.with_dropped_spans(DroppedSpans::Disabled));
    let (sender, receiver) = mpsc::channel::<(Span, Context)>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            world.inside(move || {
                for number in 0..TRACES {
                    let _root = info_span!("root", number).entered();
                    let child = info_span!("child", number);
                    let context = child.in_scope(Context::current);
                    sender.send((child, context)).unwrap();
                    info_span!("beside").in_scope(|| ());
                }
            });
        });
        scope.spawn(|| {
            world.inside(|| {
                for (child, context) in receiver {
                    child.in_scope(|| {
                        info!("arrived");
                        info_span!("below").in_scope(|| ());
                    });
                    drop(child);
                    // The next span may reuse this span's table entry.
                    context.span().set_attribute(KeyValue::new("late", 1));
                    info_span!("next").in_scope(|| ());
                }
            });
        });
        scope.spawn(|| world.handle.flush(TIMEOUT).unwrap());
    });
    let spans = world.exported();
    for number in 0..TRACES {
        let of_trace = |root: &_| {
            let parts = spans.iter().filter(|span| span.span_context.trace_id() == *root);
            parts.cloned().collect::<Vec<_>>()
        };
        let is_this = |own: &KeyValue| own.key.as_str() == "number" && own.value == number.into();
        let root =
            spans.iter().find(|span| span.name == "root" && span.attributes.iter().any(is_this)).unwrap();
        let trace = of_trace(&root.span_context.trace_id());
        let (child, below) = (one(&trace, "child"), one(&trace, "below"));
        assert_eq!(trace.len(), 4, "and {}", one(&trace, "beside").name);
        assert_eq!(child.parent_span_id, root.span_context.span_id());
        assert_eq!(below.parent_span_id, child.span_context.span_id());
        assert!(child.attributes.iter().any(is_this) && child.events.events.len() == 1);
    }
    let next: Vec<_> = spans.iter().filter(|span| span.name == "next").collect();
    assert!(next.iter().all(|span| span.parent_span_id == SpanId::INVALID && span.attributes.is_empty()));
    assert_eq!((next.len(), spans.len()), (TRACES as usize, 5 * TRACES as usize));
}
