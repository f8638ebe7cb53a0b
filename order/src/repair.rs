//! Times that respect cause and effect, with the least largest shift.

use astracer_causality::graph::Graph;

/// The middle between the latest time of an event's causes and the earliest of its effects, with
/// the event itself among both. No times that keep the constraints have a smaller largest shift:
/// an effect that was recorded `d` before its cause forces one of the two to move by `d / 2`.
/// `order` holds all nodes, causes first. Nodes without a time, behind those with one, move nothing.
pub(super) fn repaired(graph: &Graph, order: &[u32], times: &[u64]) -> Vec<u64> {
    let timeless = graph.len() - times.len();
    let mut latest = times.to_vec();
    latest.extend(std::iter::repeat_n(0, timeless));
    for &node in order {
        for &to in graph.next(node) {
            latest[to as usize] = latest[to as usize].max(latest[node as usize]);
        }
    }
    let mut earliest = times.to_vec();
    earliest.extend(std::iter::repeat_n(u64::MAX, timeless));
    for &node in order.iter().rev() {
        for &to in graph.next(node) {
            earliest[node as usize] = earliest[node as usize].min(earliest[to as usize]);
        }
    }
    latest
        .into_iter()
        .zip(earliest)
        .take(times.len())
        .map(|(latest, earliest)| u64::midpoint(latest, earliest))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use astracer_testing::SplitMix;

    /// On random graphs: all constraints hold, times without contradiction stay, and the largest
    /// shift is half of the largest contradiction between any cause and its effect.
    #[test]
    fn the_largest_shift_is_the_least_possible() {
        for seed in 0..60 {
            let mut random = SplitMix::new(seed);
            let len = 2 + random.below(20) as usize;
            let edges: Vec<(u32, u32)> = (0..2 * len)
                .map(|_| (random.below(len as u64) as u32, random.below(len as u64) as u32))
                .filter(|(from, to)| from < to)
                .collect();
            let graph = Graph::new(len, edges.iter().copied());
            let times: Vec<u64> = (0..len as u64).map(|at| at * 8 + random.below(64)).collect();
            let order: Vec<u32> = (0..len as u32).collect();
            let found = repaired(&graph, &order, &times);
            assert!(
                edges.iter().all(|&(from, to)| found[from as usize] <= found[to as usize]),
                "seed {seed}"
            );
            // Causes of causes, one event after another.
            let mut worst = 0;
            for start in 0..len {
                let mut reached = vec![false; len];
                reached[start] = true;
                for node in start..len {
                    if reached[node] {
                        worst = worst.max(times[start].saturating_sub(times[node]));
                        graph.next(node as u32).iter().for_each(|&to| reached[to as usize] = true);
                    }
                }
            }
            let largest = found.iter().zip(&times).map(|(new, old)| new.abs_diff(*old)).max();
            assert_eq!(largest, Some(worst.div_ceil(2)), "seed {seed}");
        }
    }
}
