//! Critical time by root: to compare recordings whose roots come in different shares.

use std::collections::HashMap;

use astracer_recording::intern::Symbol;

/// Sums of each root while traces are added.
#[derive(Clone, Debug, Default)]
pub(crate) struct RootSums {
    roots: HashMap<Symbol, Sums>,
}

#[derive(Clone, Debug, Default)]
struct Sums {
    traces: u64,
    weight: f64,
    /// By row: weighted sums of its time in a trace and of the square of that, ns.
    rows: HashMap<u32, (f64, f64)>,
}

impl RootSums {
    /// Adds one trace's time in a row. The trace itself is added by [`Self::trace`]; one of weight 0 is none.
    pub(crate) fn row(&mut self, root: Symbol, row: u32, ns: u64, weight: f64) {
        if weight == 0.0 {
            return;
        }
        let (sum, squares) = self.roots.entry(root).or_default().rows.entry(row).or_default();
        *sum += ns as f64 * weight;
        *squares += (ns as f64).powi(2) * weight;
    }

    /// Adds one trace that stands for `weight` traces. One that stands for none makes no root, and says nothing of its
    /// spread.
    pub(crate) fn trace(&mut self, root: Symbol, weight: f64) {
        if weight == 0.0 {
            return;
        }
        let sums = self.roots.entry(root).or_default();
        sums.traces += 1;
        sums.weight += weight;
    }

    /// The sums by names instead of symbols, which differ between recordings.
    pub(crate) fn finish(
        self,
        root_name: impl Fn(Symbol) -> String,
        row_name: impl Fn(u32) -> Vec<String>,
    ) -> ByRoot {
        let root = |(root, sums): (Symbol, Sums)| {
            let rows = sums.rows.into_iter().map(|(row, (sum, squares))| {
                let mean = if sums.weight > 0.0 { sum / sums.weight } else { 0.0 };
                let variance = if sums.weight > 0.0 { squares / sums.weight - mean * mean } else { 0.0 };
                // Of the mean: as if each trace were one draw of its root's traces. A single one says nothing of their
                // spread, which is taken to be as large as the time itself.
                let of_mean = match sums.traces {
                    0 | 1 => mean * mean,
                    traces => variance.max(0.0) / (traces - 1) as f64,
                };
                let time = RootTime { mean_ms: mean / 1e6, variance: of_mean / 1e12 };
                (row_name(row), time)
            });
            (root_name(root), OfRoot { weight: sums.weight, rows: rows.collect() })
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
    /// The traces, by weight.
    pub(crate) weight: f64,
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
}
