//! W3C Baggage, including several headers.
//!
//! The propagator of `opentelemetry_sdk` reads only the first header. By "Header Content", there
//! may be several, which form one list.

use opentelemetry::Context;
use opentelemetry::propagation::text_map_propagator::FieldIter;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry_sdk::propagation::BaggagePropagator;

use super::combined::Combined;

const BAGGAGE: &str = "baggage";

/// The length up to which the list has to be read ("Limits"); the stock propagator reads no more.
const LENGTH_MAX: usize = 8192;

/// The propagator for `baggage`.
#[derive(Debug, Default)]
pub(super) struct Baggage {
    stock: BaggagePropagator,
}

impl TextMapPropagator for Baggage {
    fn inject_context(&self, context: &Context, injector: &mut dyn Injector) {
        self.stock.inject_context(context, injector);
    }

    fn extract_with_context(&self, context: &Context, extractor: &dyn Extractor) -> Context {
        let combined = Combined::new(extractor, BAGGAGE, join);
        self.stock.extract_with_context(context, &combined)
    }

    fn fields(&self) -> FieldIter<'_> {
        self.stock.fields()
    }
}

/// Joins the lists that fit within the limit.
fn join(lists: &[&str]) -> String {
    let mut joined = String::new();
    for list in lists {
        let separator = if joined.is_empty() { "" } else { "," };
        if joined.len() + separator.len() + list.len() <= LENGTH_MAX {
            joined.push_str(separator);
            joined.push_str(list);
        }
    }
    // If none fits, the result is too long, and the stock propagator leaves the context as it is.
    if joined.is_empty() { lists.concat() } else { joined }
}
