//! A graph of events: orders, longest paths and strongly connected components.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A directed graph over events.
#[derive(Debug)]
pub struct Graph {
    /// The edges of node `n` lead to `targets[first[n]..first[n + 1]]`, in order.
    first: Vec<u32>,
    targets: Vec<u32>,
}

impl Graph {
    /// A graph of `nodes` with these edges.
    pub fn new(nodes: usize, edges: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut first = vec![0u32; nodes + 1];
        for (from, _) in edges.clone() {
            first[from as usize + 1] += 1;
        }
        for at in 0..nodes {
            first[at + 1] += first[at];
        }
        let mut next = first.clone();
        let mut targets = vec![0; first[nodes] as usize];
        for (from, to) in edges {
            let at = &mut next[from as usize];
            targets[*at as usize] = to;
            *at += 1;
        }
        Self { first, targets }
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.first.len() - 1
    }

    /// True if there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The nodes that the edges of a node lead to.
    pub fn next(&self, node: u32) -> &[u32] {
        &self.targets[self.first[node as usize] as usize..self.first[node as usize + 1] as usize]
    }

    /// The graph with all edges turned around.
    pub fn turned(&self) -> Self {
        Self::new(self.len(), self.edges().map(|(from, to)| (to, from)))
    }

    /// All edges.
    pub fn edges(&self) -> impl Iterator<Item = (u32, u32)> + Clone + '_ {
        (0..self.len() as u32).flat_map(|from| self.next(from).iter().map(move |&to| (from, to)))
    }

    fn counts_in(&self) -> Vec<u32> {
        let mut counts = vec![0; self.len()];
        self.targets.iter().for_each(|&to| counts[to as usize] += 1);
        counts
    }

    /// An order in which every edge leads forward; among nodes that may come next, the smallest by
    /// `rank` does. Shorter than the graph if there is a cycle.
    pub fn schedule<K: Ord>(&self, rank: impl Fn(u32) -> K) -> Vec<u32> {
        let mut missing = self.counts_in();
        let ready = (0..self.len() as u32).filter(|&node| missing[node as usize] == 0);
        let mut heap: BinaryHeap<_> = ready.map(|node| Reverse((rank(node), node))).collect();
        let mut order = Vec::with_capacity(self.len());
        while let Some(Reverse((_, node))) = heap.pop() {
            order.push(node);
            for &to in self.next(node) {
                missing[to as usize] -= 1;
                if missing[to as usize] == 0 {
                    heap.push(Reverse((rank(to), to)));
                }
            }
        }
        order
    }

    /// Any order in which every edge leads forward; `None` if there is a cycle.
    pub fn any_order(&self) -> Option<Vec<u32>> {
        let mut missing = self.counts_in();
        let mut order: Vec<u32> =
            (0..self.len() as u32).filter(|&node| missing[node as usize] == 0).collect();
        let mut at = 0;
        while let Some(&node) = order.get(at) {
            at += 1;
            for &to in self.next(node) {
                missing[to as usize] -= 1;
                if missing[to as usize] == 0 {
                    order.push(to);
                }
            }
        }
        (order.len() == self.len()).then_some(order)
    }

    /// The largest number of points on a path to each node; nodes below `points` are points. In
    /// `order`, which holds all nodes, every edge leads forward.
    pub fn levels(&self, points: usize, order: &[u32]) -> Vec<u32> {
        let mut levels = vec![0u32; self.len()];
        for &node in order {
            let next = levels[node as usize] + u32::from((node as usize) < points);
            for &to in self.next(node) {
                levels[to as usize] = levels[to as usize].max(next);
            }
        }
        levels
    }

    /// The strongly connected component of each node (Tarjan's algorithm, without recursion), and
    /// their number. An edge between components leads to a smaller number.
    pub fn components(&self) -> (Vec<u32>, usize) {
        const NEW: u32 = u32::MAX;
        let len = self.len();
        let (mut number, mut low) = (vec![NEW; len], vec![0u32; len]);
        let mut component = vec![NEW; len];
        let (mut stack, mut path): (Vec<u32>, Vec<(u32, u32)>) = (Vec::new(), Vec::new());
        let (mut count, mut components) = (0, 0);
        for root in 0..len as u32 {
            if number[root as usize] != NEW {
                continue;
            }
            path.push((root, self.first[root as usize]));
            while let Some((node, edge)) = path.last_mut() {
                let at = *node as usize;
                if number[at] == NEW {
                    (number[at], low[at]) = (count, count);
                    count += 1;
                    stack.push(*node);
                }
                if *edge < self.first[at + 1] {
                    let to = self.targets[*edge as usize];
                    *edge += 1;
                    if number[to as usize] == NEW {
                        path.push((to, self.first[to as usize]));
                    } else if component[to as usize] == NEW {
                        low[at] = low[at].min(number[to as usize]);
                    }
                    continue;
                }
                if low[at] == number[at] {
                    while let Some(member) = stack.pop() {
                        component[member as usize] = components;
                        if member as usize == at {
                            break;
                        }
                    }
                    components += 1;
                }
                path.pop();
                if let Some(&(above, _)) = path.last() {
                    low[above as usize] = low[above as usize].min(low[at]);
                }
            }
        }
        (component, components as usize)
    }

    /// The members of each component with several nodes, in order of their smallest node.
    pub fn knots(&self) -> Vec<Vec<u32>> {
        let (component, count) = self.components();
        knots(&component, count)
    }
}

/// The members of each component with several nodes, in order of their smallest node, of what
/// [`Graph::components`] found.
pub fn knots(component: &[u32], count: usize) -> Vec<Vec<u32>> {
    let mut sizes = vec![0u32; count];
    component.iter().for_each(|&own| sizes[own as usize] += 1);
    let mut knots: Vec<Vec<u32>> = Vec::new();
    let mut place = vec![u32::MAX; count];
    for (node, &own) in (0..).zip(component) {
        if sizes[own as usize] > 1 {
            let place = &mut place[own as usize];
            if *place == u32::MAX {
                *place = knots.len() as u32;
                knots.push(Vec::new());
            }
            knots[*place as usize].push(node);
        }
    }
    knots
}

/// The position of each node in an order of all.
pub fn positions(order: &[u32]) -> Vec<u32> {
    let mut positions = vec![0; order.len()];
    for (at, &node) in (0..).zip(order) {
        positions[node as usize] = at;
    }
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_levels_and_components() {
        let edges = [(0, 1), (1, 2), (0, 3), (3, 2), (2, 4)];
        let graph = Graph::new(5, edges.into_iter());
        let order = graph.any_order().unwrap();
        assert_eq!(graph.levels(5, &order), [0, 1, 2, 1, 3]);
        assert_eq!(graph.levels(3, &order), [0, 1, 2, 1, 3], "node 3 is a junction: 0, 1, 2 are on the way");
        assert_eq!(graph.schedule(|node| 10 - node), [0, 3, 1, 2, 4]);
        assert!(graph.knots().is_empty());
        let looped = Graph::new(6, edges.into_iter().chain([(4, 3), (5, 5)]));
        assert_eq!((looped.any_order(), looped.knots()), (None, vec![vec![2, 3, 4]]));
        assert_eq!(looped.turned().next(2), [1, 3]);
        assert_eq!(positions(&[2, 0, 1]), [1, 2, 0]);
    }
}
