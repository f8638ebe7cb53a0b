//! A parent from elsewhere whose trace was not decided about.
//!
//! B3 lets a caller defer the decision: it sends ids alone. A [`SpanContext`] cannot say this,
//! since it is either sampled or not. So the context that is extracted also holds a mark. The mark
//! names the span that it is about: contexts of spans below inherit all values, and must not
//! inherit the meaning.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Undecided(TraceId, SpanId);

impl Undecided {
    fn of(parent: &SpanContext) -> Self {
        Undecided(parent.trace_id(), parent.span_id())
    }
}

/// The context with `parent` as its remote span, marked as one whose trace was not decided about.
pub(super) fn with_undecided(context: &Context, parent: SpanContext) -> Context {
    let mark = Undecided::of(&parent);
    context.with_remote_span_context(parent).with_value(mark)
}

/// Whether the context's span is a remote parent that left the decision to its callees. One that is
/// sampled did not: the same caller said so in another format, which was read later. That it is not
/// sampled is what other formats say of such a parent.
pub(crate) fn is_undecided(context: &Context) -> bool {
    context.get::<Undecided>().is_some_and(|mark| {
        let span = context.span();
        let parent = span.span_context();
        *mark == Undecided::of(parent) && !parent.is_sampled()
    })
}
