//! The traces of one value class in a shard of the ring.

use std::collections::VecDeque;

use opentelemetry::TraceId;

use super::HeldTrace;
use crate::traces::TraceRef;

/// Traces in the order in which they ended. A trace that is taken out leaves an empty place. Empty
/// places are removed when they reach the front, or when most places are empty.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// The low half of each trace id, for fast lookup; 0 where the place is empty.
    ids: VecDeque<u64>,
    pub(super) held: VecDeque<Option<HeldTrace>>,
    /// The number of empty places.
    empty: usize,
}

/// The number of empty places that a row may have, whatever their share.
const EMPTY_MAX: usize = 32;

pub(super) fn short(trace_id: TraceId) -> u64 {
    (u128::from_be_bytes(trace_id.to_bytes()) as u64).max(1)
}

impl Row {
    pub(super) fn push(&mut self, held: HeldTrace) {
        self.ids.push_back(short(held.header.trace_id));
        self.held.push_back(Some(held));
    }

    /// Puts a trace back in order: other traces may have arrived meanwhile.
    pub(super) fn insert(&mut self, held: HeldTrace) {
        // Searched from the back, where the place is near, because traces that come back together
        // do so in order. Empty places have no age.
        let is_before =
            |other: &Option<HeldTrace>| other.as_ref().is_some_and(|other| other.ended <= held.ended);
        let at = self.held.iter().rposition(is_before).map_or(0, |before| before + 1);
        self.ids.insert(at, short(held.header.trace_id));
        self.held.insert(at, Some(held));
    }

    /// Takes out the first trace, if it passes the test.
    pub(super) fn pop_if(&mut self, test: impl Fn(&HeldTrace) -> bool) -> Option<HeldTrace> {
        while let Some(first) = self.held.front() {
            if first.as_ref().is_some_and(|held| !test(held)) {
                return None;
            }
            self.ids.pop_front();
            if let Some(held) = self.held.pop_front().flatten() {
                return Some(held);
            }
            self.empty = self.empty.saturating_sub(1);
        }
        None
    }

    /// Takes out the traces whose arrival number is below `came`.
    pub(super) fn take_before(&mut self, came: u64) -> Vec<HeldTrace> {
        let (out, later): (Vec<_>, Vec<_>) =
            std::mem::take(self).held.into_iter().flatten().partition(|held| held.came < came);
        later.into_iter().for_each(|held| self.push(held));
        out
    }

    /// The place of the latest part of the trace that passes the test.
    fn place(&self, trace_id: TraceId, test: impl Fn(&HeldTrace) -> bool) -> Option<usize> {
        let short = short(trace_id);
        let is_it = |at: usize| {
            let held = self.held.get(at).and_then(Option::as_ref);
            held.is_some_and(|held| held.header.trace_id == trace_id && test(held))
        };
        // Latest first, because late spans follow soon after their root.
        let places = self.ids.iter().enumerate().rev().filter(|(_, id)| **id == short);
        places.map(|(at, _)| at).find(|at| is_it(*at))
    }

    fn find(&self, trace_id: TraceId) -> Option<usize> {
        self.place(trace_id, |_| true)
    }

    /// The place of the part that had this slot.
    pub(super) fn find_part(&self, trace_id: TraceId, part: TraceRef) -> Option<usize> {
        self.place(trace_id, |held| held.part == part)
    }

    pub(super) fn get(&mut self, trace_id: TraceId) -> Option<&mut HeldTrace> {
        let at = self.find(trace_id)?;
        self.held.get_mut(at)?.as_mut()
    }

    pub(super) fn get_part(&mut self, trace_id: TraceId, part: TraceRef) -> Option<&mut HeldTrace> {
        let at = self.find_part(trace_id, part)?;
        self.held.get_mut(at)?.as_mut()
    }

    pub(super) fn take(&mut self, trace_id: TraceId) -> Option<HeldTrace> {
        self.take_at(self.find(trace_id)?)
    }

    pub(super) fn take_part(&mut self, trace_id: TraceId, part: TraceRef) -> Option<HeldTrace> {
        self.take_at(self.find_part(trace_id, part)?)
    }

    fn take_at(&mut self, at: usize) -> Option<HeldTrace> {
        self.ids[at] = 0;
        let held = self.held.get_mut(at)?.take();
        self.empty += 1;
        if self.empty > EMPTY_MAX && self.empty > self.held.len() / 2 {
            self.ids.retain(|id| *id != 0);
            self.held.retain(Option::is_some);
            self.empty = 0;
        }
        held
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::tests::held;
    use super::*;

    /// The first trace stays, and all traces behind it are taken out.
    #[test]
    fn empty_places_do_not_accumulate() {
        let mut row = Row::default();
        row.push(held(1));
        for number in 2..10_000_u64 {
            row.push(held(number));
            row.push(held(number + 1_000_000));
            assert!(row.take(TraceId::from(u128::from(number))).is_some());
            assert!(row.take(TraceId::from(u128::from(number + 1_000_000))).is_some());
            assert!(row.held.len() <= 2 * EMPTY_MAX && row.ids.len() == row.held.len());
        }
        row.push(held(2_000_000));
        let rest: Vec<_> = std::iter::from_fn(|| row.pop_if(|_| true)).map(|held| held.ended).collect();
        assert_eq!((rest, row.empty), (vec![1, 2_000_000], 0));
    }
}
