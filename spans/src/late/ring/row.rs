//! The traces of one value class in a shard of the ring.

use std::collections::VecDeque;

use opentelemetry::TraceId;

use crate::traces::{ProvisionalTrace, TraceRef};

/// Traces in the order in which they ended. A trace that is taken out leaves an empty place. Empty
/// places are removed when they reach the front, or when most places are empty.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// The low half of each trace id, for fast lookup; 0 where the place is empty.
    ids: VecDeque<u64>,
    pub(super) held: VecDeque<Option<Box<ProvisionalTrace>>>,
    empty: usize,
}

/// The number of empty places that a row may have, whatever their share.
const EMPTY_MAX: usize = 32;

pub(super) fn short(trace_id: TraceId) -> u64 {
    (u128::from_be_bytes(trace_id.to_bytes()) as u64).max(1)
}

impl Row {
    pub(super) fn push(&mut self, trace: Box<ProvisionalTrace>) {
        self.ids.push_back(short(trace.header.trace_id));
        self.held.push_back(Some(trace));
    }

    /// Puts a trace back in order: other traces may have arrived meanwhile.
    pub(super) fn insert(&mut self, trace: Box<ProvisionalTrace>) {
        // Searched from the back, where the place is near, because traces that come back together
        // do so in order. Empty places have no age.
        let ended = trace.ended;
        let is_before =
            |other: &Option<Box<ProvisionalTrace>>| other.as_ref().is_some_and(|other| other.ended <= ended);
        let at = self.held.iter().rposition(is_before).map_or(0, |before| before + 1);
        self.ids.insert(at, short(trace.header.trace_id));
        self.held.insert(at, Some(trace));
    }

    pub(super) fn first(&self) -> Option<&ProvisionalTrace> {
        self.held.iter().flatten().next().map(|first| &**first)
    }

    /// Takes out the first trace, if it passes the test.
    pub(super) fn pop_if(
        &mut self,
        test: impl Fn(&ProvisionalTrace) -> bool,
    ) -> Option<Box<ProvisionalTrace>> {
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
    pub(super) fn take_before(&mut self, came: u64) -> Vec<Box<ProvisionalTrace>> {
        let (out, later): (Vec<_>, Vec<_>) =
            std::mem::take(self).held.into_iter().flatten().partition(|held| held.came < came);
        later.into_iter().for_each(|held| self.push(held));
        out
    }

    /// The place of a trace: of the part that had this slot, or of the latest part.
    pub(super) fn place(&self, trace_id: TraceId, part: Option<TraceRef>) -> Option<usize> {
        let short = short(trace_id);
        let is_it = |at: usize| {
            let held = self.held.get(at).and_then(Option::as_ref);
            held.is_some_and(|held| {
                held.header.trace_id == trace_id && part.is_none_or(|part| held.part == part)
            })
        };
        // Latest first, because late spans follow soon after their root.
        let places = self.ids.iter().enumerate().rev().filter(|(_, id)| **id == short);
        places.map(|(at, _)| at).find(|at| is_it(*at))
    }

    pub(super) fn get(&self, trace_id: TraceId) -> Option<&ProvisionalTrace> {
        self.held.get(self.place(trace_id, None)?)?.as_deref()
    }

    pub(super) fn take(&mut self, trace_id: TraceId) -> Option<Box<ProvisionalTrace>> {
        self.take_at(self.place(trace_id, None)?)
    }

    pub(super) fn take_at(&mut self, at: usize) -> Option<Box<ProvisionalTrace>> {
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
