//! Propagators, by their names in `OTEL_PROPAGATORS`.

use opentelemetry::propagation::{TextMapCompositePropagator, TextMapPropagator};

mod b3;
mod baggage;
mod combined;
mod undecided;
mod w3c;

pub(crate) use b3::is_debug;
use b3::{B3, Encoding};
pub(crate) use undecided::is_undecided;
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

/// The formats of a service.
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
                Propagator::TraceContext => Box::new(TraceContext::default()),
                Propagator::Baggage => Box::new(baggage::Baggage),
                Propagator::B3 => Box::new(B3::new(Encoding::Single)),
                Propagator::B3Multi => Box::new(B3::new(Encoding::Multi)),
            }
        };
        TextMapCompositePropagator::new(self.0.iter().map(make).collect())
    }
}
