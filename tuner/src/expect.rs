//! The expected score of a sampler, calculated without chance and without replaying traces.
//!
//! Bump decides an arrival only by its key and its count (the key's earlier calls, in the window or
//! decayed). So the same arrivals have the same probabilities in every replay, and a few sums for
//! each (key, count) give what is kept on average. A candidate's cost does not depend on the number
//! of traces behind these sums.
//!
//! - Exact except for the binning of counts (below 1 %): traces, spans, bytes, functions and call
//!   trees found, and the expected number of calls of each function. Within 2 %: the standard error
//!   of counts estimated by weights.
//! - The mean and variance of each function's share in SS^2 are exact over the function's
//!   weightiest traces, and of first order over the others.
//! - SS is the mean of the root of SS^2, calculated from these level by level over the spread of
//!   SS^2. Functions of the same root are assumed to rise and fall together, and functions of
//!   different roots to be independent.
//! - The entropy is that of the expected counts, and dist/entropy is the quotient of the two
//!   expectations.
//! - The distance of latencies is of first order in the variance of each bucket's share, with a
//!   bridge to buckets that are hardly ever found (see `crate::latency`): within 15 %.
//! - The number of path kinds found is exact, and the distance of their shares is within 10 % (see
//!   `paths`).
//!
//! With independent randomness, traces are kept independently of each other. With stratified
//! randomness, the number of traces kept of a key hardly varies. The variances of sums are then
//! those of a sample of fixed size with unequal probabilities (Hajek 1964): sum p (1 - p) (v - B)^2
//! with B = sum p (1 - p) v / sum p (1 - p), over the key's traces.
//!
//! One expectation covers one draw of phase and jitter. Over several draws, scores are averaged
//! rather than sums: this makes no difference to sizes, but it does to dist/entropy.
//!
//! `expect/tests.rs` compares all of these with the means of replays.

mod by_key;
mod chances;
mod index;
mod moments;
mod paths;
mod pivots;
mod spread;
mod sum;
mod table;

use std::num::NonZeroU64;

use serde::Serialize;

pub use chances::{Curve, KeyLaw};
pub use index::Counting;

use astracer_recording::stop::Pulse;

use crate::latency::{LatencyCell, expected_divergence};
use crate::paths::PathScore;
use crate::score::{Score, dist_over_entropy};
use crate::statistics::MeanSd;
use crate::stop::Stop;
use crate::workload::Workload;
use by_key::ByKey;
use chances::{Chances, PROBABILITY_MIN};
use moments::{Moments, Sums, distances};
use paths::PathSums;
use pivots::{PIVOTS, Pivots};
use spread::Spread;
use sum::{Source, Sum};
use table::{KeyTable, SharedTrees, Size, Table};

/// Units of work (see [`Pulse`]) for the distance of one function.
const FUNCTION_WORK: usize = 64;

/// The expected score of what is kept: the measures of a [`Score`], as averages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Expected {
    /// Traces kept.
    pub traces: f64,
    /// Spans kept.
    pub spans: f64,
    /// Bytes kept, in the format of the recording.
    pub bytes: f64,
    /// Bytes kept, as OTLP protobuf messages.
    pub otlp_bytes: f64,
    /// `bytes` as a share of all bytes, 0 to 1.
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
    /// Standard deviation of the distance over single runs, ms.
    pub ss_sd_ms: f64,
    /// The entropy, bits.
    pub entropy_bits: f64,
    /// `ss_ms / entropy_bits`.
    pub dist_over_entropy: f64,
    /// The distance of the functions' latency histograms from those of the whole, 0 to 1; weighted
    /// if the sampler has weights. `None` unless requested by [`Extras`].
    pub latency: Option<f64>,
    /// The relative standard error of a function's number of calls, estimated by weights, as the
    /// mean over functions. `None` if decisions have no weights.
    pub count_error: Option<f64>,
    /// Path kinds with at least one trace kept. `None` unless requested by [`Extras`].
    pub paths: Option<f64>,
    /// Path kinds in the whole.
    pub paths_all: f64,
    /// The distance of the path kinds' weighted shares from those of the whole, 0 to 1. `None`
    /// unless requested by [`Extras`].
    pub path_distance: Option<f64>,
}

impl Expected {
    /// The score of a sampler that keeps the same traces in every replay.
    pub(crate) fn certain(score: &Score, latency: Option<f64>, paths: Option<PathScore>) -> Self {
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
            ss_sd_ms: 0.0,
            entropy_bits: score.entropy_bits,
            dist_over_entropy: score.dist_over_entropy,
            latency,
            count_error: None,
            paths: paths.map(|paths| paths.paths as f64),
            paths_all: paths.map_or(0.0, |paths| paths.paths_all as f64),
            path_distance: paths.map(|paths| paths.path_distance),
        }
    }
}

/// Selects the measures that cost extra memory and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extras {
    /// Calculate the distance of latencies.
    pub latencies: bool,
    /// Calculate the number of path kinds found and the distance of their shares.
    pub paths: bool,
}

impl Extras {
    /// All extra measures.
    pub const ALL: Self = Self { latencies: true, paths: true };
}

/// Selects the sums of an [`Expectation`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Design {
    /// The rule by which earlier calls are counted.
    pub counting: Counting,
    /// Window lengths, or half-lives, ns.
    pub lengths_ns: Vec<NonZeroU64>,
    /// The lead of windows over the recording, as a share of their length, 0 to 1.
    pub phase: f64,
    /// The measures that cost extra memory and time.
    pub extras: Extras,
    /// Whether the random numbers of a key's traces are spread evenly.
    pub stratified: bool,
}

impl Design {
    /// The design for samplers that do not count calls.
    pub fn uncounted(extras: Extras, stratified: bool) -> Self {
        Self {
            counting: Counting::Tumbling,
            lengths_ns: vec![NonZeroU64::MAX],
            phase: 0.0,
            extras,
            stratified,
        }
    }
}

/// A workload's sums for several window lengths or half-lives.
#[derive(Debug)]
pub struct Expectation {
    functions: Vec<Function>,
    /// The number of functions in each family.
    families: Vec<u32>,
    call_trees: usize,
    /// Call trees that several traces have.
    shared_trees: usize,
    /// The size of the whole workload.
    size: Size,
    pivots: Pivots,
    /// One table for each length.
    tables: Vec<Table>,
    /// Empty unless the distance of latencies was requested.
    latency_cells: Vec<LatencyCell>,
    /// Traces of each path kind; empty unless paths were requested.
    path_kinds: Vec<u32>,
    stratified: bool,
}

/// A function of the whole workload.
#[derive(Clone, Copy, Debug)]
struct Function {
    count: f64,
    duration_ms: MeanSd,
    /// Functions are in the same family if most of their traces have the same key.
    family: usize,
}

/// Working memory, reused from one candidate to the next.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    size: Size,
    functions: Vec<Sums>,
    pivots: Vec<f64>,
    /// For each call tree that several traces have, the sum of ln(1 - p), or minus infinity if one
    /// of its traces is certainly kept. Empty unless call trees were requested.
    trees: Vec<f64>,
    /// The expected number of other call trees found.
    lone_trees: f64,
    families: Vec<Spread>,
    components: Vec<(f64, Moments)>,
    /// For each latency cell, the variance of its weighted number of calls.
    latencies: Vec<f64>,
    paths: PathSums,
}

impl Expectation {
    /// Builds the sums of a workload; `None` if asked to stop.
    pub fn new(workload: &Workload, design: &Design, stop: Stop<'_>) -> Option<Self> {
        let pivots = Pivots::new(workload, stop)?;
        let by_key = ByKey::new(workload, &mut stop.pulse())?;
        let counts = (design.counting, &design.lengths_ns[..], design.phase);
        let trees = SharedTrees::new(workload, &mut stop.pulse())?;
        let tables = Table::of_lengths((workload, &by_key, &trees), &pivots, counts, design.extras, stop)?;
        let mut size = [0.0; 4];
        for arrival in workload.arrivals() {
            let trace = [1.0, f64::from(arrival.spans), arrival.bytes as f64, arrival.otlp_bytes as f64];
            size.iter_mut().zip(trace).for_each(|(sum, value)| *sum += value);
        }
        let functions = functions((workload, &by_key), stop)?;
        let mut families = Vec::new();
        for function in &functions {
            families.resize(families.len().max(function.family + 1), 0);
            families[function.family] += 1;
        }
        Some(Self {
            families,
            functions,
            call_trees: workload.call_trees() as usize,
            shared_trees: trees.len(),
            size,
            pivots,
            tables,
            latency_cells: if design.extras.latencies {
                workload.latency_cells().to_vec()
            } else {
                Vec::new()
            },
            path_kinds: if design.extras.paths { workload.path_kinds().to_vec() } else { Vec::new() },
            stratified: design.stratified,
        })
    }

    /// The memory that the tables take.
    pub(crate) fn bytes(&self) -> usize {
        self.tables.iter().map(Table::bytes).sum()
    }

    /// An upper bound on the cost of a candidate, in units of a few ns.
    pub(crate) fn cost(&self) -> u64 {
        let cells = self.tables.iter().map(Table::bytes).max().unwrap_or(0) / size_of::<table::Cell>();
        // A function's distance is a sum over combinations of its pivots.
        (4 * cells + 100 * self.functions.len() + self.shared_trees) as u64
    }

    /// The number of keys of the workload.
    pub fn keys(&self) -> usize {
        self.tables.first().map_or(0, Table::len)
    }

    /// The score of keeping each trace with the same probability. `None` if asked to stop.
    pub fn ratio(&self, probability: f64, scratch: &mut Scratch, stop: Stop<'_>) -> Option<Expected> {
        self.expected(0, |_| KeyLaw::Constant(probability), scratch, stop)
    }

    /// The kept shares of the bytes and of the traces. Cheaper than a score. `length` is an index
    /// into [`Design::lengths_ns`]. `None` if asked to stop.
    pub fn kept<'c>(
        &self,
        length: usize,
        of_key: impl Fn(usize) -> KeyLaw<'c>,
        stop: Stop<'_>,
    ) -> Option<(f64, f64)> {
        let (mut size, mut pulse) = ([0.0; 4], stop.pulse());
        let table = &self.tables[length];
        for key in 0..table.len() {
            let table = table.key(key);
            Chances::new(of_key(key)).add_size(table, &mut size);
            if pulse.stopped_after(1 + table.sizes().len()) {
                return None;
            }
        }
        let share = |kept: f64, all: f64| if all > 0.0 { kept / all } else { 0.0 };
        Some((share(size[2], self.size[2]), share(size[0], self.size[0])))
    }

    /// The score of a sampler that decides each key's traces with its own probabilities. `length`
    /// is an index into [`Design::lengths_ns`]. `None` if asked to stop.
    pub fn expected<'c>(
        &self,
        length: usize,
        of_key: impl Fn(usize) -> KeyLaw<'c>,
        scratch: &mut Scratch,
        stop: Stop<'_>,
    ) -> Option<Expected> {
        self.score(length, of_key, true, scratch, stop)
    }

    /// Like [`expected`](Self::expected), but leaves out call trees unless `call_trees` is true.
    /// They take a third of the work if there are as many of them as traces.
    pub(crate) fn score<'c>(
        &self,
        length: usize,
        of_key: impl Fn(usize) -> KeyLaw<'c>,
        call_trees: bool,
        scratch: &mut Scratch,
        stop: Stop<'_>,
    ) -> Option<Expected> {
        scratch.clear(self, call_trees);
        let (table, mut pulse) = (&self.tables[length], stop.pulse());
        for key in 0..table.len() {
            let table = table.key(key);
            let chances = Chances::new(of_key(key));
            scratch.add(table, &chances, self.stratified);
            if call_trees {
                chances.add_trees(table, &mut scratch.trees);
                scratch.lone_trees += chances.lone_trees(table);
            }
            if pulse.stopped_after(1 + table.cells()) {
                return None;
            }
        }
        self.of_sums(scratch, &mut pulse)
    }

    /// Calculates the score from the sums. `None` if asked to stop.
    fn of_sums(&self, scratch: &mut Scratch, pulse: &mut Pulse<'_>) -> Option<Expected> {
        let mut counts = Entropy::default();
        let (mut found, mut count_error, mut latency) = (0.0, 0.0, 0.0);
        let divergences = self.divergences(&scratch.latencies);
        let mut sum = Sum::default();
        let kept_pivots = scratch.pivots.chunks_exact(PIVOTS);
        for ((index, function), (sums, kept)) in
            self.functions.iter().enumerate().zip(scratch.functions.iter().zip(kept_pivots))
        {
            if function.count == 0.0 {
                continue;
            }
            let pivots = self.pivots.of(index);
            distances(function.duration_ms, sums, pivots, kept, &mut scratch.components);
            if self.families[function.family] == 1 {
                // With 100,000 root names, most functions are alone in their families, and only the
                // few widest families need levels.
                sum.add(Moments::of(&scratch.components), || Source::Function(index));
            } else {
                scratch.families[function.family].add_rising_together(&Spread::of(&mut scratch.components));
            }
            let (mut expected, mut missing) = (sums.expected[0], sums.missing());
            let mut variance = sums.estimate_variance.max(0.0);
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
            if pulse.stopped_after(FUNCTION_WORK) {
                return None;
            }
        }
        for (family, spread) in
            scratch.families.iter().enumerate().filter(|(_, spread)| **spread != Spread::ZERO)
        {
            sum.add(spread.moments(), || Source::Family(family));
            if pulse.stopped() {
                return None;
            }
        }
        let ss_ms = sum.mean_of_root(|source, memory| match source {
            Source::Family(family) => scratch.families[family],
            Source::Function(index) => {
                let kept = &scratch.pivots[index * PIVOTS..][..PIVOTS];
                let (function, sums) = (&self.functions[index], &scratch.functions[index]);
                distances(function.duration_ms, sums, self.pivots.of(index), kept, memory);
                Spread::of(memory)
            }
        });
        let square = sum.mean();
        let [traces, spans, bytes, otlp_bytes] = scratch.size;
        let functions_all = self.functions.iter().filter(|function| function.count > 0.0).count() as f64;
        let entropy_bits = counts.bits();
        let paths = scratch.paths.score(&self.path_kinds, self.size[0]);
        Some(Expected {
            traces,
            spans,
            bytes,
            otlp_bytes,
            tfcr: if self.size[2] > 0.0 { bytes / self.size[2] } else { 0.0 },
            functions: found,
            functions_all,
            call_trees: scratch.lone_trees
                + scratch.trees.iter().map(|log_missing| -log_missing.exp_m1()).sum::<f64>(),
            call_trees_all: self.call_trees as f64,
            ss_ms,
            ss_sd_ms: (square - ss_ms * ss_ms).max(0.0).sqrt(),
            entropy_bits,
            dist_over_entropy: dist_over_entropy(ss_ms, entropy_bits),
            latency: divergences.is_some().then(|| latency / functions_all.max(1.0)),
            count_error: Some(count_error / functions_all.max(1.0)),
            paths: paths.map(|paths| paths.found),
            paths_all: self.path_kinds.iter().filter(|&&traces| traces > 0).count() as f64,
            path_distance: paths.map(|paths| paths.distance),
        })
    }
}

impl Expectation {
    /// For each function, the divergence of its weighted latency histogram from that of the whole,
    /// given the variances of its buckets. A bucket's share is the quotient of two correlated sums.
    /// By the delta method its relative variance is that of the bucket's calls, less twice their
    /// covariance with the function's calls, plus that of the function's calls. Calls of different
    /// buckets are taken as independent.
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

/// The functions, each in the family of the key that most of its traces have. `None` if asked to
/// stop.
fn functions((workload, by_key): (&Workload, &ByKey), stop: Stop<'_>) -> Option<Vec<Function>> {
    let mut pulse = stop.pulse();
    let mut most = vec![(0, 0); workload.functions().len()];
    let (mut traces, mut touched) = (vec![0u32; most.len()], Vec::new());
    for (key, arrivals) in (0u32..).zip(by_key.arrivals()) {
        for &index in arrivals {
            for calls in workload.calls(index as usize) {
                let traces = &mut traces[calls.function as usize];
                if *traces == 0 {
                    touched.push(calls.function);
                }
                *traces += 1;
            }
            if pulse.stopped_after(1 + workload.calls(index as usize).len()) {
                return None;
            }
        }
        for function in touched.drain(..) {
            let count = std::mem::take(&mut traces[function as usize]);
            let best: &mut (u32, u32) = &mut most[function as usize];
            // On a tie, the smaller key wins.
            if count > best.0 {
                *best = (count, key);
            }
        }
    }
    let mut families = vec![None; workload.keys().len().max(1)];
    let mut known = 0;
    let function = |(function, (_, key)): (&crate::workload::Function, (u32, u32))| {
        let family = *families[key as usize].get_or_insert_with(|| {
            known += 1;
            known - 1
        });
        Function { count: function.count as f64, duration_ms: function.duration_ms, family }
    };
    Some(workload.functions().iter().zip(most).map(function).collect())
}

/// Shannon's entropy of counts that are added one by one: log2(total) - sum(count log2(count)) /
/// total.
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

impl Scratch {
    fn clear(&mut self, of: &Expectation, call_trees: bool) {
        fn zero<T: Clone>(values: &mut Vec<T>, len: usize, value: T) {
            values.clear();
            values.resize(len, value);
        }
        self.size = [0.0; 4];
        zero(&mut self.functions, of.functions.len(), Sums::default());
        zero(&mut self.pivots, of.pivots.len(), 0.0);
        zero(&mut self.trees, if call_trees { of.shared_trees } else { 0 }, 0.0);
        self.lone_trees = 0.0;
        // A family of one function gets its levels only if it is among the widest, so trailing ones
        // need no memory here.
        let shared = of.families.iter().rposition(|&functions| functions > 1).map_or(0, |last| last + 1);
        zero(&mut self.families, shared, Spread::ZERO);
        zero(&mut self.latencies, of.latency_cells.len(), 0.0);
        self.paths.clear(of.path_kinds.len());
    }

    /// Adds the contribution of one key's traces.
    fn add(&mut self, key: KeyTable<'_>, chances: &Chances<'_>, stratified: bool) {
        chances.add_size(key, &mut self.size);
        // The key's sum of p (1 - p), by which variances in a sample of fixed size are reduced: see
        // the module documentation.
        let fixed = if stratified { chances.variance(key) } else { 0.0 };
        chances.add_functions(key, fixed, &mut self.functions);
        chances.add_latencies(key, &mut self.latencies);
        chances.add_paths(key, fixed, &mut self.paths);
        for &(place, bin) in key.pivots() {
            self.pivots[place as usize] = chances.chance(bin).0.probability;
        }
    }
}

impl Expected {
    /// The mean of several scores, field by field. An optional field that any of them lacks is
    /// `None`.
    pub(crate) fn mean(all: &[Self]) -> Self {
        let mean = |of: fn(&Self) -> f64| all.iter().map(of).sum::<f64>() / all.len().max(1) as f64;
        let optional = |of: fn(&Self) -> Option<f64>| {
            let values: Option<Vec<f64>> = all.iter().map(of).collect();
            values
                .filter(|values| !values.is_empty())
                .map(|values| values.iter().sum::<f64>() / values.len() as f64)
        };
        Self {
            traces: mean(|one| one.traces),
            spans: mean(|one| one.spans),
            bytes: mean(|one| one.bytes),
            otlp_bytes: mean(|one| one.otlp_bytes),
            tfcr: mean(|one| one.tfcr),
            functions: mean(|one| one.functions),
            functions_all: mean(|one| one.functions_all),
            call_trees: mean(|one| one.call_trees),
            call_trees_all: mean(|one| one.call_trees_all),
            ss_ms: mean(|one| one.ss_ms),
            ss_sd_ms: mean(|one| one.ss_sd_ms),
            entropy_bits: mean(|one| one.entropy_bits),
            dist_over_entropy: mean(|one| one.dist_over_entropy),
            latency: optional(|one| one.latency),
            count_error: optional(|one| one.count_error),
            paths: optional(|one| one.paths),
            paths_all: mean(|one| one.paths_all),
            path_distance: optional(|one| one.path_distance),
        }
    }
}

#[cfg(test)]
mod tests;
