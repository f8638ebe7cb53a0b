//! Compares the path kinds of what is kept with those of the whole.
//!
//! A trace's path kind is the set of functions with at least 5 % of its critical time (see
//! [`astracer_critical_path::kinds`]). It is known only when the trace has ended, and head decisions are
//! made before that, so no sampler here can use it.

use serde::Serialize;

use crate::workload::Workload;

/// Measures of how well the kept traces still show which functions requests wait for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PathScore {
    /// Path kinds with at least one trace kept.
    pub paths: u64,
    /// Path kinds in the whole.
    pub paths_all: u64,
    /// Half the sum, over the path kinds, of the absolute differences between their weighted shares
    /// of the kept traces and their shares of all traces: 0 if the shares are equal, 1 if nothing
    /// is kept.
    pub path_distance: f64,
}

/// Sums the kept traces by path kind.
#[derive(Clone, Debug)]
pub struct PathTally<'w> {
    workload: &'w Workload,
    /// The sum of weights of each path kind.
    weights: Vec<f64>,
}

impl<'w> PathTally<'w> {
    /// A tally of no traces.
    pub fn new(workload: &'w Workload) -> Self {
        Self { workload, weights: vec![0.0; workload.path_kinds().len()] }
    }

    /// Adds one kept arrival that stands for `weight` traces. Pass 1 for samplers without weights.
    pub fn keep(&mut self, arrival: usize, weight: f64) {
        self.weights[self.workload.arrivals()[arrival].path_kind as usize] += weight;
    }

    /// The measures of the traces added so far.
    pub fn score(&self) -> PathScore {
        score(self.workload.path_kinds(), self.workload.arrivals().len() as f64, &self.weights)
    }
}

/// The measures, from the number of traces of each kind, the number of all traces, and the sum of
/// kept weights of each kind.
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
        // One arrival of each of two kinds only: their shares are 3/4 and 1/4.
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
