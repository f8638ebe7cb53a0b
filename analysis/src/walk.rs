//! The walk from the root's end back to its start that the rules `last` and `jaeger` share.
//!
//! At any moment the walk is in one span, at one instant. It looks for the child that ended last before that instant:
//! until then the child held the span up, from then on the span itself did. The walk goes on at the child's end inside
//! of the child, and comes back to the span at the child's start.

use crate::path::{Amount, CriticalPath};
use crate::place::{Interval, Placed};
use crate::tree::Tree;

/// The differences between the two rules.
pub(crate) struct Order<'a> {
    /// Compares two children of one node; the first in order is asked first.
    pub(crate) compare: &'a dyn Fn(u32, u32) -> std::cmp::Ordering,
    /// Tells whether a child ended before the walk's instant. `returning` is true once a child of the span was taken.
    pub(crate) before: fn(child: Interval, instant: u64, returning: bool) -> bool,
    /// Tells whether a child is looked at at all.
    pub(crate) counts: fn(child: Interval) -> bool,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    node: u32,
    /// The instant down to which the span's time is told.
    instant: u64,
    /// The next child to look at, by its place in the sorted children.
    next: u32,
    /// The end of the child that was taken last, if one was.
    taken: Option<Interval>,
}

/// Working space, kept from trace to trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk {
    sorted: Vec<u32>,
    stack: Vec<Frame>,
}

impl Walk {
    /// Writes the path of a placed tree to `path`, whose segments come out in order of time.
    pub(crate) fn run(&mut self, tree: &Tree, placed: &Placed, order: &Order<'_>, path: &mut CriticalPath) {
        let root = tree.nodes()[Tree::ROOT as usize];
        path.drag.push(Amount { node: Tree::ROOT, ns: root.length() });
        if tree.nodes().len() > 1 {
            self.sort(tree, placed, order);
            self.descend(tree, placed, order, path);
            path.segments.reverse();
        } else {
            path.segment(Tree::ROOT, root.start, root.end);
        }
        if path.segments.is_empty() {
            path.segments.push(crate::path::Segment { node: Tree::ROOT, start: root.start, end: root.end });
        }
    }

    /// Sorts the children of each node, those that do not count last; a node's children keep their range of numbers.
    fn sort(&mut self, tree: &Tree, placed: &Placed, order: &Order<'_>) {
        let count = tree.nodes().len() as u32;
        self.sorted.clear();
        self.sorted.extend(0..count);
        let left_out = |child: u32| !placed.interval(child).is_some_and(order.counts);
        for node in 0..count {
            let range = tree.children(node);
            let children = &mut self.sorted[range.start as usize..range.end as usize];
            children.sort_by(|&a, &b| left_out(a).cmp(&left_out(b)).then_with(|| (order.compare)(a, b)));
        }
    }

    fn descend(&mut self, tree: &Tree, placed: &Placed, order: &Order<'_>, path: &mut CriticalPath) {
        let frame =
            |node: u32, instant: u64| Frame { node, instant, next: tree.children(node).start, taken: None };
        self.stack.clear();
        self.stack.push(frame(Tree::ROOT, tree.nodes()[Tree::ROOT as usize].end));
        // Each step looks at one child or leaves a span: linear, and as deep as the trace without recursion.
        while let Some(top) = self.stack.last_mut() {
            let interval = |place: u32| {
                let child =
                    self.sorted.get(place as usize).filter(|_| place < tree.children(top.node).end)?;
                Some((*child, placed.interval(*child).filter(|&own| (order.counts)(own))?))
            };
            let Some((child, own)) = interval(top.next) else {
                let start = placed.interval(top.node).map_or(top.instant, |own| own.start);
                path.segment(top.node, start, top.instant);
                self.stack.pop();
                continue;
            };
            // The sibling that ended last before this one: until then this one can shrink.
            let sibling = interval(top.next + 1);
            top.next += 1;
            if !(order.before)(own, top.instant, top.taken.is_some()) {
                let ns = top.taken.map_or(0, |taken| taken.end.saturating_sub(own.end));
                path.slack.push(Amount { node: child, ns });
                continue;
            }
            path.segment(top.node, own.end, top.instant);
            let ns =
                sibling.map_or(own.length(), |(_, next)| own.length().min(own.end.saturating_sub(next.end)));
            path.drag.push(Amount { node: child, ns });
            (top.instant, top.taken) = (own.start, Some(own));
            self.stack.push(frame(child, own.end));
        }
    }
}
