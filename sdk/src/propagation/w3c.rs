//! W3C Trace Context, with the random flag.
//!
//! The propagator of `opentelemetry_sdk` does all but two things. It clears every flag except `sampled`: Trace Context
//! level 2 ("Random Trace ID Flag") says that a service passes the flag `random` on as it was received, since callees
//! may draw their sampling decisions from the trace id only if it is set. And it reads one `tracestate` header only:
//! "Combined Header Value" says that several are one list.

use opentelemetry::Context;
use opentelemetry::propagation::text_map_propagator::FieldIter;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceFlags};
use opentelemetry_sdk::propagation::TraceContextPropagator;

use crate::ids::RANDOM;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// `traceparent` and `tracestate`.
#[derive(Debug, Default)]
pub(super) struct TraceContext {
    stock: TraceContextPropagator,
}

impl TextMapPropagator for TraceContext {
    fn inject_context(&self, context: &Context, injector: &mut dyn Injector) {
        let flags = context.span().span_context().trace_flags();
        let is_random = flags & RANDOM == RANDOM;
        self.stock.inject_context(context, &mut WithFlag { injector, is_random });
    }

    fn extract_with_context(&self, context: &Context, extractor: &dyn Extractor) -> Context {
        // Read with an empty context, whose span is valid only if the headers are.
        let states = extractor.get_all(TRACESTATE).filter(|states| states.len() > 1);
        let combined = Combined { extractor, state: states.map(|states| states.join(",")) };
        let parent =
            self.stock.extract_with_context(&Context::new(), &combined).span().span_context().clone();
        if !parent.is_valid() {
            return context.clone();
        }
        let flags = parent.trace_flags() | (received_flags(extractor) & RANDOM);
        let state = parent.trace_state().clone();
        let parent = SpanContext::new(parent.trace_id(), parent.span_id(), flags, true, state);
        context.with_remote_span_context(parent)
    }

    fn fields(&self) -> FieldIter<'_> {
        self.stock.fields()
    }
}

/// Headers of which several `tracestate`s are one.
struct Combined<'a> {
    extractor: &'a dyn Extractor,
    state: Option<String>,
}

impl Extractor for Combined<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let state = self.state.as_deref().filter(|_| key == TRACESTATE);
        state.or_else(|| self.extractor.get(key))
    }

    fn keys(&self) -> Vec<&str> {
        self.extractor.keys()
    }
}

/// The flags of a header that the stock propagator has found to be valid: its fourth part.
fn received_flags(extractor: &dyn Extractor) -> TraceFlags {
    let digits = extractor.get(TRACEPARENT).and_then(|header| header.trim().split('-').nth(3));
    TraceFlags::new(digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or(0))
}

/// Passes headers on, and adds the flag to `traceparent`.
struct WithFlag<'a> {
    injector: &'a mut dyn Injector,
    is_random: bool,
}

impl Injector for WithFlag<'_> {
    fn set(&mut self, key: &str, mut value: String) {
        // The flags are the last two digits, and the stock propagator writes 00 or 01.
        if self.is_random && key == TRACEPARENT {
            let last = value.pop();
            value.push(if last == Some('1') { '3' } else { '2' });
        }
        self.injector.set(key, value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// The headers that a service without a span of its own sends on, having received `traceparent` and `tracestate`.
    fn pass_on(parent: &str, state: &str) -> (Option<String>, Option<String>) {
        let headers: HashMap<String, String> =
            [(TRACEPARENT.to_owned(), parent.to_owned()), ("tracestate".to_owned(), state.to_owned())].into();
        let propagator = TraceContext::default();
        let context = propagator.extract_with_context(&Context::new(), &headers);
        let mut sent = HashMap::new();
        propagator.inject_context(&context, &mut sent);
        (sent.remove(TRACEPARENT), sent.remove("tracestate"))
    }

    // The ids of the examples of the recommendation.
    const IDS: &str = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";

    #[test]
    fn the_known_flags_and_the_state_are_passed_on() {
        // Bits beyond the two known ones are set to zero, as "Other Flags" asks.
        for (received, sent) in
            [("00", "00"), ("01", "01"), ("02", "02"), ("03", "03"), ("ff", "03"), ("fd", "01")]
        {
            let (parent, state) =
                pass_on(&format!("00-{IDS}-{received}"), "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7");
            assert_eq!(parent, Some(format!("00-{IDS}-{sent}")), "{received}");
            assert_eq!(state.as_deref(), Some("congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"));
        }
        // A later version may have more parts.
        assert_eq!(pass_on(&format!("01-{IDS}-03-more"), "").0, Some(format!("00-{IDS}-03")));
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
        ];
        let around = SpanContext::new(1u128.into(), 2u64.into(), RANDOM, true, Default::default());
        for header in broken {
            assert_eq!(pass_on(&header, "a=b"), (None, None), "{header}");
            let headers: HashMap<String, String> = [(TRACEPARENT.to_owned(), header)].into();
            let context = Context::new().with_remote_span_context(around.clone());
            let read = TraceContext::default().extract_with_context(&context, &headers);
            assert_eq!(*read.span().span_context(), around);
        }
    }

    #[test]
    fn a_broken_state_does_not_take_the_parent_away() {
        assert_eq!(
            pass_on(&format!("00-{IDS}-03"), "no pair"),
            (Some(format!("00-{IDS}-03")), Some(String::new()))
        );
    }
}
