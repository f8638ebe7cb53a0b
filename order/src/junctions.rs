//! Junctions replaced by points, for links and lists that people see.

use std::collections::HashSet;

use astracer_causality::edge::Edge;
use astracer_causality::graph::Graph;

use super::Order;
use super::links::Link;

/// Links that stand for the edges over junctions: each event that leads to a junction is linked to
/// the first event after it, and each event that a junction leads to, to the last before it. All n
/// times m pairs would say no more to a reader.
pub(crate) fn links(order: &Order) -> Vec<Link> {
    const NONE: u32 = u32::MAX;
    if order.junctions.is_empty() {
        return Vec::new();
    }
    let points = order.events.len() as u32;
    let over: Vec<Edge> =
        order.edges.iter().copied().filter(|edge| edge.before >= points || edge.after >= points).collect();
    let mut last = vec![NONE; order.junctions.len()];
    let mut first = last.clone();
    let junction = |node: u32| node.checked_sub(points).map(|at| at as usize);
    // Junctions in order, so that chains of them hand on what they know.
    let mut by_place = over.clone();
    by_place.sort_unstable_by_key(|edge| order.places[edge.after as usize]);
    let place = |event: u32| order.positions.get(event as usize).copied();
    for edge in &by_place {
        let Some(at) = junction(edge.after) else { continue };
        let event = junction(edge.before).map_or(edge.before, |before| last[before]);
        if last[at] == NONE || place(event) > place(last[at]) {
            last[at] = event;
        }
    }
    by_place.sort_unstable_by_key(|edge| std::cmp::Reverse(order.places[edge.before as usize]));
    for edge in &by_place {
        let Some(at) = junction(edge.before) else { continue };
        let event = junction(edge.after).map_or(edge.after, |after| first[after]);
        if first[at] == NONE || place(event).is_some_and(|own| Some(own) < place(first[at])) {
            first[at] = event;
        }
    }
    let link = |edge: &Edge| {
        let before = junction(edge.before).map_or(edge.before, |at| last[at]);
        let after = junction(edge.after).map_or(edge.after, |at| first[at]);
        let is_whole = before != NONE && after != NONE && before != after;
        is_whole.then_some(Link { after, before, kind: Some(edge.kind) })
    };
    over.iter().filter_map(link).collect()
}

/// The edges with each junction replaced by the nearest point before or after it.
pub(crate) fn shown(edges: &[Edge], graph: &Graph, points: usize) -> Vec<Edge> {
    let turned = graph.turned();
    let nearest = |graph: &Graph, node: u32| {
        let (mut queue, mut seen) = (std::collections::VecDeque::from([node]), HashSet::new());
        while let Some(at) = queue.pop_front() {
            if (at as usize) < points {
                return Some(at);
            }
            queue.extend(graph.next(at).iter().copied().filter(|&next| seen.insert(next)));
        }
        None
    };
    let mut found: Vec<Edge> = edges
        .iter()
        .filter_map(|&edge| {
            let (before, after) = (nearest(&turned, edge.before)?, nearest(graph, edge.after)?);
            Some(Edge { before, after, ..edge })
        })
        .collect();
    found.dedup();
    found
}
