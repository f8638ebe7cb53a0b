//! Distances between the latency histograms of a sample's functions and those of the whole.
//!
//! The buckets are those of OpenTelemetry's exponential histogram of scale 1 (see [`bucket`]). The
//! distance of two histograms is the Jensen-Shannon distance, which is the square root of their
//! divergence in bits: 0 if they are equal, 1 if they share no bucket.

pub use crate::buckets::{BUCKETS, LatencyCell, bucket, upper_ms};
use crate::workload::Workload;

/// Latency histograms of the kept traces, in which each call counts with its trace's weight.
#[derive(Clone, Debug)]
pub struct LatencyTally<'w> {
    workload: &'w Workload,
    /// One sum of weights for each of the workload's cells.
    weights: Vec<f64>,
}

impl<'w> LatencyTally<'w> {
    /// A tally of no traces.
    pub fn new(workload: &'w Workload) -> Self {
        Self { workload, weights: vec![0.0; workload.latency_cells().len()] }
    }

    /// Adds one kept arrival that stands for `weight` traces. Pass 1 for samplers without weights.
    pub fn keep(&mut self, arrival: usize, weight: f64) {
        for calls in self.workload.latencies(arrival) {
            self.weights[calls.cell as usize] += weight * f64::from(calls.count);
        }
    }

    /// The sum of weights in each of [`Workload::latency_cells`].
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The mean over functions of the distance from the whole. A function that the sample lacks has
    /// distance 1.
    pub fn distance(&self) -> f64 {
        let counts = self.workload.functions().iter().map(|function| function.count as f64);
        distance(self.workload.latency_cells(), counts, &self.weights)
    }
}

/// The mean of the functions' distances. `counts` has each function's calls in the whole, and
/// `weights` the sample's sum of weights for each of `cells`.
pub(crate) fn distance(cells: &[LatencyCell], counts: impl Iterator<Item = f64>, weights: &[f64]) -> f64 {
    let counts: Vec<f64> = counts.collect();
    let mut totals = vec![0.0; counts.len()];
    let mut divergences = totals.clone();
    for (cell, weight) in cells.iter().zip(weights) {
        totals[cell.function as usize] += weight;
    }
    for (cell, weight) in cells.iter().zip(weights) {
        let function = cell.function as usize;
        if totals[function] > 0.0 {
            let whole = cell.count as f64 / counts[function];
            divergences[function] += divergence_share(whole, weight / totals[function]);
        }
    }
    let distance =
        |(total, divergence): (f64, f64)| if total > 0.0 { divergence.max(0.0).sqrt() } else { 1.0 };
    let functions = counts.iter().zip(totals.into_iter().zip(divergences));
    let known = functions.filter(|(count, _)| **count > 0.0);
    let distances: Vec<f64> = known.map(|(_, sums)| distance(sums)).collect();
    distances.iter().sum::<f64>() / distances.len().max(1) as f64
}

/// The contribution of one bucket, in bits, to the divergence of two histograms in which it has the
/// shares `p` and `q`.
fn divergence_share(p: f64, q: f64) -> f64 {
    let half = |share: f64| if share > 0.0 { 0.5 * share * (2.0 * share / (p + q)).log2() } else { 0.0 };
    half(p) + half(q)
}

/// The expected contribution of a bucket to the divergence, divided by its share p of the whole.
/// The sample's share is an unbiased estimate of p; `variance` is that of the estimate divided by
/// p.
///
/// For a small variance v the contribution is p v / (8 ln 2) (the second derivative), and for an
/// infinite one it is p. v / (v + 8 ln 2) is the simplest function that joins the two. For
/// estimates with a gamma distribution it is within 1 % up to v = 1, and 10 % too large at v = 9.
pub(crate) fn expected_divergence(variance: f64) -> f64 {
    if variance.is_finite() { variance / (variance + 8.0 * std::f64::consts::LN_2) } else { 1.0 }
}

#[cfg(test)]
mod tests;
