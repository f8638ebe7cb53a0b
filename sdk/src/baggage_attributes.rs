//! Members of a request's baggage that become attributes of its spans.

use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::{Context, Key, KeyValue, Value};

/// Longer values are cut to this many bytes.
const VALUE_MAX: usize = 256;
const ALL_BELOW: &str = ".*";

/// Names of members. `tenant.*` means each that begins with `tenant.`.
#[derive(Clone, Debug, Default)]
pub(crate) struct BaggageAttributes {
    names: Vec<Key>,
    /// Each with its dot.
    prefixes: Vec<String>,
}

impl BaggageAttributes {
    pub(crate) fn add(&mut self, pattern: String) {
        match pattern.strip_suffix('*').filter(|_| pattern.ends_with(ALL_BELOW)) {
            Some(prefix) => self.prefixes.push(prefix.to_owned()),
            None => self.names.push(pattern.into()),
        }
    }

    /// Adds the members of the context's baggage. OpenTelemetry's context holds 64.
    pub(crate) fn read(&self, context: &Context, found: &mut Vec<KeyValue>) {
        let baggage = context.baggage();
        if baggage.is_empty() {
            return;
        }
        for name in &self.names {
            if let Some(value) = baggage.get(name.as_str()) {
                set(found, KeyValue::new(name.clone(), cut(value.as_str())));
            }
        }
        if self.prefixes.is_empty() {
            return;
        }
        // The order of a hash map differs between processes.
        let mut below: Vec<_> = baggage.iter().filter(|(key, _)| self.is_below(key.as_str())).collect();
        below.sort_unstable_by_key(|(key, _)| key.as_str());
        for (key, (value, _)) in below {
            set(found, KeyValue::new(key.clone(), cut(value.as_str())));
        }
    }

    /// Adds a value that replaces the one that the baggage has under this name.
    pub(crate) fn take(&self, name: &str, value: &str, found: &mut Vec<KeyValue>) {
        if self.is_below(name) || self.names.iter().any(|known| known.as_str() == name) {
            set(found, KeyValue::new(name.to_owned(), cut(value)));
        }
    }

    fn is_below(&self, name: &str) -> bool {
        self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

fn set(found: &mut Vec<KeyValue>, attribute: KeyValue) {
    match found.iter_mut().find(|known| known.key == attribute.key) {
        Some(known) => *known = attribute,
        None => found.push(attribute),
    }
}

fn cut(value: &str) -> Value {
    let end = (0..=value.len().min(VALUE_MAX)).rev().find(|end| value.is_char_boundary(*end));
    value[..end.unwrap_or_default()].to_owned().into()
}
