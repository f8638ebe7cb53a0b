//! Path kinds of what is kept, against the whole's.
//!
//! A trace's path kind is the set of functions with at least 5 % of its critical time (see
//! [`astracer_analysis::kinds`]). It is known when the trace has ended. A head decision is made
//! before that, so no sampler here decides by it.

use serde::Serialize;

use crate::workload::Workload;

/// Measures of whether a kept part still tells the functions that requests wait for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PathScore {
    /// Path kinds with at least one trace kept.
    pub paths: u64,
    /// Path kinds in the whole.
    pub paths_all: u64,
    /// Half the sum, over the path kinds, of the absolute differences between their shares of the
    /// kept traces, by weight, and of all traces: 0 if the shares are the same, 1 if nothing is
    /// kept.
    pub path_distance: f64,
}

/// The kept traces by path kind, summed up one by one.
#[derive(Clone, Debug)]
pub struct PathTally<'w> {
    workload: &'w Workload,
    /// By path kind.
    weights: Vec<f64>,
}

impl<'w> PathTally<'w> {
    /// Nothing kept yet.
    pub fn new(workload: &'w Workload) -> Self {
        Self { workload, weights: vec![0.0; workload.path_kinds().len()] }
    }

    /// Keeps one arrival, which stands for `weight` traces. Samplers that tell no weight count each
    /// trace once.
    pub fn keep(&mut self, arrival: usize, weight: f64) {
        self.weights[self.workload.arrivals()[arrival].path_kind as usize] += weight;
    }

    /// The measures of what was kept.
    pub fn score(&self) -> PathScore {
        score(self.workload.path_kinds(), self.workload.arrivals().len() as f64, &self.weights)
    }
}

/// The measures of what is kept, from the traces of each kind, those of all, and sums of weights by
/// kind.
pub(crate) fn score(kinds: &[u32], all: f64, weights: &[f64]) -> PathScore {
    let kept = weights.iter().sum::<f64>();
    let differences = kinds.iter().zip(weights).map(|(&traces, weight)| {
        let of_kept = if kept > 0.0 { weight / kept } else { 0.0 };
        (of_kept - f64::from(traces) / all).abs()
    });
    let difference: f64 = differences.sum();
    PathScore {
        paths: weights.iter().filter(|&&weight| weight > 0.0).count() as u64,
        paths_all: kinds.iter().filter(|&&traces| traces > 0).count() as u64,
        path_distance: match kept {
            0.0 if all > 0.0 => 1.0,
            _ => difference / 2.0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic;

    #[test]
    fn shares_differ_by_weight() {
        let workload = synthetic(400, 3);
        let kinds = workload.path_kinds();
        let mut all = PathTally::new(&workload);
        assert_eq!(all.score().path_distance, 1.0);
        (0..workload.arrivals().len()).for_each(|arrival| all.keep(arrival, 2.0));
        let score = all.score();
        assert_eq!((score.paths, score.path_distance), (kinds.len() as u64, 0.0));
        assert_eq!(score.paths_all, score.paths);
        assert!(kinds.len() > 2, "{kinds:?}");
        // Only the first arrival of each of two kinds: shares 3/4 and 1/4.
        let of_kind = |kind: u32| {
            workload.arrivals().iter().position(|arrival| arrival.path_kind == kind).expect("a trace")
        };
        let mut two = PathTally::new(&workload);
        two.keep(of_kind(0), 3.0);
        two.keep(of_kind(1), 1.0);
        let share = |kind: usize| f64::from(kinds[kind]) / workload.arrivals().len() as f64;
        let others: f64 = (2..kinds.len()).map(share).sum();
        let expected = ((0.75 - share(0)).abs() + (0.25 - share(1)).abs() + others) / 2.0;
        let score = two.score();
        assert_eq!(score.paths, 2);
        assert!((score.path_distance - expected).abs() < 1e-12, "{score:?}, expected {expected}");
    }
}
