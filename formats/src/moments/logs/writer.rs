//! The process that wrote a record, as the record states it.

use std::borrow::Cow;
use std::sync::Arc;

use crate::reuse::Reuse;
use astracer_model::span::Resource;
use astracer_model::value::Attribute;

/// Names of a process. A part that is not stated is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Writer<'t> {
    pub(super) service: Cow<'t, str>,
    pub(super) host: Cow<'t, str>,
    pub(super) process: Cow<'t, str>,
    pub(super) pod: Cow<'t, str>,
    pub(super) container: Cow<'t, str>,
}

impl<'t> Writer<'t> {
    /// Each part and the attribute of OpenTelemetry that states it.
    fn parts(&self) -> [(&'static str, &str); 5] {
        [
            ("service.name", &self.service),
            ("host.name", &self.host),
            ("process.pid", &self.process),
            ("k8s.pod.name", &self.pod),
            ("container.name", &self.container),
        ]
    }

    /// Takes parts that are missing here from another writer, such as the one of a line's prefix.
    pub(super) fn or(&mut self, other: Self) {
        for (own, other) in [
            (&mut self.service, other.service),
            (&mut self.host, other.host),
            (&mut self.process, other.process),
            (&mut self.pod, other.pod),
            (&mut self.container, other.container),
        ] {
            if own.is_empty() {
                *own = other;
            }
        }
    }

    /// The resource with these names.
    pub(super) fn resource(&self, known: &mut Reuse<Resource>) -> Arc<Resource> {
        let parts = self.parts();
        known.get_or_make(&parts.map(|(_, value)| value), || {
            let stated = parts.iter().filter(|(_, value)| !value.is_empty());
            let attributes = stated.map(|&(key, value)| Attribute::new(key, value).into_owned()).collect();
            Resource { attributes, ..Resource::default() }
        })
    }
}
