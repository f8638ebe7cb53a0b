//! Counts that the SDK keeps of its own work.

mod late;

use std::fmt;

use crate::sync::statics::{AtomicU64, Ordering};
use crate::thread;

pub use self::late::GivenUp;
pub use self::late::{GivenUpTraces, OwnPolicyFaults, TailStats};

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
/// Not counted here: spans below a dropped root that are not recorded, spans that begin after the
/// shutdown, and spans that begin where OpenTelemetry's context suppresses telemetry.
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
    /// tell them apart.
    pub refusals: u64,
    /// Panics in `Key::custom`. The root was counted by its name instead.
    pub key_panics: u64,
    /// Attributes, events and links that were cut because open spans had used the bytes available
    /// to them (`Builder::with_open_bytes_max`). The exported spans count them too, together with
    /// those cut by [`SpanLimits`](crate::record::SpanLimits).
    pub parts_cut: u64,
    /// Bytes that open spans take, over all subscribers: the tables of their entries, their
    /// attributes, and ended spans that wait for their trace. Memory cached for reuse counts.
    pub open_bytes: u64,
    /// Traces that are kept late: see `Builder::with_tail`.
    pub tail: TailStats,
    /// The exporter's last error or warning, or the last loss of spans that were already queued.
    pub last_error: Option<String>,
    /// The reason why exports currently wait for their destination, if they do and the exporter
    /// reports it: a destination (`Builder::with_destination`) does.
    pub waiting: Option<String>,
    /// Advice for keys that do not tell roots apart: 1,000 or more roots have the same name, which
    /// middleware gives every request. Looked for once a minute.
    pub hint: Option<String>,
}

/// Losses by reason. Of the reasons of an export, an
/// exporter (`Builder::with_exporter`) that is not a
/// destination (`Builder::with_destination`) reports only `export_failed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// The span did not fit the memory of open spans, or is below one that did not. Processes
    /// called from there drop their part of the trace.
    pub open_spans: u64,
    /// The queue to the exporter was full.
    pub queue_full: u64,
    /// The destination rejected a request permanently.
    pub rejected: u64,
    /// The destination rejected spans of a request that it otherwise accepted.
    pub partially_rejected: u64,
    /// A request, or one span, was larger than a limit.
    pub too_large: u64,
    /// The destination accepted nothing until the batch reached its maximum age or number of
    /// attempts.
    pub expired: u64,
    /// The spool, or the files, had reached their limit in bytes.
    pub spool_full: u64,
    /// The exporter returned another error, or panicked.
    pub export_failed: u64,
    /// The shutdown's deadline passed before the span was exported.
    pub deadline: u64,
    /// The span ended after the shutdown.
    pub shut_down: u64,
    /// The cap on exported bytes was used up: see [`Cap::bytes`](astracer_samplers::Cap::bytes).
    pub capped: u64,
}

impl Losses {
    /// The sum of all reasons.
    pub fn total(&self) -> u64 {
        // Saturates, because an exporter may report any number.
        self.iter().fold(0, |sum, (_, spans)| sum.saturating_add(spans))
    }

    /// Iterates over the reasons, named as the fields.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        LOSSES.into_iter().map(|(_, name, field)| (name, *field(&mut self.clone())))
    }

    fn of(&mut self, loss: Loss) -> &mut u64 {
        LOSSES[loss as usize].2(self)
    }

    /// The reasons with at least one loss.
    pub fn reasons(&self) -> impl Iterator<Item = (Loss, u64)> {
        LOSSES.into_iter().map(|(loss, ..)| (loss, *self.clone().of(loss))).filter(|(_, spans)| *spans > 0)
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lost", self.total())?;
        write_reasons(f, self.iter())
    }
}

/// Writes the reasons that occurred, with their counts, in brackets.
fn write_reasons(
    f: &mut fmt::Formatter<'_>,
    reasons: impl Iterator<Item = (&'static str, u64)>,
) -> fmt::Result {
    let mut sign = " (";
    for (name, count) in reasons.filter(|(_, count)| *count > 0) {
        write!(f, "{sign}{name} {count}")?;
        sign = ", ";
    }
    if sign == ", " { f.write_str(")") } else { Ok(()) }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} roots kept, {} dropped; {} spans exported, {}, {} open or waiting",
            self.roots_kept + self.parents_kept,
            self.roots_dropped + self.parents_dropped,
            self.spans_exported,
            self.spans_lost,
            self.spans_open + self.spans_waiting
        )?;
        if !self.tail.policies.is_empty() {
            write!(f, "; {}", self.tail)?;
        }
        if let Some(reason) = &self.waiting {
            write!(f, "; exports wait: {reason}")?;
        }
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// The reason for a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    OpenSpans,
    QueueFull,
    Rejected,
    PartiallyRejected,
    TooLarge,
    Expired,
    SpoolFull,
    ExportFailed,
    Deadline,
    ShutDown,
    Capped,
}

/// A reason, with the name of its field and the field.
type Reason<R, Counts> = (R, &'static str, fn(&mut Counts) -> &mut u64);

/// Every reason, in the order of the discriminants.
const LOSSES: [Reason<Loss, Losses>; 11] = [
    (Loss::OpenSpans, "open_spans", |losses| &mut losses.open_spans),
    (Loss::QueueFull, "queue_full", |losses| &mut losses.queue_full),
    (Loss::Rejected, "rejected", |losses| &mut losses.rejected),
    (Loss::PartiallyRejected, "partially_rejected", |losses| &mut losses.partially_rejected),
    (Loss::TooLarge, "too_large", |losses| &mut losses.too_large),
    (Loss::Expired, "expired", |losses| &mut losses.expired),
    (Loss::SpoolFull, "spool_full", |losses| &mut losses.spool_full),
    (Loss::ExportFailed, "export_failed", |losses| &mut losses.export_failed),
    (Loss::Deadline, "deadline", |losses| &mut losses.deadline),
    (Loss::ShutDown, "shut_down", |losses| &mut losses.shut_down),
    (Loss::Capped, "capped", |losses| &mut losses.capped),
];

/// Events that need no more than a count: see the fields of [`Stats`] and [`TailStats`] of these
/// names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tally {
    RootsDropped,
    RootsKept,
    ParentsDropped,
    ParentsKept,
    /// Taken back if the span's trace is still to be decided.
    SpansMade,
    /// Spans of kept traces that have ended.
    SpansEnded,
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

impl std::ops::AddAssign for Counted {
    fn add_assign(&mut self, more: Counted) {
        self.spans += more.spans;
        self.roots += more.roots;
        self.calls += more.calls;
    }
}

impl std::iter::Sum for Counted {
    fn sum<I: Iterator<Item = Counted>>(all: I) -> Counted {
        all.fold(Counted::default(), |mut sum, counted| {
            sum += counted;
            sum
        })
    }
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
    exported: Pair,
    lost: [Pair; LOSSES.len()],
    given_up: [Pair; late::REASONS.len()],
    /// Spans that entered the ring, and spans that left it.
    held: [Pair; 2],
    /// In thousandths of a call.
    calls_lost: AtomicU64,
}

/// Shares owned by a single thread. Thread numbers are never reused, so an owned share has one
/// writer.
const OWN_SHARES: usize = 112;
const COMMON_SHARES: usize = 16;

#[derive(Debug)]
struct Shares {
    own: Box<[Share]>,
    common: Box<[Share]>,
}

/// By [`Tally`]. A count may wrap: a span counted on one thread may be subtracted again on another.
/// The sum over all shares is still right.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Share([AtomicU64; Tally::WithoutSlot as usize + 1]);

impl Default for Shares {
    fn default() -> Self {
        let shares = |count| (0..count).map(|_| Share::default()).collect();
        Shares { own: shares(OWN_SHARES), common: shares(COMMON_SHARES) }
    }
}

impl Counters {
    /// Adds to a count in this thread's share; wraps.
    #[inline]
    pub fn tally(&self, of: Tally, more: u64) {
        let number = thread::number() as usize;
        if let Some(Share(counts)) = self.shares.own.get(number) {
            // This thread is the only writer, so no read-modify-write is needed.
            let count = &counts[of as usize];
            count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        } else if let Some(Share(counts)) = self.shares.common.get(number % COMMON_SHARES) {
            counts[of as usize].fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Takes back one that was counted.
    pub fn untally(&self, of: Tally) {
        self.tally(of, 1u64.wrapping_neg());
    }

    pub fn tallied(&self, of: Tally) -> u64 {
        let shares = self.shares.own.iter().chain(&self.shares.common);
        shares.fold(0, |sum, Share(counts)| sum.wrapping_add(counts[of as usize].load(Ordering::Relaxed)))
    }

    /// Counts ended spans as lost.
    pub fn lose(&self, loss: Loss, counted: Counted) {
        self.lost[loss as usize].add(counted);
        self.calls_lost.fetch_add((counted.calls * 1e3) as u64, Ordering::Relaxed);
    }

    pub fn exported(&self, counted: Counted) {
        self.exported.add(counted);
    }

    /// Counts spans of a recorded trace as given up.
    pub fn give_up(&self, reason: GivenUp, counted: Counted) {
        self.given_up[reason as usize].add(counted);
    }

    /// Counts spans that enter the ring.
    pub fn held(&self, counted: Counted) {
        self.held[0].add(counted);
    }

    /// Counts spans that leave the ring.
    pub fn not_held(&self, counted: Counted) {
        self.held[1].add(counted);
    }

    /// Reads all counts. A span passes the counts in order, and later ones are read first, so that
    /// differences do not become negative. Relaxed loads do not guarantee that order, so the
    /// differences also saturate.
    pub fn read(&self) -> Stats {
        let exported = self.exported.read();
        let (mut spans_lost, mut traces_lost) = (Losses::default(), Losses::default());
        for (loss, ..) in LOSSES {
            let counted = self.lost[loss as usize].read();
            (*spans_lost.of(loss), *traces_lost.of(loss)) = (counted.spans, counted.roots);
        }
        let mut tail = TailStats {
            roots_elsewhere: self.tallied(Tally::RootsElsewhere),
            kept_by_hand: self.tallied(Tally::KeptByHand),
            kept_by_caller: self.tallied(Tally::KeptByCaller),
            refused_callers: self.tallied(Tally::RefusedCallers),
            unannounced: self.tallied(Tally::Unannounced),
            without_slot: self.tallied(Tally::WithoutSlot),
            ..TailStats::default()
        };
        for (reason, ..) in late::REASONS {
            let counted = self.given_up[reason as usize].read();
            *tail.spans_given_up.of(reason) = counted.spans;
            *tail.traces_given_up.of(reason) = counted.roots;
        }
        // Read those that left first, so that they do not outnumber those that entered.
        let [went, came] = [&self.held[1], &self.held[0]].map(Pair::read);
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
