//! A critical path: which span delayed a request, and from when to when.

use crate::place::Adjusted;
use crate::tree::release;

/// A stretch of time in which one span delayed the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// The span, by its number in the tree or event graph.
    pub node: u32,
    /// Start, ns since the epoch.
    pub start: u64,
    /// End, ns since the epoch.
    pub end: u64,
}

impl Segment {
    /// The time from start to end, ns.
    pub fn length(self) -> u64 {
        self.end - self.start
    }
}

/// The segments of a path, in order of time. Each begins where the previous one ends, so only
/// starts are stored. This halves the memory if every span of a long trace is on the path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    nodes: Vec<u32>,
    starts: Vec<u64>,
    /// The end of the last segment.
    end: u64,
}

impl Segments {
    /// The number of segments.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no segments.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The segment at this index.
    pub fn get(&self, place: usize) -> Option<Segment> {
        (place < self.len()).then(|| self.at(place))
    }

    fn at(&self, place: usize) -> Segment {
        let end = self.starts.get(place + 1).copied().unwrap_or(self.end);
        Segment { node: self.nodes[place], start: self.starts[place], end }
    }

    /// The first segment.
    pub fn first(&self) -> Option<Segment> {
        self.get(0)
    }

    /// The last segment.
    pub fn last(&self) -> Option<Segment> {
        self.get(self.len().checked_sub(1)?)
    }

    /// All segments, in order of time.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Segment> + ExactSizeIterator {
        (0..self.len()).map(|place| self.at(place))
    }

    pub(crate) fn clear(&mut self) {
        release(&mut self.nodes);
        release(&mut self.starts);
    }

    pub(crate) fn reserve(&mut self, count: usize) {
        self.nodes.reserve_exact(count);
        self.starts.reserve_exact(count);
    }

    /// Appends a segment, which must begin where the others end.
    pub(crate) fn push(&mut self, segment: Segment) {
        debug_assert!(self.is_empty() || segment.start == self.end, "{segment:?} behind {}", self.end);
        self.nodes.push(segment.node);
        self.starts.push(segment.start);
        self.end = segment.end;
    }

    /// Adds a segment before the others, which must end where they begin; a segment without length
    /// is ignored. The segments are in order of time after a call of [`reverse`](Self::reverse).
    pub(crate) fn push_before(&mut self, segment: Segment) {
        if segment.start >= segment.end {
            return;
        }
        match self.starts.last() {
            Some(&next) => debug_assert_eq!(segment.end, next, "{segment:?}"),
            None => self.end = segment.end,
        }
        self.nodes.push(segment.node);
        self.starts.push(segment.start);
    }

    /// Ends a series of calls of [`push_before`](Self::push_before).
    pub(crate) fn reverse(&mut self) {
        self.nodes.reverse();
        self.starts.reverse();
    }
}

/// Collects segments, each of which must begin where the previous one ends.
impl FromIterator<Segment> for Segments {
    fn from_iter<I: IntoIterator<Item = Segment>>(segments: I) -> Self {
        let mut all = Self::default();
        segments.into_iter().for_each(|segment| all.push(segment));
        all
    }
}

/// A duration that belongs to a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// The span, by its number in the tree.
    pub node: u32,
    /// The duration, ns.
    pub ns: u64,
}

/// Durations by span, at most one per span. Two arrays take a quarter less memory than one of
/// pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    nodes: Vec<u32>,
    ns: Vec<u64>,
}

impl Amounts {
    /// Whether there are no durations.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All durations, in no particular order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Amount> {
        self.nodes.iter().zip(&self.ns).map(|(&node, &ns)| Amount { node, ns })
    }

    pub(crate) fn push(&mut self, amount: Amount) {
        self.nodes.push(amount.node);
        self.ns.push(amount.ns);
    }

    pub(crate) fn reserve(&mut self, count: usize) {
        self.nodes.reserve_exact(count);
        self.ns.reserve_exact(count);
    }

    pub(crate) fn clear(&mut self) {
        release(&mut self.nodes);
        release(&mut self.ns);
    }
}

/// The critical path of one trace.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CriticalPath {
    /// The segments, in order of time. Each begins where the previous one ends; together they cover
    /// the root exactly. A root of length zero has one segment of length zero.
    pub segments: Segments,
    /// For each span on the path, how much shorter it can get before a sibling, or another path of
    /// an event graph, takes its place.
    pub drag: Amounts,
    /// For each child beside the path whose parent is on it, and for each event beside the path,
    /// how much longer it can get before it is on the path.
    pub slack: Amounts,
    /// Time by span as CRISP accounts for it, which differs from the segments if siblings overlap.
    /// Empty for other rules, for which a span's time is that of its segments.
    pub exclusive: Amounts,
    /// The adjustments that fitted spans into their parents.
    pub adjusted: Adjusted,
    /// The total length of segments whose span was shifted, ns.
    pub shifted_ns: u128,
}

impl CriticalPath {
    pub(crate) fn clear(&mut self) {
        self.segments.clear();
        self.drag.clear();
        self.slack.clear();
        self.exclusive.clear();
        self.adjusted = Adjusted::default();
        self.shifted_ns = 0;
    }

    /// The length of the whole path, ns.
    pub fn length(&self) -> u64 {
        match (self.segments.first(), self.segments.last()) {
            (Some(first), Some(last)) => last.end - first.start,
            _ => 0,
        }
    }

    /// Whether the segments cover the time from `start` to `end` without a gap or an overlap.
    pub fn tiles(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        for segment in self.segments.iter() {
            if segment.start != at || segment.end < segment.start {
                return false;
            }
            at = segment.end;
        }
        !self.segments.is_empty() && at == end
    }
}
