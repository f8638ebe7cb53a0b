//! Contradictions: events that must precede themselves.

use std::collections::VecDeque;

use astracer_causality::graph::Graph;

/// The number of steps that the search in one component may take. A component that needs more
/// yields the shortest cycle found until then.
const STEPS_MAX: usize = 20_000_000;

/// The shortest cycle of each component in which there is one.
pub(super) fn shortest(graph: &Graph) -> Vec<Vec<u32>> {
    let (component, _) = graph.components();
    let own_loops = (0..graph.len() as u32).filter(|&node| graph.next(node).contains(&node));
    let mut cycles: Vec<Vec<u32>> = own_loops.map(|node| vec![node]).collect();
    let mut from = vec![u32::MAX; graph.len()];
    for knot in graph.knots() {
        let mut best: Option<Vec<u32>> = None;
        let mut steps = 0;
        for &start in &knot {
            let most = best.as_ref().map_or(usize::MAX, Vec::len);
            if let Some(cycle) = through(graph, &component, start, most, &mut from, &mut steps) {
                best = Some(cycle);
            }
            if best.is_some() && steps > STEPS_MAX {
                break;
            }
        }
        cycles.extend(best);
    }
    cycles
}

/// The shortest cycle through a node, if it has fewer than `most` events.
fn through(
    graph: &Graph,
    component: &[u32],
    start: u32,
    most: usize,
    from: &mut [u32],
    steps: &mut usize,
) -> Option<Vec<u32>> {
    let mut seen = Vec::new();
    let mut queue = VecDeque::from([(start, 1usize)]);
    let mut found = None;
    'search: while let Some((node, len)) = queue.pop_front() {
        if len >= most {
            break;
        }
        for &to in graph.next(node) {
            *steps += 1;
            if to == start {
                let mut cycle = vec![node];
                while let Some(&last) = cycle.last()
                    && last != start
                {
                    cycle.push(from[last as usize]);
                }
                cycle.reverse();
                found = Some(cycle);
                break 'search;
            }
            if component[to as usize] == component[start as usize] && from[to as usize] == u32::MAX {
                from[to as usize] = node;
                seen.push(to);
                queue.push_back((to, len + 1));
            }
        }
    }
    seen.into_iter().for_each(|node| from[node as usize] = u32::MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_component_yields_its_shortest_cycle() {
        let edges = [(0, 1), (1, 2), (2, 3), (3, 0), (2, 0), (3, 4), (4, 5), (5, 4), (6, 6), (6, 7)];
        let graph = Graph::new(8, edges.into_iter());
        let mut found = shortest(&graph);
        found.iter_mut().for_each(|cycle| {
            let least = (0..cycle.len()).min_by_key(|&at| cycle[at]).unwrap();
            cycle.rotate_left(least);
        });
        assert_eq!(found, [vec![6], vec![0, 1, 2], vec![4, 5]]);
    }
}
