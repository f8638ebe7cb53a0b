//! One trace as the span rules read it: spans as a tree of intervals, in flat arrays.
//!
//! A tree is refilled from trace to trace, so that a recording of many small traces costs no allocation for each.

use std::ops::Range;

use astracer_model::SpanKind;
use astracer_recording::intern::Symbol;
use astracer_recording::recording::TraceView;

/// "No node" where a node's number is expected.
pub const NONE: u32 = u32::MAX;

/// One span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Start, ns since the epoch.
    pub start: u64,
    /// End, ns since the epoch; never before the start. A span that never ended has its start here.
    pub end: u64,
    /// The node that it hangs under, or [`NONE`].
    pub parent: u32,
    /// The span's place in the recording: spans in the order of the input.
    pub order: u32,
    /// The operation.
    pub name: Symbol,
    /// The service, which stands for the machine whose clock wrote the times.
    pub service: Symbol,
    /// The host, if the recording was read with one; [`NO_HOST`] otherwise.
    pub host: Symbol,
    /// The side of a call.
    pub kind: SpanKind,
    /// True if its parent did not wait for it (Jaeger's FOLLOWS_FROM).
    pub follows: bool,
}

/// The host of a span of which no host is known.
pub const NO_HOST: Symbol = Symbol(u32::MAX);

impl Node {
    /// From start to end, ns.
    pub fn length(&self) -> u64 {
        self.end - self.start
    }
}

/// A trace's spans, parents before children.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    nodes: Vec<Node>,
    /// The first child of each node, whose children have numbers in a row; one more entry at the end.
    first: Vec<u32>,
    /// Nodes that hang neither under the root nor under one of its descendants: further roots, orphans.
    unreached: u32,
    scratch: Scratch,
}

#[derive(Clone, Debug, Default)]
struct Scratch {
    nodes: Vec<Node>,
    positions: Vec<(u32, u32)>,
    first: Vec<u32>,
    children: Vec<u32>,
    renumbered: Vec<u32>,
    queue: Vec<u32>,
}

impl Tree {
    /// The number of the root; the tree is never empty once it was filled.
    pub const ROOT: u32 = 0;

    /// Fills the tree with a trace. `host` gives a span's host from its labels.
    pub fn read(&mut self, trace: TraceView<'_>, host: impl Fn(Symbol) -> Symbol) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.nodes.clear();
        scratch.positions.clear();
        let root = trace.root().index();
        if trace.span_count() > 1 {
            let indices = trace.spans().map(|span| span.index());
            scratch.positions.extend(indices.zip(0..));
            scratch.positions.sort_unstable();
        } else {
            scratch.positions.push((root, 0));
        }
        let position = |index: u32| {
            let found = scratch.positions.binary_search_by_key(&index, |&(index, _)| index);
            found.map_or(NONE, |at| scratch.positions[at].1)
        };
        scratch.nodes.extend(trace.spans().map(|span| {
            let start = span.start().0;
            Node {
                start,
                end: span.end().map_or(start, |end| end.0.max(start)),
                parent: span.parent().map_or(NONE, |parent| position(parent.index())),
                order: span.index(),
                name: span.name_symbol(),
                service: span.service_symbol(),
                host: span.label_symbol().map_or(NO_HOST, &host),
                kind: span.kind(),
                follows: span.follows(),
            }
        }));
        let root = position(root);
        self.scratch = scratch;
        self.link(root);
    }

    /// Fills the tree with nodes in any order, of which `root` is the root. Parents must not form a cycle.
    pub fn fill(&mut self, nodes: &[Node], root: u32) {
        self.scratch.nodes.clear();
        self.scratch.nodes.extend_from_slice(nodes);
        self.link(root);
    }

    /// Renumbers the scratch nodes below `root` in breadth-first order, which puts parents before children and the
    /// children of a node next to each other.
    fn link(&mut self, root: u32) {
        let Scratch { nodes, first, children, renumbered, queue, .. } = &mut self.scratch;
        first.clear();
        first.resize(nodes.len() + 1, 0);
        for node in nodes.iter().filter(|node| node.parent != NONE) {
            first[node.parent as usize + 1] += 1;
        }
        for at in 0..nodes.len() {
            first[at + 1] += first[at];
        }
        children.clear();
        children.resize(nodes.len(), NONE);
        // `renumbered` first serves as the next free slot of each node.
        renumbered.clear();
        renumbered.extend_from_slice(first);
        for (at, node) in (0u32..).zip(nodes.iter()).filter(|(_, node)| node.parent != NONE) {
            let slot = &mut renumbered[node.parent as usize];
            children[*slot as usize] = at;
            *slot += 1;
        }
        queue.clear();
        queue.push(root);
        self.nodes.clear();
        self.first.clear();
        let mut done = 0;
        while let Some(&at) = queue.get(done) {
            renumbered[at as usize] = done as u32;
            let node = nodes[at as usize];
            // A root has no parent, even if orphans are cut off a parent that was found elsewhere.
            let parent = if done == 0 { NONE } else { renumbered[node.parent as usize] };
            self.nodes.push(Node { parent, ..node });
            self.first.push(queue.len() as u32);
            let below = first[at as usize] as usize..first[at as usize + 1] as usize;
            // The root is not among its own children: parents form no cycle.
            queue.extend(children[below].iter().copied().filter(|&child| child != root));
            done += 1;
        }
        self.first.push(queue.len() as u32);
        self.unreached = (nodes.len() - done) as u32;
    }

    /// The nodes, parents before children.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The number of spans that the root's tree does not reach.
    pub fn unreached(&self) -> u32 {
        self.unreached
    }

    /// The children of a node, in the order of the trace: by start, then by place in the input.
    pub fn children(&self, node: u32) -> Range<u32> {
        self.first[node as usize]..self.first[node as usize + 1]
    }
}
