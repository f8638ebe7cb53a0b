//! The table of sampler quality: each sampler replayed with several seeds, and scored.

use std::sync::atomic::{AtomicBool, Ordering};

use astracer_model::TraceId;
use rayon::prelude::*;
use serde::Serialize;

use crate::candidate::Candidate;
use crate::key::Grouping;
use crate::latency::LatencyTally;
use crate::score::{Reference, Score, Tally};
use crate::statistics::MeanSd;
use crate::workload::Workload;

/// Replays samplers over one workload and scores what they keep.
#[derive(Debug)]
pub struct Evaluator<'w> {
    workload: &'w Workload,
    reference: Reference,
}

/// What came out: one row for each sampler and seed, and one summary for each sampler.
#[derive(Clone, Debug, Serialize)]
pub struct Evaluation {
    /// What was replayed.
    pub workload: WorkloadSummary,
    /// Samplers in the order asked for, seeds ascending.
    pub rows: Vec<Row>,
    /// Samplers in the order asked for.
    pub summary: Vec<Summary>,
}

/// A workload in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct WorkloadSummary {
    /// Traces.
    pub traces: u64,
    /// Spans.
    pub spans: u64,
    /// Bytes of the records, in the format of the recording.
    pub bytes: u64,
    /// Bytes as OTLP protobuf messages.
    pub otlp_bytes: u64,
    /// Functions with calls.
    pub functions: u64,
    /// Different call trees.
    pub call_trees: u64,
    /// Seconds from the first arrival to the last.
    pub seconds: f64,
    /// The rule that keys were made by.
    pub key: String,
    /// Different keys.
    pub keys: u64,
}

/// One sampler's score with one seed.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The sampler, as it can be asked for.
    pub sampler: String,
    /// The seed of the randomness.
    pub seed: u64,
    /// The score.
    #[serde(flatten)]
    pub score: Score,
}

/// One sampler over all seeds.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The sampler, as it can be asked for.
    pub sampler: String,
    /// How many seeds were replayed.
    pub seeds: u64,
    /// Means over the seeds.
    pub mean: Averages,
    /// Standard deviations (of a population) over the seeds.
    pub sd: Averages,
}

/// The numbers of a [`Score`] as averages.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Averages {
    /// Traces kept.
    pub traces: f64,
    /// Spans kept.
    pub spans: f64,
    /// Bytes kept.
    pub bytes: f64,
    /// OTLP bytes kept.
    pub otlp_bytes: f64,
    /// Share of the bytes kept.
    pub tfcr: f64,
    /// Share of the OTLP bytes kept.
    pub tfcr_otlp: f64,
    /// Functions found.
    pub functions: f64,
    /// Call trees found.
    pub call_trees: f64,
    /// Distance, ms.
    pub ss_ms: f64,
    /// Entropy, bits.
    pub entropy_bits: f64,
    /// Distance by entropy.
    pub dist_over_entropy: f64,
}

impl Summary {
    fn new(rows: &[Row]) -> Option<Self> {
        let column = |number: fn(&Score) -> f64| MeanSd::of(rows.iter().map(|row| number(&row.score)));
        let columns = [
            column(|score| score.traces as f64),
            column(|score| score.spans as f64),
            column(|score| score.bytes as f64),
            column(|score| score.otlp_bytes as f64),
            column(|score| score.tfcr),
            column(|score| score.tfcr_otlp),
            column(|score| score.functions as f64),
            column(|score| score.call_trees as f64),
            column(|score| score.ss_ms),
            column(|score| score.entropy_bits),
            column(|score| score.dist_over_entropy),
        ];
        Some(Self {
            sampler: rows.first()?.sampler.clone(),
            seeds: rows.len() as u64,
            mean: Averages::new(columns.map(|column| column.mean)),
            sd: Averages::new(columns.map(|column| column.sd)),
        })
    }
}

impl Averages {
    fn new(columns: [f64; 11]) -> Self {
        let [
            traces,
            spans,
            bytes,
            otlp_bytes,
            tfcr,
            tfcr_otlp,
            functions,
            call_trees,
            ss_ms,
            entropy_bits,
            dist_over_entropy,
        ] = columns;
        Self {
            traces,
            spans,
            bytes,
            otlp_bytes,
            tfcr,
            tfcr_otlp,
            functions,
            call_trees,
            ss_ms,
            entropy_bits,
            dist_over_entropy,
        }
    }
}

impl<'w> Evaluator<'w> {
    /// Prepares to score parts of a workload.
    pub fn new(workload: &'w Workload) -> Self {
        Self { workload, reference: Reference::new(workload) }
    }

    /// What is scored.
    pub fn workload(&self) -> &'w Workload {
        self.workload
    }

    /// The score of one sampler with one seed.
    pub fn score(&self, sampler: &Candidate, seed: u64) -> Score {
        let mut tally = Tally::new(self.workload, &self.reference);
        sampler.replay(self.workload, seed, |arrival, _| tally.keep(arrival));
        tally.score()
    }

    /// The score of one sampler with one seed, and the distance of its latency histograms from the whole's.
    pub fn score_and_latency(&self, sampler: &Candidate, seed: u64) -> (Score, f64) {
        let mut tally = Tally::new(self.workload, &self.reference);
        let mut histograms = LatencyTally::new(self.workload);
        sampler.replay(self.workload, seed, |arrival, weight| {
            tally.keep(arrival);
            histograms.keep(arrival, weight.unwrap_or(1.0));
        });
        (tally.score(), histograms.distance())
    }

    /// Replays each sampler with seeds 1 to `seeds`, on all cores, calling `done` after each replay.
    ///
    /// `None` if `stop` became true before the end.
    pub fn evaluate(
        &self,
        samplers: &[Candidate],
        seeds: u64,
        key: &Grouping,
        stop: &AtomicBool,
        done: impl Fn() + Sync,
    ) -> Option<Evaluation> {
        let jobs: Vec<_> =
            samplers.iter().flat_map(|sampler| (1..=seeds).map(move |seed| (sampler, seed))).collect();
        let row = |&(sampler, seed): &(&Candidate, u64)| {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let score = self.score(sampler, seed);
            done();
            Some(Row { sampler: sampler.to_string(), seed, score })
        };
        let rows: Vec<Row> = jobs.par_iter().map(row).collect::<Option<_>>()?;
        let summary = rows.chunks(seeds.max(1) as usize).filter_map(Summary::new).collect();
        Some(Evaluation { workload: self.summary(key), rows, summary })
    }

    /// The ids of the traces that a sampler keeps with one seed, in order of arrival.
    pub fn kept(&self, sampler: &Candidate, seed: u64) -> Vec<TraceId> {
        let mut ids = Vec::new();
        sampler.replay(self.workload, seed, |arrival, _| ids.push(self.workload.trace_id(arrival)));
        ids
    }

    fn summary(&self, key: &Grouping) -> WorkloadSummary {
        let arrivals = self.workload.arrivals();
        WorkloadSummary {
            traces: arrivals.len() as u64,
            spans: arrivals.iter().map(|arrival| u64::from(arrival.spans)).sum(),
            bytes: arrivals.iter().map(|arrival| arrival.bytes).sum(),
            otlp_bytes: arrivals.iter().map(|arrival| arrival.otlp_bytes).sum(),
            functions: self.workload.function_count() as u64,
            call_trees: u64::from(self.workload.call_trees()),
            seconds: arrivals.last().map_or(0.0, |last| last.at_ns as f64 / 1e9),
            key: key.to_string(),
            keys: self.workload.keys().len() as u64,
        }
    }
}
