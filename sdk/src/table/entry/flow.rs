//! The number of the flow that a span is in.
//!
//! Reading it is an Acquire load, and writing it a Release: a thread that enters the span sees what
//! the observer stored under the number.

use opentelemetry::TraceId;

use super::Entry;
use astracer_spans::sync::Ordering;

impl Entry {
    #[inline]
    pub(crate) fn flow(&self) -> u32 {
        self.flow.load(Ordering::Acquire)
    }

    /// Sets the number of a span that begins. No other thread knows its id yet.
    #[inline]
    pub(crate) fn begin_flow(&self, flow: u32) {
        self.flow.store(flow, Ordering::Relaxed);
    }

    /// Changes the number of a span that this thread enters, or returns the one that another thread
    /// has set first.
    pub(crate) fn change_flow(&self, from: u32, to: u32) -> Result<(), u32> {
        self.flow.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
    }

    /// Takes the number of a span that ends. The thread that ends it is ordered after all holders
    /// by their handles, so no thread changes the number at the same time.
    #[inline]
    pub(crate) fn take_flow(&self) -> u32 {
        let flow = self.flow.load(Ordering::Acquire);
        self.flow.store(0, Ordering::Relaxed);
        flow
    }

    /// Sets the trace id of a root that this thread has claimed, for the observer, before it is
    /// decided with the same.
    pub(crate) fn set_trace_id(&self, trace_id: TraceId) {
        self.trace_id.set(trace_id);
    }

    /// Sets the number of a root that this thread has claimed, and returns the one before.
    /// Publishing the phase publishes it.
    pub(crate) fn replace_flow(&self, flow: u32) -> u32 {
        let before = self.flow.load(Ordering::Relaxed);
        self.flow.store(flow, Ordering::Relaxed);
        before
    }
}
