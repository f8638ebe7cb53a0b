//! A handle that keeps nothing alive.

use std::sync::{Arc, Weak};

use super::Handle;
use crate::core::Shared;
use crate::export::SharedExporter;

/// A reference to a [`Handle`] that keeps neither the layer nor the exporter alive, for callbacks
/// and threads that live longer: see [`Handle::downgrade`].
#[derive(Clone, Debug)]
pub struct WeakHandle {
    shared: Weak<Shared>,
    exporter: Weak<SharedExporter>,
    /// The handle without these two.
    rest: Handle,
}

impl Handle {
    /// Returns a reference that keeps neither the layer nor the exporter alive.
    pub fn downgrade(&self) -> WeakHandle {
        WeakHandle {
            shared: self.shared.as_ref().map(Arc::downgrade).unwrap_or_default(),
            exporter: self.exporter.as_ref().map(Arc::downgrade).unwrap_or_default(),
            rest: Handle { shared: None, exporter: None, ..self.clone() },
        }
    }
}

impl WeakHandle {
    /// Returns the handle; `None` if all layers and handles are gone, or if it is switched off.
    pub fn upgrade(&self) -> Option<Handle> {
        let shared = Some(self.shared.upgrade()?);
        Some(Handle { shared, exporter: self.exporter.upgrade(), ..self.rest.clone() })
    }
}
