//! Atomic span and trace ids. All accesses are `Relaxed`: another atomic has to publish them.

use astracer_spans::sync::{AtomicU64, Ordering};

use opentelemetry::{SpanId, TraceId};

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
