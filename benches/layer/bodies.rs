//! The traces: 1 + 3 + 6 spans, each created, entered, exited and closed in turn.

use std::borrow::Cow;

use fastrace::prelude::{LocalSpan, Span, SpanContext, SpanId, TraceId};
use tracing::info_span;

/// Spans per trace.
pub(crate) const SPANS: u64 = 10;

/// A trace without attributes.
#[inline(never)]
pub(crate) fn plain() {
    let _root = info_span!("root").entered();
    for _ in 0..3 {
        let _child = info_span!("child").entered();
        for _ in 0..2 {
            let _leaf = info_span!("leaf").entered();
        }
    }
}

/// A trace of a hundred spans: 1 + 9 + 90.
#[inline(never)]
pub(crate) fn hundred() {
    let _root = info_span!("root").entered();
    for _ in 0..9 {
        let _child = info_span!("child").entered();
        for _ in 0..10 {
            let _leaf = info_span!("leaf").entered();
        }
    }
}

/// A trace with two attributes on the root and one on each child.
#[inline(never)]
pub(crate) fn attributes() {
    let _root = info_span!("root", method = "GET", size = 1234i64).entered();
    for n in 0..3i64 {
        let _child = info_span!("child", n).entered();
        for n in 0..2i64 {
            let _leaf = info_span!("leaf", n).entered();
        }
    }
}

/// A trace without attributes, through fastrace's API.
#[inline(never)]
pub(crate) fn fastrace(id: u64, sampled: bool) {
    let context = SpanContext::new(TraceId(u128::from(id) + 1), SpanId(id)).sampled(sampled);
    let root = Span::root("root", context);
    let _root = root.set_local_parent();
    for _ in 0..3 {
        let _child = LocalSpan::enter_with_local_parent("child");
        for _ in 0..2 {
            let _leaf = LocalSpan::enter_with_local_parent("leaf");
        }
    }
}

/// The trace of a hundred spans, through fastrace's API.
#[inline(never)]
pub(crate) fn fastrace_hundred(id: u64, sampled: bool) {
    let context = SpanContext::new(TraceId(u128::from(id) + 1), SpanId(id)).sampled(sampled);
    let root = Span::root("root", context);
    let _root = root.set_local_parent();
    for _ in 0..9 {
        let _child = LocalSpan::enter_with_local_parent("child");
        for _ in 0..10 {
            let _leaf = LocalSpan::enter_with_local_parent("leaf");
        }
    }
}

/// The trace with attributes, through fastrace's API, whose values are strings.
#[inline(never)]
pub(crate) fn fastrace_attributes(id: u64, sampled: bool) {
    let context = SpanContext::new(TraceId(u128::from(id) + 1), SpanId(id)).sampled(sampled);
    let root =
        Span::root("root", context).with_properties(|| [("method", "GET".into()), number("size", 1234)]);
    let _root = root.set_local_parent();
    for n in 0..3i64 {
        let _child = LocalSpan::enter_with_local_parent("child").with_property(|| number("n", n));
        for n in 0..2i64 {
            let _leaf = LocalSpan::enter_with_local_parent("leaf").with_property(|| number("n", n));
        }
    }
}

fn number(name: &'static str, value: i64) -> (&'static str, Cow<'static, str>) {
    (name, value.to_string().into())
}
