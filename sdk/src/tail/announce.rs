//! The traces that this process kept late, for the processes that it calls.

use std::collections::VecDeque;

use opentelemetry::TraceId;

use crate::sync::{Mutex, lock};

/// Traces that are told of; older ones are told to nobody who has not heard of them by then.
const REMEMBERED: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Announcements(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    ids: VecDeque<TraceId>,
    /// Traces that were announced so far.
    all: u64,
}

impl Announcements {
    pub(crate) fn add(&self, trace_id: TraceId) {
        let mut last = lock(&self.0);
        if last.ids.len() == REMEMBERED {
            last.ids.pop_back();
        }
        last.ids.push_front(trace_id);
        last.all += 1;
    }

    /// The latest traces that came after this number of them, the last one first, at most `most`; and the number to ask with next.
    pub(crate) fn after(&self, heard: u64, most: usize) -> (Vec<TraceId>, u64) {
        let last = lock(&self.0);
        let new = usize::try_from(last.all.saturating_sub(heard)).unwrap_or(usize::MAX);
        (last.ids.iter().take(new.min(most)).copied().collect(), last.all)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_told_once_and_the_oldest_are_forgotten() {
        let announced = Announcements::default();
        let ids = |numbers: &[u128]| numbers.iter().copied().map(TraceId::from).collect::<Vec<_>>();
        (1..=70_u128).for_each(|number| announced.add(TraceId::from(number)));
        let (all, heard) = announced.after(0, 100);
        assert_eq!((all.len(), heard), (REMEMBERED, 70));
        assert_eq!((all[0], all[63]), (TraceId::from(70_u128), TraceId::from(7_u128)));
        assert_eq!(announced.after(heard, 100), (Vec::new(), 70));
        announced.add(TraceId::from(71_u128));
        assert_eq!(announced.after(heard, 100), (ids(&[71]), 71));
        assert_eq!(announced.after(60, 2), (ids(&[71, 70]), 71));
    }
}
