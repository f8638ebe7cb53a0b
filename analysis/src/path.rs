//! A critical path: which span held a request up, and from when to when.

use crate::place::Adjusted;

/// A stretch of time in which one span held the request up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The span, by its number in the tree or event graph.
    pub node: u32,
    /// Start, ns since the epoch.
    pub start: u64,
    /// End, ns since the epoch.
    pub end: u64,
}

impl Segment {
    /// From start to end, ns.
    pub fn length(self) -> u64 {
        self.end - self.start
    }
}

/// A length that belongs to a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// The span, by its number in the tree.
    pub node: u32,
    /// The length, ns.
    pub ns: u64,
}

/// The critical path of one trace.
#[derive(Clone, Debug, Default)]
pub struct CriticalPath {
    /// The segments in order of time. Each begins where the one before it ends; together they are the root exactly. A
    /// root of no length has one segment of no length.
    pub segments: Vec<Segment>,
    /// Of each span on the path, how much shorter it can get before a sibling, or another path of an event graph, takes
    /// its place.
    pub drag: Vec<Amount>,
    /// Of each child that is not on the path though its parent is, and of each event beside it, how much longer it can
    /// get before it is.
    pub slack: Vec<Amount>,
    /// Time by span as CRISP accounts for it, which differs from the segments where siblings overlap; empty for other
    /// rules, whose spans have the time of their segments.
    pub exclusive: Vec<Amount>,
    /// The adjustments that fitted spans into their parents.
    pub adjusted: Adjusted,
    /// Time of the segments whose span was shifted, ns.
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

    /// Takes up a segment, unless it has no length.
    pub(crate) fn segment(&mut self, node: u32, start: u64, end: u64) {
        if start < end {
            self.segments.push(Segment { node, start, end });
        }
    }

    /// The length of the whole path, ns.
    pub fn length(&self) -> u64 {
        match (self.segments.first(), self.segments.last()) {
            (Some(first), Some(last)) => last.end - first.start,
            _ => 0,
        }
    }

    /// True if the segments follow each other without a gap or an overlap from `start` to `end`.
    pub fn tiles(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        for segment in &self.segments {
            if segment.start != at || segment.end < segment.start {
                return false;
            }
            at = segment.end;
        }
        !self.segments.is_empty() && at == end
    }
}
