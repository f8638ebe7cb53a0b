//! The walk from the root's end back to its start, shared by the rules `last` and `jaeger`.
//!
//! At any moment the walk is in one span, at one instant. It looks for the child that ended last
//! before that instant. From that child's end on, the span itself caused the delay; before it, the
//! child did. So the walk continues inside the child, from the child's end, and returns to the span
//! at the child's start.

use std::cmp::Reverse;

use astracer_recording::stop::Pulse;

use crate::path::{Amount, CriticalPath, Segment};
use crate::place::{Interval, Placed};
use crate::tree::{NONE, Tree, release};

/// The differences between the two rules.
pub(crate) struct Order<'a> {
    /// The end and start by which children are ordered: the latest end first, among equal ends the
    /// earliest start, and among equal spans the first.
    pub(crate) key: &'a dyn Fn(u32) -> (u64, u64),
    /// Whether a child ended before the walk's instant. `returning` is true once a child of the
    /// span was taken.
    pub(crate) before: fn(child: Interval, instant: u64, returning: bool) -> bool,
    /// Whether a child is considered at all.
    pub(crate) counts: fn(child: Interval) -> bool,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    node: u32,
    /// The next child to consider, by its index in the sorted children.
    next: u32,
    /// The child that was taken last, or [`NONE`]. The walk has covered the span's time down to
    /// that child's start, or has only reached the span's end.
    taken: u32,
}

/// Working space, reused from trace to trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk {
    sorted: Vec<u32>,
    stack: Vec<Frame>,
}

impl Walk {
    /// Writes the path of a placed tree to `path`, with segments in order of time. Returns false if
    /// the pulse stopped the work.
    pub(crate) fn run(
        &mut self,
        tree: &Tree,
        placed: &Placed,
        order: &Order<'_>,
        path: &mut CriticalPath,
        pulse: &mut Pulse<'_>,
    ) -> bool {
        let (root, count) = (tree.nodes()[Tree::ROOT as usize], tree.nodes().len());
        // Reserve once: pages that are never written use no memory, while growing vectors would be
        // copied.
        path.segments.reserve(2 * count);
        path.drag.reserve(count);
        path.drag.push(Amount { node: Tree::ROOT, ns: root.length() });
        if count > 1 {
            if !self.sort(tree, placed, order, pulse) || !self.descend(tree, placed, order, path, pulse) {
                return false;
            }
            path.segments.reverse();
        }
        if path.segments.is_empty() {
            path.segments.push(Segment { node: Tree::ROOT, start: root.start, end: root.end });
        }
        true
    }

    /// Sorts the children of each node, those that do not count last. The children of a node keep
    /// their range of numbers.
    fn sort(&mut self, tree: &Tree, placed: &Placed, order: &Order<'_>, pulse: &mut Pulse<'_>) -> bool {
        let count = tree.nodes().len() as u32;
        self.sorted.clear();
        self.sorted.reserve_exact(count as usize);
        self.sorted.extend(0..count);
        let left_out = |child: u32| !placed.interval(tree, child).is_some_and(order.counts);
        let key = |&child: &u32| {
            let (end, start) = (order.key)(child);
            (left_out(child), Reverse(end), start, child)
        };
        for node in 0..count {
            let range = tree.children(node);
            let children = &mut self.sorted[range.start as usize..range.end as usize];
            if !pulse.sort_by_key(children, key) || pulse.stopped() {
                return false;
            }
        }
        true
    }

    fn descend(
        &mut self,
        tree: &Tree,
        placed: &Placed,
        order: &Order<'_>,
        path: &mut CriticalPath,
        pulse: &mut Pulse<'_>,
    ) -> bool {
        let frame = |node: u32| Frame { node, next: tree.children(node).start, taken: NONE };
        self.stack.clear();
        self.stack.push(frame(Tree::ROOT));
        // Each step considers one child or leaves a span, so the walk is linear, and any depth
        // needs no recursion.
        while let Some(top) = self.stack.last_mut() {
            if pulse.stopped() {
                return false;
            }
            let interval = |place: u32| {
                let child =
                    self.sorted.get(place as usize).filter(|_| place < tree.children(top.node).end)?;
                Some((*child, placed.interval(tree, *child).filter(|&own| (order.counts)(own))?))
            };
            // Both have an interval: they were taken, or are the root.
            let taken =
                Some(top.taken).filter(|&taken| taken != NONE).and_then(|taken| placed.interval(tree, taken));
            let Some(whole) = placed.interval(tree, top.node) else { break };
            let instant = taken.map_or(whole.end, |taken| taken.start);
            let Some((child, own)) = interval(top.next) else {
                path.segments.push_before(Segment { node: top.node, start: whole.start, end: instant });
                self.stack.pop();
                continue;
            };
            // The sibling that ended last before this one: the child can shrink until it ends when
            // that sibling does.
            let sibling = interval(top.next + 1);
            top.next += 1;
            if !(order.before)(own, instant, taken.is_some()) {
                let ns = taken.map_or(0, |taken| taken.end.saturating_sub(own.end));
                path.slack.push(Amount { node: child, ns });
                continue;
            }
            path.segments.push_before(Segment { node: top.node, start: own.end, end: instant });
            let ns =
                sibling.map_or(own.length(), |(_, next)| own.length().min(own.end.saturating_sub(next.end)));
            path.drag.push(Amount { node: child, ns });
            top.taken = child;
            self.stack.push(frame(child));
        }
        release(&mut self.stack);
        release(&mut self.sorted);
        true
    }
}
