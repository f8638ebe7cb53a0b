//! Directed acyclic graphs of events: longest paths, the slack of edges and procedures, and the
//! effect of faster procedures.
//!
//! The critical path of an execution is defined as the longest path of its event graph. Fonseca and
//! Mace's baggage computes it online, from counters that travel with the execution. Their published
//! pseudo-code misses that path in two cases, in which this module does not follow it: a join lets
//! the surviving counter replace the joiner's call stack, and entering or leaving a procedure wakes
//! a paused flow.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An edge: the later event waited for the earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The earlier event.
    pub from: u32,
    /// The later event.
    pub to: u32,
}

/// A graph of events, numbered from 0. Lengths are not part of it; they are passed as slices,
/// indexed by edge.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    edges: Vec<Edge>,
    /// Edge numbers, grouped by the event that they lead to; those of event `v` are
    /// `into[into_first[v]..into_first[v + 1]]`.
    into: Vec<u32>,
    into_first: Vec<u32>,
    out: Vec<u32>,
    out_first: Vec<u32>,
    /// The events in topological order.
    order: Vec<u32>,
    /// The start of each event without predecessors; 0 for the others.
    starts: Vec<f64>,
    /// The number of edges that were left out because they closed a cycle.
    cut: u64,
}

/// A path through a graph.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GraphPath {
    /// The start of the first event, plus the lengths of the edges.
    pub length: f64,
    /// The events of the path, in order.
    pub events: Vec<u32>,
}

/// The effect of one procedure's time on the longest path.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProcedureSlack {
    /// The procedure's time on the longest path.
    pub on_path: f64,
    /// The amount by which the longest path would be shorter if the procedure took no time
    /// anywhere.
    pub gain: f64,
    /// The part of the procedure's time on the longest path that can be saved, with the procedure
    /// shrinking by the same factor everywhere, before another path becomes the longest.
    pub slack: f64,
}

impl Graph {
    /// A graph of `count` events. A cycle is cut at its event with the least `rank`: edges into
    /// that event from events that are not yet in order are left out, and counted.
    ///
    /// # Panics
    ///
    /// If an edge refers to an event that is not below `count`.
    pub fn new<R: Ord>(count: usize, mut edges: Vec<Edge>, rank: impl Fn(u32) -> R) -> Self {
        let (out, out_first) = by_event(&edges, count, |edge| edge.from);
        let mut waiting = vec![0u32; count];
        edges.iter().for_each(|edge| waiting[edge.to as usize] += 1);
        let mut by_rank: Vec<u32> = (0..count as u32).collect();
        by_rank.sort_by_key(|&event| rank(event));
        let mut place = vec![0u32; count];
        (0u32..).zip(&by_rank).for_each(|(at, &event)| place[event as usize] = at);
        // Among events that wait for nothing, the one with the least rank is next, which makes the
        // order deterministic.
        let free = by_rank.iter().filter(|&&event| waiting[event as usize] == 0);
        let mut ready: BinaryHeap<_> = free.map(|&event| Reverse(place[event as usize])).collect();
        let (mut order, mut done) = (Vec::with_capacity(count), vec![false; count]);
        let mut cut = vec![false; edges.len()];
        let (mut cut_count, mut first_left) = (0, 0);
        loop {
            let event = match ready.pop() {
                Some(Reverse(at)) => by_rank[at as usize],
                None => {
                    while first_left < count && done[by_rank[first_left] as usize] {
                        first_left += 1;
                    }
                    let Some(&event) = by_rank.get(first_left) else { break };
                    event
                }
            };
            if std::mem::replace(&mut done[event as usize], true) {
                continue;
            }
            order.push(event);
            for &edge in range(&out, &out_first, event) {
                let to = edges[edge as usize].to;
                if done[to as usize] {
                    cut[edge as usize] = true;
                    cut_count += 1;
                    continue;
                }
                waiting[to as usize] -= 1;
                if waiting[to as usize] == 0 {
                    ready.push(Reverse(place[to as usize]));
                }
            }
        }
        let mut kept = cut.iter().map(|&cut| !cut);
        edges.retain(|_| kept.next() == Some(true));
        let (out, out_first) = by_event(&edges, count, |edge| edge.from);
        let (into, into_first) = by_event(&edges, count, |edge| edge.to);
        Self { edges, into, into_first, out, out_first, order, starts: vec![0.0; count], cut: cut_count }
    }

    /// Sets the initial length of paths: `start` of their first event, if no edge leads to it.
    pub fn with_starts(mut self, start: impl Fn(u32) -> f64) -> Self {
        for event in 0..self.order.len() as u32 {
            self.starts[event as usize] = if self.edges_into(event).is_empty() { start(event) } else { 0.0 };
        }
        self
    }

    /// The initial length of paths from an event, if no edge leads to it; 0 for other events.
    pub fn start(&self, event: u32) -> f64 {
        self.starts[event as usize]
    }

    /// The edges in the given order, without those that closed a cycle.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The number of edges that were left out because they closed a cycle.
    pub fn cut_edges(&self) -> u64 {
        self.cut
    }

    /// The numbers of the edges that lead to an event, in the given order.
    pub fn edges_into(&self, event: u32) -> &[u32] {
        range(&self.into, &self.into_first, event)
    }

    /// For each event, the length of the longest path to it from any event without predecessors.
    pub fn longest_to(&self, lengths: &[f64]) -> Vec<f64> {
        let mut longest = vec![0.0f64; self.order.len()];
        for &event in &self.order {
            let ways = self.edges_into(event).iter();
            let ways =
                ways.map(|&edge| longest[self.edges[edge as usize].from as usize] + lengths[edge as usize]);
            longest[event as usize] = ways.reduce(f64::max).unwrap_or(self.starts[event as usize]);
        }
        longest
    }

    /// For each event, the length of the longest path from it to `sink`; negative infinity if there
    /// is none.
    pub fn longest_from(&self, lengths: &[f64], sink: u32) -> Vec<f64> {
        let mut longest = vec![f64::NEG_INFINITY; self.order.len()];
        longest[sink as usize] = 0.0;
        for &event in self.order.iter().rev() {
            for &edge in range(&self.out, &self.out_first, event) {
                let way = longest[self.edges[edge as usize].to as usize] + lengths[edge as usize];
                longest[event as usize] = longest[event as usize].max(way);
            }
        }
        longest
    }

    /// The edges of a longest path to `sink`, last edge first. Among edges that are equally good,
    /// the one with the greatest value of `prefer` is chosen, and among those the first.
    pub fn longest_path<P: PartialOrd>(
        &self,
        lengths: &[f64],
        sink: u32,
        prefer: impl Fn(Edge) -> P,
    ) -> Vec<u32> {
        let longest = self.longest_to(lengths);
        let mut path = Vec::new();
        let mut at = sink;
        loop {
            let mut best: Option<(u32, f64, P)> = None;
            for &edge in self.edges_into(at) {
                let ends = self.edges[edge as usize];
                let (way, preference) = (longest[ends.from as usize] + lengths[edge as usize], prefer(ends));
                let better = best.as_ref().is_none_or(|(_, best_way, best_preference)| {
                    way > *best_way || (way == *best_way && preference > *best_preference)
                });
                if better {
                    best = Some((edge, way, preference));
                }
            }
            let Some((edge, ..)) = best else { return path };
            path.push(edge);
            at = self.edges[edge as usize].from;
        }
    }

    /// The slack of each edge: the length of the longest path to `sink`, less that of the longest
    /// path through the edge. `None` for edges from which `sink` cannot be reached.
    pub fn edge_slack(&self, lengths: &[f64], sink: u32) -> Vec<Option<f64>> {
        let (to, from) = (self.longest_to(lengths), self.longest_from(lengths, sink));
        let slack = |(edge, length): (&Edge, &f64)| {
            let through = to[edge.from as usize] + length + from[edge.to as usize];
            through.is_finite().then(|| to[sink as usize] - through)
        };
        self.edges.iter().zip(lengths).map(slack).collect()
    }

    /// For each event, the length of the longest path to `sink` that avoids the event; negative
    /// infinity if every path goes through it. O(n log n).
    ///
    /// A path avoids an event if, in topological order, one of its edges spans the event's
    /// position, or if the path begins after it. Both cases give an interval of positions. The
    /// answer at a position is the longest path among the intervals that cover it.
    pub fn longest_avoiding(&self, lengths: &[f64], sink: u32) -> Vec<f64> {
        let (to, from) = (self.longest_to(lengths), self.longest_from(lengths, sink));
        let mut place = vec![0u32; self.order.len()];
        (0u32..).zip(&self.order).for_each(|(at, &event)| place[event as usize] = at);
        // The paths that cover the present position, longest first, each with the first position
        // beyond its interval. Lengths are not negative, so their bits sort like the numbers.
        let mut covering: BinaryHeap<(u64, u32)> = BinaryHeap::new();
        let cover = |covering: &mut BinaryHeap<(u64, u32)>, length: f64, end: u32| {
            if length.is_finite() {
                covering.push((length.max(0.0).to_bits(), end));
            }
        };
        for event in (0..self.order.len() as u32).filter(|&event| self.edges_into(event).is_empty()) {
            let length = self.starts[event as usize] + from[event as usize];
            cover(&mut covering, length, place[event as usize]);
        }
        let mut avoiding = vec![f64::NEG_INFINITY; self.order.len()];
        for (at, &event) in (0u32..).zip(&self.order) {
            while covering.peek().is_some_and(|&(_, end)| end <= at) {
                covering.pop();
            }
            avoiding[event as usize] = if at > place[sink as usize] {
                to[sink as usize]
            } else {
                covering.peek().map_or(f64::NEG_INFINITY, |&(bits, _)| f64::from_bits(bits))
            };
            for &edge in range(&self.out, &self.out_first, event) {
                let next = self.edges[edge as usize].to as usize;
                let length = to[event as usize] + lengths[edge as usize] + from[next];
                cover(&mut covering, length, place[next]);
            }
        }
        avoiding
    }

    /// The `count` longest paths to `sink`, longest first.
    pub fn top_paths(&self, lengths: &[f64], sink: u32, count: usize) -> Vec<GraphPath> {
        /// One of an event's longest paths: its last edge, and which path of that edge's first
        /// event it continues.
        #[derive(Clone, Copy)]
        struct Route {
            length: f64,
            edge: u32,
            rank: u32,
        }
        const START: u32 = u32::MAX;
        let mut ways: Vec<Vec<Route>> = vec![Vec::new(); self.order.len()];
        for &event in &self.order {
            let mut own: Vec<Route> = Vec::new();
            for &edge in self.edges_into(event) {
                let before = &ways[self.edges[edge as usize].from as usize];
                own.extend((0u32..).zip(before).map(|(rank, way)| Route {
                    length: way.length + lengths[edge as usize],
                    edge,
                    rank,
                }));
            }
            own.sort_by(|a, b| b.length.total_cmp(&a.length));
            own.truncate(count);
            if own.is_empty() && self.edges_into(event).is_empty() && count > 0 {
                own.push(Route { length: self.starts[event as usize], edge: START, rank: 0 });
            }
            ways[event as usize] = own;
        }
        let path = |way: &Route| {
            let (mut events, mut at) = (vec![sink], *way);
            while at.edge != START {
                let from = self.edges[at.edge as usize].from;
                events.push(from);
                at = ways[from as usize][at.rank as usize];
            }
            events.reverse();
            GraphPath { length: way.length, events }
        };
        ways[sink as usize].iter().map(path).collect()
    }

    /// The effect of one procedure's time on the longest path to `sink`. `inside` selects the edges
    /// whose time is the procedure's.
    ///
    /// As a function of the factor by which the procedure shrinks, the length of each path is a
    /// line, and that of the longest path is convex and piecewise linear. The search starts with
    /// the line at factor 0. It moves to the intersection of that line with the line of the
    /// unchanged longest path (factor 1), and repeats with the line that is longest there, until no
    /// line is above the intersection.
    pub fn procedure(&self, lengths: &[f64], sink: u32, inside: impl Fn(u32) -> bool) -> ProcedureSlack {
        // A line: the length at factor 0, and what the procedure adds at factor 1.
        let line = |factor: f64| {
            let scaled: Vec<f64> = (0u32..)
                .zip(lengths)
                .map(|(edge, &length)| if inside(edge) { length * factor } else { length })
                .collect();
            let path = self.longest_path(&scaled, sink, |_| 0);
            let sum = |of_procedure: bool| {
                let own = path.iter().filter(|&&edge| inside(edge) == of_procedure);
                own.map(|&edge| lengths[edge as usize]).sum::<f64>()
            };
            let first = path.last().map_or(sink, |&edge| self.edges[edge as usize].from);
            (self.starts[first as usize] + sum(false), sum(true))
        };
        let (fixed, own) = line(1.0);
        let (fixed_at_zero, own_at_zero) = line(0.0);
        // The rounding error of sums of this size.
        let tolerance = (fixed + own) * 1e-12;
        let (mut other_fixed, mut other_own, mut factor) = (fixed_at_zero, own_at_zero, 0.0);
        while other_fixed + other_own * factor > fixed + own * factor + tolerance && own > other_own {
            let crossing = (other_fixed - fixed) / (own - other_own);
            // A line that is longest at some factor crosses to the right of it; anything else is
            // rounding.
            if crossing <= factor || crossing >= 1.0 {
                factor = crossing.clamp(factor, 1.0);
                break;
            }
            factor = crossing;
            (other_fixed, other_own) = line(factor);
        }
        ProcedureSlack { on_path: own, gain: fixed + own - fixed_at_zero, slack: own * (1.0 - factor) }
    }
}

/// Edge numbers grouped by one of their ends, in the given order: a counting sort.
fn by_event(edges: &[Edge], count: usize, end: impl Fn(&Edge) -> u32) -> (Vec<u32>, Vec<u32>) {
    let mut first = vec![0u32; count + 1];
    edges.iter().for_each(|edge| first[end(edge) as usize + 1] += 1);
    for event in 0..count {
        first[event + 1] += first[event];
    }
    let (mut next, mut sorted) = (first.clone(), vec![0u32; edges.len()]);
    for (number, edge) in (0u32..).zip(edges) {
        let slot = &mut next[end(edge) as usize];
        sorted[*slot as usize] = number;
        *slot += 1;
    }
    (sorted, first)
}

fn range<'g>(edges: &'g [u32], first: &[u32], event: u32) -> &'g [u32] {
    &edges[first[event as usize] as usize..first[event as usize + 1] as usize]
}
