//! Strata within limits per second, and together with the policies of `--tail`.

use astracer_samplers::Cap;
use astracer_tuner::limits::{KeptSizes, Limits};
use astracer_tuner::tail::{Outcomes, TailSummary};
use astracer_tuner::tune::{StrataOptions, tune_strata};
use astracer_tuner::{Candidate, Draw, Stop, Workload};

use super::by_outcome::Found;
use super::progress::show;
use super::shared_limits::{REPLAYS, TOLERANCE, sizes};
use super::{Bar, Tune};
use crate::failure::Failure;

/// Fits before giving up.
const ROUNDS: usize = 4;

/// Fits strata to the size that leaves everything within the limits.
pub(super) fn find(
    args: &Tune,
    workload: &Workload,
    outcomes: Option<&Outcomes>,
    stop: Stop<'_>,
    bar: &Bar,
) -> Result<Found, Failure> {
    let limits = super::options(args).limits;
    let is_plain = limits.traces_per_second_max.is_none() && limits.bytes_per_second_max.is_none();
    if is_plain && outcomes.is_none() {
        return fit(args, args.size_max, workload, stop, bar);
    }
    let mut size = args.size_max;
    let mut rounds = 0;
    loop {
        rounds += 1;
        let mut found = fit(args, size, workload, stop, bar)?;
        found.policies =
            outcomes.map(|outcomes| behind(args, workload, outcomes, &found, stop)).transpose()?;
        let policies = found.policies.as_ref().map_or((0.0, 0.0), |kept| (kept.tail.mean, kept.traces.mean));
        let replayed = &found.tuning.replayed;
        let own = (replayed.tfcr.mean, replayed.traces.mean);
        let together = sizes(workload, (own.0 + policies.0, own.1 + policies.1));
        if limits.excess(&together) <= TOLERANCE.ln() {
            return Ok(found);
        }
        let all = sizes(workload, (1.0, workload.arrivals().len() as f64));
        let left = left(&limits, &all, &sizes(workload, own), &sizes(workload, policies));
        if left.is_nan() || left <= 0.0 || rounds == ROUNDS {
            let exceeded = limits.exceeded(&together);
            return Err(Failure::Job(match outcomes {
                Some(_) => format!(
                    "the strata and the policies of --tail together keep {exceeded}: give the policies smaller budgets, or \
                     raise the limit"
                ),
                None => format!("the strata keep {exceeded}: raise the limit"),
            }));
        }
        size *= left;
    }
}

/// The strata for the whole recording that keep this share of its bytes, replayed on it.
pub(super) fn fit(
    args: &Tune,
    size: f64,
    workload: &Workload,
    stop: Stop<'_>,
    bar: &Bar,
) -> Result<Found, Failure> {
    let options = StrataOptions {
        size,
        record: args.strata.record,
        by_kind: args.strata.kinds.0,
        replays: args.replays,
        seed: args.seed,
        random: args.random,
        cap: if args.no_cap { Some(Cap::none()) } else { args.cap },
    };
    match tune_strata(workload, &options, stop, &|progress| show(bar, "by outcome: ", progress)) {
        None if stop.is_interrupted() => Err(Failure::Interrupted),
        None => Err(Failure::Job(
            "no strata: the recording has no traces with bytes, or --size-max is too small to keep any"
                .to_owned(),
        )),
        Some(Err(error)) => Err(Failure::Usage(format!("--size-max: {error}"))),
        Some(Ok(tuning)) => Ok(Found::new(tuning)),
    }
}

/// Replays the policies behind the strata.
fn behind(
    args: &Tune,
    workload: &Workload,
    outcomes: &Outcomes,
    found: &Found,
    stop: Stop<'_>,
) -> Result<TailSummary, Failure> {
    let draws = Draw::unseen(REPLAYS, args.seed, args.random);
    let strata = Candidate::from(found.tuning.late.clone());
    outcomes.replay(workload, &strata, &draws, stop).ok_or(Failure::Interrupted)
}

/// The room that the policies leave, as a multiple of what the strata keep. Policies keep a share
/// of what the strata drop, so they keep more if strata keep less.
fn left(limits: &Limits, all: &KeptSizes, own: &KeptSizes, policies: &KeptSizes) -> f64 {
    let of = |max: Option<f64>, size: fn(&KeptSizes) -> f64| {
        let (all, own, policies) = (size(all), size(own), size(policies));
        let share = policies / (all - own);
        max.map_or(f64::INFINITY, |max| (max - share * all) / (1.0 - share) / own)
    };
    of(Some(limits.size_max), |sizes| sizes.size)
        .min(of(limits.traces_per_second_max, |sizes| sizes.traces_per_second))
        .min(of(limits.bytes_per_second_max, |sizes| sizes.bytes_per_second))
}
