//! Atomic span ids, trace ids and metadata. Accesses to ids are `Relaxed`: another atomic has to
//! publish them.

use std::ptr;

use opentelemetry::{SpanId, TraceId};
use tracing_core::Metadata;

use astracer_spans::sync::{AtomicPtr, AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct AtomicSpanId(AtomicU64);

impl AtomicSpanId {
    #[inline]
    pub(crate) fn load(&self) -> SpanId {
        SpanId::from(self.0.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn store(&self, id: SpanId) {
        self.0.store(u64::from_be_bytes(id.to_bytes()), Ordering::Relaxed);
    }
}

/// Stored as two halves: a reader that is not ordered after the write may see halves of two
/// different ids.
#[derive(Debug, Default)]
pub(crate) struct AtomicTraceId([AtomicU64; 2]);

impl AtomicTraceId {
    #[inline]
    pub(crate) fn load(&self) -> TraceId {
        let [high, low] = &self.0;
        let (high, low) = (high.load(Ordering::Relaxed), low.load(Ordering::Relaxed));
        TraceId::from(u128::from(high) << 64 | u128::from(low))
    }

    #[inline]
    pub(crate) fn store(&self, id: TraceId) {
        let id = u128::from_be_bytes(id.to_bytes());
        self.0[0].store((id >> 64) as u64, Ordering::Relaxed);
        self.0[1].store(id as u64, Ordering::Relaxed);
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive() {
        let (trace_id, span_id) = (AtomicTraceId::default(), AtomicSpanId::default());
        assert_eq!((trace_id.load(), span_id.load()), (TraceId::INVALID, SpanId::INVALID));
        trace_id.store(TraceId::from(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210));
        span_id.store(SpanId::from(0x0123_4567_89ab_cdef));
        assert_eq!(trace_id.load().to_string(), "0123456789abcdeffedcba9876543210");
        assert_eq!(span_id.load().to_string(), "0123456789abcdef");
    }
}
