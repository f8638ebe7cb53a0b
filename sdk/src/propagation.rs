//! Propagators, by their names in `OTEL_PROPAGATORS`.

use opentelemetry::propagation::{TextMapCompositePropagator, TextMapPropagator};

mod b3;
mod baggage;
mod w3c;

use b3::{B3, Encoding};
pub(crate) use b3::{is_debug, is_undecided};
pub use baggage::{baggage_member, inject_baggage, received_flow};
use w3c::TraceContext;

/// A format in which context travels between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Propagator {
    /// `tracecontext`: W3C Trace Context.
    TraceContext,
    /// `baggage`: W3C Baggage.
    Baggage,
    /// `b3`: B3 in one header, as Zipkin's libraries use it. The form with several headers is read
    /// too.
    B3,
    /// `b3multi`: B3 in several headers. The form with one header is read too.
    B3Multi,
}

impl Propagator {
    /// Parses a list as in `OTEL_PROPAGATORS`, such as `tracecontext,baggage`; `none` is an empty
    /// list. Names are case-insensitive.
    pub(crate) fn parse_list(text: &str) -> Result<Vec<Propagator>, String> {
        if text.eq_ignore_ascii_case("none") {
            return Ok(Vec::new());
        }
        let mut list = Vec::new();
        for name in text.split(',').map(str::trim) {
            let propagator = match &*name.to_ascii_lowercase() {
                "tracecontext" => Propagator::TraceContext,
                "baggage" => Propagator::Baggage,
                "b3" => Propagator::B3,
                "b3multi" => Propagator::B3Multi,
                _ => {
                    let known = "tracecontext, baggage, b3, b3multi or none";
                    return Err(format!("unknown propagator `{name}`: use {known}"));
                }
            };
            if !list.contains(&propagator) {
                list.push(propagator);
            }
        }
        Ok(list)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Propagators(pub(crate) Vec<Propagator>);

impl Default for Propagators {
    fn default() -> Self {
        Propagators(vec![Propagator::TraceContext, Propagator::Baggage])
    }
}

impl Propagators {
    /// A propagator that writes all formats of the list, and reads them in its order.
    pub(crate) fn composite(&self) -> TextMapCompositePropagator {
        let make = |propagator: &Propagator| -> Box<dyn TextMapPropagator + Send + Sync> {
            match propagator {
                Propagator::TraceContext => Box::new(TraceContext),
                Propagator::Baggage => Box::new(baggage::Baggage),
                Propagator::B3 => Box::new(B3::new(Encoding::Single)),
                Propagator::B3Multi => Box::new(B3::new(Encoding::Multi)),
            }
        };
        TextMapCompositePropagator::new(self.0.iter().map(make).collect())
    }
}

/// Decodes a percent-encoded text. A `%` without two digits is kept as it is; the second value
/// is true if there was none.
pub(crate) fn percent_decoded(text: &str) -> (Vec<u8>, bool) {
    let (mut bytes, mut is_whole) = (Vec::with_capacity(text.len()), true);
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                is_whole &= first != b'%';
                bytes.push(first);
                rest = after;
            }
        }
    }
    (bytes, is_whole)
}
