//! An order that takes one edge after another (Pearce and Kelly, "A Dynamic Topological Sort
//! Algorithm for Directed Acyclic Graphs", 2006): only nodes between the ends of a new edge are
//! looked at and moved.

use astracer_causality::graph::{Graph, positions};

/// A graph without cycles that grows, with an order of its nodes.
#[derive(Debug)]
pub(super) struct Online {
    after: Vec<Vec<u32>>,
    before: Vec<Vec<u32>>,
    place: Vec<u32>,
    is_seen: Vec<bool>,
}

impl Online {
    /// Begins with a graph and an order in which its edges lead forward.
    pub(super) fn new(graph: &Graph, order: Vec<u32>) -> Self {
        let len = graph.len();
        let mut online = Self {
            after: vec![Vec::new(); len],
            before: vec![Vec::new(); len],
            place: positions(&order),
            is_seen: vec![false; len],
        };
        for (from, to) in graph.edges() {
            online.after[from as usize].push(to);
            online.before[to as usize].push(from);
        }
        online
    }

    /// Adds an edge; returns false, and adds nothing, if it would close a cycle.
    pub(super) fn add(&mut self, from: u32, to: u32) -> bool {
        let (low, high) = (self.place[to as usize], self.place[from as usize]);
        if from == to {
            return false;
        }
        if low < high {
            let Some(mut forward) = self.reached(to, |place| place <= high, true, Some(from)) else {
                return false;
            };
            let mut backward = self.reached(from, |place| place >= low, false, None).unwrap_or_default();
            let by_place = |node: &u32| self.place[*node as usize];
            forward.sort_unstable_by_key(by_place);
            backward.sort_unstable_by_key(by_place);
            let mut places: Vec<u32> = forward.iter().chain(&backward).map(by_place).collect();
            places.sort_unstable();
            for (node, place) in backward.into_iter().chain(forward).zip(places) {
                self.place[node as usize] = place;
            }
        }
        self.after[from as usize].push(to);
        self.before[to as usize].push(from);
        true
    }

    /// The nodes that are reached from `start` within these places; `None` if `end` is one.
    fn reached(
        &mut self,
        start: u32,
        is_within: impl Fn(u32) -> bool,
        is_forward: bool,
        end: Option<u32>,
    ) -> Option<Vec<u32>> {
        let mut found = vec![start];
        self.is_seen[start as usize] = true;
        let mut at = 0;
        let mut meets_end = false;
        while let Some(&node) = found.get(at) {
            at += 1;
            let next = if is_forward { &self.after } else { &self.before };
            for &to in &next[node as usize] {
                meets_end |= Some(to) == end;
                if !self.is_seen[to as usize] && is_within(self.place[to as usize]) {
                    self.is_seen[to as usize] = true;
                    found.push(to);
                }
            }
            if meets_end {
                break;
            }
        }
        found.iter().for_each(|&node| self.is_seen[node as usize] = false);
        (!meets_end).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use astracer_testing::SplitMix;

    /// Adds random edges, and compares with a search of the whole graph.
    #[test]
    fn edges_are_refused_exactly_if_they_close_a_cycle() {
        for seed in 0..40 {
            let mut random = SplitMix::new(seed);
            let len = 2 + random.below(12) as u32;
            let graph = Graph::new(len as usize, std::iter::empty());
            let mut online = Online::new(&graph, (0..len).rev().collect());
            let mut edges: Vec<(u32, u32)> = Vec::new();
            for _ in 0..60 {
                let edge = (random.below(len.into()) as u32, random.below(len.into()) as u32);
                edges.push(edge);
                let fits = Graph::new(len as usize, edges.iter().copied()).any_order().is_some();
                assert_eq!(online.add(edge.0, edge.1), fits, "seed {seed}, {edges:?}");
                if !fits {
                    edges.pop();
                }
                let forward =
                    |&(from, to): &(u32, u32)| online.place[from as usize] < online.place[to as usize];
                assert!(edges.iter().all(forward), "seed {seed}, {edges:?}");
            }
        }
    }
}
