//! Tunes late strata: a fit in closed form, tried on halves of the time that it was not fitted on.

use std::collections::HashMap;
use std::sync::Arc;

use astracer_samplers::parameters::Parameters;
use astracer_samplers::strata::Record;
use astracer_samplers::{Cap, ConfigError, Probability, RandomSource};
use serde::Serialize;

use super::bounding::{self, Bounds};
use super::check::{BEGUN_WORK, CHECKED_WORK, KNOWN, begun, times_within, trial_replays};
use super::later::{self, Later, halves, with_spread};
use super::watch::Watch;
use super::{Progress, Stage, as_text, named_random, stream};
use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::growth::{self, Growth};
use crate::held_out::{HeldOut, Replayed, Replays};
use crate::key::Grouping;
use crate::late::{Fit, FitOptions, Late};
use crate::per_key;
use crate::statistics::{MeanSd, quantile_of};
use crate::stop::Stop;
use crate::workload::Workload;

/// With fewer spans a second, all traces are recorded: that costs a millisecond of processor time a
/// second at most.
const SPANS_ALL: f64 = 10_000.0;
/// Kinds of trees are told apart if the result on unseen halves is at most this share of that
/// without them.
const KIND_WORTH: f64 = 0.9;
/// A trace is slow from this quantile of its key's durations on, if the key has enough traces.
const SLOW: f64 = 0.99;
const SLOW_TRACES_MIN: usize = 100;
/// The factor of the worst case for durations: what is slow is kept, so all being slow costs most.
pub const SLOWER: u64 = 4;
/// Replays of that case.
const SLOWER_REPLAYS: usize = 6;
/// Replays on each half where strata are only tried.
const TRIED: u64 = 12;

/// The size of strata, and what else is chosen for them.
#[derive(Clone, Copy, Debug)]
pub struct StrataOptions {
    /// The share of the bytes to keep.
    pub size: f64,
    /// The share of traces that is recorded; by default all of a recording with few spans a
    /// second, and else five times what the head sampler would keep.
    pub record: Option<Record>,
    /// Whether strata are told apart by the kind of tree; by default if that is 10 % better on
    /// unseen halves.
    pub by_kind: Option<bool>,
    /// The most replays that check the result.
    pub replays: u64,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The source of randomness for traces that begin in the service.
    pub random: RandomSource,
    /// The cap; by default a multiple of what is kept.
    pub cap: Option<Cap>,
}

/// The result of tuning strata.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StrataTuning {
    /// The head sampler and the strata.
    #[serde(skip)]
    pub late: Late,
    /// Whether strata are told apart by the kind of tree.
    pub by_kind: bool,
    /// The share of the spans that is recorded, and that in spans a second.
    pub recorded: f64,
    /// The recorded spans per second.
    pub recorded_per_second: f64,
    /// Keys that have no strata in the file, beyond what a service counts.
    pub left_out: usize,
    /// The share of the traces that is kept.
    pub kept: f64,
    /// The strata on draws of their own.
    pub replayed: Replayed,
    /// The strata under the cap that was given; `None` without one, or if they have no bytes.
    pub replayed_capped: Option<Replayed>,
    /// The head sampler of the same size alone.
    pub head: Replayed,
    /// An equal share of the same size.
    pub share: Replayed,
    /// Slow and failed traces.
    pub odd: Odd,
    /// The same fit on each half, replayed on the other. `None` for small recordings.
    pub later: Option<Later>,
    /// The same with the other choice about kinds, if both were tried.
    pub other_kind: Option<Later>,
    /// The share of the bytes of one key that has nearly all, as in a loop. Its first calls matter,
    /// and strata treat them like all others.
    pub loop_share: Option<f64>,
    /// The worst growth of the kept bytes, without the cap, if one key becomes far more frequent.
    pub growth: Option<Growth>,
    /// The kept bytes as a multiple, without the cap, if all roots took [`SLOWER`] times as long.
    pub slower: f64,
    /// The cap under which services will run.
    #[serde(serialize_with = "as_text")]
    pub cap: Cap,
    /// Figures of the cap, if none was given.
    pub bounds: Option<Bounds>,
    /// The source of randomness.
    #[serde(serialize_with = "named_random")]
    pub random: RandomSource,
    /// The seed.
    pub seed: u64,
}

/// Traces that failed, or took longer than 99 % of their key's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Odd {
    /// Such traces in the recording.
    pub traces: u64,
    /// The share of these that the strata keep.
    pub kept: f64,
    /// The share that an equal share of the same size keeps.
    pub kept_by_share: f64,
}

/// Tries strata with all traces recorded on halves that they were not fitted on, beside an equal
/// share. `None` if the recording is small, if fewer than 100 traces would be kept of it, if it has
/// more than 10,000 spans a second, or if asked to stop.
pub fn try_strata(
    workload: &Workload,
    size: f64,
    (seed, random): (u64, RandomSource),
    stop: Stop<'_>,
) -> Option<Later> {
    let record = Some(recorded_by_default(workload)).filter(|record| *record == Record::All)?;
    let options =
        StrataOptions { size, record: Some(record), by_kind: None, replays: TRIED, seed, random, cap: None };
    try_kinds(workload, FitOptions::new(size, record), &options, (stop, &Watch::new(&|_| ()))).0
}

/// Fits strata, and tries the fit on time that it did not see. `None` if asked to stop, or if the
/// workload is empty.
///
/// # Errors
///
/// If the size is not a share above 0.
pub fn tune_strata(
    workload: &Workload,
    options: &StrataOptions,
    stop: Stop<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Option<Result<StrataTuning, ConfigError>> {
    let watch = Watch::new(progress);
    watch.begin(Stage::Summing, 0);
    let record = options.record.unwrap_or_else(|| recorded_by_default(workload));
    let fitting = FitOptions::new(options.size, record);
    let (later, other_kind, by_kind) = try_kinds(workload, fitting, options, (stop, &watch));
    let fit = match Fit::new(workload, fitting.by_kind(by_kind), stop)? {
        Ok(fit) => fit,
        Err(error) => return Some(Err(error)),
    };
    let candidate = Candidate::from(fit.late.clone());
    let replayed = replayed_until_known(workload, &candidate, options, (stop, &watch))?;
    let first = begun(times_within(workload, BEGUN_WORK)).min(replayed.replays) as usize;
    let draws = Draw::unseen(first, options.seed, options.random);
    let share = Candidate::equal_share(replayed.tfcr.mean)?;
    watch.begin(Stage::Replaying, 3 * first as u64);
    let replay =
        |candidate: &Candidate| Replayed::new(workload, candidate, &draws, stop, &|| watch.evaluated(None));
    let (head, of_share) = (replay(&fit.late.head.clone().into())?, replay(&share)?);
    let replayed_capped = match options.cap.filter(|cap| *cap != Cap::none()) {
        Some(cap) => Some(replay(&Candidate::Late(Arc::new(fit.late.clone()), cap))?),
        None => None,
    };
    let odd = odd(workload, &candidate, replayed.tfcr.mean, &draws, stop)?;
    let slower = slower(workload, &candidate, &draws[..first.min(SLOWER_REPLAYS)], stop)?;
    let bounded = match options.cap {
        Some(cap) => (cap, None),
        None => {
            let of = bounding::of_strata(workload, &candidate, (options.seed, options.random), stop)?;
            (of.0, Some(of.1))
        }
    };
    let spans: f64 = workload.arrivals().iter().map(|arrival| f64::from(arrival.spans)).sum();
    Some(Ok(StrataTuning {
        by_kind,
        recorded: fit.recorded,
        left_out: fit.left_out,
        kept: replayed.traces.mean / workload.arrivals().len() as f64,
        recorded_per_second: fit.recorded * spans / workload.active_seconds(),
        replayed,
        replayed_capped,
        head,
        share: of_share,
        odd,
        later,
        other_kind,
        loop_share: per_key::loop_share(workload),
        growth: fit.growth(workload, growth::FACTOR),
        slower,
        late: fit.late,
        cap: bounded.0,
        bounds: bounded.1,
        random: options.random,
        seed: options.seed,
    }))
}

/// Whether some stratum has trees of several kinds.
fn has_kinds(workload: &Workload) -> bool {
    let mut kinds = HashMap::new();
    workload.arrivals().iter().any(|arrival| {
        let stratum = (arrival.end_key, arrival.ending.stratum(false));
        *kinds.entry(stratum).or_insert(arrival.ending.kind) != arrival.ending.kind
    })
}

fn recorded_by_default(workload: &Workload) -> Record {
    let spans: f64 = workload.arrivals().iter().map(|arrival| f64::from(arrival.spans)).sum();
    if spans / workload.active_seconds() <= SPANS_ALL { Record::All } else { Record::DEFAULT }
}

/// The trial on halves, that of the other choice about kinds if both were tried, and whether strata
/// are told apart by kind.
fn try_kinds(
    workload: &Workload,
    fitting: FitOptions,
    options: &StrataOptions,
    of: (Stop<'_>, &Watch<'_>),
) -> (Option<Later>, Option<Later>, bool) {
    let tried = |by_kind| try_halves(workload, fitting.by_kind(by_kind), options, of);
    match options.by_kind {
        Some(by_kind) => (tried(by_kind), None, by_kind),
        None if !has_kinds(workload) => (tried(false), None, false),
        None => {
            let (without, with) = (tried(false), tried(true));
            let is_better = with.as_ref().zip(without.as_ref());
            let is_better = is_better.is_some_and(|(with, without)| with.ratio <= KIND_WORTH * without.ratio);
            if is_better { (with, without, true) } else { (without, with, false) }
        }
    }
}

/// Fits on each half of the time and replays on the other. `None` for small recordings, or if asked
/// to stop.
fn try_halves(
    workload: &Workload,
    fitting: FitOptions,
    options: &StrataOptions,
    (stop, watch): (Stop<'_>, &Watch<'_>),
) -> Option<Later> {
    if workload.arrivals().len() < later::TRACES_MIN || options.replays == 0 {
        return None;
    }
    let [first, rest] = halves(workload, stop)?;
    let on = |name, fitted: &Workload, there: &Workload| {
        let fit = Fit::new(fitted, fitting, stop)?.ok()?;
        let candidate = Candidate::from(fit.late);
        let replays = trial_replays(there, later::REPLAYS.min(options.replays));
        watch.begin(Stage::Replaying, replays);
        let draws = Draw::unseen(replays as usize, stream(options.seed, later::LATER_STREAM), options.random);
        let held_out = HeldOut::new(name, there, &candidate, None, &draws, stop)?;
        Some(with_spread(there, &candidate, held_out, &draws, stop))
    };
    Later::new(vec![on("the later half", &first, &rest)?, on("the first half", &rest, &first)?])
}

/// Replays until the mean of dist/entropy by weights is known within 5 %, or until there were as
/// many replays as allowed.
fn replayed_until_known(
    workload: &Workload,
    candidate: &Candidate,
    options: &StrataOptions,
    (stop, watch): (Stop<'_>, &Watch<'_>),
) -> Option<Replayed> {
    let first =
        begun(times_within(workload, BEGUN_WORK)).min(super::check::REPLAYS).min(options.replays.max(1));
    let most = times_within(workload, CHECKED_WORK).clamp(first, options.replays.max(first));
    let mut replays = Replays::new(workload, candidate, false, stop)?;
    let (mut before, mut next) = (0, first);
    loop {
        watch.begin(Stage::Replaying, next - before);
        let draws = Draw::unseen(next as usize, options.seed, options.random);
        replays.add(&draws[before as usize..], stop, &|| watch.evaluated(None));
        if stop.is_interrupted() {
            return None;
        }
        let replayed = replays.replayed()?;
        let by_weights = replayed.by_weights();
        let uncertainty = by_weights.mean_interval[1] / by_weights.mean - 1.0;
        if uncertainty.is_nan() || uncertainty <= KNOWN || 2 * next > most {
            return Some(replayed);
        }
        (before, next) = (next, 2 * next);
    }
}

/// The kept bytes as a multiple, if all roots took longer.
fn slower(workload: &Workload, late: &Candidate, draws: &[Draw], stop: Stop<'_>) -> Option<f64> {
    let kept = |workload: &Workload| {
        let mut bytes = 0.0;
        let mut keep = |arrival: usize| bytes += workload.arrivals()[arrival].bytes as f64;
        let done = draws.iter().all(|draw| late.replay(workload, draw, stop, |arrival, _| keep(arrival)));
        done.then_some(bytes)
    };
    Some(kept(&workload.slowed(SLOWER))? / kept(workload)?)
}

/// The share of slow and failed traces that strata keep, beside an equal share of this size.
fn odd(workload: &Workload, late: &Candidate, size: f64, draws: &[Draw], stop: Stop<'_>) -> Option<Odd> {
    let mut durations = vec![Vec::new(); workload.keys().len()];
    for arrival in workload.arrivals() {
        durations[arrival.key as usize].push(arrival.ending.duration_ns as f64);
    }
    let limits: Vec<f64> = durations
        .into_iter()
        .map(|mut durations| {
            durations.sort_unstable_by(f64::total_cmp);
            if durations.len() < SLOW_TRACES_MIN { f64::INFINITY } else { quantile_of(&durations, SLOW) }
        })
        .collect();
    let is_odd = |arrival: usize| {
        let arrival = &workload.arrivals()[arrival];
        arrival.ending.is_error || arrival.ending.duration_ns as f64 > limits[arrival.key as usize]
    };
    let traces = (0..workload.arrivals().len()).filter(|&arrival| is_odd(arrival)).count();
    let of_draw = |draw: &Draw| {
        let mut kept = 0.0;
        let done =
            late.replay(workload, draw, stop, |arrival, _| kept += f64::from(u8::from(is_odd(arrival))));
        done.then_some(kept / traces.max(1) as f64)
    };
    let kept: Vec<f64> = draws.iter().map(of_draw).collect::<Option<_>>()?;
    Some(Odd { traces: traces as u64, kept: MeanSd::of(kept.into_iter()).mean, kept_by_share: size })
}

impl StrataTuning {
    /// The file that a service loads. `workload` names the recording, and `grouping` is the rule
    /// for its keys; `None` if a service cannot know the key.
    pub fn file(&self, workload: &str, grouping: &Grouping) -> Option<Parameters> {
        let Grouping::Key(key) = grouping else { return None };
        let by_weights = self.replayed.by_weights();
        let comment = format!(
            "Made by `astracer tune` from {workload}. Replayed {} times: dist/entropy by weights {:.3} (an equal \
             share: {:.3}), {:.2} % of the bytes, {:.0} % of the spans recorded.",
            self.replayed.replays,
            by_weights.mean,
            self.share.dist_over_entropy.mean,
            self.replayed.tfcr.mean * 1e2,
            self.recorded * 1e2,
        );
        Some(Parameters {
            key: key.clone(),
            random: self.random,
            cap: self.cap,
            strata: Some(self.late.strata.clone()),
            recorded_kept: Probability::new(self.kept),
            comments: vec![comment],
            ..Parameters::new(self.late.head.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::recorded;
    use crate::traffic::grown;

    fn options() -> StrataOptions {
        StrataOptions {
            size: 0.1,
            record: Some(Record::All),
            by_kind: None,
            replays: 96,
            seed: 1,
            random: RandomSource::Stratified,
            cap: None,
        }
    }

    /// The printed figures hold on draws of another seed, the cap decides nothing about the
    /// recording, and the worst case is that of a replay.
    #[test]
    fn figures_are_those_of_other_replays() {
        let workload = recorded("hdfs_client_ops");
        let tuning =
            tune_strata(&workload, &options(), Stop::never(), &|_| ()).expect("traces").expect("valid");
        let candidate = Candidate::from(tuning.late.clone());
        let draws = Draw::unseen(96, 7_000, RandomSource::Stratified);
        let again = Replayed::new(&workload, &candidate, &draws, Stop::never(), &|| ()).expect("not stopped");
        let by_weights = |of: &Replayed| of.dist_over_entropy_weighted.expect("weights");
        // The difference of two means has the root of two of their errors; four of these at most.
        let (found, other) = (by_weights(&tuning.replayed), by_weights(&again));
        let error = (other.mean_interval[1] - other.mean) / 1.96;
        assert!((found.mean - other.mean).abs() < 4.0 * 2f64.sqrt() * error, "{found:?} {other:?}");
        assert!(found.mean < 0.25 * tuning.share.dist_over_entropy.mean, "{found:?}");
        assert!(tuning.later.as_ref().expect("large enough").ratio < 0.6, "{:?}", tuning.later);

        let kept = |candidate: &Candidate, workload: &Workload, draw: &Draw| {
            let mut kept = Vec::new();
            assert!(candidate.replay(workload, draw, Stop::never(), |arrival, weight| {
                kept.push((arrival, weight.map(f64::to_bits)));
            }));
            kept
        };
        let capped = Candidate::Late(std::sync::Arc::new(tuning.late.clone()), tuning.cap);
        for draw in Draw::unseen(3, 9_000, RandomSource::Stratified) {
            let alone = kept(&candidate, &workload, &draw);
            assert!(!alone.is_empty() && alone == kept(&capped, &workload, &draw), "{}", tuning.cap);
        }
        let growth = tuning.growth.expect("bump");
        let key = (0..).zip(workload.keys().names()).find(|(_, name)| *name == growth.key).expect("a key").0;
        let more = grown(&workload, key, 100, false, Stop::never()).expect("not stopped");
        let bytes = |workload: &Workload| {
            let kept = kept(&candidate, workload, &draws[0]);
            kept.iter().map(|&(arrival, _)| workload.arrivals()[arrival].bytes).sum::<u64>() as f64
        };
        let times = bytes(&more) / bytes(&workload);
        assert!((times / growth.kept_bytes - 1.0).abs() < 0.1, "{times} {growth:?}");
        let slower = bytes(&workload.slowed(SLOWER)) / bytes(&workload);
        assert!(
            tuning.slower > 1.2 && (slower / tuning.slower - 1.0).abs() < 0.15,
            "{slower} {}",
            tuning.slower
        );
    }

    /// Few traces are not tried on halves, and without any there is nothing to fit.
    #[test]
    fn few_traces_are_fitted_without_a_trial() {
        let workload = recorded("hdfs_client_ops");
        let few = workload.part(0..300, Stop::never()).expect("not stopped");
        let tuning = tune_strata(&few, &options(), Stop::never(), &|_| ()).expect("traces").expect("valid");
        assert!(tuning.later.is_none() && tuning.other_kind.is_none() && !tuning.by_kind);
        let none = workload.part(0..0, Stop::never()).expect("not stopped");
        assert!(tune_strata(&none, &options(), Stop::never(), &|_| ()).is_none());
    }
}
