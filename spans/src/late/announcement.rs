//! The traces that this process kept late, to be announced to the processes that it calls.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use opentelemetry::TraceId;

use super::Weight;
use crate::sync::{Mutex, lock};

/// The number of recent traces that can still be announced; older ones are dropped.
const REMEMBERED: usize = 1_024;

/// A trace that was kept late, with its weight if that is known. As text: the id, and the weight
/// after a semicolon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The trace.
    pub trace_id: TraceId,
    /// The weight that all of its parts have.
    pub weight: Option<Weight>,
}

impl fmt::Display for Announced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.trace_id)?;
        self.weight.map_or(Ok(()), |weight| write!(f, ";{weight}"))
    }
}

#[derive(Debug, Default)]
pub struct Announcements(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    traces: VecDeque<Announced>,
    /// The number of traces added so far.
    all: u64,
}

impl Announcements {
    pub(super) fn add(&self, trace: Announced) {
        let mut last = lock(&self.0);
        if last.traces.len() == REMEMBERED {
            last.traces.pop_back();
        }
        last.traces.push_front(trace);
        last.all += 1;
    }

    /// The traces that were added after the first `known` ones: the latest, up to `most`.
    pub fn after(&self, known: u64, most: usize) -> Announcement {
        let last = lock(&self.0);
        let new = last.all.saturating_sub(known);
        let mut traces = Vec::new();
        let mut unannounced = new.saturating_sub(last.traces.len() as u64);
        let mut named = HashSet::new();
        for trace in last.traces.iter().take(usize::try_from(new).unwrap_or(usize::MAX)) {
            // Several local roots may share the trace's id: name it once, and count it once.
            if !named.insert(trace.trace_id) {
                continue;
            }
            if traces.len() < most {
                traces.push(*trace);
            } else {
                unannounced += 1;
            }
        }
        Announcement { traces, all: last.all, unannounced }
    }
}

/// Traces that were kept late and that a called process does not know of yet: see
/// `Handle::announcement_after`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Announcement {
    /// The latest of them without duplicates, newest first.
    pub traces: Vec<Announced>,
    /// The value to pass as `known` next time.
    pub all: u64,
    /// The number of traces that are not in `traces` and will never be announced. Parts of
    /// forgotten traces count one by one.
    pub unannounced: u64,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn announced(numbers: &[u128]) -> Vec<Announced> {
        let of = |number: &u128| Announced { trace_id: TraceId::from(*number), weight: None };
        numbers.iter().map(of).collect()
    }

    #[test]
    fn the_latest_are_announced_once_and_the_oldest_are_forgotten() {
        let all = Announcements::default();
        let last = REMEMBERED as u128 + 6;
        (1..=last).for_each(|number| all.add(announced(&[number])[0]));
        let Announcement { traces, all: known, unannounced } = all.after(0, 2 * REMEMBERED);
        assert_eq!((traces.len(), known, unannounced), (REMEMBERED, last as u64, 6));
        assert_eq!((traces[0], traces[REMEMBERED - 1]), (announced(&[last])[0], announced(&[7])[0]));
        let none = Announcement { traces: Vec::new(), all: known, unannounced: 0 };
        assert_eq!(all.after(known, 100), none);
        all.add(announced(&[1])[0]);
        let one = Announcement { traces: announced(&[1]), all: known + 1, unannounced: 0 };
        assert_eq!(all.after(known, 100), one);
        let two = Announcement { traces: announced(&[1, last]), all: known + 1, unannounced: 9 };
        assert_eq!(all.after(known - 10, 2), two);
    }

    /// The parts of one trace use up only one entry of a list.
    #[test]
    fn a_trace_of_several_parts_is_named_once() {
        let all = Announcements::default();
        announced(&[1, 2, 2, 3, 2]).into_iter().for_each(|trace| all.add(trace));
        let two = Announcement { traces: announced(&[2, 3]), all: 5, unannounced: 1 };
        assert_eq!(all.after(0, 2), two);
        announced(&[4, 5, 5]).into_iter().for_each(|trace| all.add(trace));
        let one = Announcement { traces: announced(&[5]), all: 8, unannounced: 4 };
        assert_eq!(all.after(0, 1), one);
    }
}
