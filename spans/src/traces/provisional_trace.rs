//! The trace that leaves a provisional slot, on its way through the policies and the ring of
//! [`late`](crate::late).

use std::cell::RefCell;

use astracer_samplers::Threshold;
use astracer_samplers::tail::{KeyNumber, Severity, Tail};
use opentelemetry::SpanId;

use super::TraceRef;
use crate::clock::Ticks;
use crate::memory_budget::{Reservation, Use};
use crate::record::{Body, Buffer, Header, KeepReason, Record};
use crate::reentry::Busy;
use crate::stats::{Counted, GivenUp};
use crate::trace_state::State;

/// The spans of a provisional trace, taken out of its slot, and what late keeping knows of them. An
/// empty one is kept for reuse and holds no reservation.
#[derive(Debug)]
pub struct ProvisionalTrace {
    pub header: Header,
    pub buffer: Buffer,
    pub reservation: Reservation,
    pub key: KeyNumber,
    /// The threshold with which the trace was recorded, until its stratum has decided; `None` if it
    /// does not decide.
    pub recorded: Option<Threshold>,
    pub severity: Severity,
    /// The root's start.
    pub opened: Ticks,
    pub part: TraceRef,
    /// The trace's spans, and the local roots among them.
    pub counted: Counted,
    /// The root's duration in nanoseconds.
    pub duration: u64,
    /// When the root was released, or when the trace became too old to wait for that.
    pub ended: Ticks,
    /// Whether its stratum has dropped it.
    pub is_decided: bool,
    /// The first policy that wanted the trace, if every policy that did had no budget left.
    pub refused_by: Option<KeepReason>,
    pub is_held: bool,
    /// The trace's arrival number in its shard, assigned by the ring.
    pub came: u64,
}

/// The overhead of a trace in the ring, in bytes, besides its spans.
pub const HELD_BYTES: usize = size_of::<ProvisionalTrace>() + 16;

/// The number of empty traces that a thread caches, and the largest size of each.
const SPARE_MAX: usize = 8;
const SPARE_BYTES_MAX: usize = 16 * 1024;

thread_local! {
    static SPARE: RefCell<Vec<Box<ProvisionalTrace>>> = const { RefCell::new(Vec::new()) };
}

impl Default for ProvisionalTrace {
    /// No spans, and an invalid trace id.
    fn default() -> Self {
        ProvisionalTrace {
            header: Header::default(),
            buffer: Buffer::default(),
            reservation: Reservation::default(),
            key: KeyNumber::OTHERS,
            recorded: None,
            severity: Severity::Fine,
            opened: 0,
            part: TraceRef::NONE,
            counted: Counted::default(),
            duration: 0,
            ended: 0,
            refused_by: None,
            is_decided: false,
            is_held: false,
            came: 0,
        }
    }
}

impl ProvisionalTrace {
    pub fn spare() -> Box<Self> {
        SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten().unwrap_or_default()
    }

    /// Keeps the memory for a later trace of this thread.
    pub fn recycle(mut self: Box<Self>) {
        self.reservation.shrink_to(0);
        if self.buffer.bytes_held() > SPARE_BYTES_MAX {
            return;
        }
        self.buffer.clear();
        self.header.state = State::EMPTY;
        (self.refused_by, self.is_held, self.is_decided) = (None, false, false);
        let _busy = Busy::mark();
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(self);
            }
        });
    }

    /// The reason for giving the trace up when its time is over.
    pub fn reason(&self) -> GivenUp {
        if self.refused_by.is_some() { GivenUp::Refused } else { GivenUp::Unwanted }
    }

    /// The local root, if it has ended: an old trace leaves its slot while its root is still open.
    pub fn root(&self) -> Option<SpanId> {
        let root = self.buffer.records.iter().rev().find(|record| record.is_local_root);
        root.map(|root| root.span_id)
    }

    /// Whether the trace takes no more spans. A local root is always accepted.
    pub fn is_full(&self, bytes_max: usize, record: &Record) -> bool {
        let is_full =
            self.buffer.records.len() >= Tail::TRACE_SPANS_MAX || self.buffer.bytes_used() >= bytes_max;
        is_full && !record.is_local_root
    }

    pub fn bytes_with(&self, body: Option<&Body>) -> usize {
        HELD_BYTES + self.buffer.bytes_held() + 2 * size_of::<Record>() + body.map_or(0, Body::bytes)
    }

    /// Adds a span for which capacity was reserved.
    pub fn add(&mut self, record: Record, body: Option<&mut Body>) {
        self.counted = self.counted + record.counted();
        self.buffer.append(record, body);
        // Vectors double as they grow, which may exceed the reservation. If it cannot grow here,
        // the next span's reservation includes the difference.
        let bytes = HELD_BYTES + self.buffer.bytes_held();
        self.reservation.grow_to(bytes, Use::Entries);
    }
}
