//! Several headers with one name that form one list.

use opentelemetry::propagation::Extractor;

/// An extractor that presents all headers with one name as one, because most propagators read only
/// one.
pub(super) struct Combined<'a> {
    extractor: &'a dyn Extractor,
    name: &'static str,
    /// `None` if there is at most one such header.
    list: Option<String>,
}

impl<'a> Combined<'a> {
    pub(super) fn new(
        extractor: &'a dyn Extractor,
        name: &'static str,
        join: impl FnOnce(&[&str]) -> String,
    ) -> Self {
        let several = extractor.get_all(name).filter(|values| values.len() > 1);
        Combined { extractor, name, list: several.map(|values| join(&values)) }
    }
}

impl Extractor for Combined<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let list = self.list.as_deref().filter(|_| key == self.name);
        list.or_else(|| self.extractor.get(key))
    }

    fn keys(&self) -> Vec<&str> {
        self.extractor.keys()
    }
}
