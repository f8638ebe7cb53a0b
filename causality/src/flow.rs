//! A graph of moments, walked in an order that respects its edges. A bag travels along each edge.

use astracer_recording::stop::Pulse;

use crate::edge::EdgeKind;

/// Marks "no node" and "no bag".
const NONE: u32 = u32::MAX;
/// The steps back in search of a cycle. A longer cycle is opened where the search ends.
const STEPS_BACK: usize = 64;

/// The operations on bags, in happened-before order.
pub trait Flow<P> {
    /// A query's tuples that travel with a request.
    type Bag;

    /// The bag of a request that begins here.
    fn begin(&mut self) -> Self::Bag;

    /// The bag of a point whose causes are not in the recording.
    fn lost(&mut self) -> Self::Bag;

    /// A copy for a branch of the flow.
    fn split(&mut self, bag: &mut Self::Bag) -> Self::Bag;

    /// Unites a bag with that of a branch which ends here.
    fn merge(&mut self, bag: &mut Self::Bag, other: Self::Bag);

    /// Runs a point's advice.
    fn visit(&mut self, bag: &mut Self::Bag, point: P);
}

/// A moment: branches unite, then a point may follow, then branches part.
#[derive(Clone, Copy, Debug)]
struct Node<P> {
    time: u64,
    point: Option<P>,
    /// The number of what the node belongs to.
    of: u32,
    /// Its causes are not in the recording.
    is_lost: bool,
}

/// Moments, and which of them are before which.
#[derive(Debug)]
pub(crate) struct Graph<P> {
    nodes: Vec<Node<P>>,
    edges: Vec<(u32, u32, EdgeKind)>,
    /// The edges from node `n` lead to `targets[first[n]..first[n + 1]]`.
    first: Vec<u32>,
    targets: Vec<u32>,
    /// The number of edges into each node that no bag has come along; [`NONE`] once it is done.
    waiting: Vec<u32>,
    /// The place of each node's bag in the store.
    place: Vec<u32>,
    ready: Vec<u32>,
}

impl<P> Default for Graph<P> {
    fn default() -> Self {
        let (nodes, edges, ready) = (Vec::new(), Vec::new(), Vec::new());
        let (first, targets, waiting, place) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { nodes, edges, first, targets, waiting, place, ready }
    }
}

impl<P: Copy> Graph<P> {
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.edges.clear();
    }

    /// Adds a node that belongs to `of`. Its time matters only on a cycle.
    pub(crate) fn node(&mut self, of: u32, time: u64) -> u32 {
        self.nodes.push(Node { time, point: None, of, is_lost: false });
        self.nodes.len() as u32 - 1
    }

    pub(crate) fn set_point(&mut self, node: u32, point: P) {
        self.nodes[node as usize].point = Some(point);
    }

    pub(crate) fn has_point(&self, node: u32) -> bool {
        self.nodes[node as usize].point.is_some()
    }

    pub(crate) fn set_lost(&mut self, node: u32) {
        self.nodes[node as usize].is_lost = true;
    }

    /// States that `from` is before `to`. The bag of `from` itself goes along its last edge.
    pub(crate) fn edge(&mut self, from: u32, to: u32, kind: EdgeKind) {
        self.edges.push((from, to, kind));
    }

    /// The time of each node, what it belongs to, and its point; `None` for a junction.
    pub(crate) fn nodes(&self) -> impl ExactSizeIterator<Item = (u64, u32, Option<P>)> + '_ {
        self.nodes.iter().map(|node| (node.time, node.of, node.point))
    }

    /// All edges: from, to and the reason.
    pub(crate) fn edges(&self) -> &[(u32, u32, EdgeKind)] {
        &self.edges
    }

    /// Visits all points, in time linear in nodes and edges. Where edges form a cycle, the earliest
    /// node goes first. Returns the number of cycles opened; `None` if the work was stopped.
    pub(crate) fn walk<F: Flow<P>>(&mut self, flow: &mut F, pulse: &mut Pulse<'_>) -> Option<u64> {
        self.index();
        let mut bags = Bags { slots: Vec::new(), free: Vec::new() };
        let mut opened = 0;
        let mut cycles: Option<Cycles> = None;
        for at in 0..self.nodes.len() {
            if pulse.stopped() {
                return None;
            }
            if self.waiting[at] == 0 {
                self.run_from(at as u32, flow, &mut bags, pulse)?;
            }
        }
        loop {
            let cycles = cycles.get_or_insert_with(|| Cycles::new(self));
            let Some(node) = cycles.next(self) else { return Some(opened) };
            opened += 1;
            self.run_from(node, flow, &mut bags, pulse)?;
        }
    }

    fn index(&mut self) {
        let count = self.nodes.len();
        self.first.clear();
        self.first.resize(count + 1, 0);
        self.waiting.clear();
        self.waiting.resize(count, 0);
        self.place.clear();
        self.place.resize(count, NONE);
        for &(from, to, _) in &self.edges {
            self.first[from as usize + 1] += 1;
            self.waiting[to as usize] += 1;
        }
        for at in 0..count {
            self.first[at + 1] += self.first[at];
        }
        self.targets.clear();
        self.targets.resize(self.edges.len(), 0);
        // From the last edge to the first, so that `first` ends as the begin of each range.
        for &(from, to, _) in self.edges.iter().rev() {
            let slot = &mut self.first[from as usize + 1];
            *slot -= 1;
            self.targets[*slot as usize] = to;
        }
        // Each entry now is the begin of the range before it.
        self.first.rotate_left(1);
        if let Some(last) = self.first.last_mut() {
            *last = self.edges.len() as u32;
        }
    }

    /// Runs a node, and all nodes that this makes ready.
    fn run_from<F: Flow<P>>(
        &mut self,
        node: u32,
        flow: &mut F,
        bags: &mut Bags<F::Bag>,
        pulse: &mut Pulse<'_>,
    ) -> Option<()> {
        self.ready.push(node);
        while let Some(at) = self.ready.pop() {
            self.run(at as usize, flow, bags);
            if pulse.stopped() {
                self.ready.clear();
                return None;
            }
        }
        Some(())
    }

    fn run<F: Flow<P>>(&mut self, at: usize, flow: &mut F, bags: &mut Bags<F::Bag>) {
        let node = self.nodes[at];
        self.waiting[at] = NONE;
        let mut bag = match bags.take(self.place[at]) {
            Some(bag) => bag,
            None if node.is_lost => flow.lost(),
            None => flow.begin(),
        };
        if let Some(point) = node.point {
            flow.visit(&mut bag, point);
        }
        let targets = self.first[at] as usize..self.first[at + 1] as usize;
        // On a cycle, the target may be done already.
        let is_open = |&edge: &usize| self.waiting[self.targets[edge] as usize] != NONE;
        let Some(last) = targets.clone().rev().find(is_open) else { return };
        for edge in targets.start..last {
            let to = self.targets[edge];
            if self.waiting[to as usize] != NONE {
                let branch = flow.split(&mut bag);
                self.bring(to, branch, flow, bags);
            }
        }
        self.bring(self.targets[last], bag, flow, bags);
    }

    fn bring<F: Flow<P>>(&mut self, to: u32, bag: F::Bag, flow: &mut F, bags: &mut Bags<F::Bag>) {
        let place = &mut self.place[to as usize];
        match bags.get(*place) {
            Some(known) => flow.merge(known, bag),
            None => *place = bags.put(bag),
        }
        self.waiting[to as usize] -= 1;
        if self.waiting[to as usize] == 0 {
            self.ready.push(to);
        }
    }
}

/// The bags that wait for other branches.
struct Bags<B> {
    slots: Vec<Option<B>>,
    free: Vec<u32>,
}

impl<B> Bags<B> {
    fn put(&mut self, bag: B) -> u32 {
        if let Some(place) = self.free.pop() {
            self.slots[place as usize] = Some(bag);
            return place;
        }
        self.slots.push(Some(bag));
        self.slots.len() as u32 - 1
    }

    fn get(&mut self, place: u32) -> Option<&mut B> {
        self.slots.get_mut(place as usize)?.as_mut()
    }

    fn take(&mut self, place: u32) -> Option<B> {
        let bag = self.slots.get_mut(place as usize)?.take();
        self.free.push(place);
        bag
    }
}

/// Finds the nodes at which cycles are opened.
struct Cycles {
    /// The nodes by time.
    by_time: Vec<u32>,
    next: usize,
    /// The edges into node `n` come from `sources[first[n]..first[n + 1]]`.
    first: Vec<u32>,
    sources: Vec<u32>,
}

impl Cycles {
    fn new<P: Copy>(graph: &Graph<P>) -> Self {
        let count = graph.nodes.len();
        let is_open = |&node: &u32| graph.waiting[node as usize] != NONE;
        let mut by_time: Vec<u32> = (0..count as u32).filter(is_open).collect();
        if by_time.is_empty() {
            return Self { by_time, next: 0, first: Vec::new(), sources: Vec::new() };
        }
        by_time.sort_by_key(|&node| (graph.nodes[node as usize].time, node));
        let mut first = vec![0u32; count + 2];
        for &(_, to, _) in &graph.edges {
            first[to as usize + 2] += 1;
        }
        for at in 0..=count {
            first[at + 1] += first[at];
        }
        let mut sources = vec![0; graph.edges.len()];
        for &(from, to, _) in &graph.edges {
            let slot = &mut first[to as usize + 1];
            sources[*slot as usize] = from;
            *slot += 1;
        }
        Self { by_time, next: 0, first, sources }
    }

    /// The next node to run although it waits; `None` if all nodes are done.
    fn next<P: Copy>(&mut self, graph: &Graph<P>) -> Option<u32> {
        let is_open = |node: u32| graph.waiting[node as usize] != NONE;
        while !is_open(*self.by_time.get(self.next)?) {
            self.next += 1;
        }
        let mut path = vec![self.by_time[self.next]];
        let mut cycle = 0;
        while let Some(&node) = path.last().filter(|_| path.len() < STEPS_BACK) {
            let sources = self.first[node as usize] as usize..self.first[node as usize + 1] as usize;
            let Some(&before) = self.sources[sources].iter().find(|&&from| is_open(from)) else { break };
            if let Some(at) = path.iter().position(|&known| known == before) {
                cycle = at;
                break;
            }
            path.push(before);
        }
        path[cycle..].iter().copied().min_by_key(|&node| (graph.nodes[node as usize].time, node))
    }
}
