//! The longest ways from the beginning of a request to a point in it, and the times on them.
//!
//! Ways split off at joins only. So times since the last join are stored once, as the *tail* that
//! all ways have in common.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::experiments::EXPERIMENTS_MAX;
use super::names::Place;

/// The ways in which a time was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum TimeKind {
    /// A thread worked in the function.
    Work = 0,
    /// The function waited, and for no branch: for a timer, a lock, the scheduler, or for a branch
    /// that was never joined.
    Wait = 1,
    /// A branch was made and had not begun.
    Spawn = 2,
    /// A branch had ended, and the function that waited for it had not resumed.
    Wake = 3,
    /// A call to another process, without the time that the callee took.
    Network = 4,
    /// A call to another process that has not said what it did.
    Opaque = 5,
}

impl TimeKind {
    /// All kinds.
    pub const ALL: [TimeKind; 6] = [
        TimeKind::Work,
        TimeKind::Wait,
        TimeKind::Spawn,
        TimeKind::Wake,
        TimeKind::Network,
        TimeKind::Opaque,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        ["work", "wait", "spawn", "wake", "network", "opaque"][self as usize]
    }
}

/// A place, and the way in which time was spent there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part(u32);

impl Part {
    pub(super) fn new(place: Place, kind: TimeKind) -> Self {
        Part(place.0 << 3 | kind as u32)
    }

    pub(super) fn place(self) -> Place {
        Place(self.0 >> 3)
    }

    pub(super) fn kind(self) -> TimeKind {
        TimeKind::ALL.get((self.0 & 7) as usize).copied().unwrap_or(TimeKind::Wait)
    }
}

/// Parts of one way. More are added up for [`Place::OTHERS`].
const PARTS_MAX: usize = 64;
/// The last segments of a way that are kept.
pub(super) const SEGMENTS_MAX: usize = 32;

/// One way, or a stretch of it.
#[derive(Debug, Default)]
pub(crate) struct Way {
    pub(super) total: u64,
    /// The time of each part.
    pub(super) parts: Vec<(Part, u64)>,
    /// The last stretches, in order.
    pub(super) segments: VecDeque<(Part, u64)>,
}

impl Clone for Way {
    fn clone(&self) -> Self {
        Way { total: self.total, parts: self.parts.clone(), segments: self.segments.clone() }
    }

    fn clone_from(&mut self, other: &Self) {
        self.total = other.total;
        self.parts.clone_from(&other.parts);
        self.segments.clone_from(&other.segments);
    }
}

impl Way {
    #[inline]
    pub(super) fn add(&mut self, part: Part, nanos: u64) {
        if nanos == 0 {
            return;
        }
        self.total = self.total.saturating_add(nanos);
        self.add_part(part, nanos);
        match self.segments.back_mut() {
            Some((last, time)) if *last == part => *time = time.saturating_add(nanos),
            _ => {
                if self.segments.len() == SEGMENTS_MAX {
                    self.segments.pop_front();
                }
                self.segments.push_back((part, nanos));
            }
        }
    }

    fn add_part(&mut self, part: Part, nanos: u64) {
        let of = |parts: &[(Part, u64)], part| parts.iter().rposition(|(known, _)| *known == part);
        let known = of(&self.parts, part).or_else(|| {
            let is_full = self.parts.len() >= PARTS_MAX;
            let part = if is_full { Part::new(Place::OTHERS, part.kind()) } else { part };
            let others = if is_full { of(&self.parts, part) } else { None };
            if others.is_none() {
                // If it is full, at most one more for each kind.
                self.parts.push((part, 0));
            }
            others.or_else(|| self.parts.len().checked_sub(1))
        });
        if let Some((_, time)) = known.and_then(|at| self.parts.get_mut(at)) {
            *time = time.saturating_add(nanos);
        }
    }

    /// Goes on with another stretch.
    pub(super) fn append(&mut self, other: &Way) {
        self.total = self.total.saturating_add(other.total);
        other.parts.iter().for_each(|(part, nanos)| self.add_part(*part, *nanos));
        for (part, nanos) in &other.segments {
            if self.segments.len() == SEGMENTS_MAX {
                self.segments.pop_front();
            }
            self.segments.push_back((*part, *nanos));
        }
    }

    fn clear(&mut self) {
        self.total = 0;
        self.parts.clear();
        self.segments.clear();
    }

    /// Shortens the way to a total, all its parts in proportion.
    pub(super) fn cut_to(&mut self, total: u64) {
        if self.total <= total {
            return;
        }
        let scale =
            |nanos: u64| (u128::from(nanos) * u128::from(total) / u128::from(self.total.max(1))) as u64;
        for (_, nanos) in self.parts.iter_mut().chain(&mut self.segments) {
            *nanos = scale(*nanos);
        }
        let rest = total.saturating_sub(self.parts.iter().map(|(_, nanos)| nanos).sum());
        if let Some((_, nanos)) = self.parts.first_mut() {
            *nanos += rest;
        }
        self.total = total;
    }
}

/// The longest ways to a point.
#[derive(Debug, Default)]
pub(crate) struct Path {
    /// The ways up to the last join, the longest first; empty: there was none.
    pub(super) ways: Vec<Way>,
    /// The times since, which all ways have in common.
    pub(super) tail: Way,
    /// Ways were left out because there were too many.
    pub(super) is_cut: bool,
    /// The length of the longest way in each experiment.
    pub(super) changed: [f64; EXPERIMENTS_MAX],
}

impl Clone for Path {
    fn clone(&self) -> Self {
        let mut path = Path::default();
        path.clone_from(self);
        path
    }

    fn clone_from(&mut self, other: &Self) {
        self.ways.clone_from(&other.ways);
        self.tail.clone_from(&other.tail);
        (self.is_cut, self.changed) = (other.is_cut, other.changed);
    }
}

impl Path {
    /// The length of the longest way.
    #[inline]
    pub(super) fn total(&self) -> u64 {
        self.ways.first().map_or(0, |way| way.total).saturating_add(self.tail.total)
    }

    pub(super) fn clear(&mut self) {
        self.ways.clear();
        self.tail.clear();
        (self.is_cut, self.changed) = (false, [0.0; EXPERIMENTS_MAX]);
    }

    /// Gives each way the common tail.
    pub(super) fn settle(&mut self) {
        if self.ways.is_empty() {
            self.ways.push(std::mem::take(&mut self.tail));
        } else {
            self.ways.iter_mut().for_each(|way| way.append(&self.tail));
            self.tail.clear();
        }
    }

    /// Takes in the ways of a branch. Of equal ones its own come first.
    pub(super) fn merge(&mut self, other: &mut Path, top: usize) {
        self.settle();
        other.settle();
        self.ways.append(&mut other.ways);
        self.is_cut |= other.is_cut;
        self.keep(top);
        for (own, theirs) in self.changed.iter_mut().zip(other.changed) {
            *own = own.max(theirs);
        }
    }

    /// Goes on with each of the ways of another path.
    pub(super) fn append(&mut self, other: &mut Path, top: usize) {
        self.settle();
        other.settle();
        let after = std::mem::take(&mut other.ways);
        let before = std::mem::take(&mut self.ways);
        for way in &before {
            for more in &after {
                let mut way = way.clone();
                way.append(more);
                self.ways.push(way);
            }
        }
        self.is_cut |= other.is_cut;
        self.keep(top);
        for (own, theirs) in self.changed.iter_mut().zip(other.changed) {
            *own += theirs;
        }
    }

    fn keep(&mut self, top: usize) {
        self.ways.sort_by_key(|way| Reverse(way.total));
        self.is_cut |= self.ways.len() > top;
        self.ways.truncate(top);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(place: u32) -> Part {
        Part::new(Place(place), TimeKind::Work)
    }

    fn path(times: &[(u32, u64)]) -> Path {
        let mut path = Path::default();
        times.iter().for_each(|(place, nanos)| path.tail.add(part(*place), *nanos));
        path
    }

    #[test]
    fn the_longest_ways_are_kept() {
        let mut own = path(&[(2, 5)]);
        own.merge(&mut path(&[(3, 7)]), 2);
        own.tail.add(part(2), 1);
        own.merge(&mut path(&[(4, 8), (5, 0)]), 2);
        let ways: Vec<(u64, Vec<(Part, u64)>)> =
            own.ways.iter().map(|way| (way.total, way.parts.clone())).collect();
        // Three ways have 8, 6 and 8: the waiter's 8 comes first.
        assert_eq!(ways, [(8, vec![(part(3), 7), (part(2), 1)]), (8, vec![(part(4), 8)])]);
        assert!(own.is_cut);
    }

    #[test]
    fn ways_go_on_with_each_other() {
        let mut own = path(&[(2, 5)]);
        own.merge(&mut path(&[(3, 7)]), 8);
        let mut after = path(&[(4, 1)]);
        after.merge(&mut path(&[(5, 3)]), 8);
        own.append(&mut after, 3);
        assert_eq!(own.ways.iter().map(|way| way.total).collect::<Vec<_>>(), [10, 8, 8]);
        assert!(own.is_cut);
    }

    #[test]
    fn a_way_has_bounds() {
        let mut way = Way::default();
        (0..1_000_000).for_each(|number| way.add(part(2 + number % 1000), 3));
        assert!(way.parts.len() <= PARTS_MAX + 6 && way.segments.len() == SEGMENTS_MAX);
        assert_eq!(way.parts.iter().map(|(_, nanos)| nanos).sum::<u64>(), 3_000_000);
        way.add(part(1), u64::MAX);
        assert_eq!(way.total, u64::MAX);
    }

    #[test]
    fn a_way_is_cut_in_proportion() {
        let mut way = path(&[(2, 10), (3, 20), (4, 1)]).tail;
        way.cut_to(16);
        // 16 / 31 of 10, 20 and 1 is 5, 10 and 0, and what rounding leaves.
        assert_eq!(way.parts, [(part(2), 6), (part(3), 10), (part(4), 0)]);
        assert_eq!(way.total, 16);
    }
}
