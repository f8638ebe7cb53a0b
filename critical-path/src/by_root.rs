//! Critical time by root, for comparing recordings in which the shares of the roots differ.

use std::collections::HashMap;

use astracer_recording::intern::Symbol;

/// The sums for each root while traces are added.
#[derive(Clone, Debug, Default)]
pub(crate) struct RootSums {
    roots: HashMap<Symbol, Sums>,
}

#[derive(Clone, Debug, Default)]
struct Sums {
    weight: f64,
    /// The sum of the squares of the weights.
    squares: f64,
    /// The sum of the products of the weights of each ordered pair of traces. With `squares` it
    /// adds up to the square of `weight`.
    pairs: f64,
    /// For each row, the weighted sums of its time in a trace and of the square of that time, in
    /// ns.
    rows: HashMap<u32, (f64, f64)>,
}

impl RootSums {
    /// Adds one trace's time in a row. [`Self::trace`] adds the trace itself. A trace with weight
    /// zero is ignored.
    pub(crate) fn row(&mut self, root: Symbol, row: u32, ns: u64, weight: f64) {
        if weight == 0.0 {
            return;
        }
        let (sum, squares) = self.roots.entry(root).or_default().rows.entry(row).or_default();
        *sum += ns as f64 * weight;
        *squares += (ns as f64).powi(2) * weight;
    }

    /// Adds one trace that stands for `weight` traces. A trace with weight zero is ignored: it adds
    /// no root, and adds nothing to the variance.
    pub(crate) fn trace(&mut self, root: Symbol, weight: f64) {
        if weight == 0.0 {
            return;
        }
        let sums = self.roots.entry(root).or_default();
        sums.pairs += 2.0 * sums.weight * weight;
        sums.squares += weight * weight;
        sums.weight += weight;
    }

    /// The sums by names instead of symbols, because symbols differ between recordings.
    pub(crate) fn finish(
        self,
        root_name: impl Fn(Symbol) -> String,
        row_name: impl Fn(u32) -> Vec<String>,
    ) -> ByRoot {
        let root = |(root, sums): (Symbol, Sums)| {
            let rows = sums.rows.into_iter().map(|(row, (sum, squares))| {
                let mean = if sums.weight > 0.0 { sum / sums.weight } else { 0.0 };
                let variance = if sums.weight > 0.0 { squares / sums.weight - mean * mean } else { 0.0 };
                let variance = variance.max(0.0);
                // The variance of the mean, as if the traces were independent draws. Their
                // effective number is that of equal weights with the same information (Kish: the
                // square of the weights' sum divided by the sum of their squares). A single trace
                // adds nothing to the variance, which is then taken to be as large as the time
                // itself.
                let draws_beside_one = sums.pairs / sums.squares;
                let of_mean = if draws_beside_one > 0.0 {
                    (variance / draws_beside_one).min(mean * mean + variance)
                } else {
                    mean * mean
                };
                let time =
                    RootTime { mean_ms: mean / 1e6, variance: of_mean / 1e12, spread: variance / 1e12 };
                (row_name(row), time)
            });
            let of_root = OfRoot {
                weight: sums.weight,
                draws_beside_one: sums.pairs / sums.squares,
                is_weighted: sums.squares != sums.weight,
                rows: rows.collect(),
            };
            (root_name(root), of_root)
        };
        ByRoot { roots: self.roots.into_iter().map(root).collect() }
    }
}

/// Critical time of each root's traces.
#[derive(Clone, Debug, Default)]
pub struct ByRoot {
    pub(crate) roots: HashMap<String, OfRoot>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct OfRoot {
    /// The weighted number of traces.
    pub(crate) weight: f64,
    /// The effective number of traces less one; 0 with a single trace.
    pub(crate) draws_beside_one: f64,
    /// True if some weight is not 1.
    pub(crate) is_weighted: bool,
    /// Each row's time in a trace of this root.
    pub(crate) rows: HashMap<Vec<String>, RootTime>,
}

/// A row's time in a trace of one root.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RootTime {
    /// The mean, ms.
    pub(crate) mean_ms: f64,
    /// The variance of that mean, ms^2.
    pub(crate) variance: f64,
    /// The variance of the times of single traces, ms^2.
    pub(crate) spread: f64,
}
