//! The table of sampler quality: each sampler is replayed on several draws and scored.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use astracer_model::TraceId;
use astracer_samplers::{Config, Probability, Ratio};
use rayon::prelude::*;
use serde::Serialize;

use crate::candidate::Candidate;
use crate::chunks::{add_up, held};
use crate::counts::{Estimates, estimates};
use crate::draw::Draw;
use crate::held_out::{CountErrors, CountSums};
use crate::key::Grouping;
use crate::paths::{PathScore, PathTally};
use crate::score::{Reference, Score, Tally, dist_over_entropy};
use crate::statistics::MeanSd;
use crate::stop::Stop;
use crate::workload::Workload;

/// Replays samplers over one workload and scores what they keep.
#[derive(Debug)]
pub struct Evaluator<'w> {
    workload: &'w Workload,
    reference: Reference,
}

/// The table, with one row per sampler and draw and one summary per sampler.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Evaluation {
    /// The workload replayed.
    pub workload: WorkloadSummary,
    /// Samplers in the order given; for each sampler, its draws in the order given.
    pub rows: Vec<Row>,
    /// Samplers in the order given.
    pub summary: Vec<Summary>,
}

/// The size of a workload.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct WorkloadSummary {
    /// Traces.
    pub traces: u64,
    /// Spans.
    pub spans: u64,
    /// Bytes of the records, in the format of the recording.
    pub bytes: u64,
    /// Bytes as OTLP protobuf messages.
    pub otlp_bytes: u64,
    /// Functions with at least one call.
    pub functions: u64,
    /// Different call trees.
    pub call_trees: u64,
    /// Different path kinds.
    pub paths: u64,
    /// Seconds from the first arrival to the last.
    pub seconds: f64,
    /// The rule that makes keys.
    pub key: String,
    /// Different keys.
    pub keys: u64,
}

/// One sampler's score on one draw.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The sampler, written as it is given on the command line.
    pub sampler: String,
    /// The draw: phase, jitter and seed.
    #[serde(flatten)]
    pub draw: Draw,
    /// The score.
    #[serde(flatten)]
    pub score: Score,
    /// The path kinds found.
    #[serde(flatten)]
    pub paths: PathScore,
}

/// The traces of one key in one interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CountRow {
    /// The interval's start, ns from the first arrival.
    pub start_ns: u64,
    /// The key.
    pub key: String,
    /// Traces that began in the interval.
    pub seen: u64,
    /// Kept traces among these.
    pub kept: u64,
}

/// One sampler over all draws.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// The sampler, written as it is given on the command line.
    pub sampler: String,
    /// The number of draws replayed.
    pub seeds: u64,
    /// Means over the draws.
    pub mean: Averages,
    /// Population standard deviations over the draws.
    pub sd: Averages,
    /// Errors of counts that are estimated by weights. `None` if decisions have no weights.
    pub counts: Option<CountErrors>,
    /// SS from weighted means and standard deviations, ms, as the mean over the draws. `None` if
    /// decisions have no weights.
    pub ss_by_weights_ms: Option<f64>,
    /// The mean over the draws of dist/entropy with that SS. `None` if decisions have no weights.
    pub dist_over_entropy_by_weights: Option<f64>,
    /// SS of an equal share that keeps as many bytes, ms, as the mean over the same draws. Weights
    /// are useful if `ss_by_weights_ms` is smaller. `None` if decisions have no weights, or if the
    /// sampler is an equal share itself.
    pub ss_of_equal_share_ms: Option<f64>,
}

/// The numbers of a [`Score`] and of a [`PathScore`], as averages.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
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
    /// Distance divided by entropy.
    pub dist_over_entropy: f64,
    /// Path kinds found.
    pub paths: f64,
    /// The distance of the path kinds' shares from those of the whole, weighted if decisions have
    /// weights.
    pub path_distance: f64,
}

/// All runs of one sampler.
#[derive(Default)]
struct Runs {
    rows: Vec<Row>,
    /// The number of runs with weights.
    weighted: usize,
    counts: CountSums,
    ss_by_weights_ms: f64,
    dist_over_entropy_by_weights: f64,
}

impl Runs {
    fn add(&mut self, row: Row, estimates: Option<&Estimates>) {
        if let Some(estimates) = estimates {
            self.weighted += 1;
            self.counts.add(estimates);
            self.ss_by_weights_ms += estimates.ss_ms;
            self.dist_over_entropy_by_weights += dist_over_entropy(estimates.ss_ms, row.score.entropy_bits);
        }
        self.rows.push(row);
    }
}

impl Summary {
    fn new(runs: &Runs) -> Option<Self> {
        let Runs { rows, weighted, counts, ss_by_weights_ms, dist_over_entropy_by_weights } = runs;
        let runs: Vec<Averages> = rows.iter().map(Averages::of).collect();
        let all_weighted = *weighted == rows.len();
        let over_runs = |number: fn(&Averages) -> f64| MeanSd::of(runs.iter().map(number));
        let mean = Averages::of_each(|number| over_runs(number).mean);
        Some(Self {
            sampler: rows.first()?.sampler.clone(),
            seeds: rows.len() as u64,
            mean,
            sd: Averages::of_each(|number| over_runs(number).sd),
            counts: all_weighted.then(|| counts.errors()),
            ss_by_weights_ms: all_weighted.then(|| ss_by_weights_ms / rows.len() as f64),
            dist_over_entropy_by_weights: all_weighted
                .then(|| dist_over_entropy_by_weights / rows.len() as f64),
            ss_of_equal_share_ms: None,
        })
    }
}

impl Averages {
    /// One run's numbers.
    fn of(Row { score, paths, .. }: &Row) -> Self {
        Self {
            traces: score.traces as f64,
            spans: score.spans as f64,
            bytes: score.bytes as f64,
            otlp_bytes: score.otlp_bytes as f64,
            tfcr: score.tfcr,
            tfcr_otlp: score.tfcr_otlp,
            functions: score.functions as f64,
            call_trees: score.call_trees as f64,
            ss_ms: score.ss_ms,
            entropy_bits: score.entropy_bits,
            dist_over_entropy: score.dist_over_entropy,
            paths: paths.paths as f64,
            path_distance: paths.path_distance,
        }
    }

    /// Fills each field with the result of `number`, which gets an accessor for that field.
    fn of_each(number: impl Fn(fn(&Self) -> f64) -> f64) -> Self {
        Self {
            traces: number(|run| run.traces),
            spans: number(|run| run.spans),
            bytes: number(|run| run.bytes),
            otlp_bytes: number(|run| run.otlp_bytes),
            tfcr: number(|run| run.tfcr),
            tfcr_otlp: number(|run| run.tfcr_otlp),
            functions: number(|run| run.functions),
            call_trees: number(|run| run.call_trees),
            ss_ms: number(|run| run.ss_ms),
            entropy_bits: number(|run| run.entropy_bits),
            dist_over_entropy: number(|run| run.dist_over_entropy),
            paths: number(|run| run.paths),
            path_distance: number(|run| run.path_distance),
        }
    }
}

impl<'w> Evaluator<'w> {
    /// Prepares to score parts of a workload.
    pub fn new(workload: &'w Workload) -> Self {
        Self { workload, reference: Reference::new(workload) }
    }

    /// Like [`new`](Self::new), but returns `None` if asked to stop.
    pub fn unless_stopped(workload: &'w Workload, stop: Stop<'_>) -> Option<Self> {
        Some(Self { workload, reference: Reference::unless_stopped(workload, stop)? })
    }

    /// The workload that samplers are scored on.
    pub fn workload(&self) -> &'w Workload {
        self.workload
    }

    /// The score of one sampler on one draw.
    pub fn score(&self, sampler: &Candidate, draw: &Draw) -> Score {
        let mut tally = Tally::new(self.workload, &self.reference);
        sampler.replay(self.workload, draw, Stop::never(), |arrival, _| tally.keep(arrival));
        tally.score()
    }

    /// Replays each sampler on each draw, using all cores. `done` is called after each replay.
    ///
    /// `None` if `stop` became true before the end.
    pub fn evaluate(
        &self,
        samplers: &[Candidate],
        draws: &[Draw],
        key: &Grouping,
        stop: Stop<'_>,
        done: impl Fn() + Sync,
    ) -> Option<Evaluation> {
        let numbers = 0..samplers.len();
        let jobs: Vec<_> =
            numbers.flat_map(|sampler| draws.iter().map(move |draw| (sampler, *draw))).collect();
        let run = |&(sampler, ref draw): &(usize, Draw)| {
            let sampler = &samplers[sampler];
            let mut tally = Tally::new(self.workload, &self.reference);
            let mut paths = PathTally::new(self.workload);
            let (mut kept, mut weighted) = (Vec::new(), true);
            let finished = sampler.replay(self.workload, draw, stop, |arrival, weight| {
                tally.keep(arrival);
                paths.keep(arrival, weight.unwrap_or(1.0));
                weighted &= weight.is_some();
                kept.push((arrival, weight.unwrap_or(1.0)));
            });
            done();
            let estimates = || estimates(self.workload, &self.reference, &kept);
            finished.then(|| (tally.score(), paths.score(), weighted.then(estimates)))
        };
        let names: Vec<String> = samplers.iter().map(Candidate::to_string).collect();
        let mut all: Vec<Runs> = samplers.iter().map(|_| Runs::default()).collect();
        let mut is_stopped = false;
        add_up(&jobs, held(self.workload), run, |&(sampler, draw), finished| {
            let Some((score, paths, estimates)) = finished else {
                is_stopped = true;
                return;
            };
            let row = Row { sampler: names[sampler].clone(), draw, score, paths };
            all[sampler].add(row, estimates.as_ref());
        });
        if is_stopped {
            return None;
        }
        let mut evaluation =
            Evaluation { workload: self.summary(key), rows: Vec::new(), summary: Vec::new() };
        for (sampler, runs) in samplers.iter().zip(all) {
            let is_equal = matches!(sampler, Candidate::Ours(Config::Always | Config::Ratio(_)));
            if let Some(summary) = Summary::new(&runs) {
                let is_compared = summary.counts.is_some() && !is_equal;
                let share = is_compared.then_some(summary.mean.tfcr).and_then(ratio);
                let ss_of_equal_share_ms = match share {
                    Some(share) => Some(self.ss_ms(&share, draws, stop)?),
                    None => None,
                };
                evaluation.summary.push(Summary { ss_of_equal_share_ms, ..summary });
            }
            evaluation.rows.extend(runs.rows);
        }
        Some(evaluation)
    }

    /// The mean of SS over the draws. `None` if asked to stop.
    fn ss_ms(&self, sampler: &Candidate, draws: &[Draw], stop: Stop<'_>) -> Option<f64> {
        let ss_ms = |draw: &Draw| {
            let mut tally = Tally::new(self.workload, &self.reference);
            let finished = sampler.replay(self.workload, draw, stop, |arrival, _| tally.keep(arrival));
            finished.then(|| tally.score().ss_ms)
        };
        let runs: Vec<f64> = draws.par_iter().map(ss_ms).collect::<Option<_>>()?;
        Some(MeanSd::of(runs.into_iter()).mean)
    }

    /// The ids of the traces that a sampler keeps on one draw, in the order of the
    /// decisions.
    pub fn kept(&self, sampler: &Candidate, draw: &Draw) -> Vec<TraceId> {
        let kept = self.kept_arrivals(sampler, draw, Stop::never()).unwrap_or_default();
        kept.into_iter().map(|arrival| self.workload.trace_id(arrival)).collect()
    }

    /// The traces that a sampler keeps on one draw, as places in [`Workload::arrivals`]. `None` if
    /// asked to stop.
    pub fn kept_arrivals(&self, sampler: &Candidate, draw: &Draw, stop: Stop<'_>) -> Option<Vec<usize>> {
        let mut kept = Vec::new();
        sampler.replay(self.workload, draw, stop, |arrival, _| kept.push(arrival)).then_some(kept)
    }

    /// The exact numbers of traces seen and kept on one draw, by key and by interval of
    /// `interval_ns` from the first arrival. Sorted by interval, then by key. Intervals without a
    /// trace of a key have no row for it.
    pub fn counts(&self, sampler: &Candidate, draw: &Draw, interval_ns: NonZeroU64) -> Vec<CountRow> {
        let arrivals = self.workload.arrivals();
        let mut intervals = vec![0; arrivals.len()];
        let mut rows = BTreeMap::<(u64, u32), (u64, u64)>::new();
        for (at_ns, index) in draw.arrivals(self.workload, Stop::never()).unwrap_or_default() {
            let (index, interval) = (index as usize, at_ns / interval_ns);
            intervals[index] = interval;
            rows.entry((interval, arrivals[index].key)).or_default().0 += 1;
        }
        sampler.replay(self.workload, draw, Stop::never(), |index, _| {
            rows.entry((intervals[index], arrivals[index].key)).or_default().1 += 1;
        });
        let names: Vec<&str> = self.workload.keys().names().collect();
        let row = |((interval, key), (seen, kept)): ((u64, u32), (u64, u64))| CountRow {
            start_ns: interval.saturating_mul(interval_ns.get()),
            key: names[key as usize].to_owned(),
            seen,
            kept,
        };
        let mut rows: Vec<CountRow> = rows.into_iter().map(row).collect();
        // The map is sorted by the keys' numbers, which follow the order of first traces.
        rows.sort_by(|a, b| (a.start_ns, &a.key).cmp(&(b.start_ns, &b.key)));
        rows
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
            paths: self.workload.path_kinds().iter().filter(|&&traces| traces > 0).count() as u64,
            seconds: self.workload.seconds(),
            key: key.to_string(),
            keys: self.workload.keys().len() as u64,
        }
    }
}

/// The sampler that keeps an equal share of everything; `None` if it would keep nothing.
fn ratio(share: f64) -> Option<Candidate> {
    let share = Probability::new(share.min(1.0))?;
    Some(Candidate::from(Config::from(Ratio::new(share).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic;

    /// The equal share must be replayed: its expectation would be some percent below its own
    /// replays, and the share would seem worse than itself.
    #[test]
    fn an_equal_share_is_replayed_and_not_compared_with_itself() {
        let workload = synthetic(500, 2);
        let evaluator = Evaluator::new(&workload);
        let draws: Vec<Draw> = (1..=5).map(Draw::recorded).collect();
        let sampler = |text: &str| Candidate::from(text.parse::<Config>().expect(text));
        let samplers = ["always", "ratio:0.1", "bump:lambda=1,min=0.1,window=1s", "bucket:capacity=2,rate=1"]
            .map(sampler);
        let found = evaluator.evaluate(&samplers, &draws, &Grouping::default(), Stop::never(), || {});
        let [always, share, bump, bucket] = &found.expect("not stopped").summary[..] else {
            panic!("one for each sampler")
        };
        assert!(share.ss_by_weights_ms.is_some() && bump.ss_by_weights_ms.is_some());
        for summary in [always, share, bucket] {
            assert_eq!(summary.ss_of_equal_share_ms, None, "{}", summary.sampler);
        }
        let equal = sampler(&format!("ratio:{}", bump.mean.tfcr));
        let replayed = draws.iter().map(|draw| evaluator.score(&equal, draw).ss_ms);
        let mean = replayed.sum::<f64>() / draws.len() as f64;
        assert!((bump.ss_of_equal_share_ms.expect("compared") / mean - 1.0).abs() < 1e-9);
    }

    /// Recounts one interval of one key from the arrivals and the ids kept.
    #[test]
    fn counts_are_those_of_arrivals_and_of_what_is_kept() {
        let workload = synthetic(1000, 3);
        let evaluator = Evaluator::new(&workload);
        let config: Config = "bump:lambda=1,min=0.1,window=1s".parse().expect("a sampler");
        let (sampler, draw) = (Candidate::from(config), Draw::recorded(4));
        let interval_ns = NonZeroU64::new(10_000_000_000).expect("not zero");
        let rows = evaluator.counts(&sampler, &draw, interval_ns);
        let kept = evaluator.kept(&sampler, &draw);
        assert_eq!(rows.iter().map(|row| row.seen).sum::<u64>(), 1000);
        assert_eq!(rows.iter().map(|row| row.kept).sum::<u64>(), kept.len() as u64);
        assert!(
            rows.is_sorted_by_key(|row| (row.start_ns, &row.key))
                && rows.iter().all(|row| row.kept <= row.seen)
        );
        let third =
            rows.iter().find(|row| row.start_ns == 20_000_000_000 && row.key == "quiet").expect("a row");
        let here = |index: &usize| {
            let arrival = &workload.arrivals()[*index];
            workload.key(arrival) == "quiet" && (20..30).contains(&(arrival.at_ns / 1_000_000_000))
        };
        let all: Vec<usize> = (0..1000).filter(here).collect();
        let kept = all.iter().filter(|&&index| kept.contains(&workload.trace_id(index))).count();
        assert_eq!((third.seen, third.kept), (all.len() as u64, kept as u64));
    }
}
