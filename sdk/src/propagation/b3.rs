//! B3 propagation as in Zipkin's libraries: one header `b3`, or several `X-B3-*`.
//!
//! Follows <https://github.com/openzipkin/b3-propagation> and the "B3 Requirements" of
//! OpenTelemetry's propagators API. Both forms are read, the single header first; the configured
//! one is written. The debug flag travels in the context, which spans of such a trace inherit as
//! they do baggage, and a trace with it is sampled. The id of the caller's own parent is not passed
//! on.
//!
//! Ids without a decision leave it to this process: the context is marked, and the sampler decides
//! on a span that begins with this parent. If the headers are passed on without a span of ours,
//! they carry no decision either. Headers with a decision but without ids are ignored, because
//! there is no trace to which it could apply.

use opentelemetry::Context;
use opentelemetry::propagation::text_map_propagator::FieldIter;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};

const SINGLE: &str = "b3";
const TRACE_ID: &str = "x-b3-traceid";
const SPAN_ID: &str = "x-b3-spanid";
const SAMPLED: &str = "x-b3-sampled";
const FLAGS: &str = "x-b3-flags";

/// Marks a context: this trace is kept whatever samplers decide. It holds the trace id, because
/// another trace may begin in the context, or the next propagator may extract one into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Debug(TraceId);

#[inline]
pub(crate) fn is_debug(context: &Context, ids: &SpanContext) -> bool {
    context.get::<Debug>().is_some_and(|mark| *mark == Debug(ids.trace_id()))
}

/// Marks a context: its remote parent left the decision to its callees. A [`SpanContext`] cannot
/// express this, since it is either sampled or not. The mark names its span, because contexts of
/// spans below inherit all values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Undecided(TraceId, SpanId);

impl Undecided {
    fn of(parent: &SpanContext) -> Self {
        Undecided(parent.trace_id(), parent.span_id())
    }
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Single,
    Multi,
}

#[derive(Debug)]
pub(crate) struct B3 {
    encoding: Encoding,
    fields: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// Not decided yet: B3's "defer".
    Deferred,
    Drop,
    Keep,
    Debug,
}

impl B3 {
    pub(crate) fn new(encoding: Encoding) -> Self {
        let fields: &[&str] = match encoding {
            Encoding::Single => &[SINGLE],
            Encoding::Multi => &[TRACE_ID, SPAN_ID, SAMPLED, FLAGS],
        };
        B3 { encoding, fields: fields.iter().map(|&field| field.to_owned()).collect() }
    }
}

impl TextMapPropagator for B3 {
    fn inject_context(&self, context: &Context, injector: &mut dyn Injector) {
        let span = context.span();
        let ids = span.span_context();
        if !ids.is_valid() {
            return;
        }
        let decision = if is_debug(context, ids) {
            Decision::Debug
        } else if is_undecided(context) {
            Decision::Deferred
        } else if ids.is_sampled() {
            Decision::Keep
        } else {
            Decision::Drop
        };
        match self.encoding {
            Encoding::Single => {
                let suffix = match decision {
                    Decision::Deferred => "",
                    Decision::Drop => "-0",
                    Decision::Keep => "-1",
                    Decision::Debug => "-d",
                };
                injector.set(SINGLE, format!("{}-{}{suffix}", ids.trace_id(), ids.span_id()));
            }
            Encoding::Multi => {
                injector.set(TRACE_ID, ids.trace_id().to_string());
                injector.set(SPAN_ID, ids.span_id().to_string());
                match decision {
                    Decision::Deferred => {}
                    Decision::Drop => injector.set(SAMPLED, "0".to_owned()),
                    Decision::Keep => injector.set(SAMPLED, "1".to_owned()),
                    // The debug flag implies that the trace is sampled, and B3 forbids sending
                    // both.
                    Decision::Debug => injector.set(FLAGS, "1".to_owned()),
                }
            }
        }
    }

    fn extract_with_context(&self, context: &Context, extractor: &dyn Extractor) -> Context {
        let Some((trace_id, span_id, decision)) = single(extractor).or_else(|| multi(extractor)) else {
            return context.clone();
        };
        let flags = match decision {
            Decision::Keep | Decision::Debug => TraceFlags::SAMPLED,
            Decision::Deferred | Decision::Drop => TraceFlags::default(),
        };
        let parent = SpanContext::new(trace_id, span_id, flags, true, TraceState::default());
        match decision {
            Decision::Deferred => {
                let mark = Undecided::of(&parent);
                context.with_remote_span_context(parent).with_value(mark)
            }
            Decision::Debug => context.with_remote_span_context(parent).with_value(Debug(trace_id)),
            Decision::Drop | Decision::Keep => context.with_remote_span_context(parent),
        }
    }

    fn fields(&self) -> FieldIter<'_> {
        FieldIter::new(&self.fields)
    }
}

/// Parses `{trace id}-{span id}[-{decision}[-{parent's id}]]`.
fn single(extractor: &dyn Extractor) -> Option<(TraceId, SpanId, Decision)> {
    let mut parts = extractor.get(SINGLE)?.split('-');
    let (trace_id, span_id) = (trace_id(parts.next()?)?, span_id(parts.next()?)?);
    let decision = match parts.next() {
        None => Decision::Deferred,
        Some("0") => Decision::Drop,
        Some("1") => Decision::Keep,
        Some("d") => Decision::Debug,
        Some(_) => return None,
    };
    if let Some(parent) = parts.next() {
        self::span_id(parent)?;
    }
    parts.next().is_none().then_some((trace_id, span_id, decision))
}

fn multi(extractor: &dyn Extractor) -> Option<(TraceId, SpanId, Decision)> {
    let (trace_id, span_id) = (trace_id(extractor.get(TRACE_ID)?)?, span_id(extractor.get(SPAN_ID)?)?);
    let decision = match (extractor.get(FLAGS), extractor.get(SAMPLED)) {
        (Some("1"), _) => Decision::Debug,
        // Old libraries write words.
        (_, Some("1" | "true")) => Decision::Keep,
        (_, Some("0" | "false")) => Decision::Drop,
        (_, Some(_)) => return None,
        (_, None) => Decision::Deferred,
    };
    Some((trace_id, span_id, decision))
}

fn trace_id(digits: &str) -> Option<TraceId> {
    let id =
        if digits.len() == 16 || digits.len() == 32 { TraceId::from(hex(digits)?) } else { return None };
    (id != TraceId::INVALID).then_some(id)
}

fn span_id(digits: &str) -> Option<SpanId> {
    let id = if digits.len() == 16 { SpanId::from(hex(digits)? as u64) } else { return None };
    (id != SpanId::INVALID).then_some(id)
}

fn hex(digits: &str) -> Option<u128> {
    // `from_str_radix` also accepts a sign.
    let all = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if all { u128::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    type Headers = HashMap<String, String>;

    // The ids in the examples of B3's own page.
    const TRACE: &str = "80f198ee56343ba864fe8b2a57d3eff7";
    const SPAN: &str = "e457b5a2e4d86bd1";
    const PARENT: &str = "05e3ac9a4f6e3b90";

    fn headers(list: &[(&str, &str)]) -> Headers {
        list.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Reads ids from headers and writes them again. Returns the ids, the header `b3`, and the
    /// headers `X-B3-*`.
    fn pass_on(list: &[(&str, &str)]) -> Option<(SpanContext, String, Headers)> {
        let context = B3::new(Encoding::Multi).extract_with_context(&Context::new(), &headers(list));
        let ids = context.span().span_context().clone();
        let (mut one, mut many) = (Headers::new(), Headers::new());
        B3::new(Encoding::Single).inject_context(&context, &mut one);
        B3::new(Encoding::Multi).inject_context(&context, &mut many);
        if !ids.is_valid() {
            assert!(one.is_empty() && many.is_empty());
            return None;
        }
        assert!(ids.is_remote());
        Some((ids, one.remove("b3").unwrap(), many))
    }

    #[track_caller]
    fn check(list: &[(&str, &str)], decision: &str, multi: (&str, &str)) {
        let (ids, one, many) = pass_on(list).unwrap();
        assert_eq!((ids.trace_id().to_string(), ids.span_id().to_string()), (TRACE.into(), SPAN.into()));
        assert_eq!(ids.is_sampled(), decision != "0");
        assert_eq!(one, format!("{TRACE}-{SPAN}-{decision}"));
        assert_eq!(many, headers(&[("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN), multi]));
    }

    /// B3, "Sampling State": "When no sampling state is present, it is deferred".
    #[test]
    fn a_deferred_decision_is_passed_on_as_one() {
        let several = [("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN)];
        let one = format!("{TRACE}-{SPAN}");
        for list in [&several[..], &[("b3", &*one)]] {
            let (ids, single, multi) = pass_on(list).unwrap();
            assert!(!ids.is_sampled());
            assert_eq!((single, multi), (one.clone(), headers(&several)));
        }
    }

    /// The context of these headers, and the same with another span of its trace and of another.
    fn around(suffix: &str) -> [Context; 3] {
        let received = headers(&[("b3", &format!("{TRACE}-{SPAN}{suffix}"))]);
        let context = B3::new(Encoding::Single).extract_with_context(&Context::new(), &received);
        let with = |trace_id| {
            let (flags, state) = (TraceFlags::default(), TraceState::default());
            let span = SpanContext::new(trace_id, SpanId::from(7u64), flags, false, state);
            context.with_remote_span_context(span)
        };
        let trace_id = context.span().span_context().trace_id();
        [context.clone(), with(trace_id), with(TraceId::from(7u128))]
    }

    #[test]
    fn the_mark_of_a_deferred_decision_is_about_one_span() {
        assert_eq!(around("").each_ref().map(is_undecided), [true, false, false]);
        assert!(!is_undecided(&Context::new()));
    }

    #[test]
    fn the_debug_flag_is_about_one_trace() {
        let suffix = |context: Context| {
            let mut written = Headers::new();
            B3::new(Encoding::Single).inject_context(&context, &mut written);
            written["b3"].rsplit_once('-').unwrap().1.to_owned()
        };
        assert_eq!(around("-d").map(suffix), ["d", "d", "0"]);
    }

    #[test]
    fn one_header_is_read() {
        let kept = ("x-b3-sampled", "1");
        check(&[("b3", &format!("{TRACE}-{SPAN}-1-{PARENT}"))], "1", kept);
        check(&[("b3", &format!("{TRACE}-{SPAN}-1"))], "1", kept);
        check(&[("b3", &format!("{TRACE}-{SPAN}-0"))], "0", ("x-b3-sampled", "0"));
        check(&[("b3", &format!("{TRACE}-{SPAN}-d"))], "d", ("x-b3-flags", "1"));
    }

    #[test]
    fn several_headers_are_read() {
        let ids = [("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN), ("x-b3-parentspanid", PARENT)];
        let with = |more: &[(&'static str, &'static str)]| [&ids[..], more].concat();
        let (kept, dropped) = (("x-b3-sampled", "1"), ("x-b3-sampled", "0"));
        check(&with(&[kept]), "1", kept);
        check(&with(&[("x-b3-sampled", "true")]), "1", kept);
        check(&with(&[dropped]), "0", dropped);
        check(&with(&[("x-b3-sampled", "false")]), "0", dropped);
        check(&with(&[("x-b3-flags", "1")]), "d", ("x-b3-flags", "1"));
        check(&with(&[kept, ("x-b3-flags", "0")]), "1", kept);
    }

    #[test]
    fn the_single_header_goes_before_the_others() {
        let other = [("x-b3-traceid", "0123456789abcdef"), ("x-b3-spanid", PARENT), ("x-b3-sampled", "0")];
        let one = format!("{TRACE}-{SPAN}-1");
        check(&[&other[..], &[("b3", &one)]].concat(), "1", ("x-b3-sampled", "1"));
        // A malformed header is ignored.
        let (ids, ..) = pass_on(&[&other[..], &[("b3", "zzz")]].concat()).unwrap();
        assert_eq!(ids.trace_id().to_string(), "00000000000000000123456789abcdef");
    }

    #[test]
    fn what_is_broken_is_not_used() {
        for value in [
            "",
            "0",
            "d",
            &format!("{TRACE}-{SPAN}-2"),
            &format!("{TRACE}-{SPAN}-1-{PARENT}-"),
            &format!("{TRACE}-{SPAN}-1-x"),
            &format!("{TRACE}-{TRACE}-1"),
            &format!("{}-{SPAN}-1", "0".repeat(32)),
            &format!("{TRACE}-{}-1", "0".repeat(16)),
            &format!("+{}-{SPAN}-1", &TRACE[1..]),
            &format!("{}-{SPAN}-1", &TRACE[1..]),
        ] {
            assert_eq!(pass_on(&[("b3", value)]), None, "{value}");
        }
        assert_eq!(pass_on(&[("x-b3-traceid", TRACE), ("x-b3-sampled", "1")]), None);
        let odd = [("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN), ("x-b3-sampled", "yes")];
        assert_eq!(pass_on(&odd), None);
    }

    #[test]
    fn the_propagator_lists_its_header_names() {
        let names = |encoding| B3::new(encoding).fields().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(names(Encoding::Single), ["b3"]);
        assert_eq!(names(Encoding::Multi), ["x-b3-traceid", "x-b3-spanid", "x-b3-sampled", "x-b3-flags"]);
    }
}
