//! Fits children into their parents: spans timed by a skewed clock are shifted, and what is still
//! outside is clipped.
//!
//! The clocks of two machines disagree, so a server's span often lies outside the client's span
//! that caused it. There are two treatments, [`Skew::Shift`] and [`Skew::Clip`];
//! `docs/critical-path.md` gives the rules with an example.
//!
//! After fitting, every interval lies within its parent's, and so within the root's. This is why
//! the segments of a path cover the root exactly.

use astracer_model::SpanKind;
use astracer_recording::stop::Pulse;

use crate::tree::{Node, Tree, release};

/// The treatment of a child from another machine that reaches outside its parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Skew {
    /// Shift it, with everything below it, by the least amount that puts it inside its parent; clip
    /// it if it is too long for that.
    #[default]
    Shift,
    /// Clip it: cut off the parts outside its parent.
    Clip,
}

/// A node's time after it has been fitted into its parent's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interval {
    /// Start, ns since the epoch.
    pub start: u64,
    /// End, ns since the epoch; never before the start.
    pub end: u64,
}

impl Interval {
    /// The time from start to end, ns.
    pub fn length(self) -> u64 {
        self.end - self.start
    }
}

/// The changes that fitting made in one trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adjusted {
    /// The number of spans with a shift of their own, not counting those that were shifted with an
    /// ancestor.
    pub shifted_spans: u64,
    /// The total length that was clipped, ns.
    pub clipped_ns: u128,
    /// The number of spans that were clipped.
    pub clipped_spans: u64,
    /// The total length of the spans that were left out because they lie entirely outside their
    /// parents, including those below them, ns.
    pub dropped_ns: u128,
    /// The number of spans that were left out, including those below them.
    pub dropped_spans: u64,
}

/// Stands for no interval, in half the memory of an `Option`: it ends before it starts.
const LEFT_OUT: Interval = Interval { start: 1, end: 0 };

impl From<&Node> for Interval {
    fn from(node: &Node) -> Self {
        Interval { start: node.start, end: node.end }
    }
}

/// The distances by which nodes were moved, in ns, by their own and their ancestors' shifts. Empty
/// while no node has moved, as in most traces.
#[derive(Clone, Debug, Default)]
struct Moves {
    /// The absolute distance. Distances beyond 64 bits saturate, which is outside any parent too.
    sizes: Vec<u64>,
    earlier: Vec<bool>,
}

impl Moves {
    fn clear(&mut self) {
        release(&mut self.sizes);
        release(&mut self.earlier);
    }

    fn get(&self, node: u32) -> i128 {
        let Some(&size) = self.sizes.get(node as usize) else { return 0 };
        if self.earlier[node as usize] { -i128::from(size) } else { i128::from(size) }
    }

    /// `count` is the number of nodes.
    fn set(&mut self, node: u32, moved: i128, count: usize) {
        if self.sizes.is_empty() {
            if moved == 0 {
                return;
            }
            self.sizes.resize(count, 0);
            self.earlier.resize(count, false);
        }
        self.sizes[node as usize] = u64::try_from(moved.unsigned_abs()).unwrap_or(u64::MAX);
        self.earlier[node as usize] = moved < 0;
    }
}

/// The fitted intervals of a tree's nodes.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    /// One per node; [`LEFT_OUT`] for a node that was left out. Empty while every node has its
    /// recorded interval, as in most traces of a single clock.
    intervals: Vec<Interval>,
    moves: Moves,
    remote: Vec<u32>,
    adjusted: Adjusted,
}

impl Placed {
    /// Fits every node of the tree into its parent. Returns false if the pulse stopped the work.
    pub fn place(&mut self, tree: &Tree, skew: Skew, pulse: &mut Pulse<'_>) -> bool {
        self.begin();
        for parent in 0..tree.nodes().len() as u32 {
            if skew == Skew::Shift && self.interval(tree, parent).is_some() {
                self.shift_children(tree, parent);
            }
            self.clip_children(tree, parent);
            if pulse.stopped_after(1 + tree.children(parent).len()) {
                return false;
            }
        }
        true
    }

    fn begin(&mut self) {
        release(&mut self.intervals);
        self.moves.clear();
        self.adjusted = Adjusted::default();
    }

    /// Shifts the children that another clock timed into their parent. All children of one service
    /// move by the same amount if one amount fits them all, because one clock timed them and their
    /// order should stay.
    fn shift_children(&mut self, tree: &Tree, parent: u32) {
        let above = &tree.nodes()[parent as usize];
        let (moved, count) = (self.moves.get(parent), tree.nodes().len());
        let mut remote = std::mem::take(&mut self.remote);
        remote.clear();
        for child in tree.children(parent) {
            self.moves.set(child, moved, count);
            if may_be_skewed(tree, parent, child) {
                remote.push(child);
            }
        }
        // Sorted by service, so that children of one clock are adjacent; the stable sort keeps them
        // by start.
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
                self.moves.set(child, moved + shift, count);
                self.adjusted.shifted_spans += u64::from(shift != 0);
            }
        }
        self.remote = remote;
    }

    fn clip_children(&mut self, tree: &Tree, parent: u32) {
        let Some(outer) = self.interval(tree, parent) else {
            for child in tree.children(parent) {
                self.adjusted.dropped_spans += 1;
                self.adjusted.dropped_ns += u128::from(tree.nodes()[child as usize].length());
                self.set(tree, child, LEFT_OUT);
            }
            return;
        };
        for child in tree.children(parent) {
            let node = &tree.nodes()[child as usize];
            let moved = self.moves.get(child);
            let (start, end) = (i128::from(node.start) + moved, i128::from(node.end) + moved);
            let inner_start = start.max(i128::from(outer.start));
            let inner_end = end.min(i128::from(outer.end));
            // A span that only touches its parent from outside has no time in it.
            if inner_end < inner_start || (inner_end == inner_start && start < end) {
                self.adjusted.dropped_spans += 1;
                self.adjusted.dropped_ns += u128::from(node.length());
                self.set(tree, child, LEFT_OUT);
                continue;
            }
            let inside = (inner_end - inner_start) as u64;
            if inside < node.length() {
                self.adjusted.clipped_spans += 1;
                self.adjusted.clipped_ns += u128::from(node.length() - inside);
            }
            self.set(tree, child, Interval { start: inner_start as u64, end: inner_end as u64 });
        }
    }

    /// Fits nodes as Jaeger's user interface does: clips them, drops those that begin at their
    /// parent's end or later or end at its start or earlier, and leaves out spans that only follow
    /// from another.
    pub(crate) fn place_as_jaeger(&mut self, tree: &Tree) {
        self.begin();
        for (child, node) in (0u32..).zip(tree.nodes()).skip(1) {
            let follows = tree.side(child).follows;
            let Some(outer) = self.interval(tree, node.parent).filter(|_| !follows) else {
                self.adjusted.dropped_spans += 1;
                self.adjusted.dropped_ns += u128::from(node.length());
                self.set(tree, child, LEFT_OUT);
                continue;
            };
            let outside = node.start >= outer.end || (node.start < outer.start && node.end <= outer.start);
            if outside {
                self.adjusted.dropped_spans += 1;
                self.adjusted.dropped_ns += u128::from(node.length());
                self.set(tree, child, LEFT_OUT);
                continue;
            }
            let inner = Interval { start: node.start.max(outer.start), end: node.end.min(outer.end) };
            if inner.length() < node.length() {
                self.adjusted.clipped_spans += 1;
                self.adjusted.clipped_ns += u128::from(node.length() - inner.length());
            }
            self.set(tree, child, inner);
        }
    }

    fn set(&mut self, tree: &Tree, node: u32, interval: Interval) {
        if self.intervals.is_empty() {
            if interval == Interval::from(&tree.nodes()[node as usize]) {
                return;
            }
            self.intervals.reserve_exact(tree.nodes().len());
            self.intervals.extend(tree.nodes().iter().map(Interval::from));
        }
        self.intervals[node as usize] = interval;
    }

    /// The interval of a node; `None` if it was left out. `tree` must be the tree that was placed.
    pub fn interval(&self, tree: &Tree, node: u32) -> Option<Interval> {
        let interval = match self.intervals.get(node as usize) {
            Some(&fitted) => fitted,
            None => Interval::from(&tree.nodes()[node as usize]),
        };
        Some(interval).filter(|interval| interval.start <= interval.end)
    }

    /// Whether the node or one of its ancestors was shifted.
    pub fn was_moved(&self, node: u32) -> bool {
        self.moves.get(node) != 0
    }

    /// The changes that fitting made.
    pub fn adjusted(&self) -> Adjusted {
        self.adjusted
    }
}

/// Whether the two spans may have been timed by different clocks while the parent waits for the
/// child: the child is the server side of a client's call, or in another service. Nobody waits for
/// messages.
fn may_be_skewed(tree: &Tree, parent: u32, child: u32) -> bool {
    let (above, below) = (tree.side(parent), tree.side(child));
    if below.follows || above.kind == SpanKind::Producer || below.kind == SpanKind::Consumer {
        return false;
    }
    let service = |node: u32| tree.nodes()[node as usize].service;
    (above.kind == SpanKind::Client && below.kind == SpanKind::Server) || service(parent) != service(child)
}
