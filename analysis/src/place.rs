//! Fitting children into their parents: clocks that disagree are shifted, what still reaches outside is clipped.
//!
//! The clocks of two machines disagree, so a server's span often lies outside the client's span that caused it. Two
//! ways to deal with it, [`Skew::Shift`] and [`Skew::Clip`]; `docs/critical-path.md` has the rules with an example.
//!
//! Afterwards every interval lies within its parent's, and therefore within the root's. That is the reason for which
//! the segments of a path tile the root exactly.

use astracer_model::SpanKind;

use crate::tree::{NONE, Node, Tree};

/// The treatment of a child of another machine that reaches outside its parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Skew {
    /// Move it, with all below it, by the least amount that puts it inside; clip it if it is too long for that.
    #[default]
    Shift,
    /// Cut off the parts that are outside.
    Clip,
}

/// A node's time once it has been fitted into its parent's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Start, ns since the epoch.
    pub start: u64,
    /// End, ns since the epoch; never before the start.
    pub end: u64,
}

impl Interval {
    /// From start to end, ns.
    pub fn length(self) -> u64 {
        self.end - self.start
    }
}

/// The changes that fitting made in one trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adjusted {
    /// Spans that were moved by a shift of their own; those below them moved along.
    pub shifted_spans: u64,
    /// The length of the spans that were clipped, outside of their parents, ns.
    pub clipped_ns: u128,
    /// Spans that lost a part.
    pub clipped_spans: u64,
    /// The length of the spans that lie wholly outside of their parents and were left out, ns; spans below them are
    /// within these or left out with them.
    pub dropped_ns: u128,
    /// Spans that were left out, those below them included.
    pub dropped_spans: u64,
}

/// The fitted intervals of a tree's nodes.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    intervals: Vec<Option<Interval>>,
    /// The distance in ns that each node was moved, by its own shift and its ancestors'.
    moved: Vec<i128>,
    remote: Vec<u32>,
    adjusted: Adjusted,
}

impl Placed {
    /// Fits every node of the tree into its parent.
    pub fn place(&mut self, tree: &Tree, skew: Skew) {
        self.begin(tree, skew == Skew::Shift);
        for parent in 0..tree.nodes().len() as u32 {
            if self.intervals[parent as usize].is_some() && skew == Skew::Shift {
                self.shift_children(tree, parent);
            }
            self.clip_children(tree, parent);
        }
    }

    fn begin(&mut self, tree: &Tree, shifts: bool) {
        let (count, root) = (tree.nodes().len(), tree.nodes()[0]);
        self.intervals.clear();
        self.intervals.resize(count, None);
        self.intervals[0] = Some(Interval { start: root.start, end: root.end });
        self.moved.clear();
        self.moved.resize(if shifts { count } else { 0 }, 0);
        self.adjusted = Adjusted::default();
    }

    /// Moves the children that another clock timed into their parent, all children of one service by the same amount
    /// where one amount fits them all: they were timed by one clock, and their order stays.
    fn shift_children(&mut self, tree: &Tree, parent: u32) {
        let above = &tree.nodes()[parent as usize];
        let moved = self.moved[parent as usize];
        let mut remote = std::mem::take(&mut self.remote);
        remote.clear();
        for child in tree.children(parent) {
            self.moved[child as usize] = moved;
            if may_be_skewed(above, &tree.nodes()[child as usize]) {
                remote.push(child);
            }
        }
        // Services in order, so that each clock's children stand together; a stable sort keeps them by start.
        remote.sort_by_key(|&child| tree.nodes()[child as usize].service);
        for same_clock in
            remote.chunk_by(|&a, &b| tree.nodes()[a as usize].service == tree.nodes()[b as usize].service)
        {
            let range = |child: u32| {
                let node = &tree.nodes()[child as usize];
                (
                    i128::from(above.start) - i128::from(node.start),
                    i128::from(above.end) - i128::from(node.end),
                )
            };
            let fits = |&child: &u32| tree.nodes()[child as usize].length() <= above.length();
            let fitting = || same_clock.iter().copied().filter(|child| fits(child));
            let low = fitting().map(|child| range(child).0).max().unwrap_or(0);
            let high = fitting().map(|child| range(child).1).min().unwrap_or(0);
            for child in fitting() {
                let (own_low, own_high) = range(child);
                let shift = if low <= high { 0.clamp(low, high) } else { 0.clamp(own_low, own_high) };
                self.moved[child as usize] += shift;
                self.adjusted.shifted_spans += u64::from(shift != 0);
            }
        }
        self.remote = remote;
    }

    fn clip_children(&mut self, tree: &Tree, parent: u32) {
        let Some(outer) = self.intervals[parent as usize] else {
            self.adjusted.dropped_spans += tree.children(parent).len() as u64;
            return;
        };
        for child in tree.children(parent) {
            let node = &tree.nodes()[child as usize];
            let moved = self.moved.get(child as usize).copied().unwrap_or(0);
            let (start, end) = (i128::from(node.start) + moved, i128::from(node.end) + moved);
            let inner_start = start.max(i128::from(outer.start));
            let inner_end = end.min(i128::from(outer.end));
            // A span that only touches its parent from outside has no time in it.
            if inner_end < inner_start || (inner_end == inner_start && start < end) {
                self.adjusted.dropped_spans += 1;
                self.adjusted.dropped_ns += u128::from(node.length());
                continue;
            }
            let inside = (inner_end - inner_start) as u64;
            if inside < node.length() {
                self.adjusted.clipped_spans += 1;
                self.adjusted.clipped_ns += u128::from(node.length() - inside);
            }
            self.intervals[child as usize] =
                Some(Interval { start: inner_start as u64, end: inner_end as u64 });
        }
    }

    /// Fits nodes as Jaeger's user interface does: clips, drops what begins at its parent's end or later or ends at its
    /// start or earlier, and leaves out spans that only follow from another.
    pub(crate) fn place_as_jaeger(&mut self, tree: &Tree) {
        self.begin(tree, false);
        for (at, node) in tree.nodes().iter().enumerate().skip(1) {
            let Some(outer) = self.intervals[node.parent as usize].filter(|_| !node.follows) else {
                self.adjusted.dropped_spans += 1;
                continue;
            };
            let outside = node.start >= outer.end || (node.start < outer.start && node.end <= outer.start);
            if outside {
                self.adjusted.dropped_spans += 1;
                self.adjusted.dropped_ns += u128::from(node.length());
                continue;
            }
            let inner = Interval { start: node.start.max(outer.start), end: node.end.min(outer.end) };
            if inner.length() < node.length() {
                self.adjusted.clipped_spans += 1;
                self.adjusted.clipped_ns += u128::from(node.length() - inner.length());
            }
            self.intervals[at] = Some(inner);
        }
    }

    /// The interval of a node, `None` if it was left out.
    pub fn interval(&self, node: u32) -> Option<Interval> {
        self.intervals[node as usize]
    }

    /// True if the node, or one above it, was shifted.
    pub fn was_moved(&self, node: u32) -> bool {
        self.moved.get(node as usize).is_some_and(|&moved| moved != 0)
    }

    /// The changes that fitting made.
    pub fn adjusted(&self) -> Adjusted {
        self.adjusted
    }
}

/// True if the two spans may have been timed by different clocks, and the parent waits for the child: the server's side
/// of a client's call, or a child in another service than its parent. Messages are not waited for.
fn may_be_skewed(parent: &Node, child: &Node) -> bool {
    if child.follows || parent.kind == SpanKind::Producer || child.kind == SpanKind::Consumer {
        return false;
    }
    debug_assert_ne!(child.parent, NONE);
    (parent.kind == SpanKind::Client && child.kind == SpanKind::Server) || parent.service != child.service
}
