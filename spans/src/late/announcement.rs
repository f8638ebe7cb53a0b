//! The traces that this process kept late, to be announced to the processes that it calls.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use opentelemetry::TraceId;

use super::Weight;
use crate::sync::statics::{AtomicU64, Ordering};
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
pub struct Announcements {
    last: Mutex<Last>,
    /// For each peer, the number of traces that were announced to it. Relaxed: it guards no other
    /// memory.
    peers: Mutex<Vec<Arc<AtomicU64>>>,
}

#[derive(Debug, Default)]
struct Last {
    traces: VecDeque<Announced>,
    /// The number of traces added so far.
    all: u64,
}

impl Announcements {
    pub(super) fn add(&self, trace: Announced) {
        let mut last = lock(&self.last);
        if last.traces.len() == REMEMBERED {
            last.traces.pop_front();
        }
        last.traces.push_back(trace);
        last.all += 1;
    }

    /// The traces that were added after the first `known` ones: the oldest of these, up to `most`.
    pub fn after(&self, known: u64, most: usize) -> Announcement {
        let last = lock(&self.last);
        let oldest = last.all - last.traces.len() as u64;
        let known = known.min(last.all);
        let (mut traces, mut named) = (Vec::new(), HashSet::new());
        let mut all = known.max(oldest);
        for trace in last.traces.iter().skip((all - oldest) as usize) {
            // Several local roots may share the trace's id: name it once, and count it once.
            if !named.contains(&trace.trace_id) {
                if traces.len() == most {
                    break;
                }
                named.insert(trace.trace_id);
                traces.push(*trace);
            }
            all += 1;
        }
        Announcement { traces, all, waiting: last.all - all, unannounced: oldest.saturating_sub(known) }
    }

    /// Adds a peer, to which nothing was announced.
    pub fn add_peer(&self) -> Arc<AtomicU64> {
        let peer = Arc::default();
        let mut peers = lock(&self.peers);
        // A client that replaces a dropped one begins with the oldest traces, so what waited for
        // the dropped one is not lost.
        peers.retain(|peer| Arc::strong_count(peer) > 1);
        peers.push(Arc::clone(&peer));
        peer
    }

    /// Ends all announcements: peers seem to know of every trace from now on. Returns the number of
    /// traces that they will not learn of.
    pub fn end(&self) -> u64 {
        let peers = std::mem::take(&mut *lock(&self.peers));
        let unannounced = |peer: Arc<AtomicU64>| {
            let rest = self.after(peer.swap(u64::MAX, Ordering::Relaxed), usize::MAX);
            rest.traces.len() as u64 + rest.unannounced
        };
        peers.into_iter().map(unannounced).sum()
    }
}

/// Traces that were kept late and that a called process does not know of yet: see
/// `Handle::announcement_after`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Announcement {
    /// The oldest of them without duplicates, oldest first.
    pub traces: Vec<Announced>,
    /// The value to pass as `known` next time.
    pub all: u64,
    /// Parts of traces that are left for the next time.
    pub waiting: u64,
    /// Parts of traces that were forgotten, and will never be announced.
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
    fn the_oldest_are_announced_first_and_once() {
        let all = Announcements::default();
        let last = REMEMBERED as u128 + 6;
        (1..=last).for_each(|number| all.add(announced(&[number])[0]));
        let Announcement { traces, all: known, waiting, unannounced } = all.after(0, 2 * REMEMBERED);
        assert_eq!((traces.len(), known, waiting, unannounced), (REMEMBERED, last as u64, 0, 6));
        assert_eq!((traces[0], traces[REMEMBERED - 1]), (announced(&[7])[0], announced(&[last])[0]));
        let none = Announcement { all: known, ..Announcement::default() };
        assert_eq!(all.after(known, 100), none);
        all.add(announced(&[1])[0]);
        let one = Announcement { traces: announced(&[1]), all: known + 1, ..Announcement::default() };
        assert_eq!(all.after(known, 100), one);
        let two = announced(&[last - 9, last - 8]);
        let two = Announcement { traces: two, all: known - 8, waiting: 9, unannounced: 0 };
        assert_eq!(all.after(known - 10, 2), two);
    }

    /// The parts of one trace use up only one entry of a list.
    #[test]
    fn a_trace_of_several_parts_is_named_once() {
        let all = Announcements::default();
        announced(&[1, 2, 2, 1, 3, 2]).into_iter().for_each(|trace| all.add(trace));
        let two = Announcement { traces: announced(&[1, 2]), all: 4, waiting: 2, unannounced: 0 };
        assert_eq!(all.after(0, 2), two);
        let rest = Announcement { traces: announced(&[3, 2]), all: 6, ..Announcement::default() };
        assert_eq!(all.after(4, 2), rest);
    }

    #[test]
    fn what_no_peer_gets_any_more_is_counted_once() {
        let all = Announcements::default();
        let peers = [0, 3, 5, 0].map(|known| {
            let peer = all.add_peer();
            peer.store(known, Ordering::Relaxed);
            peer
        });
        let [replaced, rest @ ..] = peers;
        drop(replaced);
        let new = all.add_peer();
        announced(&[1, 2, 2, 4, 5]).into_iter().for_each(|trace| all.add(trace));
        // Two of the peer that knows three traces, none, four, and four of the new peer, which is
        // dropped before the end.
        drop(new);
        assert_eq!((all.end(), all.end()), (2 + 4 + 4, 0));
        for peer in rest {
            assert_eq!(all.after(peer.load(Ordering::Relaxed), 9).traces, []);
        }
    }
}
