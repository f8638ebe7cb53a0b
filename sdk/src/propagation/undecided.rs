//! Remote parents whose trace is not decided yet.
//!
//! B3 lets a caller defer the decision by sending ids alone. A [`SpanContext`] cannot express this,
//! since it is either sampled or not, so the extracted context also holds a mark. The mark names
//! its span: contexts of spans below inherit all values, but the mark must not apply to them.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Undecided(TraceId, SpanId);

impl Undecided {
    fn of(parent: &SpanContext) -> Self {
        Undecided(parent.trace_id(), parent.span_id())
    }
}

/// Returns the context with `parent` as its remote span, marked as undecided.
pub(super) fn with_undecided(context: &Context, parent: SpanContext) -> Context {
    let mark = Undecided::of(&parent);
    context.with_remote_span_context(parent).with_value(mark)
}

/// Whether the context's span is a remote parent that left the decision to its callees. If it is
/// sampled, it did not: the caller also sent a decision in another format, which was read later.
/// Not sampled is what other formats report for an undecided parent.
pub(crate) fn is_undecided(context: &Context) -> bool {
    context.get::<Undecided>().is_some_and(|mark| {
        let span = context.span();
        let parent = span.span_context();
        *mark == Undecided::of(parent) && !parent.is_sampled()
    })
}
