//! Scores what is kept of a workload, compared with the whole.
//!
//! `docs/metrics.md` has the definitions, and works one example by hand.

use serde::Serialize;

use crate::stop::Stop;
use crate::workload::{Calls, Workload};

/// The paper's measures of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Score {
    /// Traces kept.
    pub traces: u64,
    /// Spans kept.
    pub spans: u64,
    /// Bytes kept, in the format of the recording.
    pub bytes: u64,
    /// Bytes kept, as OTLP protobuf messages.
    pub otlp_bytes: u64,
    /// `bytes` as a share of all bytes (the paper's TFCR), 0 to 1.
    pub tfcr: f64,
    /// `otlp_bytes` as a share of all OTLP bytes, 0 to 1.
    pub tfcr_otlp: f64,
    /// Functions with at least one span kept (the paper's SC, over functions).
    pub functions: u64,
    /// Functions in the whole.
    pub functions_all: u64,
    /// Call trees with at least one trace kept (the paper's SC, over call trees).
    pub call_trees: u64,
    /// Call trees in the whole.
    pub call_trees_all: u64,
    /// Euclidean distance of the functions' (mean, standard deviation) of durations from those of
    /// the whole (the paper's SS), ms.
    pub ss_ms: f64,
    /// Entropy of the functions' shares of the kept spans (the paper's IEn), bits.
    pub entropy_bits: f64,
    /// `ss_ms / entropy_bits`; 0 if the distance is 0; infinite (`null` in JSON) if only the
    /// entropy is 0.
    pub dist_over_entropy: f64,
}

/// Smaller distances are rounding errors, ms: a thousandth of a nanosecond.
const SS_MIN_MS: f64 = 1e-9;

/// SS divided by IEn; 0 without a distance, even if the entropy is 0 too.
pub(crate) fn dist_over_entropy(ss_ms: f64, entropy_bits: f64) -> f64 {
    if ss_ms < SS_MIN_MS { 0.0 } else { ss_ms / entropy_bits }
}

/// A smaller entropy is a rounding error, bits.
const ENTROPY_MIN: f64 = 1e-12;

/// Shannon's entropy in bits of the shares of `all`, given the sum of n log2(n) over the parts.
pub(crate) fn entropy(all: f64, n_log_n: f64) -> f64 {
    let bits = if all > 0.0 { all.log2() - n_log_n / all } else { 0.0 };
    // For a single function, the two terms may differ in the last digits.
    if bits < ENTROPY_MIN { 0.0 } else { bits }
}

/// Sums the kept traces one by one.
#[derive(Clone, Debug)]
pub struct Tally<'w> {
    workload: &'w Workload,
    reference: &'w Reference,
    traces: u64,
    spans: u64,
    bytes: u64,
    otlp_bytes: u64,
    functions: Vec<FunctionTally>,
    /// A bit set, with one bit for each call tree.
    call_trees: Vec<u64>,
}

/// The kept calls of one function.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FunctionTally {
    count: u64,
    deviation: f64,
    deviation_squared: f64,
}

/// The sums of a tally, for all functions except some.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OtherFunctions {
    /// The spans of all kept traces, whatever their functions.
    pub(crate) spans: u64,
    /// The sum of the functions' squared distances, ms^2.
    pub(crate) square: f64,
    /// The sum of n log2(n), where n is the number of kept calls of a function.
    pub(crate) n_log_n: f64,
}

/// The whole workload, summed like a [`Tally`], with which kept traces are compared.
#[derive(Clone, Debug)]
pub struct Reference {
    bytes: u64,
    otlp_bytes: u64,
    functions_all: u64,
    /// For each function, the offset of its mean from the workload's (a rounding error, so close to
    /// 0), and its standard deviation, ms.
    functions: Vec<(f64, f64)>,
    /// The number of traces of each key.
    pub(crate) traces_by_key: Vec<u32>,
}

impl Reference {
    /// Sums the whole workload in the same way as kept traces, so that keeping everything has a
    /// distance of exactly 0.
    pub fn new(workload: &Workload) -> Self {
        Self::unless_stopped(workload, Stop::never()).expect("Stop::never() never stops")
    }

    /// Like [`new`](Self::new), but returns `None` if asked to stop.
    pub fn unless_stopped(workload: &Workload, stop: Stop<'_>) -> Option<Self> {
        let mut pulse = stop.pulse();
        let empty = Self {
            bytes: 0,
            otlp_bytes: 0,
            functions_all: 0,
            functions: Vec::new(),
            traces_by_key: Vec::new(),
        };
        let mut tally = Tally::new(workload, &empty);
        for arrival in 0..workload.arrivals().len() {
            tally.keep(arrival);
            if pulse.stopped_after(1 + workload.calls(arrival).len()) {
                return None;
            }
        }
        Some(Self {
            bytes: tally.bytes,
            otlp_bytes: tally.otlp_bytes,
            functions_all: workload.function_count() as u64,
            functions: tally.functions.iter().map(FunctionTally::offset_and_sd).collect(),
            traces_by_key: workload.traces_by_key(),
        })
    }
}

impl Reference {
    /// SS: the distance of the functions' moments (the mean's offset from the workload's mean, and
    /// the standard deviation, ms). A function whose moments are `None` is missing in the sample;
    /// its distance is that of (0, 0) from its mean and standard deviation in the whole.
    pub(crate) fn distance(
        &self,
        workload: &Workload,
        moments: impl Iterator<Item = Option<(f64, f64)>>,
    ) -> f64 {
        let functions = 0..workload.functions().len();
        functions
            .zip(moments)
            .map(|(function, kept)| self.square(workload, function, kept))
            .sum::<f64>()
            .sqrt()
    }

    /// One function's share in the square of SS.
    fn square(&self, workload: &Workload, function: usize, kept: Option<(f64, f64)>) -> f64 {
        let (offset_all, sd_all) = self.functions[function];
        match kept {
            None => workload.functions()[function].duration_ms.mean.powi(2) + sd_all.powi(2),
            Some((offset, sd)) => (offset - offset_all).powi(2) + (sd - sd_all).powi(2),
        }
    }

    /// One function's share in the square of SS, from a tally of the function.
    pub(crate) fn square_of(&self, workload: &Workload, function: usize, kept: &FunctionTally) -> f64 {
        self.square(workload, function, kept.moments())
    }
}

impl FunctionTally {
    pub(crate) fn add(&mut self, calls: &Calls) {
        self.count += u64::from(calls.count);
        self.deviation += calls.deviation;
        self.deviation_squared += calls.deviation_squared;
    }

    /// n log2(n) for the number of calls; 0 without calls.
    pub(crate) fn n_log_n(&self) -> f64 {
        let count = self.count as f64;
        if count > 0.0 { count * count.log2() } else { 0.0 }
    }

    /// `None` without calls.
    fn moments(&self) -> Option<(f64, f64)> {
        (self.count > 0).then(|| self.offset_and_sd())
    }

    /// The mean's offset from the mean in the whole workload, and the population standard
    /// deviation.
    fn offset_and_sd(&self) -> (f64, f64) {
        if self.count == 0 {
            return (0.0, 0.0);
        }
        let offset = self.deviation / self.count as f64;
        let variance = self.deviation_squared / self.count as f64 - offset * offset;
        (offset, variance.max(0.0).sqrt())
    }
}

impl<'w> Tally<'w> {
    /// A tally of no traces.
    pub fn new(workload: &'w Workload, reference: &'w Reference) -> Self {
        Self {
            workload,
            reference,
            traces: 0,
            spans: 0,
            bytes: 0,
            otlp_bytes: 0,
            functions: vec![FunctionTally::default(); workload.functions().len()],
            call_trees: vec![0; (workload.call_trees() as usize).div_ceil(64)],
        }
    }

    /// Adds one kept arrival.
    pub fn keep(&mut self, arrival: usize) {
        let trace = &self.workload.arrivals()[arrival];
        self.traces += 1;
        self.spans += u64::from(trace.spans);
        self.bytes += trace.bytes;
        self.otlp_bytes += trace.otlp_bytes;
        self.call_trees[trace.call_tree as usize / 64] |= 1 << (trace.call_tree % 64);
        for calls in self.workload.calls(arrival) {
            self.functions[calls.function as usize].add(calls);
        }
    }

    /// The kept calls of one function.
    pub(crate) fn function(&self, function: usize) -> FunctionTally {
        self.functions[function]
    }

    /// The sums without some functions, which must be in ascending order.
    pub(crate) fn rest(&self, without: &[usize]) -> OtherFunctions {
        let mut rest = OtherFunctions { spans: self.spans, ..OtherFunctions::default() };
        let mut without = without.iter().copied().peekable();
        for (place, function) in self.functions.iter().enumerate() {
            if without.next_if_eq(&place).is_none() {
                rest.square += self.reference.square_of(self.workload, place, function);
                rest.n_log_n += function.n_log_n();
            }
        }
        rest
    }

    /// The measures of the traces added so far.
    pub fn score(&self) -> Score {
        let share = |kept: u64, all: u64| if all == 0 { 0.0 } else { kept as f64 / all as f64 };
        let moments = self.functions.iter().map(FunctionTally::moments);
        let ss_ms = self.reference.distance(self.workload, moments);
        let entropy_bits = self.entropy();
        Score {
            traces: self.traces,
            spans: self.spans,
            bytes: self.bytes,
            otlp_bytes: self.otlp_bytes,
            tfcr: share(self.bytes, self.reference.bytes),
            tfcr_otlp: share(self.otlp_bytes, self.reference.otlp_bytes),
            functions: self.functions.iter().filter(|function| function.count > 0).count() as u64,
            functions_all: self.reference.functions_all,
            call_trees: self.call_trees.iter().map(|word| u64::from(word.count_ones())).sum(),
            call_trees_all: u64::from(self.workload.call_trees()),
            ss_ms,
            entropy_bits,
            dist_over_entropy: dist_over_entropy(ss_ms, entropy_bits),
        }
    }

    /// IEn: Shannon's entropy of the functions' shares of the spans.
    fn entropy(&self) -> f64 {
        let total = self.spans as f64;
        let counts = self.functions.iter().map(|function| function.count as f64).filter(|&count| count > 0.0);
        let bits: f64 = counts.map(|count| count / total).map(|share| -share * share.log2()).sum();
        // The sum is -0 for a single function.
        bits.max(0.0)
    }
}

#[cfg(test)]
mod tests {
    /// The entropy of a single function is only a rounding error.
    #[test]
    fn a_single_function_has_no_entropy() {
        for calls in 1..10_000 {
            let calls = f64::from(calls) * 3.0;
            assert_eq!(super::entropy(calls, calls * calls.log2()), 0.0);
        }
        assert_eq!(super::entropy(2.0, 0.0), 1.0);
    }
}
