//! Bounds on open spans, on the queue and on waiting.

use std::time::Duration;

use astracer_samplers::tail::Tail;

/// The reaction to ended traces when the queue to the exporter is full. Lost spans are counted in
/// [`Losses::queue_full`](crate::stats::Losses::queue_full), and the calls that they represented in
/// [`Stats::calls_lost`](crate::stats::Stats::calls_lost).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenQueueFull {
    /// Sheds new traces; queued traces stay.
    #[default]
    ShedNewest,
    /// The thread that ends a span waits for space, at most this long; then the new trace is shed.
    /// This slows the service down and suits jobs that would rather take longer than lose traces.
    /// Threads admitted at the same time may exceed the queue's bounds, up to twice their values.
    Block(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of open spans: see [`MemoryBudget`](crate::memory_budget::MemoryBudget).
    pub open_bytes: usize,
    /// Traces whose ended spans are gathered. Spans of further traces are queued one by one.
    pub open_traces: u32,
    /// Ended spans that one trace gathers before they are queued.
    pub spans_per_trace: u32,
    /// The age at which a trace's ended spans are queued without waiting for its local root.
    pub trace_age: Duration,
    /// Bytes that wait for the exporter.
    pub queue_bytes: usize,
    /// Traces, or parts of traces, that wait for the exporter.
    pub queue_traces: usize,
    pub when_full: WhenQueueFull,
    /// Exports in flight at once; `None`: the exporter's own default.
    pub in_flight: Option<usize>,
    /// Spans in one call of the exporter.
    pub batch_spans: usize,
    /// The longest time that ended traces wait for their batch to fill.
    pub batch_delay: Duration,
}

impl Bounds {
    /// Bytes that one trace gathers before they are queued as a part. Small enough for a part to
    /// fit into the queue.
    pub fn bytes_per_part(&self) -> usize {
        self.bytes_per_trace().min(1 << 20)
    }

    /// Bytes of a trace that is queued as a whole. Its lists double as they grow, and must still
    /// fit into the queue beside others.
    pub fn bytes_per_trace(&self) -> usize {
        self.queue_bytes / 4
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            open_bytes: 128 << 20,
            open_traces: 16_384,
            spans_per_trace: 1_024,
            trace_age: Duration::from_nanos(Tail::TRACE_AGE_MAX.get()),
            queue_bytes: 32 << 20,
            queue_traces: 1 << 20,
            when_full: WhenQueueFull::default(),
            in_flight: None,
            batch_spans: 512,
            batch_delay: Duration::from_secs(1),
        }
    }
}
