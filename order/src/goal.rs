//! The orders that a user may ask for: by minimal clocks, or close to the recorded times.
//!
//! Falcon's soft constraints join events that follow each other by recorded time: in the order of
//! times, the first event of each run of one thread follows the first of the run before. Those on
//! no cycle together with the constraints hold in any order. In each strongly connected component
//! of both, the better of two ways is taken: each soft constraint in order of time that closes no
//! cycle, and list scheduling by time.

use serde::Serialize;

use super::online::Online;
use astracer_causality::graph::{Graph, knots, positions};
use astracer_causality::points::Points;

/// Components with more events are only scheduled by time.
pub const COMPONENT_MAX: usize = 20_000;

/// Which of the orders is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goal {
    /// The order that is closest to the recorded times.
    #[default]
    Time,
    /// The order of minimal clocks.
    Concurrency,
}

/// The soft constraints: pairs of the first events of consecutive runs of one thread, by recorded
/// time, and those that keep their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Soft {
    /// All pairs.
    pub total: u64,
    /// Those that keep their order.
    pub kept: u64,
    /// Components that were too large for a search.
    pub large_components: u64,
}

/// Orders by minimal clock, then by time.
pub(super) fn by_clock(graph: &Graph, clocks: &[u32], times: &[u64], events: &Points) -> (Vec<u32>, Soft) {
    let order = graph.schedule(|node| (clocks[node as usize], times[node as usize]));
    let soft = soft(times, events);
    let kept = kept(&soft, &positions(&order));
    (order, Soft { total: soft.len() as u64, kept, large_components: 0 })
}

/// Orders so that as many soft constraints as possible hold.
pub(super) fn by_time(graph: &Graph, times: &[u64], events: &Points) -> (Vec<u32>, Soft) {
    let soft = soft(times, events);
    let rank = |node: u32| times[node as usize];
    let both = Graph::new(graph.len(), graph.edges().chain(soft.iter().copied()));
    let (component, count) = both.components();
    let knots = knots(&component, count);
    if knots.is_empty() {
        let total = soft.len() as u64;
        return (both.schedule(rank), Soft { total, kept: total, large_components: 0 });
    }
    let component = &component;
    let is_inside = |&&(from, to): &&(u32, u32)| component[from as usize] == component[to as usize];
    let mut holding: Vec<(u32, u32)> = soft.iter().filter(|edge| !is_inside(edge)).copied().collect();
    let mut large = 0;
    let mut local = vec![u32::MAX; graph.len()];
    let mut by_component: Vec<(u32, (u32, u32))> =
        soft.iter().filter(is_inside).map(|&edge| (component[edge.0 as usize], edge)).collect();
    // Stable: the soft constraints of a component stay in order of time.
    by_component.sort_by_key(|&(component, _)| component);
    for knot in knots {
        for (at, &node) in (0..).zip(&knot) {
            local[node as usize] = at;
        }
        let own = component[knot[0] as usize];
        let hard = knot.iter().flat_map(|&from| {
            let inside = graph.next(from).iter().filter(move |&&to| component[to as usize] == own);
            inside.map(move |&to| (from, to))
        });
        let here = |(from, to): (u32, u32)| (local[from as usize], local[to as usize]);
        let hard = Graph::new(knot.len(), hard.map(here).collect::<Vec<_>>().into_iter());
        let begin = by_component.partition_point(|&(component, _)| component < own);
        let soft: Vec<(u32, u32)> = by_component[begin..]
            .iter()
            .take_while(|&&(component, _)| component == own)
            .map(|&(_, edge)| here(edge))
            .collect();
        let schedule = hard.schedule(|node| rank(knot[node as usize]));
        let place = positions(&schedule);
        let mut best: Vec<(u32, u32)> =
            soft.iter().filter(|edge| place[edge.0 as usize] < place[edge.1 as usize]).copied().collect();
        if knot.len() > COMPONENT_MAX {
            large += 1;
        } else {
            let mut online = Online::new(&hard, schedule);
            let added: Vec<_> = soft.iter().filter(|edge| online.add(edge.0, edge.1)).copied().collect();
            if added.len() > best.len() {
                best = added;
            }
        }
        holding.extend(best.iter().map(|edge| (knot[edge.0 as usize], knot[edge.1 as usize])));
    }
    let all = Graph::new(graph.len(), graph.edges().chain(holding.iter().copied()));
    let order = all.schedule(rank);
    let kept = kept(&soft, &positions(&order));
    (order, Soft { total: soft.len() as u64, kept, large_components: large })
}

fn soft(times: &[u64], events: &Points) -> Vec<(u32, u32)> {
    let mut order: Vec<u32> = (0..events.len() as u32).collect();
    order.sort_unstable_by_key(|&node| (times[node as usize], node));
    let thread = |node: u32| events.rows()[node as usize].thread;
    // Only the first event of each run is left.
    order.dedup_by_key(|node| thread(*node));
    order.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

fn kept(soft: &[(u32, u32)], place: &[u32]) -> u64 {
    soft.iter().filter(|&&(from, to)| place[from as usize] < place[to as usize]).count() as u64
}
