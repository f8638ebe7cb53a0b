//! What bump keeps in expectation: a score without chance, and without replaying a trace.
//!
//! Bump decides an arrival by its key and by how many calls of the key came before it in the window, and by nothing
//! else: the same arrivals have the same probabilities in every replay, and are kept independently. So a few sums for
//! each (key, count) tell what is kept on average; a candidate costs the same however many traces they stand for.
//!
//! - Exact, but for the binning of large counts (below 0.1 %): traces, spans, bytes, functions and call trees found,
//!   expected counts of each function; and, within 2 %, the standard error of counts estimated by weights.
//! - Exact over each function's weightiest traces and of first order over the others: the mean and the variance of
//!   each function's share in SS^2.
//! - From these, SS: the mean of the root of SS^2, level by level of its spread over replays, where functions of the same
//!   root are taken to rise and fall together, and those of different roots to be independent.
//! - The entropy is that of the expected counts, and dist/entropy the quotient of the two expectations.
//!
//! - The distance of latencies is of first order in the variance of each bucket's share, with a bridge to buckets that
//!   are hardly ever found (see `crate::latency`): within 15 %.
//!
//! RESULTS.md compares all of these with the means of 200 replays.

mod index;
mod moments;
mod pivots;
mod spread;
mod table;

use std::num::NonZeroU64;

use rayon::prelude::*;
use serde::Serialize;

use crate::latency::{LatencyCell, expected_divergence};
use crate::score::Score;
use crate::statistics::MeanSd;
use crate::workload::Workload;
use moments::{Moments, Sums, distances};
use pivots::{PIVOTS, Pivots};
use spread::Spread;
use table::{KeyTable, Size, Table};

/// The shortest window that tables are made for, ns.
const WINDOW_MIN_NS: u64 = 100_000_000;
/// The longest, ns.
const WINDOW_MAX_NS: u64 = 60_000_000_000;
/// So many window lengths lie between one and its double.
const WINDOWS_PER_DOUBLING: u32 = 8;
/// All tables together take no more than about this; there are fewer window lengths if they would.
const TABLES_BYTES_MAX: usize = 256 << 20;
/// So many families of functions are added level by level; each more costs some 10 us a candidate.
const FAMILIES_BY_LEVEL: usize = 3;
/// A probability below this counts as this where it is divided by.
const PROBABILITY_MIN: f64 = 1e-12;

/// A kept part, in expectation. The same measures as a [`Score`], as averages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Expected {
    /// Traces kept.
    pub traces: f64,
    /// Spans kept.
    pub spans: f64,
    /// Bytes kept, in the format of the recording.
    pub bytes: f64,
    /// Bytes kept, as OTLP protobuf messages.
    pub otlp_bytes: f64,
    /// `bytes` as a share of all, 0 to 1.
    pub tfcr: f64,
    /// Functions with at least one span kept.
    pub functions: f64,
    /// Functions in the whole.
    pub functions_all: f64,
    /// Call trees with at least one trace kept.
    pub call_trees: f64,
    /// Call trees in the whole.
    pub call_trees_all: f64,
    /// The distance, ms.
    pub ss_ms: f64,
    /// The entropy, bits.
    pub entropy_bits: f64,
    /// `ss_ms / entropy_bits`.
    pub dist_over_entropy: f64,
    /// The distance of the functions' latency histograms from the whole's, 0 to 1: weighted where the sampler tells
    /// weights. `None` if it was not asked for.
    pub latency: Option<f64>,
    /// The standard error of a function's number of calls, estimated by weights, relative to the number: mean over the
    /// functions. `None` where decisions have no weights.
    pub count_error: Option<f64>,
}

impl Expected {
    /// A score that is the same in every replay.
    pub(crate) fn certain(score: &Score, latency: Option<f64>) -> Self {
        Self {
            traces: score.traces as f64,
            spans: score.spans as f64,
            bytes: score.bytes as f64,
            otlp_bytes: score.otlp_bytes as f64,
            tfcr: score.tfcr,
            functions: score.functions as f64,
            functions_all: score.functions_all as f64,
            call_trees: score.call_trees as f64,
            call_trees_all: score.call_trees_all as f64,
            ss_ms: score.ss_ms,
            entropy_bits: score.entropy_bits,
            dist_over_entropy: score.dist_over_entropy,
            latency,
            count_error: None,
        }
    }
}

/// Bump's parameters for one key, with the window as a place in [`Expectation::windows_ns`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BumpPoint {
    /// The count up to which calls are mostly kept.
    pub lambda: f64,
    /// The least probability.
    pub minimum: f64,
    /// Which window.
    pub window: usize,
}

/// A workload's sums for windows of several lengths.
#[derive(Debug)]
pub struct Expectation {
    functions: Vec<Function>,
    /// How many families functions are of.
    families: usize,
    call_trees: usize,
    /// Of the whole.
    size: Size,
    pivots: Pivots,
    windows_ns: Vec<NonZeroU64>,
    tables: Vec<Table>,
    /// Empty if the distance of latencies is not asked for.
    latency_cells: Vec<LatencyCell>,
}

/// A function of the whole.
#[derive(Clone, Copy, Debug)]
struct Function {
    count: f64,
    duration_ms: MeanSd,
    /// Functions have the same one if most of their traces have the same key.
    family: usize,
}

/// Working memory for one candidate after the other.
#[derive(Clone, Debug)]
pub struct Scratch {
    size: Size,
    functions: Vec<Sums>,
    pivots: Vec<f64>,
    /// For each call tree, the sum of ln(1 - p); minus infinity if one of its traces is kept for certain.
    trees: Vec<f64>,
    families: Vec<Spread>,
    components: Vec<(f64, Moments)>,
    /// For each latency cell, the variance of its number of calls estimated by weights.
    latencies: Vec<f64>,
    law: Law,
}

impl Expectation {
    /// Sums up a workload, for window lengths of its own scale: from 0.1 s to a minute, or to the recording's length.
    ///
    /// With `latencies` there will be a distance of latencies, which takes memory and time.
    pub fn new(workload: &Workload, latencies: bool) -> Self {
        let seconds_ns = workload.arrivals().last().map_or(0, |arrival| arrival.at_ns);
        let pivots = Pivots::new(workload);
        let mut windows_ns = window_lengths(seconds_ns);
        // The longest windows have the most bins.
        let largest =
            windows_ns.last().map_or(0, |&window| Table::new(workload, &pivots, window, latencies).bytes());
        let affordable = (TABLES_BYTES_MAX / largest.max(1)).max(3);
        let step = windows_ns.len().div_ceil(affordable);
        windows_ns = windows_ns.into_iter().rev().step_by(step).collect();
        windows_ns.reverse();
        Self::build(workload, pivots, windows_ns, latencies)
    }

    /// Sums up a workload for these window lengths.
    pub fn with_windows(workload: &Workload, windows_ns: &[NonZeroU64], latencies: bool) -> Self {
        Self::build(workload, Pivots::new(workload), windows_ns.to_vec(), latencies)
    }

    fn build(workload: &Workload, pivots: Pivots, windows_ns: Vec<NonZeroU64>, latencies: bool) -> Self {
        let tables =
            windows_ns.par_iter().map(|&window| Table::new(workload, &pivots, window, latencies)).collect();
        let mut size = [0.0; 4];
        for arrival in workload.arrivals() {
            let trace = [1.0, f64::from(arrival.spans), arrival.bytes as f64, arrival.otlp_bytes as f64];
            size.iter_mut().zip(trace).for_each(|(sum, value)| *sum += value);
        }
        let functions = functions(workload);
        Self {
            families: functions.iter().map(|function| function.family + 1).max().unwrap_or(0),
            functions,
            call_trees: workload.call_trees() as usize,
            size,
            pivots,
            windows_ns,
            tables,
            latency_cells: if latencies { workload.latency_cells().to_vec() } else { Vec::new() },
        }
    }

    /// The window lengths that there are sums for, ascending.
    pub fn windows_ns(&self) -> &[NonZeroU64] {
        &self.windows_ns
    }

    /// How many keys the workload has.
    pub fn keys(&self) -> usize {
        self.tables.first().map_or(0, |table| table.keys.len())
    }

    /// Memory for [`Expectation::bump`].
    pub fn scratch(&self) -> Scratch {
        Scratch {
            size: [0.0; 4],
            functions: vec![Sums::default(); self.functions.len()],
            pivots: vec![0.0; self.pivots.len()],
            trees: vec![0.0; self.call_trees],
            families: vec![Spread::ZERO; self.families],
            components: Vec::new(),
            latencies: vec![0.0; self.latency_cells.len()],
            law: Law::default(),
        }
    }

    /// Bytes of the whole.
    pub fn bytes(&self) -> f64 {
        self.size[2]
    }

    /// The score of keeping each trace with the same probability.
    pub fn ratio(&self, probability: f64, scratch: &mut Scratch) -> Expected {
        scratch.clear();
        let table = self.tables.first().map_or(&[][..], |table| &table.keys);
        for key in table {
            scratch.law.set_alike(probability);
            scratch.add(key);
        }
        self.score(scratch)
    }

    /// The share of bytes and the number of traces that are kept: cheaper than the whole score.
    pub fn bump_size(&self, of_key: impl Fn(usize) -> BumpPoint, scratch: &mut Scratch) -> (f64, f64) {
        let mut size = [0.0; 4];
        for key in 0..self.keys() {
            let point = of_key(key);
            let table = &self.tables[point.window].keys[key];
            scratch.law.set(point, &table.inverse_squares);
            scratch.law.add_size(table, &mut size);
        }
        (if self.size[2] > 0.0 { size[2] / self.size[2] } else { 0.0 }, size[0])
    }

    /// The score of bump, with parameters that may differ from key to key.
    pub fn bump(&self, of_key: impl Fn(usize) -> BumpPoint, scratch: &mut Scratch) -> Expected {
        scratch.clear();
        for key in 0..self.keys() {
            let point = of_key(key);
            let table = &self.tables[point.window].keys[key];
            scratch.law.set(point, &table.inverse_squares);
            scratch.add(table);
        }
        self.score(scratch)
    }

    fn score(&self, scratch: &mut Scratch) -> Expected {
        scratch.families.fill(Spread::ZERO);
        let mut counts = Entropy::default();
        let (mut found, mut count_error, mut latency) = (0.0, 0.0, 0.0);
        let divergences = self.divergences(&scratch.latencies);
        let kept_pivots = scratch.pivots.chunks_exact(PIVOTS);
        for ((index, function), (sums, kept)) in
            self.functions.iter().enumerate().zip(scratch.functions.iter().zip(kept_pivots))
        {
            if function.count == 0.0 {
                continue;
            }
            let pivots = self.pivots.of(index);
            distances(function.duration_ms, sums, pivots, kept, &mut scratch.components);
            scratch.families[function.family].add_rising_together(&Spread::of(&mut scratch.components));
            let (mut expected, mut missing) = (sums.expected[0], sums.missing());
            let mut variance = sums.estimate_variance;
            for (calls, &p) in pivots.iter().zip(kept).filter(|(calls, _)| calls.count > 0) {
                let count = f64::from(calls.count);
                expected += p * count;
                missing *= 1.0 - p;
                variance += count * count * (1.0 - p) / p.max(PROBABILITY_MIN);
            }
            counts.add(expected);
            found += 1.0 - missing;
            if let Some(divergences) = &divergences {
                latency += missing + (1.0 - missing) * divergences[index].sqrt();
            }
            count_error += variance.sqrt() / function.count;
        }
        let ss_ms = root_of_sum(&mut scratch.families, &mut scratch.components);
        let [traces, spans, bytes, otlp_bytes] = scratch.size;
        let functions_all = self.functions.iter().filter(|function| function.count > 0.0).count() as f64;
        let entropy_bits = counts.bits();
        Expected {
            traces,
            spans,
            bytes,
            otlp_bytes,
            tfcr: if self.size[2] > 0.0 { bytes / self.size[2] } else { 0.0 },
            functions: found,
            functions_all,
            call_trees: scratch.trees.iter().map(|log_missing| -log_missing.exp_m1()).sum(),
            call_trees_all: self.call_trees as f64,
            ss_ms,
            entropy_bits,
            dist_over_entropy: if ss_ms == 0.0 { 0.0 } else { ss_ms / entropy_bits },
            latency: divergences.is_some().then(|| latency / functions_all.max(1.0)),
            count_error: Some(count_error / functions_all.max(1.0)),
        }
    }
}

impl Expectation {
    /// For each function the divergence of its weighted latency histogram from the whole's, given the variances of its
    /// buckets. A bucket's share is the quotient of two sums that vary together: by the delta method its relative
    /// variance is that of its calls, less twice their covariance with the function's, plus the function's; the calls
    /// of different buckets are taken as independent.
    fn divergences(&self, variances: &[f64]) -> Option<Vec<f64>> {
        if self.latency_cells.is_empty() {
            return None;
        }
        let mut totals = vec![0.0; self.functions.len()];
        for (cell, variance) in self.latency_cells.iter().zip(variances) {
            totals[cell.function as usize] += variance;
        }
        let mut divergences = vec![0.0; self.functions.len()];
        for (cell, variance) in self.latency_cells.iter().zip(variances) {
            let function = cell.function as usize;
            let (count, all) = (cell.count as f64, self.functions[function].count);
            if count > 0.0 {
                let relative = variance / (count * count) - 2.0 * variance / (count * all)
                    + totals[function] / (all * all);
                divergences[function] += count / all * expected_divergence(relative.max(0.0));
            }
        }
        Some(divergences)
    }
}

/// The mean of the root of the sum of all families, which are independent of each other. Those that spread most are
/// added level by level, the others by mean and variance.
fn root_of_sum(families: &mut [Spread], memory: &mut Vec<(f64, Moments)>) -> f64 {
    families.sort_by(|a, b| b.moments().variance.total_cmp(&a.moments().variance));
    let (widest, others) = families.split_at(families.len().min(FAMILIES_BY_LEVEL));
    let mut rest = Moments::default();
    for moments in others.iter().map(Spread::moments) {
        rest.mean += moments.mean;
        rest.variance += moments.variance;
    }
    let sum = widest.iter().copied().reduce(|sum, family| sum.plus_independent(&family, memory));
    sum.unwrap_or(Spread::ZERO).mean_of_root(rest)
}

/// Window lengths on a geometric scale, in whole milliseconds.
fn window_lengths(recording_ns: u64) -> Vec<NonZeroU64> {
    let longest = recording_ns.clamp(WINDOW_MIN_NS, WINDOW_MAX_NS);
    let length = |step: u32| {
        let ns = WINDOW_MIN_NS as f64 * (f64::from(step) / f64::from(WINDOWS_PER_DOUBLING)).exp2();
        // Three digits, which are whole milliseconds from 0.1 s on.
        let digit = 10f64.powf(ns.log10().floor() - 2.0);
        ((ns / digit).round() * digit).round() as u64
    };
    (0..).map(length).take_while(|&ns| ns <= longest).filter_map(NonZeroU64::new).collect()
}

fn functions(workload: &Workload) -> Vec<Function> {
    let mut traces = std::collections::HashMap::<(u32, u32), u32>::new();
    for (index, arrival) in workload.arrivals().iter().enumerate() {
        for calls in workload.calls(index) {
            *traces.entry((calls.function, arrival.key)).or_default() += 1;
        }
    }
    let mut most = vec![(0, 0); workload.functions().len()];
    for ((function, key), count) in traces {
        let best: &mut (u32, u32) = &mut most[function as usize];
        // The smaller key if two have as many, whatever the order of the map.
        if count > best.0 || (count == best.0 && key < best.1) {
            *best = (count, key);
        }
    }
    let mut families = std::collections::HashMap::new();
    let rows = workload.functions().iter().zip(most);
    rows.map(|(function, (_, key))| {
        let next = families.len();
        let family = *families.entry(key).or_insert(next);
        Function { count: function.count as f64, duration_ms: function.duration_ms, family }
    })
    .collect()
}

/// Shannon's entropy of counts, added one by one: log2(total) - sum(count log2(count)) / total.
#[derive(Clone, Copy, Debug, Default)]
struct Entropy {
    total: f64,
    weighted: f64,
}

impl Entropy {
    fn add(&mut self, count: f64) {
        if count > 0.0 {
            self.total += count;
            self.weighted += count * count.log2();
        }
    }

    fn bits(self) -> f64 {
        if self.total > 0.0 { (self.total.log2() - self.weighted / self.total).max(0.0) } else { 0.0 }
    }
}

/// What a bin's traces are kept by, for one key and one point.
#[derive(Clone, Copy, Debug)]
struct Chance {
    /// p
    probability: f64,
    /// p (1 - p)
    variance: f64,
    /// ln(1 - p); 0 where p is 1, which is counted apart.
    log_missing: f64,
    /// (1 - p) / p
    odds_against: f64,
}

/// The chances of each bin, up to the first at the minimum; all later ones are alike.
#[derive(Clone, Debug, Default)]
struct Law {
    chances: Vec<Chance>,
}

impl Chance {
    const CERTAIN: Self = Self { probability: 1.0, variance: 0.0, log_missing: 0.0, odds_against: 0.0 };
    const NONE: Self = Self { probability: 0.0, variance: 0.0, log_missing: 0.0, odds_against: 0.0 };

    /// Kept with probability 1 - e^(-exponent).
    fn new(exponent: f64) -> Self {
        let missing = (-exponent).exp();
        let probability = -(-exponent).exp_m1();
        Self {
            probability,
            variance: probability * missing,
            log_missing: -exponent,
            odds_against: missing / probability.max(PROBABILITY_MIN),
        }
    }
}

impl Scratch {
    fn clear(&mut self) {
        self.size = [0.0; 4];
        self.functions.fill(Sums::default());
        self.pivots.fill(0.0);
        self.trees.fill(0.0);
        self.latencies.fill(0.0);
    }

    /// Adds what a key's traces bring, by the law that was set.
    fn add(&mut self, table: &KeyTable) {
        self.law.add_size(table, &mut self.size);
        self.law.add_functions(table, &mut self.functions);
        self.law.add_trees(table, &mut self.trees);
        self.law.add_latencies(table, &mut self.latencies);
        for &(place, bin) in &table.pivots {
            self.pivots[place as usize] = self.law.probability(bin);
        }
    }
}

impl Law {
    /// The same probability, whatever the count.
    fn set_alike(&mut self, probability: f64) {
        self.chances.clear();
        let floor = -(-probability.min(1.0 - f64::EPSILON)).ln_1p();
        self.chances.push(Chance::new(floor));
    }

    fn set(&mut self, point: BumpPoint, inverse_squares: &[f64]) {
        self.chances.clear();
        let square = point.lambda * point.lambda;
        // A minimum of 1 is as good as certain, and its logarithm must stay finite.
        let floor = -(-point.minimum.min(1.0 - f64::EPSILON)).ln_1p();
        for &inverse_square in inverse_squares {
            if inverse_square.is_infinite() {
                self.chances.push(Chance::CERTAIN);
                continue;
            }
            let exponent = square * inverse_square;
            self.chances.push(Chance::new(exponent.max(floor)));
            if exponent <= floor {
                break;
            }
        }
    }

    /// The chance of a bin, and whether all later ones are the same.
    fn chance(&self, bin: u32) -> (Chance, bool) {
        let last = self.chances.len() - 1;
        (self.chances[last.min(bin as usize)], bin as usize >= last)
    }

    fn probability(&self, bin: u32) -> f64 {
        self.chance(bin).0.probability
    }

    fn add_size(&self, table: &KeyTable, size: &mut Size) {
        let mut before = 0.0;
        for (chance, sums) in self.chances.iter().zip(&table.sizes) {
            let step = chance.probability - before;
            before = chance.probability;
            size.iter_mut().zip(sums).for_each(|(total, sum)| *total += step * sum);
        }
    }

    fn add_functions(&self, table: &KeyTable, functions: &mut [Sums]) {
        for (function, cells) in table.by_function() {
            let total = &mut functions[function];
            let mut before = Chance::NONE;
            for cell in cells {
                let (chance, last) = self.chance(cell.bin);
                let (p, v) = (chance.probability - before.probability, chance.variance - before.variance);
                let [traces, c, d, q, products @ ..] = &cell.moments;
                for (sum, value) in total.expected.iter_mut().zip([c, d, q]) {
                    *sum += p * value;
                }
                for (sum, value) in total.covariances.iter_mut().zip(products) {
                    *sum += v * value;
                }
                total.estimate_variance += (chance.odds_against - before.odds_against) * products[0];
                total.log_missing += (chance.log_missing - before.log_missing) * traces;
                total.certain += u32::from(chance.probability == 1.0);
                before = chance;
                if last {
                    break;
                }
            }
        }
    }

    fn add_latencies(&self, table: &KeyTable, variances: &mut [f64]) {
        for (cell, bins) in table.by_latency() {
            let mut before = 0.0;
            for bin in bins {
                let (chance, last) = self.chance(bin.bin);
                variances[cell] += (chance.odds_against - before) * bin.squares;
                before = chance.odds_against;
                if last {
                    break;
                }
            }
        }
    }

    fn add_trees(&self, table: &KeyTable, trees: &mut [f64]) {
        for (tree, cells) in table.by_tree() {
            let total = &mut trees[tree];
            let mut before = 0.0;
            for cell in cells {
                let (chance, last) = self.chance(cell.bin);
                if chance.probability == 1.0 {
                    *total = f64::NEG_INFINITY;
                    break;
                }
                *total += (chance.log_missing - before) * cell.traces;
                before = chance.log_missing;
                if last {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
