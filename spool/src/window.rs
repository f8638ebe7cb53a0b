//! The records that were read and that the position has not passed: those under way, those put
//! back, and those that have ended while an earlier record has not.
//!
//! Ends are committed in the order of the log. So the position and the sums of ends always describe
//! the same records. A process that is killed leaves later records waiting, and the next process
//! sends them again.

use std::collections::{BTreeSet, VecDeque};

use crate::frame::FrameHeader;
use crate::record::{Ends, RecordId};

/// The greatest number of records in a window.
const RECORDS_MAX: usize = 1 << 14;
/// A window takes no more records at this size of all their payloads.
const BYTES_MAX: u64 = 32 << 20;

/// A rejected record that is stored when the position reaches it.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    /// The number of rejected spans.
    pub(crate) spans: u32,
    pub(crate) reason: String,
    pub(crate) payload: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    UnderWay,
    /// Waiting again after an attempt.
    PutBack,
    Done,
}

/// One record.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) id: RecordId,
    pub(crate) header: FrameHeader,
    /// The number of spans whose end is unknown.
    pub(crate) left: u32,
    /// Ends that are not committed yet, also of the damaged spans before the record.
    pub(crate) ends: Ends,
    pub(crate) letters: Vec<Letter>,
    pub(crate) state: State,
}

/// Records in the order of the log.
#[derive(Debug, Default)]
pub(crate) struct Window {
    slots: VecDeque<Slot>,
    put_back: BTreeSet<RecordId>,
    bytes: u64,
}

impl Window {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// True if no further record may be read before the first one has ended.
    pub(crate) fn is_full(&self) -> bool {
        self.slots.len() >= RECORDS_MAX || self.bytes >= BYTES_MAX
    }

    /// Adds a record behind all others.
    pub(crate) fn push(&mut self, slot: Slot) {
        self.bytes += u64::from(slot.header.payload_bytes);
        self.slots.push_back(slot);
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut Slot> {
        self.slots.front_mut()
    }

    pub(crate) fn pop_front(&mut self) -> Option<Slot> {
        let slot = self.slots.pop_front()?;
        self.bytes -= u64::from(slot.header.payload_bytes);
        self.put_back.remove(&slot.id);
        Some(slot)
    }

    pub(crate) fn get(&mut self, id: RecordId) -> Option<&mut Slot> {
        let index = self.slots.binary_search_by_key(&id, |slot| slot.id).ok()?;
        self.slots.get_mut(index)
    }

    /// Sets the state of a record.
    pub(crate) fn set(&mut self, id: RecordId, state: State) {
        if let Some(slot) = self.get(id) {
            slot.state = state;
            match state {
                State::PutBack => self.put_back.insert(id),
                State::UnderWay | State::Done => self.put_back.remove(&id),
            };
        }
    }

    /// The oldest record that waits again.
    pub(crate) fn first_put_back(&self) -> Option<RecordId> {
        self.put_back.first().copied()
    }

    /// The records of a segment that wait again.
    pub(crate) fn put_back_of(&self, segment: u64) -> Vec<RecordId> {
        self.put_back.iter().copied().filter(|id| id.segment == segment).collect()
    }
}
