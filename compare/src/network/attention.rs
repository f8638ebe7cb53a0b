//! Attention focusing: the part of a network around the metric, and its score.

use std::collections::{HashMap, VecDeque};

/// The balance between how much a variable differs and how strongly it is connected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Focus(f64);

impl Default for Focus {
    /// Both count alike.
    fn default() -> Self {
        Focus(0.5)
    }
}

impl Focus {
    /// 0 looks only at differences, 1 only at connections, 0.5 at their product. `None` outside 0
    /// to 1.
    pub fn new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Focus(share))
    }

    /// T^(2 - 2f) W^2f.
    fn score(self, t: f64, weight: f64) -> f64 {
        if self == Focus::default() {
            return t * weight;
        }
        if t == 0.0 { 0.0 } else { t.powf(2.0 - 2.0 * self.0) * weight.powf(2.0 * self.0) }
    }
}

/// A variable that was reached from the metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// The variable.
    pub variable: usize,
    /// The variable before it.
    pub from: usize,
    /// The weight of the edge between them.
    pub weight: f64,
    /// Its score.
    pub score: f64,
}

/// The variables connected with the first one, which is the metric: breadth first, heavier edges
/// first, and equal ones by name. `t` has the t of each variable, and `most` the largest |t|.
pub fn reach(
    names: &[&str],
    edges: &[(usize, usize, f64)],
    t: &[f64],
    most: f64,
    focus: Focus,
) -> Vec<Reached> {
    let mut beside: Vec<HashMap<usize, f64>> = vec![HashMap::new(); names.len()];
    for &(parent, child, weight) in edges {
        for (one, other) in [(parent, child), (child, parent)] {
            let own = beside[one].entry(other).or_insert(0.0);
            *own = own.max(weight);
        }
    }
    let mut seen = vec![false; names.len()];
    let mut reached = Vec::new();
    let mut open = VecDeque::new();
    if !names.is_empty() {
        seen[0] = true;
        open.push_back(0);
    }
    while let Some(from) = open.pop_front() {
        let mut next: Vec<(usize, f64)> = beside[from].iter().map(|(&at, &weight)| (at, weight)).collect();
        next.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| names[a.0].cmp(names[b.0])));
        for (variable, weight) in next {
            if std::mem::replace(&mut seen[variable], true) {
                continue;
            }
            let relative = if most > 0.0 { t[variable].abs() / most } else { 0.0 };
            reached.push(Reached { variable, from, weight, score: focus.score(relative, weight) });
            open.push_back(variable);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P - a (1), P - b (0.5), a - c (0.4, 0.6 the other way), and d on its own. t: a 2, b 4, c 1.
    #[test]
    fn the_neighbourhood_of_the_metric_is_scored() {
        let edges = [(1, 0, 1.0), (2, 0, 0.5), (1, 3, 0.4), (3, 1, 0.6)];
        let reached =
            reach(&["#P", "a", "b", "c", "d"], &edges, &[0.0, 2.0, -4.0, 1.0, 9.0], 4.0, Focus(0.5));
        let rows: Vec<_> =
            reached.iter().map(|node| (node.variable, node.from, node.weight, node.score)).collect();
        assert_eq!(rows, [(1, 0, 1.0, 0.5), (2, 0, 0.5, 0.5), (3, 1, 0.6, 0.15)]);
        assert_eq!(Focus(0.0).score(0.5, 0.1), 0.25);
        assert_eq!(Focus(1.0).score(0.5, 0.5), 0.25);
    }
}
