//! One span's timeline: its own points, and where its children begin and return.

use crate::edge::EdgeKind;
use crate::flow::Graph;
use crate::spot::{At, Spot};

/// Marks "no node".
const NONE: u32 = u32::MAX;

/// Happenings in a span after its start, ordered by time and then by this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Happening {
    /// A child with this number, begun earlier, returns.
    Return(u32),
    /// The span's event with this number.
    Event(u32),
    /// A child without length begins, and returns if the flag is set.
    Through(u32, bool),
    /// A child begins.
    Call(u32),
    /// The span waits for a child's start, because a call cannot return before its server began.
    Begun(u32),
    /// The span ends. Later children may begin.
    End,
}

impl Happening {
    /// The place among happenings at the same time.
    pub(crate) fn class(self) -> u8 {
        match self {
            Self::Return(_) => 0,
            Self::Event(_) => 1,
            Self::Through(..) => 2,
            Self::Call(_) => 3,
            Self::Begun(_) => 4,
            Self::End => 5,
        }
    }
}

/// Edges from the start or the end of a child, whose nodes may not be known yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) child: u32,
    /// From the child's start instead of its end.
    pub(crate) by_start: bool,
    pub(crate) to: u32,
}

/// Writes one span's timeline into a graph as a chain of nodes.
///
/// An edge of the chain is left out if a child that begins at its one node returns to the other:
/// the way through the child says the same, and the bag need not be split.
pub(crate) struct Chain<'g> {
    graph: &'g mut Graph<At>,
    arrivals: &'g mut Vec<Arrival>,
    /// The node at which each child of this span begins.
    begun_at: &'g mut [u32],
    span: u32,
    node: u32,
    /// A child begins at the node.
    is_parted: bool,
    /// The node before, while no child is known to connect the two.
    before: Option<u32>,
}

impl<'g> Chain<'g> {
    /// Begins at the span's start, whose node has the span's number.
    pub(crate) fn new(
        graph: &'g mut Graph<At>,
        arrivals: &'g mut Vec<Arrival>,
        begun_at: &'g mut [u32],
        span: u32,
    ) -> Self {
        Self { graph, arrivals, begun_at, span, node: span, is_parted: false, before: None }
    }

    pub(crate) fn point(&mut self, spot: Spot, time: u64) {
        // A parent may wait for the start alone, whose node has nothing of what follows.
        let is_start = self.node == self.span && spot != Spot::Start;
        if is_start || self.is_parted || self.graph.has_point(self.node) {
            self.follow(time);
        }
        self.graph.set_point(self.node, At { span: self.span, spot });
    }

    pub(crate) fn call(&mut self, child: u32) {
        self.connect();
        let is_start = self.node == self.span;
        let kind = if is_start { EdgeKind::Call } else { EdgeKind::BeforeCall };
        self.graph.edge(self.node, child, kind);
        self.is_parted = true;
        if let Some(begun) = self.begun_at.get_mut(child as usize) {
            *begun = self.node;
        }
    }

    /// The child's end, or its start, is before what follows.
    pub(crate) fn arrive(&mut self, child: u32, by_start: bool, time: u64) {
        if self.is_parted || self.graph.has_point(self.node) {
            self.follow(time);
        }
        self.arrivals.push(Arrival { child, by_start, to: self.node });
        let begun = self.begun_at.get(child as usize).copied().unwrap_or(NONE);
        self.before = self.before.filter(|&before| before != begun);
    }

    /// The node that has all before it, from which the next things follow.
    pub(crate) fn last(&mut self) -> u32 {
        self.connect();
        self.node
    }

    fn follow(&mut self, time: u64) {
        self.connect();
        self.before = Some(self.node);
        self.node = self.graph.node(self.span, time);
        self.is_parted = false;
    }

    fn connect(&mut self) {
        if let Some(before) = self.before.take() {
            self.graph.edge(before, self.node, EdgeKind::Span);
        }
    }
}

impl Drop for Chain<'_> {
    fn drop(&mut self) {
        self.connect();
    }
}
