//! The table of functions, with mean, standard deviation and maximum of the whole and of the kept
//! traces, and their latency histograms.

use super::kept::KeptTraces;
use crate::latency::{LatencyTally, upper_ms};
use crate::statistics::MeanSd;
use crate::workload::Workload;

/// The row of one function.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FunctionRow {
    pub(super) name: String,
    pub(super) all: Part,
    pub(super) kept: Part,
    /// The number of calls, estimated by weights.
    pub(super) estimated: f64,
    pub(super) histogram: Vec<Bar>,
}

/// All calls of a function, or the kept ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Part {
    pub(super) count: u64,
    pub(super) duration_ms: MeanSd,
    pub(super) max_ms: f64,
}

/// One bucket of a histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bar {
    /// The bounds, ms.
    pub(super) from_ms: f64,
    pub(super) to_ms: f64,
    /// The shares of the calls, 0 to 1: of all calls, and of the kept ones by weight.
    pub(super) all: f64,
    pub(super) kept: f64,
}

/// The functions, starting with the one that takes the most time in total.
pub(super) fn rows(workload: &Workload, kept: &KeptTraces) -> Vec<FunctionRow> {
    let functions = workload.functions();
    let mut sums = vec![(0u64, 0.0, 0.0, 0u64, 0.0); functions.len()];
    let mut histograms = LatencyTally::new(workload);
    for &(arrival, weight) in &kept.traces {
        histograms.keep(arrival, weight);
        for calls in workload.calls(arrival) {
            let (count, deviation, squared, max_ns, estimated) = &mut sums[calls.function as usize];
            *count += u64::from(calls.count);
            *deviation += calls.deviation;
            *squared += calls.deviation_squared;
            *max_ns = calls.max_ns.max(*max_ns);
            *estimated += weight * f64::from(calls.count);
        }
    }
    let mut cells: Vec<Vec<(u8, u64, f64)>> = vec![Vec::new(); functions.len()];
    for (cell, weight) in workload.latency_cells().iter().zip(histograms.weights()) {
        if cell.count > 0 {
            cells[cell.function as usize].push((cell.bucket, cell.count, *weight));
        }
    }
    let known = functions.iter().zip(sums).zip(cells).filter(|((function, _), _)| function.count > 0);
    let mut rows: Vec<FunctionRow> = known
        .map(|((function, (count, deviation, squared, max_ns, estimated)), cells)| {
            let offset = if count == 0 { 0.0 } else { deviation / count as f64 };
            let variance = if count == 0 { 0.0 } else { squared / count as f64 - offset * offset };
            let duration_ms = match count {
                0 => MeanSd::default(),
                _ => MeanSd { mean: function.duration_ms.mean + offset, sd: variance.max(0.0).sqrt() },
            };
            FunctionRow {
                name: function.name.to_string(),
                all: Part {
                    count: function.count,
                    duration_ms: function.duration_ms,
                    max_ms: function.max_ns as f64 / 1e6,
                },
                kept: Part { count, duration_ms, max_ms: max_ns as f64 / 1e6 },
                estimated,
                histogram: bars(cells),
            }
        })
        .collect();
    let time = |row: &FunctionRow| row.all.count as f64 * row.all.duration_ms.mean;
    rows.sort_by(|a, b| time(b).total_cmp(&time(a)).then_with(|| a.name.cmp(&b.name)));
    rows
}

/// The bars of (bucket, calls, weight).
fn bars(mut cells: Vec<(u8, u64, f64)>) -> Vec<Bar> {
    cells.sort_unstable_by_key(|&(bucket, ..)| bucket);
    let all: u64 = cells.iter().map(|&(_, count, _)| count).sum();
    let kept: f64 = cells.iter().map(|&(.., weight)| weight).sum();
    let bar = |&(bucket, count, weight): &(u8, u64, f64)| Bar {
        from_ms: upper_ms(bucket.saturating_sub(1)),
        to_ms: upper_ms(bucket),
        all: count as f64 / all as f64,
        kept: if kept > 0.0 { weight / kept } else { 0.0 },
    };
    cells.iter().map(bar).collect()
}
