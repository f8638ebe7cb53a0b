//! Resources that many spans share, for formats that name them anew with each span.

use std::collections::HashMap;
use std::sync::Arc;

use crate::span::Resource;

/// So many are remembered; a recording of more processes makes some of them more than once.
const RESOURCES_MAX: usize = 1024;

/// Resources by what a format writes for them.
#[derive(Default)]
pub(super) struct Resources {
    last: (Box<str>, Arc<Resource>),
    all: HashMap<Box<str>, Arc<Resource>>,
}

impl Resources {
    /// The resource for a text, made if it is new. No text gives the empty resource.
    pub(super) fn of(&mut self, text: &str, make: impl FnOnce(&str) -> Resource) -> Arc<Resource> {
        if *self.last.0 != *text {
            self.last = (text.into(), self.find(text, make));
        }
        Arc::clone(&self.last.1)
    }

    fn find(&mut self, text: &str, make: impl FnOnce(&str) -> Resource) -> Arc<Resource> {
        if text.is_empty() {
            return Arc::default();
        }
        if let Some(resource) = self.all.get(text) {
            return Arc::clone(resource);
        }
        if self.all.len() == RESOURCES_MAX {
            self.all.clear();
        }
        let resource = Arc::new(make(text));
        self.all.insert(text.into(), Arc::clone(&resource));
        resource
    }
}
