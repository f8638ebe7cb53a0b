//! The measures by which published samplers are compared, for recordings with labelled faults.
//!
//! Coverage, proportions and entropy are those of rcabench-platform and of TracePicker (FSE 2025);
//! faults are located by spectrum analysis with Ochiai's coefficient. `docs/metrics.md` has the
//! definitions.

mod events;
mod operation;
mod spectrum;
mod traces;

use std::collections::HashSet;

use astracer_model::UnixNanos;
use astracer_recording::recording::Recording;
use serde::Serialize;

use self::spectrum::Spectrum;
use self::traces::{Trace, Traces};
use crate::score::entropy;
use crate::stop::Stop;

/// A labelled fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its name.
    pub name: String,
    /// Traces that start from here on are affected.
    pub from: UnixNanos,
    /// Traces that start from here on are no longer affected.
    pub to: UnixNanos,
    /// The service at fault.
    pub service: String,
    /// The operation at fault, if it is known: a span's name.
    pub operation: Option<String>,
}

impl Fault {
    fn contains(&self, at: UnixNanos) -> bool {
        self.from <= at && at < self.to
    }
}

/// A recording with labelled faults, prepared to score what is kept of it.
#[derive(Clone, Debug)]
pub struct Scoreboard {
    traces: Traces,
    spectrum: Spectrum,
    whole: Whole,
}

/// The contents of the whole recording.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Whole {
    /// Traces.
    pub traces: usize,
    /// Different entries: service and name of the root.
    pub entries: usize,
    /// Different paths: the operations called, by depth.
    pub paths: usize,
    /// Different pairs of successive events.
    pub event_pairs: usize,
    /// Different shapes: sets of event pairs.
    pub shapes: usize,
    /// Anomalous traces.
    pub anomalous: usize,
    /// Traces of rare entries.
    pub rare: usize,
    /// Faults during which the recording has traces of the service at fault.
    pub faults: usize,
    /// The names of other faults. No ranking can find them, so they do not count.
    pub faults_without_traces: Vec<String>,
}

/// The scores of one set of kept traces. Shares are from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Scores {
    /// Share of the traces kept.
    pub traces: f64,
    /// Share of the entries found.
    pub entries: f64,
    /// Share of the paths found.
    pub paths: f64,
    /// Share of the event pairs found.
    pub event_pairs: f64,
    /// Share of the shapes found.
    pub shapes: f64,
    /// Share of the anomalous traces kept.
    pub anomalous_kept: f64,
    /// Anomalous traces as a share of those kept.
    pub anomalous: f64,
    /// Traces of rare entries as a share of those kept.
    pub rare: f64,
    /// Traces that are neither anomalous nor rare, as a share of those kept.
    pub common: f64,
    /// Shannon's entropy of the kept traces' shapes, bits.
    pub entropy_bits: f64,
    /// Kept traces per shape found.
    pub traces_per_shape: f64,
    /// Share of the faults whose place is ranked first.
    pub top_1: f64,
    /// Share of the faults whose place is among the first three.
    pub top_3: f64,
    /// The mean over the faults of 1 / rank; 0 for a fault that shows in no kept trace.
    pub mrr: f64,
}

impl Scores {
    /// Fills each field with the result of `number`, which gets an accessor for that field.
    pub fn of_each(number: impl Fn(fn(&Self) -> f64) -> f64) -> Self {
        Self {
            traces: number(|scores| scores.traces),
            entries: number(|scores| scores.entries),
            paths: number(|scores| scores.paths),
            event_pairs: number(|scores| scores.event_pairs),
            shapes: number(|scores| scores.shapes),
            anomalous_kept: number(|scores| scores.anomalous_kept),
            anomalous: number(|scores| scores.anomalous),
            rare: number(|scores| scores.rare),
            common: number(|scores| scores.common),
            entropy_bits: number(|scores| scores.entropy_bits),
            traces_per_shape: number(|scores| scores.traces_per_shape),
            top_1: number(|scores| scores.top_1),
            top_3: number(|scores| scores.top_3),
            mrr: number(|scores| scores.mrr),
        }
    }
}

impl Scoreboard {
    /// Prepares a recording. `None` if asked to stop.
    pub fn new(recording: &Recording, faults: &[Fault], stop: Stop<'_>) -> Option<Self> {
        let traces = Traces::new(recording, faults, stop)?;
        let spectrum = Spectrum::new(recording, faults, &traces);
        let count = |is: fn(&Trace) -> bool| traces.all.iter().filter(|trace| is(trace)).count();
        let whole = Whole {
            traces: traces.all.len(),
            entries: traces.entries,
            paths: traces.paths,
            event_pairs: traces.events.pair_count(),
            shapes: traces.events.shape_count(),
            anomalous: count(|trace| trace.is_anomalous),
            rare: count(|trace| trace.is_rare),
            faults: spectrum.fault_count(),
            faults_without_traces: spectrum.without_traces(faults),
        };
        Some(Self { traces, spectrum, whole })
    }

    /// The contents of the whole recording.
    pub fn whole(&self) -> &Whole {
        &self.whole
    }

    /// The scores of these traces, given by their places in the recording.
    pub fn scores(&self, kept: impl IntoIterator<Item = usize>) -> Scores {
        let mut kept: Vec<usize> = kept.into_iter().collect();
        kept.sort_unstable();
        kept.dedup();
        let all = &self.traces.all;
        let kept: Vec<&Trace> = kept.iter().filter_map(|&at| all.get(at)).collect();
        let different = |of: fn(&Trace) -> u32| kept.iter().map(|trace| of(trace)).collect::<HashSet<_>>();
        let count = |is: fn(&Trace) -> bool| kept.iter().filter(|trace| is(trace)).count();
        let mut by_shape = vec![0u32; self.whole.shapes];
        kept.iter().for_each(|trace| by_shape[trace.shape as usize] += 1);
        let shapes = different(|trace| trace.shape);
        let n_log_n = |&count: &u32| f64::from(count) * f64::from(count.max(1)).log2();
        let pairs: HashSet<u32> =
            shapes.iter().flat_map(|&shape| self.traces.events.pairs(shape)).copied().collect();
        let anomalous = count(|trace| trace.is_anomalous);
        let located = self.spectrum.locate(&kept, &self.traces.operations);
        Scores {
            traces: share(kept.len(), self.whole.traces),
            entries: share(different(|trace| trace.entry).len(), self.whole.entries),
            paths: share(different(|trace| trace.path).len(), self.whole.paths),
            event_pairs: share(pairs.len(), self.whole.event_pairs),
            shapes: share(shapes.len(), self.whole.shapes),
            anomalous_kept: share(anomalous, self.whole.anomalous),
            anomalous: share(anomalous, kept.len()),
            rare: share(count(|trace| trace.is_rare), kept.len()),
            common: share(count(|trace| !trace.is_rare && !trace.is_anomalous), kept.len()),
            entropy_bits: entropy(kept.len() as f64, by_shape.iter().map(n_log_n).sum()),
            traces_per_shape: share(kept.len(), shapes.len()),
            top_1: located.top_1,
            top_3: located.top_3,
            mrr: located.mrr,
        }
    }
}

/// `part / whole`; 0 of nothing.
fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests;
