//! The last decisions, and their explanation in words.
//!
//! Off by default, because recording a decision with its key takes time and memory. Each group of
//! threads has a ring of its last decisions. A thread that finds its ring locked, by a query or by
//! another thread of the group, does not record its decision and counts it as left out.

use std::fmt;

use astracer_samplers::{Decision, Randomness, Reason};
use opentelemetry::TraceId;

use astracer_spans::thread;
use std::sync::{Mutex, PoisonError};

const RINGS: usize = 8;
/// Decisions in a ring; each takes up to 350 bytes.
const RING_MAX: usize = 1 << 17;
const KEY_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct Why {
    rings: Box<[Ring]>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Ring(Mutex<Noted>);

#[derive(Debug)]
struct Noted {
    notes: Vec<Note>,
    next: usize,
    max: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Note {
    trace_id: TraceId,
    pub(crate) key: String,
    randomness: Randomness,
    /// `None` if the parent's decision was followed.
    decision: Option<Decision>,
    keep: bool,
}

impl Why {
    /// Remembers at least this number of decisions. Each ring can hold them all, because a single
    /// thread may make them all.
    pub(crate) fn new(decisions: usize) -> Self {
        let max = decisions.clamp(1, RING_MAX);
        let ring = || Ring(Mutex::new(Noted { notes: Vec::new(), next: 0, max }));
        Why { rings: (0..RINGS).map(|_| ring()).collect() }
    }

    pub(crate) fn note(&self, trace_id: TraceId, keep: bool, asked: Option<(&str, Randomness, Decision)>) {
        let (key, randomness, decision) = match asked {
            Some((key, randomness, decision)) => (key, randomness, Some(decision)),
            None => ("", Randomness::MIN, None),
        };
        let ring = &self.rings[thread::number() as usize % RINGS];
        let Ok(mut noted) = ring.0.try_lock() else { return };
        let end = (0..=KEY_MAX.min(key.len())).rev().find(|&end| key.is_char_boundary(end)).unwrap_or(0);
        let key = &key[..end];
        let Noted { notes, next, max } = &mut *noted;
        match notes.get_mut(*next) {
            Some(note) => {
                note.key.clear();
                note.key.push_str(key);
                (note.trace_id, note.randomness, note.decision, note.keep) =
                    (trace_id, randomness, decision, keep);
            }
            None => notes.push(Note { trace_id, key: key.to_owned(), randomness, decision, keep }),
        }
        *next = (*next + 1) % *max;
    }

    /// The decision about this trace; the latest one in its ring if there were several.
    pub(crate) fn find(&self, trace_id: TraceId) -> Option<Note> {
        self.rings.iter().find_map(|ring| {
            let noted = ring.0.lock().unwrap_or_else(PoisonError::into_inner);
            let (newer, older) = noted.notes.split_at(noted.next.min(noted.notes.len()));
            newer.iter().rev().chain(older.iter().rev()).find(|note| note.trace_id == trace_id).cloned()
        })
    }
}

/// The decision about one trace and its reason: see [`Handle::why`](crate::Handle::why). Displays
/// as a sentence.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The trace.
    pub trace_id: TraceId,
    /// Whether the trace was kept.
    pub keep: bool,
    /// The key that the trace was counted by, cut after 256 bytes. Empty if the parent decided.
    pub key: String,
    /// The reason; `None` if the parent decided.
    pub reason: Option<Reason>,
    /// The 56 bits that were compared with the threshold.
    pub randomness: u64,
    /// The threshold, if the decision was made at random: the trace is kept if the randomness is at
    /// least this.
    pub threshold: Option<u64>,
    /// The probability that corresponds to the threshold.
    pub probability: Option<f64>,
    /// The result of late keeping for a trace that was dropped but recorded: see
    /// [`Builder::with_tail`](crate::Builder::with_tail).
    pub late: Option<String>,
    /// The key's calls and the kept ones among them, up to the time of the query; `None` if the key
    /// has no record.
    pub counts: Option<(u64, u64)>,
}

impl Explanation {
    pub(crate) fn new(note: Note, counts: Option<(u64, u64)>, late: Option<String>) -> Self {
        let Note { trace_id, key, randomness, decision, keep } = note;
        let threshold = decision.and_then(|decision| decision.threshold);
        Explanation {
            trace_id,
            keep,
            key,
            reason: decision.map(|decision| decision.reason),
            randomness: randomness.get(),
            threshold: threshold.map(|threshold| threshold.get()),
            probability: threshold.map(|threshold| threshold.probability().get()),
            counts,
            late,
        }
    }
}

fn words(reason: Reason) -> &'static str {
    match reason {
        Reason::Always => "the sampler keeps everything",
        Reason::Never => "the sampler keeps nothing",
        Reason::Ratio => "the sampler keeps a fixed share",
        Reason::EveryNth => "the sampler keeps the first of every n calls",
        Reason::Bump => "bump keeps a smaller share the more calls the key has had",
        Reason::BumpMinimum => "the key's calls had brought bump down to its minimum probability",
        Reason::TokenBucket => "the tokens in the key's bucket decided",
        Reason::Overflow => "the table of keys was full, so the key shared one record with others",
        Reason::Cap => "the cap on kept traces was half used up and raised the threshold",
        Reason::CapEmpty => "the cap on kept traces was used up",
        Reason::Override => "an operator's override applied to the key",
        Reason::Boost => "an error or a slow root had raised the key's probability",
        Reason::Strata => "strata decide once the root has ended, about the recorded share of its key",
        _ => reason.name(),
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = if self.keep { "kept" } else { "dropped" };
        let Some(reason) = self.reason else {
            write!(f, "trace {} was {done} because its parent was", self.trace_id)?;
            return self.late.as_ref().map_or(Ok(()), |late| write!(f, "; {late}"));
        };
        write!(f, "trace {} of key {:?} was {done}: {}", self.trace_id, self.key, words(reason))?;
        if let (Some(probability), Some(threshold)) = (self.probability, self.threshold) {
            let compared = if self.randomness >= threshold { "at least" } else { "below" };
            write!(
                f,
                "; probability {probability:.6}, randomness {:014x} is {compared} threshold {threshold:014x}",
                self.randomness
            )?;
        }
        if let Some((seen, kept)) = self.counts {
            write!(f, "; {kept} of {seen} calls of the key were kept so far")?;
        }
        self.late.as_ref().map_or(Ok(()), |late| write!(f, "; {late}"))
    }
}
