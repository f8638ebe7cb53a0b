//! Parameters by key.

use std::collections::BTreeMap;

/// The number of keys that may have parameters of their own, in a text or a parameters file: as
/// many as a sampler counts by default.
pub(crate) const KEYS_MAX: usize = 10_000;

/// Parameters for every key, and others for some keys.
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

    /// Other parameters for one key; the last call for a key counts.
    #[must_use]
    pub fn with_override(mut self, key: impl Into<String>, parameters: P) -> Self {
        self.insert(key.into(), parameters);
        self
    }

    pub(crate) fn insert(&mut self, key: String, parameters: P) {
        self.overrides.insert(key, parameters);
    }

    /// The parameters of keys that are not named.
    pub fn default(&self) -> &P {
        &self.default
    }

    /// The named keys, in order, with their parameters.
    pub fn overrides(&self) -> impl ExactSizeIterator<Item = (&str, &P)> {
        self.overrides.iter().map(|(key, parameters)| (key.as_str(), parameters))
    }

    /// Returns true if the key is named.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.overrides.contains_key(key)
    }

    /// The default parameters, then those of each named key.
    pub(crate) fn all(&self) -> impl Iterator<Item = &P> + Clone {
        std::iter::once(&self.default).chain(self.overrides.values())
    }

    /// The parameters of this key.
    pub fn of(&self, key: &str) -> &P {
        self.overrides.get(key).unwrap_or(&self.default)
    }
}
