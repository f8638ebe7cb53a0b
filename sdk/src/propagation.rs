//! Propagators, by the names of `OTEL_PROPAGATORS`.

use opentelemetry::propagation::{TextMapCompositePropagator, TextMapPropagator};
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};

/// How context travels from process to process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Propagator {
    /// `tracecontext`: W3C Trace Context.
    TraceContext,
    /// `baggage`: W3C Baggage.
    Baggage,
}

impl Propagator {
    pub(crate) const DEFAULT: [Propagator; 2] = [Propagator::TraceContext, Propagator::Baggage];

    /// A list as in `OTEL_PROPAGATORS`, `tracecontext,baggage`; `none` is an empty one.
    pub(crate) fn parse_list(text: &str) -> Result<Vec<Propagator>, String> {
        if text == "none" {
            return Ok(Vec::new());
        }
        let mut list = Vec::new();
        for name in text.split(',').map(str::trim) {
            let propagator = match name {
                "tracecontext" => Propagator::TraceContext,
                "baggage" => Propagator::Baggage,
                _ => return Err(format!("unknown propagator `{name}`: use tracecontext, baggage or none")),
            };
            if !list.contains(&propagator) {
                list.push(propagator);
            }
        }
        Ok(list)
    }

    /// One that does what all of the list do.
    pub(crate) fn composite(list: &[Propagator]) -> TextMapCompositePropagator {
        let make = |propagator: &Propagator| -> Box<dyn TextMapPropagator + Send + Sync> {
            match propagator {
                Propagator::TraceContext => Box::new(TraceContextPropagator::new()),
                Propagator::Baggage => Box::new(BaggagePropagator::new()),
            }
        };
        TextMapCompositePropagator::new(list.iter().map(make).collect())
    }
}
