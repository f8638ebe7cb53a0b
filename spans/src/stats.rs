//! Counts that the SDK keeps of its own work.

mod late;
mod reasons;

use std::fmt;

use crate::sync::statics::{AtomicU64, Ordering};
use crate::thread;

pub use self::late::{OwnPolicyFaults, TailStats};
pub use self::reasons::{GivenUp, GivenUpTraces, Loss, Losses};

/// Counts since the start.
///
/// Every span of a recorded trace is counted in exactly one place: `spans_made` is the sum of
/// `spans_exported`, `spans_lost.total()`, `spans_open` and `spans_waiting`. Where traces are kept
/// late ([`TailStats`]), `tail.spans_held` and `tail.spans_given_up.total()` belong to that sum
/// too.
///
/// A trace counts with its local root, the first of its spans in this process: `traces_made` is the
/// sum of `traces_exported`, `traces_lost.total()`, `traces_open`, `tail.traces_held` and
/// `tail.traces_given_up.total()`. The counts are read one by one, so under load the sums may
/// differ by the spans that are just moving from one place to the next.
///
/// Not in these sums: spans below a dropped root that are not recorded, spans that begin after the
/// shutdown (`spans_after_shutdown`), and spans that begin where OpenTelemetry's context suppresses
/// telemetry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Local roots that the sampler kept, including those of `AstracerSampler`.
    pub roots_kept: u64,
    /// Local roots that the sampler dropped, including those of `AstracerSampler`.
    pub roots_dropped: u64,
    /// Local roots kept because their parent is kept. The parent is in another process, or was made
    /// through the OpenTelemetry API.
    pub parents_kept: u64,
    /// Local roots dropped because their parent is dropped. The parent is in another process, or
    /// was made through the OpenTelemetry API.
    pub parents_dropped: u64,
    /// Spans of kept traces that began.
    pub spans_made: u64,
    /// Spans of kept traces that have not ended.
    pub spans_open: u64,
    /// Spans of kept traces that have ended, and wait for the rest of their trace, in the queue, or
    /// for the exporter's answer.
    pub spans_waiting: u64,
    /// Spans that the exporter accepted. With a spool before the destination they may still wait on
    /// disk.
    pub spans_exported: u64,
    /// Spans of kept traces that were lost, by reason.
    pub spans_lost: Losses,
    /// Spans that began after the shutdown. Nothing is recorded of them.
    pub spans_after_shutdown: u64,
    /// Traces that the layer kept.
    pub traces_made: u64,
    /// Kept traces whose local root has not been exported or lost.
    pub traces_open: u64,
    /// Kept traces whose local root was exported. If the server rejected a part of the batch, they
    /// still count, because it does not say which spans it rejects. Traces refused by the cap on
    /// bytes do not count.
    pub traces_exported: u64,
    /// Kept traces whose local root was lost, by reason.
    pub traces_lost: Losses,
    /// The calls that lost local roots represented: the sum of their adjusted counts, rounded. Add
    /// it when you estimate calls from the traces that arrived.
    pub calls_lost: u64,
    /// The number of times that the layer disabled a span below a dropped root
    /// (`DroppedSpans::Disabled`), added when the thread exits the root. It includes calls of
    /// `span_enabled!` and spans that another filter would have disabled too: `tracing` does not
    /// distinguish them.
    pub refusals: u64,
    /// Panics in `Key::custom`. The root was counted by its name instead.
    pub key_panics: u64,
    /// Panics of the observer (`Builder::with_observer`).
    pub observer_panics: u64,
    /// Attributes, events and links that were cut because open spans had used the bytes available
    /// to them (`Builder::with_open_bytes_max`). The exported spans count them too, together with
    /// those cut by [`SpanLimits`](crate::record::SpanLimits).
    pub parts_cut: u64,
    /// Bytes that open spans take, over all subscribers: the tables of their entries, their
    /// attributes, and ended spans that wait for their trace. Memory cached for reuse counts.
    pub open_bytes: u64,
    /// Traces that are kept late: see `Builder::with_tail`.
    pub tail: TailStats,
    /// The exporter's last error, the server's last text beside a success, or the last loss of
    /// spans that were already queued.
    pub last_error: Option<String>,
    /// The reason why exports currently wait for their destination, if they do and the exporter
    /// reports it: a destination (`Builder::with_destination`) does.
    pub waiting: Option<String>,
    /// Advice for keys that do not distinguish roots: 1,000 or more roots have the same name, which
    /// middleware gives every request. Looked for once a minute.
    pub hint: Option<String>,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kept, dropped) =
            (self.roots_kept + self.parents_kept, self.roots_dropped + self.parents_dropped);
        match self.tail.kept {
            0 => write!(f, "{kept} roots kept, {dropped} dropped")?,
            late => {
                let dropped = dropped.saturating_sub(late);
                write!(f, "{kept} roots kept at their start and {late} later, {dropped} dropped")?;
            }
        }
        write!(
            f,
            "; {} spans exported, {}, {} open or waiting",
            self.spans_exported,
            self.spans_lost,
            self.spans_open + self.spans_waiting
        )?;
        // Callers can have traces kept without policies here.
        let tail = &self.tail;
        if !tail.policies.is_empty() || tail.strata.is_some() || tail.traces_given_up.total() > 0 {
            write!(f, "; {}", self.tail)?;
        }
        if let Some(reason) = &self.waiting {
            write!(f, "; exports wait: {reason}")?;
        }
        if self.spans_after_shutdown > 0 {
            write!(f, "; {} spans began after the shutdown", self.spans_after_shutdown)?;
        }
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// Events that need no more than a count: see the fields of [`Stats`] and [`TailStats`] of these
/// names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tally {
    RootsDropped,
    RootsKept,
    ParentsDropped,
    ParentsKept,
    SpansMade,
    SpansEnded,
    SpansAfterShutdown,
    TracesMade,
    Refusals,
    KeyPanics,
    /// A decided root whose spans another SDK records, so that its trace cannot be kept late.
    RootsElsewhere,
    KeptByHand,
    KeptByCaller,
    RefusedCallers,
    Unannounced,
    WithoutSlot,
}

/// Spans, the local roots among them, and the calls that these represent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    pub spans: u64,
    pub roots: u64,
    pub calls: f64,
}

impl std::ops::Add for Counted {
    type Output = Counted;

    fn add(self, more: Counted) -> Counted {
        let (spans, roots) = (self.spans + more.spans, self.roots + more.roots);
        Counted { spans, roots, calls: self.calls + more.calls }
    }
}

impl std::iter::Sum for Counted {
    fn sum<I: Iterator<Item = Counted>>(all: I) -> Counted {
        all.fold(Counted::default(), std::ops::Add::add)
    }
}

#[derive(Debug, Default)]
pub struct Pair {
    spans: AtomicU64,
    roots: AtomicU64,
}

impl Pair {
    pub fn add(&self, counted: Counted) {
        self.spans.fetch_add(counted.spans, Ordering::Relaxed);
        self.roots.fetch_add(counted.roots, Ordering::Relaxed);
    }

    fn read(&self) -> Counted {
        let (spans, roots) = (self.spans.load(Ordering::Relaxed), self.roots.load(Ordering::Relaxed));
        Counted { spans, roots, calls: 0.0 }
    }
}

/// The numbers behind [`Stats`]. The service's threads count in separate shares, so that they do
/// not contend for a cache line. Each of the first threads of the process has a share of its own,
/// which it updates with plain loads and stores. Later threads share a few.
#[derive(Debug, Default)]
pub struct Counters {
    shares: Shares,
    pub exported: Pair,
    lost: [Pair; Loss::ALL.len()],
    given_up: [Pair; GivenUp::ALL.len()],
    /// Spans that entered the ring.
    pub held: Pair,
    /// Spans that left the ring.
    pub not_held: Pair,
    /// In thousandths of a call.
    calls_lost: AtomicU64,
}

/// Shares owned by a single thread. Thread numbers are never reused, so an owned share has one
/// writer.
const OWN_SHARES: usize = 112;
const COMMON_SHARES: usize = 16;

#[derive(Debug)]
struct Shares(Box<[Share; OWN_SHARES + COMMON_SHARES]>);

/// By [`Tally`]. A count may wrap: a span counted on one thread may be subtracted again on another.
/// The sum over all shares is still right.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Share([AtomicU64; Tally::WithoutSlot as usize + 1]);

impl Default for Shares {
    fn default() -> Self {
        Shares(Box::new(std::array::from_fn(|_| Share::default())))
    }
}

impl Counters {
    /// Adds to a count in this thread's share. Wraps: a span that was counted may be taken back.
    #[inline]
    pub fn tally(&self, of: Tally, more: u64) {
        let number = thread::number() as usize;
        if number < OWN_SHARES {
            // This thread is the only writer, so no read-modify-write is needed.
            let count = &self.shares.0[number].0[of as usize];
            count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        } else {
            let Share(counts) = &self.shares.0[OWN_SHARES + number % COMMON_SHARES];
            counts[of as usize].fetch_add(more, Ordering::Relaxed);
        }
    }

    pub fn tallied(&self, of: Tally) -> u64 {
        let counts = self.shares.0.iter().map(|Share(counts)| counts[of as usize].load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }

    pub fn lose(&self, loss: Loss, counted: Counted) {
        self.lost[loss as usize].add(counted);
        self.calls_lost.fetch_add((counted.calls * 1e3) as u64, Ordering::Relaxed);
    }

    pub fn give_up(&self, reason: GivenUp, counted: Counted) {
        self.given_up[reason as usize].add(counted);
    }

    /// Reads all counts. A span passes the counts in order, and later ones are read first, so that
    /// differences do not become negative. Relaxed loads do not guarantee that order, so the
    /// differences also saturate.
    pub fn read(&self) -> Stats {
        let exported = self.exported.read();
        let [spans_lost, traces_lost] = Losses::read(&self.lost);
        let mut tail = TailStats {
            roots_elsewhere: self.tallied(Tally::RootsElsewhere),
            kept_by_hand: self.tallied(Tally::KeptByHand),
            kept_by_caller: self.tallied(Tally::KeptByCaller),
            refused_callers: self.tallied(Tally::RefusedCallers),
            unannounced: self.tallied(Tally::Unannounced),
            without_slot: self.tallied(Tally::WithoutSlot),
            ..TailStats::default()
        };
        [tail.spans_given_up, tail.traces_given_up] = GivenUpTraces::read(&self.given_up);
        // Read those that left first, so that they do not outnumber those that entered.
        let [went, came] = [&self.not_held, &self.held].map(Pair::read);
        tail.spans_held = came.spans.saturating_sub(went.spans);
        tail.traces_held = came.roots.saturating_sub(went.roots);
        let spans_late = tail.spans_held + tail.spans_given_up.total();
        let traces_late = tail.traces_held + tail.traces_given_up.total();
        let ended = self.tallied(Tally::SpansEnded);
        let made = self.tallied(Tally::SpansMade);
        let traces_made = self.tallied(Tally::TracesMade);
        Stats {
            roots_kept: self.tallied(Tally::RootsKept),
            roots_dropped: self.tallied(Tally::RootsDropped),
            parents_kept: self.tallied(Tally::ParentsKept),
            parents_dropped: self.tallied(Tally::ParentsDropped),
            spans_made: made,
            spans_open: made.saturating_sub(ended),
            spans_waiting: ended.saturating_sub(exported.spans + spans_lost.total() + spans_late),
            spans_exported: exported.spans,
            spans_lost,
            spans_after_shutdown: self.tallied(Tally::SpansAfterShutdown),
            traces_made,
            traces_open: traces_made.saturating_sub(exported.roots + traces_lost.total() + traces_late),
            traces_exported: exported.roots,
            traces_lost,
            calls_lost: (self.calls_lost.load(Ordering::Relaxed) + 500) / 1_000,
            refusals: self.tallied(Tally::Refusals),
            key_panics: self.tallied(Tally::KeyPanics),
            tail,
            ..Stats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use astracer_samplers::strata::StrataCounts;

    use super::*;

    /// Traces that a small ring evicts are lost, whether policies or strata would have decided, or
    /// a caller.
    #[test]
    fn traces_that_were_given_up_are_shown_without_policies() {
        let given_up = GivenUpTraces { ring_full: 7, ..GivenUpTraces::default() };
        let tail = TailStats {
            traces_held: 2,
            traces_given_up: given_up,
            ring_bytes_max: 4096,
            ..TailStats::default()
        };
        let shown = |tail: TailStats| Stats { tail, ..Stats::default() }.to_string();
        let says = "; 0 traces kept late, 2 held, 7 given up (ring_full 7); ring 0 of 4096 bytes";
        assert!(shown(tail.clone()).ends_with(says), "{}", shown(tail));
        let mut strata = StrataCounts::default();
        (strata.decided, strata.kept, strata.strata) = (9, 3, 4);
        let of_strata = shown(TailStats { strata: Some(strata), ..tail.clone() });
        assert!(
            of_strata.contains("; 3 of 9 recorded traces kept by 4 strata; 0 traces kept late"),
            "{of_strata}"
        );
        let full = shown(TailStats { without_slot: 5, ..tail });
        assert!(full.ends_with("; 5 not recorded for want of a slot"), "{full}");
        assert!(!shown(TailStats::default()).contains("given up"));
    }
}
