//! Parameters by key.

use std::collections::BTreeMap;

/// The greatest number of keys that a text or a parameters file may give parameters of their own:
/// as many as a sampler counts by default.
pub(crate) const KEYS_MAX: usize = 10_000;

/// Default parameters, and overrides for single keys.
#[derive(Clone, Debug, PartialEq)]
pub struct PerKey<P> {
    default: P,
    overrides: BTreeMap<String, P>,
}

impl<P> PerKey<P> {
    /// The same parameters for every key.
    pub fn new(default: P) -> Self {
        PerKey { default, overrides: BTreeMap::new() }
    }

    /// Overrides the parameters of one key; the last call for a key wins.
    #[must_use]
    pub fn with_override(mut self, key: impl Into<String>, parameters: P) -> Self {
        self.insert(key.into(), parameters);
        self
    }

    pub(crate) fn insert(&mut self, key: String, parameters: P) {
        self.overrides.insert(key, parameters);
    }

    /// The parameters of keys without an override.
    pub fn default(&self) -> &P {
        &self.default
    }

    /// The overridden keys, in order, with their parameters.
    pub fn overrides(&self) -> impl ExactSizeIterator<Item = (&str, &P)> {
        self.overrides.iter().map(|(key, parameters)| (key.as_str(), parameters))
    }

    /// Returns true if the key has an override.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.overrides.contains_key(key)
    }

    /// The default parameters, then each override.
    pub(crate) fn all(&self) -> impl Iterator<Item = &P> + Clone {
        std::iter::once(&self.default).chain(self.overrides.values())
    }

    /// The parameters of this key.
    pub fn of(&self, key: &str) -> &P {
        self.overrides.get(key).unwrap_or(&self.default)
    }
}
