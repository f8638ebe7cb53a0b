//! A handle that keeps nothing alive.

use std::sync::{Arc, Weak};

use super::Handle;
use crate::core::Shared;
use astracer_spans::export::SharedDestination;

/// A reference to a [`Handle`] that keeps neither layer nor destination alive, for callbacks
/// and threads that live longer: see [`Handle::downgrade`].
#[derive(Clone, Debug)]
pub struct WeakHandle {
    shared: Weak<Shared>,
    destination: Weak<SharedDestination>,
    /// The handle without these two.
    rest: Handle,
}

impl Handle {
    /// Returns a reference that keeps neither the layer nor the destination alive.
    pub fn downgrade(&self) -> WeakHandle {
        WeakHandle {
            shared: self.shared.as_ref().map(Arc::downgrade).unwrap_or_default(),
            destination: self.destination.as_ref().map(Arc::downgrade).unwrap_or_default(),
            rest: Handle { shared: None, destination: None, ..self.clone() },
        }
    }
}

impl WeakHandle {
    /// Returns the handle; `None` if all layers and handles are gone, or if it is switched off.
    pub fn upgrade(&self) -> Option<Handle> {
        let shared = Some(self.shared.upgrade()?);
        Some(Handle { shared, destination: self.destination.upgrade(), ..self.rest.clone() })
    }
}
