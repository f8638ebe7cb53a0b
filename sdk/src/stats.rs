//! Counts that the SDK keeps of its own work. It emits no telemetry of its own.

use std::fmt;

use crate::sync::statics::{AtomicU64, Ordering};
use crate::thread;

/// Counts since the start.
///
/// Every span of a kept trace is in exactly one place: `spans_made` is the sum of `spans_exported`,
/// `spans_lost.total()`, `spans_open` and `spans_waiting`. A trace counts with its local root, the first of its spans in
/// this process: `traces_made` is the sum of `traces_exported`, `traces_lost.total()` and `traces_open`. The counts are
/// read one by one, so during traffic the sums may differ by the spans that are on their way from one place to the next.
///
/// Spans below a dropped root, spans that begin after the shutdown, and spans that begin where OpenTelemetry's context
/// suppresses telemetry are not counted here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Local roots that the sampler kept, [`AstracerSampler`](crate::AstracerSampler)'s included.
    pub roots_kept: u64,
    /// Local roots that the sampler dropped, [`AstracerSampler`](crate::AstracerSampler)'s included.
    pub roots_dropped: u64,
    /// Local roots kept because their parent, in another process or made by the OpenTelemetry API, is kept.
    pub parents_kept: u64,
    /// Local roots dropped because their parent, in another process or made by the OpenTelemetry API, is dropped.
    pub parents_dropped: u64,
    /// Spans of kept traces that began.
    pub spans_made: u64,
    /// Spans of kept traces that have not ended.
    pub spans_open: u64,
    /// Spans of kept traces that have ended, and wait for their trace, in the queue, or for the exporter's answer.
    pub spans_waiting: u64,
    /// Spans that the exporter accepted.
    pub spans_exported: u64,
    /// Spans of kept traces that were lost, by reason.
    pub spans_lost: Losses,
    /// Traces that the layer kept.
    pub traces_made: u64,
    /// Kept traces whose local root has not been exported or lost.
    pub traces_open: u64,
    /// Kept traces whose local root was exported.
    pub traces_exported: u64,
    /// Kept traces whose local root was lost, by reason.
    pub traces_lost: Losses,
    /// The number of times that the layer disabled a span below a dropped root ([`DroppedSpans::Disabled`]); counted
    /// when the thread leaves the root. `span_enabled!`, and spans that another filter would have disabled too, count:
    /// `tracing` does not tell them apart.
    ///
    /// [`DroppedSpans::Disabled`]: crate::DroppedSpans::Disabled
    pub refusals: u64,
    /// Panics in [`Key::custom`](crate::Key::custom): the root was counted by its name.
    pub key_panics: u64,
    /// Attributes, events and links that were cut because open spans took all the bytes that attributes may have
    /// ([`Builder::with_open_bytes_max`](crate::Builder::with_open_bytes_max)). The exported spans count them too, beside
    /// those that [`SpanLimits`](crate::SpanLimits) cut.
    pub parts_cut: u64,
    /// Bytes that open spans take, of all subscribers: the tables of their entries, their attributes, and ended spans
    /// that wait for their trace. Memory that is kept to be used again counts.
    pub open_bytes: u64,
    /// The exporter's last error.
    pub last_error: Option<String>,
}

/// Losses by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// The table of open spans had no room within its bytes. A span below a lost one hangs below the nearest span above
    /// it that was not lost. If it was a local root, its trace is dropped from there on.
    pub open_spans: u64,
    /// The queue to the exporter was full.
    pub queue_full: u64,
    /// The exporter answered with an error, or panicked.
    pub export_failed: u64,
    /// The span ended after the shutdown.
    pub shut_down: u64,
}

impl Losses {
    /// The sum of all reasons.
    pub fn total(&self) -> u64 {
        let Losses { open_spans, queue_full, export_failed, shut_down } = *self;
        open_spans + queue_full + export_failed + shut_down
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} roots kept, {} dropped; {} spans exported, {} lost, {} open or waiting",
            self.roots_kept + self.parents_kept,
            self.roots_dropped + self.parents_dropped,
            self.spans_exported,
            self.spans_lost.total(),
            self.spans_open + self.spans_waiting
        )
    }
}

/// The reason of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    OpenSpans,
    QueueFull,
    ExportFailed,
    ShutDown,
}

const LOSSES: usize = 4;

/// Spans, and the local roots among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) spans: u64,
    pub(crate) roots: u64,
}

#[derive(Debug, Default)]
struct Pair {
    spans: AtomicU64,
    roots: AtomicU64,
}

impl Pair {
    fn add(&self, counted: Counted) {
        self.spans.fetch_add(counted.spans, Ordering::Relaxed);
        self.roots.fetch_add(counted.roots, Ordering::Relaxed);
    }

    fn read(&self) -> Counted {
        Counted { spans: self.spans.load(Ordering::Relaxed), roots: self.roots.load(Ordering::Relaxed) }
    }
}

/// The numbers behind [`Stats`]. The service's threads count in shares, so that they do not meet on a line of memory.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    shares: [Share; SHARES],
    exported: Pair,
    lost: [Pair; LOSSES],
    key_panics: AtomicU64,
}

const SHARES: usize = 16;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Share {
    /// Decided by the sampler, by the parent; dropped, kept.
    roots: [[AtomicU64; 2]; 2],
    /// May wrap: a span that was begun on one thread may be taken back on another. The sum does not.
    made: AtomicU64,
    ended: AtomicU64,
    traces: AtomicU64,
    refused: AtomicU64,
}

impl Counters {
    #[inline]
    fn share(&self) -> &Share {
        &self.shares[thread::number() as usize % SHARES]
    }

    #[inline]
    pub(crate) fn decided(&self, keep: bool) {
        self.share().roots[0][usize::from(keep)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn followed_parent(&self, keep: bool) {
        self.share().roots[1][usize::from(keep)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, spans: u64) {
        if spans != 0 {
            self.share().refused.fetch_add(spans, Ordering::Relaxed);
        }
    }

    /// A span of a kept trace has begun.
    #[inline]
    pub(crate) fn made(&self) {
        self.share().made.fetch_add(1, Ordering::Relaxed);
    }

    /// The layer keeps a trace.
    #[inline]
    pub(crate) fn trace_made(&self) {
        self.share().traces.fetch_add(1, Ordering::Relaxed);
    }

    /// A span that was counted as made turned out to belong to a trace that is yet to be decided.
    pub(crate) fn unmade(&self) {
        self.share().made.fetch_sub(1, Ordering::Relaxed);
    }

    /// A span of a kept trace has ended.
    #[inline]
    pub(crate) fn ended(&self) {
        self.share().ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Spans that had ended are lost.
    pub(crate) fn lose(&self, loss: Loss, counted: Counted) {
        self.lost[loss as usize].add(counted);
    }

    pub(crate) fn exported(&self, counted: Counted) {
        self.exported.add(counted);
    }

    pub(crate) fn key_panicked(&self) {
        self.key_panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads the counts that come late first, so that no term is smaller than what was taken from it.
    pub(crate) fn read(&self) -> Stats {
        let exported = self.exported.read();
        let lost: [Counted; LOSSES] = std::array::from_fn(|loss| self.lost[loss].read());
        let sum = |of: fn(&Share) -> &AtomicU64| {
            let each = self.shares.iter().map(|share| of(share).load(Ordering::Relaxed));
            each.fold(0, u64::wrapping_add)
        };
        let ended = sum(|share| &share.ended);
        let made = sum(|share| &share.made);
        let traces_made = sum(|share| &share.traces);
        let losses = |of: fn(&Counted) -> u64| Losses {
            open_spans: of(&lost[Loss::OpenSpans as usize]),
            queue_full: of(&lost[Loss::QueueFull as usize]),
            export_failed: of(&lost[Loss::ExportFailed as usize]),
            shut_down: of(&lost[Loss::ShutDown as usize]),
        };
        let (spans_lost, traces_lost) = (losses(|lost| lost.spans), losses(|lost| lost.roots));
        Stats {
            roots_kept: sum(|share| &share.roots[0][1]),
            roots_dropped: sum(|share| &share.roots[0][0]),
            parents_kept: sum(|share| &share.roots[1][1]),
            parents_dropped: sum(|share| &share.roots[1][0]),
            spans_made: made,
            spans_open: made.saturating_sub(ended),
            spans_waiting: ended.saturating_sub(exported.spans + spans_lost.total()),
            spans_exported: exported.spans,
            spans_lost,
            traces_made,
            traces_open: traces_made.saturating_sub(exported.roots + traces_lost.total()),
            traces_exported: exported.roots,
            traces_lost,
            refusals: sum(|share| &share.refused),
            key_panics: self.key_panics.load(Ordering::Relaxed),
            parts_cut: 0,
            open_bytes: 0,
            last_error: None,
        }
    }
}
