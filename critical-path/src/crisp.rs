//! The rule of CRISP (Zhang et al., "CRISP: Critical Path Analysis of Large-Scale Microservice
//! Architectures", USENIX ATC 2022), as its published tool computes it.
//!
//! It differs from a plain walk from the end in four ways. Siblings may overlap by 1 % of their
//! parent if nothing else happens in the overlap. The server's span of a clean call is not clipped.
//! A child that encloses its parent is left out. A span's time is its length less its children's on
//! the path, whether or not these overlap.
//!
//! Segments cannot overlap, so here an earlier sibling ends where a later one begins.
//! [`CriticalPath::exclusive`] has the tool's own times.

use astracer_model::SpanKind;
use astracer_recording::stop::Pulse;

use crate::path::{Amount, CriticalPath, Segment};
use crate::place::Adjusted;
use crate::tree::{NONE, Tree, release};

/// The share of the parent's length by which siblings may overlap.
const OVERLAP_ALLOWED: f64 = 0.01;
/// The greatest length of a server span that is not clipped, relative to its client's span.
const SERVER_LONGER_AT_MOST: f64 = 1.01;

/// A span after CRISP has fitted it. A server span's length can be less than the time from start to
/// end: CRISP shortens it to the client's length, but leaves the end where it is.
#[derive(Clone, Copy, Debug)]
struct Fitted {
    start: u64,
    end: u64,
    length: u64,
}

/// Working space, reused from trace to trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crisp {
    fitted: Vec<Option<Fitted>>,
    /// Children by end, latest first.
    sorted: Vec<u32>,
    starts: Vec<u64>,
    ends: Vec<u64>,
    /// Nodes on the path, each with the part of the root's time that belongs to it and its
    /// children.
    stack: Vec<(u32, u64, u64)>,
    exclusive: Vec<i128>,
    on_path: Vec<u32>,
    /// The path's segments, in the order in which they are found.
    segments: Vec<Segment>,
}

impl Crisp {
    /// Writes the path of a tree to `path`. Returns false if the pulse stopped the work.
    pub(crate) fn run(&mut self, tree: &Tree, path: &mut CriticalPath, pulse: &mut Pulse<'_>) -> bool {
        path.adjusted = self.fit(tree);
        self.exclusive.clear();
        self.exclusive.resize(tree.nodes().len(), 0);
        self.on_path.clear();
        let root = tree.nodes()[Tree::ROOT as usize];
        path.drag.push(Amount { node: Tree::ROOT, ns: root.length() });
        self.stack.clear();
        self.stack.push((Tree::ROOT, root.start, root.end));
        while let Some((node, from, to)) = self.stack.pop() {
            self.follow(tree, node, from, to, path);
            if pulse.stopped_after(1 + tree.children(node).len()) {
                return false;
            }
        }
        // Segments do not overlap and none is empty, so their starts order them.
        self.segments.sort_unstable_by_key(|segment| segment.start);
        if self.segments.is_empty() {
            self.segments.push(Segment { node: Tree::ROOT, start: root.start, end: root.end });
        }
        self.segments.iter().for_each(|&segment| path.segments.push(segment));
        release(&mut self.segments);
        let exclusive = &self.exclusive;
        let own = |&node: &u32| Amount { node, ns: exclusive[node as usize].max(0) as u64 };
        self.on_path.iter().map(own).for_each(|amount| path.exclusive.push(amount));
        true
    }

    /// Fits spans into their parents, from the root down.
    fn fit(&mut self, tree: &Tree) -> Adjusted {
        let mut adjusted = Adjusted::default();
        let root = tree.nodes()[Tree::ROOT as usize];
        self.fitted.clear();
        self.fitted.push(Some(Fitted { start: root.start, end: root.end, length: root.length() }));
        for (child, node) in (0u32..).zip(tree.nodes()).skip(1) {
            let outer = self.fitted[node.parent as usize].filter(|_| !tree.side(child).follows);
            let inner = outer.and_then(|outer| {
                let only_child = tree.children(node.parent).len() == 1;
                fit(tree, child, outer, only_child)
            });
            match inner {
                None => {
                    adjusted.dropped_spans += 1;
                    adjusted.dropped_ns += u128::from(node.length());
                }
                Some(inner) if inner.length < node.length() => {
                    adjusted.clipped_spans += 1;
                    adjusted.clipped_ns += u128::from(node.length() - inner.length);
                }
                Some(_) => {}
            }
            self.fitted.push(inner);
        }
        adjusted
    }

    /// Takes the children of a node that are on the path, and gives the node the time between them.
    fn follow(&mut self, tree: &Tree, node: u32, from: u64, to: u64, path: &mut CriticalPath) {
        let Some(own) = self.fitted[node as usize] else { return };
        self.on_path.push(node);
        self.exclusive[node as usize] += i128::from(own.length);
        if tree.nodes()[node as usize].parent != NONE {
            self.exclusive[tree.nodes()[node as usize].parent as usize] -= i128::from(own.length);
        }
        self.sort_children(tree, node);
        let mut instant = to;
        let mut later: Option<Fitted> = None;
        for place in 0..self.sorted.len() {
            let child = self.sorted[place];
            let Some(fitted) = self.fitted[child as usize] else { continue };
            if let Some(later) = later.filter(|later| !self.happens_before(own.length, &fitted, later)) {
                path.slack.push(Amount { node: child, ns: later.end.saturating_sub(fitted.end) });
                continue;
            }
            let next = self.sorted.get(place + 1).and_then(|&next| self.fitted[next as usize]);
            let length = fitted.end - fitted.start;
            let drag = next.map_or(length, |next| length.min(fitted.end.saturating_sub(next.end)));
            path.drag.push(Amount { node: child, ns: drag });
            later = Some(fitted);
            // The part of an unclipped server span outside its client's span is not the client's
            // time.
            let (start, end) = (fitted.start.clamp(from, instant), fitted.end.clamp(from, instant));
            self.segment(node, end, instant);
            self.stack.push((child, start, end));
            instant = start;
        }
        self.segment(node, from, instant);
    }

    fn segment(&mut self, node: u32, start: u64, end: u64) {
        if start < end {
            self.segments.push(Segment { node, start, end });
        }
    }

    /// Sorts the children that were not left out by end, latest first; among equal ends, the last
    /// in the order of the trace comes first. CRISP takes the last in the file, which is the same
    /// unless siblings end together.
    fn sort_children(&mut self, tree: &Tree, node: u32) {
        let fitted = &self.fitted;
        let left = || tree.children(node).filter_map(|child| fitted[child as usize]);
        self.starts.clear();
        self.starts.extend(left().map(|child| child.start));
        self.starts.sort_unstable();
        self.ends.clear();
        self.ends.extend(left().map(|child| child.end));
        self.ends.sort_unstable();
        self.sorted.clear();
        self.sorted.extend(tree.children(node).filter(|&child| fitted[child as usize].is_some()));
        let key = |&child: &u32| (fitted[child as usize].map(|fitted| fitted.end), child);
        self.sorted.sort_unstable_by_key(|child| std::cmp::Reverse(key(child)));
    }

    /// Whether a sibling counts as ended when the other begins: it ended before, or they overlap
    /// slightly and no other sibling begins or ends within the overlap.
    fn happens_before(&self, parent_length: u64, earlier: &Fitted, later: &Fitted) -> bool {
        if earlier.end < later.start {
            return true;
        }
        if earlier.end >= later.end || earlier.start >= later.start || parent_length == 0 {
            return false;
        }
        let overlap = (earlier.end - later.start) as f64 / parent_length as f64;
        let within = |times: &[u64]| {
            times.partition_point(|&time| time <= earlier.end)
                - times.partition_point(|&time| time < later.start)
        };
        overlap < OVERLAP_ALLOWED && within(&self.starts) + within(&self.ends) == 2
    }
}

/// Fits one child into its parent; `None` if it is left out.
fn fit(tree: &Tree, child: u32, outer: Fitted, only_child: bool) -> Option<Fitted> {
    let node = &tree.nodes()[child as usize];
    let (start, end, length) = (node.start, node.end, node.length());
    let acceptable = length as f64 <= SERVER_LONGER_AT_MOST * outer.length as f64;
    if only_child && acceptable && is_call(tree, node.parent, child) {
        return Some(Fitted { start, end, length: length.min(outer.length) });
    }
    if start >= outer.start && end <= outer.end {
        Some(Fitted { start, end, length })
    } else if start < outer.start && end <= outer.end && end > outer.start {
        Some(Fitted { start: outer.start, end, length: end - outer.start })
    } else if start >= outer.start && end > outer.end && start < outer.end {
        Some(Fitted { start, end: outer.end, length: outer.end - start })
    } else {
        None
    }
}

/// Whether the child is the server side of a call by its parent, given that the parent has no other
/// child.
fn is_call(tree: &Tree, parent: u32, child: u32) -> bool {
    let kind = |node: u32| tree.side(node).kind;
    let above = tree.nodes()[parent as usize].parent;
    let clean = kind(child) == SpanKind::Server && kind(parent) == SpanKind::Client;
    let fuzzy = kind(child) == SpanKind::Server
        && kind(parent) != SpanKind::Server
        && above != NONE
        && kind(above) == SpanKind::Server;
    let hosts = tree.host(child).zip(tree.host(parent));
    let other_host = hosts.is_some_and(|(child, parent)| child != parent);
    clean || fuzzy || other_host
}
