//! Times that respect cause and effect, of which as few as possible differ from the recorded ones.
//!
//! A cause that is later than an effect contradicts it. One wrong stamp contradicts many, so each
//! event that is contradicted accuses the latest of its causes and the earliest of its effects, and
//! those that more than one event accuses are moved first. Of the contradictions that are left, the
//! effect is moved to the time of its cause.

use astracer_causality::graph::Graph;

/// The most times that the events are asked for what contradicts them.
const ROUNDS: usize = 16;

/// Times that keep all constraints, and the events that others accuse, in order of their numbers.
#[derive(Debug)]
pub(super) struct Repaired {
    pub(super) times: Vec<u64>,
    pub(super) outliers: Vec<u32>,
}

/// The extreme time before or after each node, and the node that has it.
type Extremes = Vec<(u64, u32)>;

/// Repairs the times of nodes. `order` holds all nodes, causes first. Nodes without a time, behind
/// those with one, move nothing.
pub(super) fn repaired(graph: &Graph, order: &[u32], times: &[u64]) -> Repaired {
    if is_kept(graph, order, times) {
        return Repaired { times: times.to_vec(), outliers: Vec::new() };
    }
    let mut is_moved = vec![false; graph.len()];
    is_moved[times.len()..].fill(true);
    let mut outliers = Vec::new();
    for _ in 0..ROUNDS {
        let accused = accused(graph, order, times, &is_moved);
        if accused.is_empty() {
            break;
        }
        accused.iter().for_each(|&node| is_moved[node as usize] = true);
        outliers.extend(accused);
    }
    let earliest = earliest(graph, order, times, &is_moved);
    let mut found: Vec<u64> = times.to_vec();
    found.resize(graph.len(), 0);
    let mut least = vec![0u64; graph.len()];
    for &node in order {
        let at = node as usize;
        let wanted = match times.get(at) {
            Some(&time) if is_moved[at] => time.min(earliest[at].0),
            Some(&time) => time,
            None => 0,
        };
        found[at] = wanted.max(least[at]);
        for &to in graph.next(node) {
            least[to as usize] = least[to as usize].max(found[at]);
        }
    }
    found.truncate(times.len());
    outliers.retain(|&node| found[node as usize] != times[node as usize]);
    outliers.sort_unstable();
    Repaired { times: found, outliers }
}

/// True if no cause is later than an effect.
fn is_kept(graph: &Graph, order: &[u32], times: &[u64]) -> bool {
    let mut least = vec![0u64; graph.len()];
    order.iter().all(|&node| {
        let own = times.get(node as usize).copied();
        let latest = least[node as usize];
        let time = own.unwrap_or(latest);
        graph.next(node).iter().for_each(|&to| least[to as usize] = least[to as usize].max(time));
        time >= latest
    })
}

/// The nodes that more than one other accuses: those that most accuse within a group of
/// contradictions.
fn accused(graph: &Graph, order: &[u32], times: &[u64], is_moved: &[bool]) -> Vec<u32> {
    let latest = latest(graph, order, times, is_moved);
    let earliest = earliest(graph, order, times, is_moved);
    let mut votes = vec![0u32; times.len()];
    let kept = || (0..times.len()).filter(|&at| !is_moved[at]);
    for at in kept() {
        for (is_wrong, by) in
            [(latest[at].0 > times[at], latest[at].1), (earliest[at].0 < times[at], earliest[at].1)]
        {
            if is_wrong {
                votes[by as usize] += 1;
            }
        }
    }
    // An event whose accuser is accused more is its victim.
    let is_worst = |&at: &usize| {
        let by = [
            (latest[at].0 > times[at]).then_some(latest[at].1),
            (earliest[at].0 < times[at]).then_some(earliest[at].1),
        ];
        votes[at] > 1 && by.into_iter().flatten().all(|by| votes[by as usize] < votes[at])
    };
    kept().filter(is_worst).map(|at| at as u32).collect()
}

/// The latest time among each node and its causes, without those that are moved.
fn latest(graph: &Graph, order: &[u32], times: &[u64], is_moved: &[bool]) -> Extremes {
    let mut latest: Extremes = vec![(0, u32::MAX); graph.len()];
    for &node in order {
        let at = node as usize;
        if !is_moved[at] && times[at] >= latest[at].0 {
            latest[at] = (times[at], node);
        }
        for &to in graph.next(node) {
            if latest[at].0 > latest[to as usize].0 {
                latest[to as usize] = latest[at];
            }
        }
    }
    latest
}

/// The earliest time among each node and its effects, without those that are moved.
fn earliest(graph: &Graph, order: &[u32], times: &[u64], is_moved: &[bool]) -> Extremes {
    let mut earliest: Extremes = vec![(u64::MAX, u32::MAX); graph.len()];
    for &node in order.iter().rev() {
        let at = node as usize;
        for &to in graph.next(node) {
            if earliest[to as usize].0 < earliest[at].0 {
                earliest[at] = earliest[to as usize];
            }
        }
        if !is_moved[at] && times[at] <= earliest[at].0 {
            earliest[at] = (times[at], node);
        }
    }
    earliest
}

#[cfg(test)]
mod tests {
    use super::*;
    use astracer_testing::SplitMix;

    /// A random graph whose edges lead forward.
    fn random(random: &mut SplitMix, len: usize) -> (Graph, Vec<(u32, u32)>) {
        let edges: Vec<(u32, u32)> = (0..2 * len)
            .map(|_| (random.below(len as u64) as u32, random.below(len as u64) as u32))
            .filter(|(from, to)| from < to)
            .collect();
        (Graph::new(len, edges.iter().copied()), edges)
    }

    /// The fewest events that any repair moves: the least set that, left out, leaves no cause later
    /// than its effect.
    fn fewest(graph: &Graph, times: &[u64]) -> u32 {
        let len = times.len();
        let mut reached = vec![0u32; len];
        for node in (0..len).rev() {
            for &to in graph.next(node as u32) {
                reached[node] |= reached[to as usize] | 1 << to;
            }
        }
        let contradicts =
            |one: usize, other: usize| reached[one] >> other & 1 == 1 && times[one] > times[other];
        let pairs: Vec<u32> = (0..len)
            .flat_map(|one| (0..len).map(move |other| (one, other)))
            .filter(|&(one, other)| contradicts(one, other))
            .map(|(one, other)| 1 << one | 1 << other)
            .collect();
        (0..1u32 << len)
            .filter(|moved| pairs.iter().all(|pair| pair & moved != 0))
            .map(u32::count_ones)
            .min()
            .unwrap_or(0)
    }

    /// All constraints hold, times without contradiction stay, and the number of moved events is
    /// the least possible in most cases, and never twice that and one.
    #[test]
    fn few_events_are_moved() {
        let (mut all, mut least) = (0, 0);
        for seed in 0..200 {
            let mut numbers = SplitMix::new(seed);
            let len = 2 + numbers.below(10) as usize;
            let (graph, edges) = random(&mut numbers, len);
            let times: Vec<u64> = (0..len as u64).map(|at| at * 8 + numbers.below(32)).collect();
            let order: Vec<u32> = (0..len as u32).collect();
            let found = repaired(&graph, &order, &times).times;
            assert!(
                edges.iter().all(|&(from, to)| found[from as usize] <= found[to as usize]),
                "seed {seed}"
            );
            let moved = found.iter().zip(&times).filter(|(new, old)| new != old).count() as u32;
            let fewest = fewest(&graph, &times);
            assert!(moved >= fewest && moved <= 2 * fewest + 1, "seed {seed}: {moved}, {fewest}");
            assert!(fewest > 0 || moved == 0, "seed {seed}");
            all += moved;
            least += fewest;
        }
        assert!(all * 10 <= least * 12, "{all} moved, {least} at least");
    }

    /// One stamp of a long chain is far too late, one too early: only these two move.
    #[test]
    fn a_wrong_stamp_moves_alone() {
        let len = 1_000u32;
        let graph = Graph::new(len as usize, (1..len).map(|at| (at - 1, at)));
        let mut times: Vec<u64> = (0..u64::from(len)).map(|at| 1_000 + at).collect();
        (times[300], times[700]) = (9_000_000, 3);
        let order: Vec<u32> = (0..len).collect();
        let found = repaired(&graph, &order, &times);
        assert_eq!(found.outliers, [300, 700]);
        // As near to the recorded time as the neighbours allow.
        (times[300], times[700]) = (1_301, 1_699);
        assert_eq!(found.times, times);
    }
}
