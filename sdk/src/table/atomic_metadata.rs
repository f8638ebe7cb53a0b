//! A callsite's metadata in an atomic.

use std::ptr;

use tracing_core::Metadata;

use crate::sync::{AtomicPtr, Ordering};

/// The metadata of a span, or none.
///
/// A pointer, and not a number: one that is made of a number may not be followed.
#[derive(Debug)]
pub(super) struct AtomicMetadata(AtomicPtr<Metadata<'static>>);

impl Default for AtomicMetadata {
    fn default() -> Self {
        AtomicMetadata(AtomicPtr::new(ptr::null_mut()))
    }
}

impl AtomicMetadata {
    #[inline]
    pub(super) fn store(&self, metadata: &'static Metadata<'static>) {
        self.0.store(ptr::from_ref(metadata).cast_mut(), Ordering::Release);
    }

    #[inline]
    pub(super) fn load(&self) -> Option<&'static Metadata<'static>> {
        let metadata = self.0.load(Ordering::Acquire);
        // The pointer is null, or `store` made it of a reference that is valid for ever. Nobody
        // writes through it.
        #[allow(unsafe_code)]
        unsafe {
            metadata.as_ref()
        }
    }
}
