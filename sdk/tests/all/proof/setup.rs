//! The settings that programs run with, and the counts that are compared.

use std::time::Duration;

use astracer_sdk::{ContextMode, DroppedSpans, Provisional, Start};

/// The settings that programs run with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) dropped_spans: DroppedSpans,
    pub(crate) context: ContextMode,
    pub(crate) start: Start,
    /// The stock extension trait is called, by feature `bridge`.
    pub(crate) bridge: bool,
    /// Of traces that begin here, the first of each `keep_every` is kept; 0: none.
    pub(crate) keep_every: u64,
    pub(crate) subscribers: usize,
    pub(crate) filter: Filter,
    /// Bounds that cost no spans: only when they leave depends on them.
    pub(crate) waiting: Waiting,
    /// Bounds that cost spans.
    pub(crate) room: Option<Room>,
    /// Traces are kept late.
    pub(crate) late: Option<LateSetup>,
}

impl Setup {
    pub(crate) fn is_cramped(&self) -> bool {
        self.room.is_some() || self.late.is_some_and(|late| late.is_cramped())
    }
}

/// The policies that traces are kept late by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LateSetup {
    pub(crate) provisional: Provisional,
    pub(crate) policies: &'static [LatePolicy],
    /// Traces that no policy keeps stay until someone asks for them; else they go at once.
    pub(crate) holds: bool,
    /// The time for which they stay, if it is no more than a program.
    pub(crate) steps: Option<u32>,
    pub(crate) ring_bytes: usize,
}

impl LateSetup {
    /// Whether traces are given up, sooner or later, that the reference keeps.
    pub(crate) fn is_cramped(&self) -> bool {
        self.ring_bytes < 1 << 20
    }
}

/// A policy, as text and as the reference knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatePolicy {
    pub(crate) text: &'static str,
    /// The reason on the spans that it keeps.
    pub(crate) name: &'static str,
    /// Traces that it may keep, in all.
    pub(crate) budget: Option<u64>,
    /// A root that takes more steps is slow.
    pub(crate) slow: Option<u64>,
}

impl LatePolicy {
    pub(crate) fn is_slow(&self, steps: u64) -> bool {
        self.slow.is_some_and(|slow| steps > slow)
    }
}

/// Counts of recorded traces: those of `Stats`, as the reference counts them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// Spans and traces in the ring.
    pub(crate) held: (u64, u64),
    /// Spans and traces by reason, in the order of `GivenUpTraces`.
    pub(crate) given_up: [(u64, u64); 6],
    /// By policy: kept, refused.
    pub(crate) policies: Vec<(u64, u64)>,
    pub(crate) kept_by_hand: u64,
    pub(crate) not_there: u64,
    pub(crate) traces_open: u64,
}

impl Counts {
    /// Places among the reasons.
    pub(crate) const LATE: usize = 4;
    pub(crate) const SHUT_DOWN: usize = 5;
}

/// Outcomes of a key's roots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct KeyCounts {
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) missed_errors: u64,
    pub(crate) missed_slow: u64,
}

/// Bounds on ended spans that wait for their trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) open_traces: u32,
    pub(crate) spans_per_trace: u32,
    pub(crate) trace_age: Duration,
}

/// Bounds so small that programs reach them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) open_bytes: usize,
    pub(crate) queue_bytes: usize,
}

/// Counts of the spans of kept traces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Made {
    /// Those that began.
    pub(crate) made: u64,
    /// Those that have not ended.
    pub(crate) open: u64,
    /// Those that ended after the shutdown.
    pub(crate) lost: u64,
}

/// A filter for spans below the level INFO.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Filter {
    None,
    /// Of the layer alone: other layers see the spans.
    OnLayer,
    /// Of the whole subscriber.
    Beside,
}
