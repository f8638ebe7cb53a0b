//! One trace as a tree of intervals, in flat arrays, for the rules that work on spans.
//!
//! A tree is refilled for each trace, so that a recording of many small traces needs no allocation
//! per trace.

use std::ops::Range;

use astracer_causality::shifts::Shifts;
use astracer_model::SpanKind;
use astracer_recording::intern::Symbol;
use astracer_recording::recording::TraceView;
use astracer_recording::stop::Pulse;

/// Stands for "no node" in place of a node's number.
pub const NONE: u32 = u32::MAX;

/// One span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Start, ns since the epoch.
    pub start: u64,
    /// End, ns since the epoch; never before the start. Equal to the start for a span that never
    /// ended.
    pub end: u64,
    /// The number of the parent node, or [`NONE`].
    pub parent: u32,
    /// The span's index in the recording, in the order of the input.
    pub order: u32,
    /// The operation.
    pub name: Symbol,
    /// The service, which stands for the machine whose clock wrote the times.
    pub service: Symbol,
}

/// The relation of a span to its parent, apart from their times. Not part of [`Node`], because it
/// is rarely read and would make nodes a quarter larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// The side of a call.
    pub kind: SpanKind,
    /// True if the parent did not wait for the span (Jaeger's FOLLOWS_FROM).
    pub follows: bool,
}

/// Stands for an unknown host.
pub const NO_HOST: Symbol = Symbol(u32::MAX);

impl Node {
    /// A node that has not been written yet.
    const NOTHING: Self =
        Self { start: 0, end: 0, parent: NONE, order: 0, name: Symbol(0), service: Symbol(0) };

    /// The time from start to end, ns.
    pub fn length(&self) -> u64 {
        self.end - self.start
    }
}

/// A trace's spans, parents before children.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    nodes: Vec<Node>,
    sides: Vec<Side>,
    /// Empty if no span has a host.
    hosts: Vec<Symbol>,
    /// The first child of each node, with one more entry at the end. The children of a node have
    /// consecutive numbers.
    first: Vec<u32>,
    /// The number of spans outside the root's tree: further roots, orphans, and their descendants.
    unreached: u32,
    scratch: Scratch,
}

/// Working space, reused from trace to trace unless a trace was large.
#[derive(Clone, Debug, Default)]
struct Scratch {
    /// For each span, in the order of the trace, the position of its parent, or [`NONE`].
    parents: Vec<u32>,
    /// For each position, the index of its first child in `children`; one more entry at the end.
    first: Vec<u32>,
    children: Vec<u32>,
    /// The node number that each position gets, or [`NONE`].
    numbers: Vec<u32>,
    queue: Vec<u32>,
    /// Pairs of a span's index in the recording and its position in the trace, sorted by index.
    positions: Vec<(u32, u32)>,
}

/// Working space for more spans than this is freed: otherwise a recording with one huge trace would
/// hold it in addition to the tree. Smaller traces reuse it.
const KEPT_SPANS_MAX: usize = 1 << 14;

/// Clears a vector, and frees its memory if it is large.
pub(crate) fn release<T>(values: &mut Vec<T>) {
    values.clear();
    if values.capacity() > KEPT_SPANS_MAX {
        *values = Vec::new();
    }
}

impl Tree {
    /// The number of the root. A tree that has been filled is never empty.
    pub const ROOT: u32 = 0;

    /// Fills the tree with a trace, with times less what `shifts` says their clocks run ahead.
    /// `host` maps a span's labels to its host. Returns false if the
    /// pulse stopped the work; the tree is empty then.
    pub fn read(
        &mut self,
        trace: TraceView<'_>,
        host: impl Fn(Symbol) -> Symbol,
        shifts: &Shifts,
        pulse: &mut Pulse<'_>,
    ) -> bool {
        self.clear();
        let Scratch { parents, positions, .. } = &mut self.scratch;
        parents.clear();
        positions.clear();
        let root = trace.root().index();
        positions.reserve_exact(trace.span_count());
        positions.extend(trace.spans().map(|span| span.index()).zip(0..));
        if !pulse.sort_by_key(positions, |&position| position) {
            return false;
        }
        let position = |index: u32| {
            let found = positions.binary_search_by_key(&index, |&(index, _)| index);
            found.map_or(NONE, |at| positions[at].1)
        };
        parents.reserve_exact(trace.span_count());
        for span in trace.spans() {
            parents.push(span.parent().map_or(NONE, |parent| position(parent.index())));
            if pulse.stopped() {
                return false;
            }
        }
        let root = position(root);
        release(&mut self.scratch.positions);
        let nodes = trace.spans().map(|span| {
            let start = shifts.start(span);
            let node = Node {
                start,
                end: shifts.end(span).map_or(start, |end| end.max(start)),
                parent: NONE,
                order: span.index(),
                name: span.name_symbol(),
                service: span.service_symbol(),
            };
            let side = Side { kind: span.kind(), follows: span.follows() };
            (node, side, span.label_symbol().map_or(NO_HOST, &host))
        });
        self.link(root, nodes, pulse)
    }

    /// Fills the tree with nodes in any order, with `root` as the index of the root. Hosts may be
    /// [`NO_HOST`]. Parents must not form a cycle.
    pub fn fill(&mut self, nodes: &[(Node, Side, Symbol)], root: u32) {
        self.clear();
        self.scratch.parents.clear();
        self.scratch.parents.extend(nodes.iter().map(|(node, ..)| node.parent));
        self.link(root, nodes.iter().copied(), &mut Pulse::never());
    }

    fn clear(&mut self) {
        release(&mut self.nodes);
        release(&mut self.sides);
        release(&mut self.hosts);
        release(&mut self.first);
    }

    /// Numbers the nodes below `root` in breadth-first order, which puts parents before children
    /// and the children of a node next to each other.
    fn link(
        &mut self,
        root: u32,
        nodes: impl Iterator<Item = (Node, Side, Symbol)>,
        pulse: &mut Pulse<'_>,
    ) -> bool {
        let Scratch { parents, first, children, numbers, queue, .. } = &mut self.scratch;
        let count = parents.len();
        first.clear();
        first.resize(count + 1, 0);
        for &parent in parents.iter().filter(|&&parent| parent != NONE) {
            first[parent as usize + 1] += 1;
        }
        for at in 0..count {
            first[at + 1] += first[at];
        }
        children.clear();
        children.resize(count, NONE);
        // At first, `numbers` holds the next free slot for each parent's children.
        numbers.clear();
        numbers.extend_from_slice(first);
        if pulse.stopped_after(count) {
            return false;
        }
        for (at, &parent) in (0u32..).zip(parents.iter()).filter(|&(_, &parent)| parent != NONE) {
            let slot = &mut numbers[parent as usize];
            children[*slot as usize] = at;
            *slot += 1;
        }
        numbers.fill(NONE);
        queue.clear();
        queue.reserve_exact(count);
        queue.push(root);
        self.first.reserve_exact(count + 1);
        let mut done = 0;
        while let Some(&at) = queue.get(done) {
            numbers[at as usize] = done as u32;
            self.first.push(queue.len() as u32);
            let below = first[at as usize] as usize..first[at as usize + 1] as usize;
            // The root is not queued again, even if its recorded parent is one of its descendants.
            queue.extend(children[below].iter().copied().filter(|&child| child != root));
            done += 1;
            if pulse.stopped() {
                self.first.clear();
                return false;
            }
        }
        self.first.push(queue.len() as u32);
        release(first);
        release(children);
        release(queue);
        self.unreached = (count - done) as u32;
        self.nodes.reserve_exact(done);
        self.nodes.resize(done, Node::NOTHING);
        self.sides.reserve_exact(done);
        self.sides.resize(done, Side::default());
        for (at, (node, side, host)) in nodes.enumerate().filter(|&(at, _)| numbers[at] != NONE) {
            // The root gets no parent, even if its recorded parent was found elsewhere in the
            // trace.
            let parent = if at == root as usize { NONE } else { numbers[parents[at] as usize] };
            let number = numbers[at] as usize;
            self.nodes[number] = Node { parent, ..node };
            self.sides[number] = side;
            if host != NO_HOST {
                if self.hosts.is_empty() {
                    self.hosts.resize(done, NO_HOST);
                }
                self.hosts[number] = host;
            }
            if pulse.stopped() {
                self.clear();
                return false;
            }
        }
        release(parents);
        release(numbers);
        true
    }

    /// The nodes, parents before children.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The relation of a node to its parent.
    pub fn side(&self, node: u32) -> Side {
        self.sides[node as usize]
    }

    /// The host of a node, if one is known.
    pub fn host(&self, node: u32) -> Option<Symbol> {
        self.hosts.get(node as usize).copied().filter(|&host| host != NO_HOST)
    }

    /// The number of spans outside the root's tree.
    pub fn unreached(&self) -> u32 {
        self.unreached
    }

    /// The children of a node, in the order of the trace.
    pub fn children(&self, node: u32) -> Range<u32> {
        self.first[node as usize]..self.first[node as usize + 1]
    }
}
