//! W3C Trace Context, with the random flag.
//!
//! The propagator of `opentelemetry_sdk` falls short in four points:
//!
//! - It clears every flag except `sampled`. By Trace Context level 2 ("Random Trace ID Flag"), a
//!   service passes the flag `random` on as received, because callees may derive sampling decisions
//!   from the trace id only if it is set.
//! - It reads one `tracestate` header only. By "Combined Header Value", several form one list.
//! - It takes the first of several `traceparent` headers, so the order of lines decides to which
//!   trace a request belongs. W3C's own tests expect a new trace.
//! - It accepts ids of any length, and with a sign. By "traceparent Header Field Values" such a
//!   header is ignored: the short ids of two callers could be equal.

use std::sync::OnceLock;

use opentelemetry::propagation::text_map_propagator::FieldIter;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceFlags};
use opentelemetry::{Context, SpanId, TraceId};

use crate::ids::RANDOM;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// The length of a `traceparent` of version 00.
const LENGTH: usize = 55;

#[derive(Debug)]
pub(super) struct TraceContext;

impl TextMapPropagator for TraceContext {
    fn inject_context(&self, context: &Context, injector: &mut dyn Injector) {
        let span = context.span();
        let ids = span.span_context();
        if ids.is_valid() {
            let (trace_id, span_id, flags) = (ids.trace_id(), ids.span_id(), known(ids.trace_flags()));
            injector.set(TRACEPARENT, format!("00-{trace_id}-{span_id}-{flags:02x}"));
            // "Vendors MUST accept empty tracestate headers but SHOULD avoid sending them."
            let state = ids.trace_state().header();
            if !state.is_empty() {
                injector.set(TRACESTATE, state);
            }
        }
    }

    fn extract_with_context(&self, context: &Context, extractor: &dyn Extractor) -> Context {
        let parents = extractor.get_all(TRACEPARENT).unwrap_or_default();
        let [parent] = *parents else { return context.clone() };
        let Some((trace_id, span_id, flags)) = parsed(parent) else { return context.clone() };
        let states = extractor.get_all(TRACESTATE).unwrap_or_default();
        let state = states.join(",").parse().unwrap_or_default();
        let parent = SpanContext::new(trace_id, span_id, flags, true, state);
        if parent.is_valid() { context.with_remote_span_context(parent) } else { context.clone() }
    }

    fn fields(&self) -> FieldIter<'_> {
        static FIELDS: OnceLock<[String; 2]> = OnceLock::new();
        FieldIter::new(FIELDS.get_or_init(|| [TRACEPARENT.to_owned(), TRACESTATE.to_owned()]))
    }
}

/// Other flags are cleared, as "Other Flags" requires.
fn known(flags: TraceFlags) -> TraceFlags {
    flags & (TraceFlags::SAMPLED | RANDOM)
}

/// The ids and flags of a well-formed header: `{version}-{trace id}-{span id}-{flags}` in
/// lower-case hexadecimal digits. Version 00 ends there; a later version may continue after another
/// `-`; `ff` is invalid.
fn parsed(header: &str) -> Option<(TraceId, SpanId, TraceFlags)> {
    let header = header.trim();
    let (own, more) = header.as_bytes().split_at_checked(LENGTH)?;
    let mut digits: [u8; LENGTH] = own.try_into().ok()?;
    for place in [2, 35, 52] {
        if std::mem::replace(&mut digits[place], b'0') != b'-' {
            return None;
        }
    }
    // No early exit: checking every byte lets the compiler vectorise the loop.
    let is_digit = |byte: &u8| byte.is_ascii_digit() | (b'a'..=b'f').contains(byte);
    let are_digits = digits.iter().fold(true, |all, byte| all & is_digit(byte));
    let version = &own[..2];
    let ends_well = more.is_empty() || more[0] == b'-' && version != b"00";
    if !are_digits || !ends_well || version == b"ff" {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(&header[53..LENGTH], 16).ok()?);
    Some((TraceId::from_hex(&header[3..35]).ok()?, SpanId::from_hex(&header[36..52]).ok()?, known(flags)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// The headers that a service without a span of its own sends after receiving `traceparent` and
    /// `tracestate`.
    fn pass_on(parent: &str, state: &str) -> (Option<String>, Option<String>) {
        let headers: HashMap<String, String> =
            [(TRACEPARENT.to_owned(), parent.to_owned()), ("tracestate".to_owned(), state.to_owned())].into();
        let context = TraceContext.extract_with_context(&Context::new(), &headers);
        let mut sent = HashMap::new();
        TraceContext.inject_context(&context, &mut sent);
        (sent.remove(TRACEPARENT), sent.remove("tracestate"))
    }

    // The ids in the examples of the recommendation.
    const IDS: &str = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";

    #[test]
    fn the_known_flags_and_the_state_are_passed_on() {
        for (received, sent) in
            [("00", "00"), ("01", "01"), ("02", "02"), ("03", "03"), ("ff", "03"), ("fd", "01")]
        {
            let (parent, state) =
                pass_on(&format!("00-{IDS}-{received}"), "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7");
            assert_eq!(parent, Some(format!("00-{IDS}-{sent}")), "{received}");
            assert_eq!(state.as_deref(), Some("congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"));
        }
        // A later version may have more parts.
        for later in ["01", "cc", "fe"] {
            for more in ["", "-", "-more", "-more-Of-it+"] {
                let parent = pass_on(&format!("{later}-{IDS}-03{more}"), "").0;
                assert_eq!(parent, Some(format!("00-{IDS}-03")), "{later}, {more}");
            }
        }
        assert_eq!(pass_on(&format!(" 00-{IDS}-01\t"), "").0, Some(format!("00-{IDS}-01")));
    }

    #[test]
    fn a_broken_header_leaves_the_context_as_it_is() {
        let zeros = "0".repeat(32);
        let broken = [
            String::new(),
            format!("00-{IDS}"),
            format!("ff-{IDS}-01"),
            format!("00-{IDS}-01-more"),
            format!("00-{zeros}-00f067aa0ba902b7-01"),
            format!("00-{IDS}-xx"),
            // "traceparent Header Field Values": 2, 32, 16 and 2 lower-case hexadecimal digits, and
            // nothing else in version 00.
            "00-1-2-01".to_owned(),
            "00-+a-+b-1".to_owned(),
            format!("0-{IDS}-01"),
            format!("00-{IDS}-1"),
            format!("00-{IDS}-+1"),
            format!("00-{IDS}-01-"),
            format!("00-{IDS}-01more"),
            format!("+0-{IDS}-01"),
            format!("00-+{}-01", &IDS[1..]),
            format!("00-{}-01", IDS.to_uppercase()),
            format!("0A-{IDS}-01"),
            format!("00-{}-01", IDS.replace('-', "_")),
            format!("00-ö{}-01", &IDS[2..]),
            // In a later version, anything after the flags starts with a `-`.
            format!("01-{IDS}-01more"),
            format!("01-{IDS}"),
            format!("fe-{IDS}-1-more"),
            format!("ff-{IDS}-01-more"),
        ];
        let around = SpanContext::new(1u128.into(), 2u64.into(), RANDOM, true, Default::default());
        for header in broken {
            assert_eq!(pass_on(&header, "a=b"), (None, None), "{header}");
            let headers: HashMap<String, String> = [(TRACEPARENT.to_owned(), header)].into();
            let context = Context::new().with_remote_span_context(around.clone());
            let read = TraceContext.extract_with_context(&context, &headers);
            assert_eq!(*read.span().span_context(), around);
        }
    }

    struct Lines(Vec<String>);

    impl Extractor for Lines {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.first().map(String::as_str).filter(|_| key == TRACEPARENT)
        }

        fn get_all(&self, key: &str) -> Option<Vec<&str>> {
            (key == TRACEPARENT).then(|| self.0.iter().map(String::as_str).collect())
        }

        fn keys(&self) -> Vec<&str> {
            vec![TRACEPARENT]
        }
    }

    /// Follows `test_traceparent_duplicated` of W3C's own tests.
    #[test]
    fn several_parents_are_none() {
        let line = |span: u64| format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{span:016x}-01");
        let valid = |lines: Vec<String>| {
            let read = TraceContext.extract_with_context(&Context::new(), &Lines(lines));
            read.span().span_context().is_valid()
        };
        assert!(valid(vec![line(1)]));
        assert!(!valid(vec![line(1), line(2)]));
        assert!(!valid(vec![line(1), "broken".to_owned()]));
    }

    #[test]
    fn a_broken_state_does_not_take_the_parent_away() {
        assert_eq!(pass_on(&format!("00-{IDS}-03"), "no pair"), (Some(format!("00-{IDS}-03")), None));
    }
}
