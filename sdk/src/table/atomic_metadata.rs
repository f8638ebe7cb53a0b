//! A callsite's metadata in an atomic.

use std::ptr;

use tracing_core::Metadata;

use astracer_spans::sync::{AtomicPtr, Ordering};

/// The metadata of a span, or `None`.
///
/// Stored as a pointer, not as an integer: a pointer made from an integer must not be dereferenced.
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
        // SAFETY: the pointer is null, or `store` made it from a `&'static` reference. Nothing
        // writes through it. The load's Acquire pairs with the Release in `store`, so the metadata
        // behind the pointer is visible too.
        #[allow(unsafe_code)]
        unsafe {
            metadata.as_ref()
        }
    }
}
