//! Re-timing: the duration of a request if some functions were faster or slower.
//!
//! A span's own time is the time in which the span itself, not a child, delayed the request: from
//! the latest end of a child so far (or its own start) to the next start of a child, or to its own
//! end. Re-timing multiplies a span's own time by its function's factor and preserves the waiting
//! order: a child still starts that own time after every child that had ended by then, and the span
//! still ends its own time after the last of them. `docs/critical-path.md` has an example worked by
//! hand.

use astracer_recording::intern::Symbol;

use crate::place::Placed;
use crate::tree::Tree;

/// Working space, reused from trace to trace.
#[derive(Clone, Debug, Default)]
pub struct Retimer {
    /// The new length of each node, ns.
    lengths: Vec<f64>,
    by_start: Vec<u32>,
    by_end: Vec<u32>,
    /// The new end of each node, relative to its parent's start, ns.
    ends: Vec<f64>,
}

impl Retimer {
    /// The root's new length in ns, with `factor` applied to each function's own time. Uses the
    /// intervals of the rule `last`. Spans of length zero are ignored.
    pub fn retime(&mut self, tree: &Tree, placed: &Placed, factor: impl Fn(Symbol) -> f64) -> f64 {
        self.lengths.clear();
        self.lengths.resize(tree.nodes().len(), 0.0);
        self.ends.clear();
        self.ends.resize(tree.nodes().len(), 0.0);
        // Children have higher numbers than their parents, so their new lengths are already known.
        for node in (0..tree.nodes().len() as u32).rev() {
            let length = self.retime_span(tree, placed, node, factor(tree.nodes()[node as usize].name));
            self.lengths[node as usize] = length;
        }
        self.lengths[Tree::ROOT as usize]
    }

    /// The new length of one span, whose children's new lengths are known.
    fn retime_span(&mut self, tree: &Tree, placed: &Placed, node: u32, factor: f64) -> f64 {
        let Some(own) = placed.interval(tree, node) else { return 0.0 };
        let interval = |child: u32| placed.interval(tree, child).filter(|interval| interval.length() > 0);
        self.by_start.clear();
        self.by_start.extend(tree.children(node).filter(|&child| interval(child).is_some()));
        let start = |&child: &u32| interval(child).map(|interval| interval.start);
        let end = |&child: &u32| interval(child).map(|interval| interval.end);
        self.by_end.clear();
        self.by_end.extend_from_slice(&self.by_start);
        self.by_start.sort_by_key(start);
        self.by_end.sort_by_key(end);
        // The latest end so far, before and after re-timing; both relative to the span's start.
        let (mut was, mut is) = (0.0f64, 0.0f64);
        let mut ended = 0;
        let mut begin = 0;
        loop {
            let child = self.by_start.get(begin).copied();
            let instant = child.and_then(|child| start(&child)).unwrap_or(own.end);
            while let Some(&earlier) = self.by_end.get(ended).filter(|child| end(child) <= Some(instant)) {
                // This child has ended by now and has a length, so it started earlier: its new end
                // is known.
                was = was.max(end(&earlier).map_or(0.0, |end| (end - own.start) as f64));
                is = is.max(self.ends[earlier as usize]);
                ended += 1;
            }
            let now = is + factor * ((instant - own.start) as f64 - was);
            let Some(child) = child else { return now };
            self.ends[child as usize] = now + self.lengths[child as usize];
            begin += 1;
        }
    }
}
