//! The longest ways from the beginning of a request to a point in it.
//!
//! Ways split off at joins only. So times since the last join are stored once, as the *tail* that
//! all ways have in common, and what was before a join is shared by the ways that go on from it.

use std::cmp::Reverse;
use std::sync::Arc;

use super::experiments::EXPERIMENTS_MAX;
use super::way::Way;

/// A way: a stretch, and the way before it.
#[derive(Debug)]
struct Node {
    total: u64,
    before: Option<Arc<Node>>,
    stretch: Arc<Way>,
    /// The number of nodes before it.
    depth: u32,
}

/// A longer chain of stretches becomes one stretch.
const DEPTH_MAX: u32 = 32;

impl Node {
    fn after(before: Option<Arc<Node>>, stretch: Arc<Way>) -> Arc<Node> {
        let depth = before.as_ref().map_or(0, |before| before.depth + 1);
        let total = before.as_ref().map_or(0, |before| before.total).saturating_add(stretch.total);
        let node = Node { total, before, stretch, depth };
        Arc::new(if depth < DEPTH_MAX {
            node
        } else {
            Node { total, before: None, stretch: Arc::new(node.whole()), depth: 0 }
        })
    }

    /// The times of the whole way.
    fn whole(&self) -> Way {
        let mut stretches = vec![&*self.stretch];
        let mut before = &self.before;
        while let Some(node) = before {
            stretches.push(&node.stretch);
            before = &node.before;
        }
        let mut way = Way::default();
        stretches.into_iter().rev().for_each(|stretch| way.append(stretch));
        way
    }
}

/// A way, and the stretch that comes next.
struct End {
    total: u64,
    way: Option<Arc<Node>>,
    tail: Option<Arc<Way>>,
}

impl End {
    fn node(self) -> Arc<Node> {
        match (self.way, self.tail) {
            (Some(way), None) => way,
            (way, tail) => Node::after(way, tail.unwrap_or_default()),
        }
    }
}

/// The longest ways to a point.
#[derive(Debug, Default)]
pub(crate) struct Path {
    /// The ways up to the last join, the longest first; empty: there was none.
    ways: Vec<Arc<Node>>,
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

    /// The ways of another process, the longest first.
    pub(super) fn of(ways: Vec<Way>) -> Path {
        Path {
            ways: ways.into_iter().map(|way| Node::after(None, Arc::new(way))).collect(),
            ..Path::default()
        }
    }

    /// The ways without what they have in common since the last join.
    pub(super) fn ways(&self) -> impl ExactSizeIterator<Item = Way> {
        self.ways.iter().map(|way| way.whole())
    }

    /// Runs `f` on the longest way.
    pub(super) fn with_longest<R>(&self, f: impl FnOnce(&Way) -> R) -> R {
        match self.ways.first() {
            None => f(&self.tail),
            Some(way) if self.tail.total == 0 && way.before.is_none() => f(&way.stretch),
            Some(way) => {
                let mut way = way.whole();
                way.append(&self.tail);
                f(&way)
            }
        }
    }

    /// Gives each way the common tail.
    pub(super) fn settle(&mut self) {
        let ends = self.ends();
        self.ways.clear();
        self.ways.extend(ends.into_iter().map(End::node));
    }

    /// The ways, each with the tail that comes next.
    fn ends(&mut self) -> Vec<End> {
        if self.ways.is_empty() {
            let tail = Arc::new(std::mem::take(&mut self.tail));
            return vec![End { total: tail.total, way: None, tail: Some(tail) }];
        }
        let tail = (self.tail.total > 0).then(|| Arc::new(std::mem::take(&mut self.tail)));
        let more = tail.as_ref().map_or(0, |tail| tail.total);
        let end = |way: Arc<Node>| End {
            total: way.total.saturating_add(more),
            way: Some(way),
            tail: tail.clone(),
        };
        self.ways.drain(..).map(end).collect()
    }

    /// Takes in the ways of a branch. Of equal ones its own come first.
    pub(super) fn merge(&mut self, other: &mut Path, top: usize) {
        let mut ends = self.ends();
        ends.append(&mut other.ends());
        ends.sort_by_key(|end| Reverse(end.total));
        self.is_cut |= other.is_cut || ends.len() > top;
        self.ways.extend(ends.into_iter().take(top).map(End::node));
        for (own, theirs) in self.changed.iter_mut().zip(other.changed) {
            *own = own.max(theirs);
        }
    }

    /// Goes on with each of the ways of another path.
    pub(super) fn append(&mut self, other: &mut Path, top: usize) {
        self.settle();
        other.settle();
        let after: Vec<Arc<Way>> = other.ways.drain(..).map(|way| Arc::new(way.whole())).collect();
        let before = std::mem::take(&mut self.ways);
        for way in &before {
            self.ways.extend(after.iter().map(|more| Node::after(Some(way.clone()), more.clone())));
        }
        self.ways.sort_by_key(|way| Reverse(way.total));
        self.is_cut |= other.is_cut || self.ways.len() > top;
        self.ways.truncate(top);
        for (own, theirs) in self.changed.iter_mut().zip(other.changed) {
            *own += theirs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::names::Place;
    use crate::paths::way::{Part, TimeKind};

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
        let ways: Vec<(u64, Vec<(Part, u64)>)> = own.ways().map(|way| (way.total, way.parts)).collect();
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
        assert_eq!(own.ways().map(|way| way.total).collect::<Vec<_>>(), [10, 8, 8]);
        assert!(own.is_cut);
    }
}
