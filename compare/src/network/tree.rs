//! Regression trees, of which only the splits count.
//!
//! A tree splits its instances where the squared error falls most, as long as a node has enough of
//! them. Splits whose gains differ by at most 1e-9 of the node's sum of squares are equal: the
//! first variable wins, and of its thresholds the smallest. So the result does not depend on
//! rounding.

/// The share of a node's sum of squares within which gains are equal.
const TIE: f64 = 1e-9;

/// (parent, child, weight): the weight is the share of all instances at the largest node of the
/// child's tree that is split on the parent. Columns are in the order in which ties are settled.
/// Nodes with fewer than `split_min` times all instances are not split.
pub fn edges(columns: &[Vec<f64>], split_min: f64) -> Vec<(usize, usize, f64)> {
    let n = columns.first().map_or(0, Vec::len);
    let least = ((n as f64 * split_min).ceil() as usize).max(2);
    let orders: Vec<Vec<u32>> = columns.iter().map(|column| order(column)).collect();
    let mut edges = Vec::new();
    for child in 0..columns.len() {
        let mut largest = vec![0; columns.len()];
        Tree { columns, child, least }.grow(&orders, &mut largest);
        let parents = largest.iter().enumerate().filter(|&(_, &count)| count > 0);
        edges.extend(parents.map(|(parent, &count)| (parent, child, f64::from(count) / n as f64)));
    }
    edges
}

/// The instances in the order of their values; equal values by number.
fn order(column: &[f64]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..column.len() as u32).collect();
    order.sort_by(|&a, &b| column[a as usize].total_cmp(&column[b as usize]));
    order
}

struct Tree<'t> {
    columns: &'t [Vec<f64>],
    child: usize,
    least: usize,
}

/// A split: the first instances of a variable's order go left.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Split {
    variable: usize,
    left: usize,
}

impl Tree<'_> {
    /// Grows the tree and notes the largest node that is split on each variable.
    fn grow(&self, orders: &[Vec<u32>], largest: &mut [u32]) {
        let n = orders[self.child].len();
        if n < self.least {
            return;
        }
        let mut goes_left = vec![false; n];
        let Some(split) = self.split(orders) else { return };
        let mut open = self.divided(orders, split, &mut goes_left, largest);
        while let Some(orders) = open.pop() {
            if let Some(split) = self.split(&orders) {
                open.extend(self.divided(&orders, split, &mut goes_left, largest));
            }
        }
    }

    /// The parts of a node that are large enough to be split again.
    fn divided(
        &self,
        orders: &[Vec<u32>],
        split: Split,
        goes_left: &mut [bool],
        largest: &mut [u32],
    ) -> Vec<Vec<Vec<u32>>> {
        let own = &orders[split.variable];
        let count = &mut largest[split.variable];
        *count = (*count).max(own.len() as u32);
        let (left, right) = own.split_at(split.left);
        left.iter().for_each(|&at| goes_left[at as usize] = true);
        right.iter().for_each(|&at| goes_left[at as usize] = false);
        [(left.len(), true), (right.len(), false)]
            .into_iter()
            .filter(|&(count, _)| count >= self.least)
            .map(|(_, side)| {
                let part = |order: &Vec<u32>| {
                    order.iter().copied().filter(|&at| goes_left[at as usize] == side).collect()
                };
                orders.iter().map(part).collect()
            })
            .collect()
    }

    /// The best split of a node. `None` if its targets are equal, or if no variable differs.
    fn split(&self, orders: &[Vec<u32>]) -> Option<Split> {
        let target = &self.columns[self.child];
        let own = &orders[self.child];
        let n = own.len() as f64;
        let mean = own.iter().map(|&at| target[at as usize]).sum::<f64>() / n;
        let square: f64 = own.iter().map(|&at| (target[at as usize] - mean).powi(2)).sum();
        if target[*own.first()? as usize] == target[*own.last()? as usize] || square <= 0.0 {
            return None;
        }
        let mut best: Option<(f64, Vec<(Split, f64)>)> = None;
        for (variable, order) in orders.iter().enumerate() {
            if variable == self.child {
                continue;
            }
            let values = &self.columns[variable];
            let mut sum = 0.0;
            let mut before = values[order[0] as usize];
            for (left, &at) in order.iter().enumerate() {
                let value = values[at as usize];
                if value > before {
                    let l = left as f64;
                    // The centred targets sum to 0, so the right side's sum is `-sum`.
                    let gain = sum * sum * (n / (l * (n - l)));
                    note(&mut best, gain, Split { variable, left }, TIE * square);
                    before = value;
                }
                sum += target[at as usize] - mean;
            }
        }
        let (most, candidates) = best?;
        let first = candidates.into_iter().find(|&(_, gain)| gain >= most - TIE * square);
        first.filter(|&(_, gain)| gain > 0.0).map(|(split, _)| split)
    }
}

/// Notes a split if it is among the best so far. Candidates stay in order, and those that fall
/// behind are removed when the list grows.
fn note(best: &mut Option<(f64, Vec<(Split, f64)>)>, gain: f64, split: Split, tie: f64) {
    let Some((most, candidates)) = best else {
        *best = Some((gain, vec![(split, gain)]));
        return;
    };
    if gain > *most {
        *most = gain;
        candidates.retain(|&(_, gain)| gain >= *most - tie);
        candidates.push((split, gain));
    } else if gain >= *most - tie {
        candidates.push((split, gain));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use astracer_testing::SplitMix;

    /// The same by definition: each split of each variable, its squared errors in whole numbers.
    /// All values are small whole numbers, so `n x` gains are exact.
    fn naive(columns: &[Vec<i64>], split_min: f64) -> Vec<(usize, usize, f64)> {
        let n = columns[0].len();
        let least = ((n as f64 * split_min).ceil() as usize).max(2);
        let mut edges = Vec::new();
        for child in 0..columns.len() {
            let mut largest = vec![0usize; columns.len()];
            let mut open = vec![(0..n).collect::<Vec<usize>>()];
            while let Some(node) = open.pop() {
                let of = |part: &[usize]| -> (i128, i128) {
                    let sum = part.iter().map(|&at| i128::from(columns[child][at])).sum();
                    (part.len() as i128, sum)
                };
                if node.len() < least || node.iter().all(|&at| columns[child][at] == columns[child][node[0]])
                {
                    continue;
                }
                // The gain is L²/l + R²/r - S²/n; as a fraction over l r n.
                let mut best: Option<(i128, i128, usize, [Vec<usize>; 2])> = None;
                for parent in (0..columns.len()).filter(|&parent| parent != child) {
                    let mut thresholds: Vec<i64> = node.iter().map(|&at| columns[parent][at]).collect();
                    thresholds.sort_unstable();
                    thresholds.dedup();
                    for threshold in thresholds.into_iter().skip(1) {
                        let (left, right): (Vec<usize>, Vec<usize>) =
                            node.iter().partition(|&&at| columns[parent][at] < threshold);
                        let ((l, a), (r, b)) = (of(&left), of(&right));
                        let n = l + r;
                        let above = a * a * r * n + b * b * l * n - (a + b) * (a + b) * l * r;
                        let below = l * r * n;
                        if best.as_ref().is_none_or(|(x, y, ..)| above * y > x * below) {
                            best = Some((above, below, parent, [left, right]));
                        }
                    }
                }
                if let Some((above, _, parent, sides)) = best
                    && above > 0
                {
                    largest[parent] = largest[parent].max(node.len());
                    open.extend(sides);
                }
            }
            let parents = largest.iter().enumerate().filter(|&(_, &count)| count > 0);
            edges.extend(parents.map(|(parent, &count)| (parent, child, count as f64 / n as f64)));
        }
        edges
    }

    #[test]
    fn trees_are_those_of_the_definition() {
        for seed in 0..astracer_testing::size(300, 5_000) {
            let mut random = SplitMix::new(seed);
            let (n, variables) = (2 + random.next() as usize % 40, 2 + random.next() as usize % 5);
            let range = 1 + random.next() % 9;
            let columns: Vec<Vec<i64>> =
                (0..variables).map(|_| (0..n).map(|_| (random.next() % range) as i64).collect()).collect();
            let split_min = [0.1, 1.0 / 3.0, 0.5][random.next() as usize % 3];
            let floats: Vec<Vec<f64>> =
                columns.iter().map(|column| column.iter().map(|&value| value as f64).collect()).collect();
            assert_eq!(edges(&floats, split_min), naive(&columns, split_min), "seed {seed}");
        }
    }

    /// A target that is one variable's copy, and noise: the copy is the only parent, and the whole
    /// class is split on it.
    #[test]
    fn a_variable_that_determines_another_is_its_parent() {
        let a = vec![1.0, 1.0, 1.0, 5.0, 5.0, 5.0];
        let b = vec![2.0, 7.0, 1.0, 8.0, 2.0, 8.0];
        let found = edges(&[a.clone(), b, a], 1.0 / 3.0);
        assert!(found.contains(&(0, 2, 1.0)) && found.contains(&(2, 0, 1.0)), "{found:?}");
        assert!(!found.contains(&(1, 0, 1.0)), "{found:?}");
    }
}
