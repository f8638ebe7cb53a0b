//! The traces that this process kept late, to be announced to the processes that it calls.

use std::collections::VecDeque;

use opentelemetry::TraceId;

use crate::sync::{Mutex, lock};

/// The number of recent traces that can still be announced; older ones are dropped.
const REMEMBERED: usize = 64;

#[derive(Debug, Default)]
pub struct Announcements(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    ids: VecDeque<TraceId>,
    /// The number of traces added so far.
    all: u64,
}

impl Announcements {
    pub(super) fn add(&self, trace_id: TraceId) {
        let mut last = lock(&self.0);
        if last.ids.len() == REMEMBERED {
            last.ids.pop_back();
        }
        last.ids.push_front(trace_id);
        last.all += 1;
    }

    /// The traces that were added after the first `known` ones: the latest, up to `most`.
    pub fn after(&self, known: u64, most: usize) -> Announcement {
        let last = lock(&self.0);
        let new = last.all.saturating_sub(known);
        let (mut ids, mut others) = (Vec::new(), Vec::new());
        let mut unannounced = new.saturating_sub(last.ids.len() as u64);
        for id in last.ids.iter().take(usize::try_from(new).unwrap_or(usize::MAX)) {
            // Several local roots may share the trace's id: name it once, and count it once.
            if ids.contains(id) || others.contains(id) {
                continue;
            }
            if ids.len() < most {
                ids.push(*id);
            } else {
                others.push(*id);
                unannounced += 1;
            }
        }
        Announcement { ids, all: last.all, unannounced }
    }
}

/// Traces that were kept late and that a called process does not know of yet: see
/// `Handle::announcement_after`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Announcement {
    /// The latest of them without duplicates, newest first.
    pub ids: Vec<TraceId>,
    /// The value to pass as `known` next time.
    pub all: u64,
    /// The number of traces that are not in `ids` and will never be announced. Parts of forgotten
    /// traces count one by one.
    pub unannounced: u64,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_announced_once_and_the_oldest_are_forgotten() {
        let announced = Announcements::default();
        let ids = |numbers: &[u128]| numbers.iter().copied().map(TraceId::from).collect::<Vec<_>>();
        (1..=70_u128).for_each(|number| announced.add(TraceId::from(number)));
        let Announcement { ids: all, all: known, unannounced } = announced.after(0, 100);
        assert_eq!((all.len(), known, unannounced), (REMEMBERED, 70, 6));
        assert_eq!((all[0], all[63]), (TraceId::from(70_u128), TraceId::from(7_u128)));
        assert_eq!(announced.after(known, 100), Announcement { ids: Vec::new(), all: 70, unannounced: 0 });
        announced.add(TraceId::from(71_u128));
        assert_eq!(announced.after(known, 100), Announcement { ids: ids(&[71]), all: 71, unannounced: 0 });
        assert_eq!(announced.after(60, 2), Announcement { ids: ids(&[71, 70]), all: 71, unannounced: 9 });
    }

    /// The parts of one trace use up only one entry of a list.
    #[test]
    fn a_trace_of_several_parts_is_named_once() {
        let announced = Announcements::default();
        [1, 2, 2, 3, 2_u128].into_iter().for_each(|number| announced.add(TraceId::from(number)));
        let named = |ids: &[u128]| ids.iter().copied().map(TraceId::from).collect();
        assert_eq!(announced.after(0, 2), Announcement { ids: named(&[2, 3]), all: 5, unannounced: 1 });
        [4, 5, 5_u128].into_iter().for_each(|number| announced.add(TraceId::from(number)));
        assert_eq!(announced.after(0, 1), Announcement { ids: named(&[5]), all: 8, unannounced: 4 });
    }
}
