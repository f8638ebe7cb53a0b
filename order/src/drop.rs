//! Leaves out constraints that contradict others: the least certain ones, and few of them.

use super::online::Online;
use astracer_causality::edge::{Edge, EdgeKind};
use astracer_causality::graph::{Graph, positions};

/// In larger components constraints that lead back in a list schedule are left out, without a
/// search.
const SEARCH_MAX: usize = 20_000;

/// The constraints that keep an order, and those that are left out. Each constraint in the order of
/// certainty stays if it closes no cycle with those before it; among equally certain ones, those
/// that agree with the times come first, or, if that leaves out fewer, the order is as found.
pub(super) fn acyclic(edges: Vec<Edge>, nodes: usize, times: &[u64]) -> (Vec<Edge>, Vec<Edge>) {
    let graph = Graph::new(nodes, edges.iter().map(|edge| (edge.before, edge.after)));
    let (component, count) = graph.components();
    let is_inside = |edge: &&Edge| component[edge.before as usize] == component[edge.after as usize];
    let (inside, mut kept): (Vec<Edge>, Vec<Edge>) = edges.iter().partition(is_inside);
    let mut groups: Vec<Vec<Edge>> = vec![Vec::new(); count];
    for edge in inside {
        groups[component[edge.before as usize] as usize].push(edge);
    }
    let mut local = vec![u32::MAX; nodes];
    let mut dropped = Vec::new();
    for group in groups.into_iter().filter(|group| !group.is_empty()) {
        let mut members: Vec<u32> = group.iter().flat_map(|edge| [edge.before, edge.after]).collect();
        members.sort_unstable();
        members.dedup();
        for (at, &node) in (0..).zip(&members) {
            local[node as usize] = at;
        }
        let is_back = |edge: &Edge| times[edge.before as usize] > times[edge.after as usize];
        let mut by_time = group.clone();
        by_time.sort_by_key(|edge| (edge.kind, is_back(edge)));
        let place = |node: u32| local[node as usize];
        let (best, lost) = if members.len() > SEARCH_MAX {
            by_schedule(by_time, members.len(), place, |at| times[members[at as usize] as usize])
        } else {
            let mut as_found = group;
            as_found.sort_by_key(|edge| edge.kind);
            let [one, other] = [by_time, as_found].map(|edges| one_by_one(edges, members.len(), place));
            if worth(&other.1) < worth(&one.1) { other } else { one }
        };
        kept.extend(best);
        dropped.extend(lost);
    }
    kept.sort_unstable_by_key(|edge| (edge.kind, edge.after, edge.before));
    dropped.sort_unstable_by_key(|edge| (edge.kind, edge.after, edge.before));
    (kept, dropped)
}

/// The numbers left out of each kind, the most certain first.
fn worth(dropped: &[Edge]) -> Vec<usize> {
    EdgeKind::ALL.iter().map(|&kind| dropped.iter().filter(|edge| edge.kind == kind).count()).collect()
}

fn one_by_one(edges: Vec<Edge>, nodes: usize, place: impl Fn(u32) -> u32) -> (Vec<Edge>, Vec<Edge>) {
    let mut online = Online::new(&Graph::new(nodes, std::iter::empty()), (0..nodes as u32).collect());
    edges.into_iter().partition(|edge| online.add(place(edge.before), place(edge.after)))
}

fn by_schedule(
    edges: Vec<Edge>,
    nodes: usize,
    place: impl Fn(u32) -> u32,
    time: impl Fn(u32) -> u64,
) -> (Vec<Edge>, Vec<Edge>) {
    let is_program = |edge: &&Edge| matches!(edge.kind, EdgeKind::ProgramOrder | EdgeKind::Line);
    let program: Vec<_> =
        edges.iter().filter(is_program).map(|edge| (place(edge.before), place(edge.after))).collect();
    let schedule = positions(&Graph::new(nodes, program.into_iter()).schedule(time));
    let is_forward =
        |edge: &Edge| schedule[place(edge.before) as usize] < schedule[place(edge.after) as usize];
    edges.into_iter().partition(is_forward)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(kind: EdgeKind, before: u32, after: u32) -> Edge {
        Edge { kind, before, after }
    }

    #[test]
    fn the_least_certain_constraints_go() {
        use EdgeKind::{EndJoin, ForkStart, ProgramOrder, SendReceive};
        // Two cycles share the receive that was stamped before its send.
        let edges = vec![
            edge(ProgramOrder, 0, 1),
            edge(ProgramOrder, 1, 2),
            edge(ForkStart, 2, 3),
            edge(SendReceive, 3, 0),
            edge(SendReceive, 4, 3),
            edge(EndJoin, 3, 4),
        ];
        let times = [10, 20, 30, 40, 50];
        let (kept, dropped) = acyclic(edges, 5, &times);
        assert_eq!(dropped, [edge(SendReceive, 3, 0), edge(SendReceive, 4, 3)]);
        assert_eq!(kept.len(), 4);
        let (kept, dropped) = acyclic(vec![edge(SendReceive, 0, 0), edge(EndJoin, 0, 1)], 2, &[0, 0]);
        assert_eq!((kept.len(), dropped.len()), (1, 1));
    }
}
