//! What the SDK says of itself: counts, and no telemetry of its own.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::layer::thread_number;

/// Counts since the start. They are read one by one, so during traffic they may disagree by what is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Traces begun here that the sampler kept.
    pub roots_kept: u64,
    /// Traces begun here that the sampler dropped.
    pub roots_dropped: u64,
    /// Local roots kept because their parent was.
    pub parents_kept: u64,
    /// Local roots dropped because their parent was.
    pub parents_dropped: u64,
    /// Spans below a dropped root that were never made (exclusive mode); counted when their thread leaves the root.
    pub spans_refused: u64,
    /// Spans that went to the exporter, and that it accepted.
    pub spans_exported: u64,
    /// Spans of kept traces that were lost, by reason.
    pub spans_lost: Losses,
    /// The exporter's last error.
    pub last_error: Option<String>,
}

/// Spans of kept traces that were lost. Their sum is all there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// As many traces were open as the builder allows. The root is counted; what would have been below it is not made.
    pub open_traces: u64,
    /// As many spans were open as there is room for.
    pub open_spans: u64,
    /// The trace had as many spans open at once as one trace may have.
    pub trace_full: u64,
    /// The queue to the exporter was full: whole traces.
    pub queue_full: u64,
    /// The exporter answered with an error, or panicked.
    pub export_failed: u64,
    /// They ended after the shutdown, or were open when it came; or they ended when their trace had left, which happens
    /// only if a filter on the layer hides the root that they are below.
    pub shut_down: u64,
}

impl Losses {
    /// All of them.
    pub fn total(&self) -> u64 {
        let Losses { open_traces, open_spans, trace_full, queue_full, export_failed, shut_down } = *self;
        open_traces + open_spans + trace_full + queue_full + export_failed + shut_down
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} roots kept, {} dropped; {} spans exported, {} lost, {} never made",
            self.roots_kept + self.parents_kept,
            self.roots_dropped + self.parents_dropped,
            self.spans_exported,
            self.spans_lost.total(),
            self.spans_refused
        )
    }
}

/// Why spans were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    OpenTraces,
    OpenSpans,
    TraceFull,
    QueueFull,
    ExportFailed,
    ShutDown,
}

/// The numbers behind [`Stats`]: those of the service's threads in shares, so that threads do not meet.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    shares: [Share; SHARES],
    pub(crate) exported: AtomicU64,
    lost: [AtomicU64; 6],
}

const SHARES: usize = 16;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Share {
    /// Decided here, honoured; dropped, kept.
    roots: [[AtomicU64; 2]; 2],
    refused: AtomicU64,
}

impl Counters {
    fn share(&self) -> &Share {
        &self.shares[thread_number() as usize % SHARES]
    }

    #[inline]
    pub(crate) fn decided(&self, keep: bool) {
        self.share().roots[0][usize::from(keep)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn honoured(&self, keep: bool) {
        self.share().roots[1][usize::from(keep)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, spans: u64) {
        if spans != 0 {
            self.share().refused.fetch_add(spans, Ordering::Relaxed);
        }
    }

    pub(crate) fn lose(&self, loss: Loss, spans: u64) {
        self.lost[loss as usize].fetch_add(spans, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Stats {
        let sum = |of: fn(&Share) -> &AtomicU64| {
            self.shares.iter().map(|share| of(share).load(Ordering::Relaxed)).sum()
        };
        let lost = |loss: Loss| self.lost[loss as usize].load(Ordering::Relaxed);
        Stats {
            roots_kept: sum(|share| &share.roots[0][1]),
            roots_dropped: sum(|share| &share.roots[0][0]),
            parents_kept: sum(|share| &share.roots[1][1]),
            parents_dropped: sum(|share| &share.roots[1][0]),
            spans_refused: sum(|share| &share.refused),
            spans_exported: self.exported.load(Ordering::Relaxed),
            spans_lost: Losses {
                open_traces: lost(Loss::OpenTraces),
                open_spans: lost(Loss::OpenSpans),
                trace_full: lost(Loss::TraceFull),
                queue_full: lost(Loss::QueueFull),
                export_failed: lost(Loss::ExportFailed),
                shut_down: lost(Loss::ShutDown),
            },
            last_error: None,
        }
    }
}
