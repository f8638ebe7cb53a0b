//! Values in atomic integers, and a span's metadata.

use std::convert::identity;
use std::fmt;
use std::ptr;

use opentelemetry::{SpanId, TraceFlags, TraceId};
use tracing_core::Metadata;

use astracer_spans::sync::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use astracer_spans::traces::TraceRef;

/// A value in atomic integers. Accesses are `Relaxed`: another atomic has to publish the value.
#[derive(Debug)]
pub(super) struct Relaxed<T: InAtomic>(T::Atomic);

impl<T: InAtomic> Default for Relaxed<T> {
    fn default() -> Self {
        Relaxed(T::Atomic::default())
    }
}

impl<T: InAtomic> Relaxed<T> {
    #[inline]
    pub(super) fn get(&self) -> T {
        T::load(&self.0)
    }

    #[inline]
    pub(super) fn set(&self, value: T) {
        value.store(&self.0);
    }
}

pub(super) trait InAtomic {
    type Atomic: Default + fmt::Debug;

    fn load(atomic: &Self::Atomic) -> Self;

    fn store(self, atomic: &Self::Atomic);
}

macro_rules! in_atomic {
    ($($value:ty: $atomic:ty, $to:expr, $of:expr;)*) => {$(
        impl InAtomic for $value {
            type Atomic = $atomic;

            #[inline]
            fn load(atomic: &$atomic) -> Self {
                ($of)(atomic.load(Ordering::Relaxed))
            }

            #[inline]
            fn store(self, atomic: &$atomic) {
                atomic.store(($to)(self), Ordering::Relaxed);
            }
        }
    )*};
}
pub(super) use in_atomic;

in_atomic! {
    u8: AtomicU8, identity, identity;
    u32: AtomicU32, identity, identity;
    u64: AtomicU64, identity, identity;
    SpanId: AtomicU64, |id: SpanId| u64::from_be_bytes(id.to_bytes()), SpanId::from;
    TraceFlags: AtomicU8, TraceFlags::to_u8, TraceFlags::new;
    TraceRef: AtomicU64, TraceRef::pack, TraceRef::unpack;
}

/// Two halves: a reader that is not ordered after the write may see halves of two different ids.
impl InAtomic for TraceId {
    type Atomic = [AtomicU64; 2];

    #[inline]
    fn load([high, low]: &[AtomicU64; 2]) -> Self {
        let (high, low) = (high.load(Ordering::Relaxed), low.load(Ordering::Relaxed));
        TraceId::from(u128::from(high) << 64 | u128::from(low))
    }

    #[inline]
    fn store(self, [high, low]: &[AtomicU64; 2]) {
        let id = u128::from_be_bytes(self.to_bytes());
        high.store((id >> 64) as u64, Ordering::Relaxed);
        low.store(id as u64, Ordering::Relaxed);
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
        let (trace_id, span_id) = (Relaxed::<TraceId>::default(), Relaxed::<SpanId>::default());
        assert_eq!((trace_id.get(), span_id.get()), (TraceId::INVALID, SpanId::INVALID));
        trace_id.set(TraceId::from(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210));
        span_id.set(SpanId::from(0x0123_4567_89ab_cdef));
        assert_eq!(trace_id.get().to_string(), "0123456789abcdeffedcba9876543210");
        assert_eq!(span_id.get().to_string(), "0123456789abcdef");
    }
}
