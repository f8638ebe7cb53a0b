//! W3C Baggage, in several headers too.
//!
//! The propagator of `opentelemetry_sdk` reads the first header. "Header Content" says that there
//! may be several, which are one list.

use opentelemetry::Context;
use opentelemetry::propagation::text_map_propagator::FieldIter;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry_sdk::propagation::BaggagePropagator;

use super::combined::Combined;

const BAGGAGE: &str = "baggage";

/// The length up to which the specification asks to read the list ("Limits"), and the stock
/// propagator does.
const LENGTH_MAX: usize = 8192;

/// `baggage`.
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

/// One list of those that fit into it.
fn join(lists: &[&str]) -> String {
    let mut joined = String::new();
    for list in lists {
        let separator = if joined.is_empty() { "" } else { "," };
        if joined.len() + separator.len() + list.len() <= LENGTH_MAX {
            joined.push_str(separator);
            joined.push_str(list);
        }
    }
    // One that is too long leaves the context as it is.
    if joined.is_empty() { lists.concat() } else { joined }
}
