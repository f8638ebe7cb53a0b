//! Replays a result on draws that its search did not use, on the rest of the time, and on other
//! recordings.

use astracer_report::numbers::fixed;
use astracer_samplers::Config;

use super::watch::Watch;
use super::{Options, Progress, Run, Stage, Tuning};
use crate::bootstrap;
use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::held_out::{Deciding, HeldOut, Replayed, Replays, is_worse};
use crate::lone::Hidden;
use crate::objective::Objective;
use crate::statistics::Distribution;
use crate::stop::Stop;
use crate::workload::Workload;

/// Arrivals and functions, summed over all replays of a sampler on one side of a trial. Larger
/// workloads are replayed less often, but at least [`TRIED_MIN`] times.
const TRIED_WORK: usize = 3_000_000;
const TRIED_MIN: u64 = 3;

/// A check begins with this many replays. Large workloads begin with fewer, but with a multiple of
/// the three jitters.
pub(super) const REPLAYS: u64 = 96;
const REPLAYS_LEAST: u64 = 12;
/// A check begins with at most this many arrivals and functions, but with at least
/// [`REPLAYS_LEAST`] replays.
pub(super) const BEGUN_WORK: usize = 6_000_000;
/// Replays for the spread over resampled blocks of a large workload.
const RESAMPLED_LEAST: usize = 6;
/// All replays of a check cover about this many arrivals and functions at most.
pub(super) const CHECKED_WORK: usize = 30_000_000;
/// The mean of dist/entropy is known if half of its 95 % interval is at most this share of it.
pub(super) const KNOWN: f64 = 0.05;

/// The search's expectation is reported as wrong if the replayed mean differs from it by more than
/// this share.
const SURPRISE: f64 = 0.15;

/// Replays a result on draws that the search did not use and, if the time was split, on the rest of
/// the time.
pub fn check(
    tuning: &mut Tuning,
    workload: &Workload,
    options: &Options,
    stop: Stop<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) {
    let Ok(found) = tuning.config() else { return };
    if !tuning.feasible {
        return;
    }
    let run = Run { options, stop: stop.within(options.time_max), watch: Watch::new(progress) };
    let parts = match options.split.map(|share| workload.split(share, run.stop)) {
        Some(None) => {
            tuning.interrupted |= run.stop.is_interrupted();
            return;
        }
        parts => parts.flatten(),
    };
    let train = parts.as_ref().map_or(workload, |(first, _)| first);
    if options.replays > 0 {
        run.check(train, &found, tuning);
    }
    if let Some((_, rest)) = parts.filter(|(_, rest)| !rest.arrivals().is_empty()) {
        let held_out = run.held_out(tuning, "the rest of the time", &rest);
        tuning.warnings.extend(held_out.iter().flat_map(|found| found.warnings(options.limits.size_max)));
        tuning.held_out = held_out;
    }
    tuning.interrupted |= run.stop.is_interrupted();
}

/// Replays a result on another recording, and compares it with parameters tuned there. `None` if
/// asked to stop.
pub fn validate(
    tuning: &Tuning,
    name: &str,
    other: &Workload,
    options: &Options,
    stop: Stop<'_>,
) -> Option<HeldOut> {
    let run = Run { options, stop: stop.within(options.time_max), watch: Watch::new(&|_| ()) };
    run.held_out(tuning, name, other)
}

/// The number of replays of a workload that together cover `work` arrivals and functions.
pub(super) fn times_within(workload: &Workload, work: usize) -> u64 {
    (work / (workload.arrivals().len() + workload.functions().len()).max(1)) as u64
}

/// The number of replays that a check begins with, for a workload of which `times` replays cover
/// [`BEGUN_WORK`]. It is a multiple of three, because there are three jitters.
pub(super) fn begun(times: u64) -> u64 {
    let times = times.max(REPLAYS_LEAST);
    times - times % 3
}

/// The number of replays of the equal share that a result is compared with: as many as the result
/// has, but no more than a check begins with. `times` is as in [`begun`].
fn share_replays(times: u64, replays: u64) -> usize {
    replays.min(begun(times)) as usize
}

/// The number of replays on one side of a trial, at most `wanted`.
pub(super) fn trial_replays(workload: &Workload, wanted: u64) -> u64 {
    wanted.min(times_within(workload, TRIED_WORK).max(TRIED_MIN))
}

impl Run<'_> {
    /// Replays a sampler on draws that the search did not use, and doubles their number until the
    /// mean of dist/entropy is known or the next doubling would be too much work. Also returns
    /// how far off the mean may be if no replay dropped the deciding traces. `None` if there was no
    /// time for any replay.
    ///
    /// The number depends on the figures and not on the size of the workload: if a few traces
    /// decide the mean, most draws miss all of them, however many traces there are.
    fn replay_until_known(&self, workload: &Workload, candidate: &Candidate) -> Option<(Replayed, Hidden)> {
        let first = begun(times_within(workload, BEGUN_WORK)).min(REPLAYS).min(self.options.replays);
        let most = times_within(workload, CHECKED_WORK).clamp(first, self.options.replays.max(first));
        let mut replays = Replays::new(workload, candidate, true, self.stop)?;
        let (mut known, mut next) = (None, first);
        loop {
            let before = known.map_or(0, |(known, _): (Replayed, Hidden)| known.replays);
            let draws = Draw::unseen(next as usize, self.options.seed, self.options.random);
            self.watch.begin(Stage::Replaying, next - before);
            replays.add(&draws[before as usize..], self.stop, &|| self.watch.evaluated(None));
            if self.stop.is_interrupted() {
                return known;
            }
            let (replayed, hidden) = (replays.replayed()?, replays.hidden());
            known = Some((replayed, hidden));
            if is_known(&replayed, hidden) || 2 * next > most || self.stop.is_asked() {
                return known;
            }
            next *= 2;
        }
    }

    fn check(&self, train: &Workload, found: &Config, tuning: &mut Tuning) {
        let cap = self.options.cap;
        let Some((replayed, hidden)) = self.replay_until_known(train, &found.clone().into()) else {
            let why = if self.stop.is_interrupted() { "interrupted" } else { "the time ran out" };
            tuning.warnings.push(format!("not checked by replay: {why}"));
            return;
        };
        let mut remarks = vague(&replayed, hidden);
        let draws = Draw::unseen(replayed.replays as usize, self.options.seed, self.options.random);
        let draws_of_share = &draws[..share_replays(times_within(train, BEGUN_WORK), replayed.replays)];
        let replays_capped = if cap.is_none() { 0 } else { replayed.replays };
        self.watch.begin(Stage::Replaying, draws_of_share.len() as u64 + replays_capped);
        let replay = |candidate: &Candidate| {
            Replayed::new(train, candidate, &draws, self.stop, &|| self.watch.evaluated(None))
        };
        remarks.extend(surprise(tuning.score.dist_over_entropy, &replayed));
        tuning.warnings.extend(remarks.iter().cloned());
        tuning.replayed_share = Candidate::equal_share(replayed.tfcr.mean).and_then(|share| {
            Replayed::by_chances(train, &share, draws_of_share, self.stop, &|| self.watch.evaluated(None))
        });
        if !cap.is_none() {
            tuning.replayed_capped = replay(&Candidate::Capped(found.clone(), cap));
        }
        if let Some(share) = tuning.replayed_share.filter(|_| self.options.objective == Objective::paper()) {
            let (found, equal) = (replayed.dist_over_entropy.mean, share.dist_over_entropy.mean);
            if is_worse(&replayed.dist_over_entropy, &share.dist_over_entropy) {
                tuning.warnings.push(format!(
                    "replays have dist/entropy {}, worse than the {} of an equal share of the same size: \
                     use the sampler `ratio`, or allow a larger size",
                    fixed(found),
                    fixed(equal)
                ));
            }
        }
        if let (Some(of), Some(share)) = (replayed.dist_over_entropy_weighted, tuning.replayed_share) {
            let equal = share.dist_over_entropy.mean;
            if is_worse(&of, &share.dist_over_entropy) {
                remarks.push(format!(
                    "with weighted means, dist/entropy is {}, worse than an equal share's {}: the weights of \
                     very small probabilities are mostly noise",
                    fixed(of.mean),
                    fixed(equal)
                ));
                tuning.warnings.extend(remarks.last().cloned());
            }
        }
        let resampled = times_within(train, BEGUN_WORK) as usize;
        let resampled = resampled.clamp(RESAMPLED_LEAST, bootstrap::REPLAYS).min(draws.len());
        let resampled = &draws[..resampled];
        tuning.bootstrap = bootstrap::bootstrap(train, &found.clone().into(), resampled, self.stop);
        replayed.replace(&mut tuning.score);
        if let Some(share) = &tuning.replayed_share {
            share.replace(&mut tuning.baseline);
        }
        if self.options.risk.is_none() {
            tuning.value = self.options.objective.of(&tuning.score, &tuning.baseline);
        }
        tuning.replayed = Some(replayed);
        tuning.remarks.extend(remarks);
    }

    /// Replays the same parameters on another workload, and compares them with parameters tuned
    /// there.
    fn held_out(&self, tuning: &Tuning, name: &str, other: &Workload) -> Option<HeldOut> {
        let found = tuning.config().ok()?;
        let target = self.target(other)?;
        let there = self.tuned_there(!tuning.per_root.is_empty(), other, &target);
        let draws = Draw::unseen(
            self.options.replays.clamp(1, REPLAYS) as usize,
            self.options.seed,
            self.options.random,
        );
        HeldOut::new(name, other, &found.into(), there.as_ref(), &draws, self.stop)
    }
}

/// Half of the 95 % interval of the mean of dist/entropy, as a share of the mean. 0 if the mean is
/// 0 or infinite, because more replays would not help.
fn uncertainty(replayed: &Replayed) -> f64 {
    let Distribution { mean, mean_interval, .. } = replayed.dist_over_entropy;
    let share = (mean_interval[1] - mean) / mean;
    if share.is_finite() { share } else { 0.0 }
}

fn is_known(replayed: &Replayed, hidden: Hidden) -> bool {
    uncertainty(replayed) <= KNOWN && hidden.share <= KNOWN
}

/// Warnings if the printed mean may be less accurate than a reader expects, or if rare runs
/// dominate it.
fn vague(replayed: &Replayed, hidden: Hidden) -> Vec<String> {
    let (replays, uncertainty) = (replayed.replays, uncertainty(replayed));
    let mean = replayed.dist_over_entropy.mean;
    let mut warnings = Vec::new();
    let is_apart = |deciding: &Deciding| (mean - deciding.usual_mean).abs() > KNOWN * deciding.usual_mean;
    warnings.extend(replayed.deciding.filter(is_apart).map(|deciding| decided(&deciding, mean)));
    // An infinite mean cannot be too small.
    if uncertainty > KNOWN {
        warnings.push(format!(
            "after {replays} replays the mean of dist/entropy is known only to \u{b1}{:.0} %: single runs differ widely, \
             as they do where a few traces decide",
            uncertainty * 1e2
        ));
    } else if hidden.share > KNOWN && mean.is_finite() {
        let one_in = (1.0 / hidden.missed).round();
        warnings.push(if mean == 0.0 {
            // A multiple of 0 would be 0.
            format!(
                "all {replays} replays kept every trace that decides, so dist/entropy is 0; one run in {one_in} could \
                 still miss one and be {:.3} ms off",
                hidden.missed_ms
            )
        } else {
            let times = 1.0 + hidden.share;
            format!(
                "all {replays} replays kept a trace that decides; if one run in {one_in} missed it, the mean of \
                 dist/entropy would be up to {times:.1} times as large, {:.3} instead of {mean:.3}",
                times * mean
            )
        });
    }
    warnings
}

/// The warning that a mean over two kinds of runs describes neither of them.
fn decided(deciding: &Deciding, mean: f64) -> String {
    let Deciding { traces, usual, usual_mean, other_mean, .. } = *deciding;
    let traces =
        if traces == 1 { "a single trace decides".to_owned() } else { format!("{traces} traces decide") };
    format!(
        "{traces} dist/entropy: it is {} on average in the usual {:.2} % of runs, and {} in the others; the overall mean \
         of {} describes neither",
        fixed(usual_mean),
        usual * 1e2,
        fixed(other_mean),
        fixed(mean)
    )
}

/// A warning if the replayed figure differs from the expected one by more than chance explains.
fn surprise(expected: f64, replayed: &Replayed) -> Option<String> {
    let Distribution { mean, sd, .. } = replayed.dist_over_entropy;
    // The expectation describes usual runs.
    let mean = replayed.deciding.map_or(mean, |deciding| deciding.usual_mean);
    let by_chance = 3.0 * sd / (replayed.replays as f64).sqrt();
    ((mean - expected).abs() > SURPRISE * expected + by_chance).then(|| {
        format!(
            "replays have dist/entropy {}, the search expected {}: its formulas are approximate where traces are few or very \
             unlike each other; trust the replays",
            fixed(mean),
            fixed(expected)
        )
    })
}

#[cfg(test)]
mod tests {
    use astracer_samplers::RandomSource;

    use super::*;
    use crate::testing::{heavy_tailed, synthetic};

    fn replayed(workload: &Workload, sampler: &str, most: u64) -> (Replayed, Hidden) {
        let options = Options { replays: most, random: RandomSource::Stratified, ..Options::default() };
        let run = Run { options: &options, stop: Stop::never(), watch: Watch::new(&|_| ()) };
        let sampler: Config = sampler.parse().expect("a sampler");
        run.replay_until_known(workload, &sampler.into()).expect("not stopped")
    }

    /// N traces, of which n are kept, and D is the excess of the slow call. Without the slow trace,
    /// the kept mean is off by D/N and the standard deviation by D sqrt(1/N - 1/N^2). With it, they
    /// are off by D/n - D/N and by D sqrt(1/n - 1/n^2) - D sqrt(1/N - 1/N^2). The entropy is one
    /// bit.
    fn by_hand(all: f64, kept: f64) -> (f64, f64) {
        let excess = 10_000.0;
        let deviation = |of: f64| excess * (1.0 / of - 1.0 / (of * of)).sqrt();
        let without = (excess / all).hypot(deviation(all));
        (without, (excess / kept - excess / all).hypot(deviation(kept) - deviation(all)))
    }

    /// One of 3,000 traces is slow. One run in fifty keeps it and then has six times the distance,
    /// so the mean of 96 plain runs errs by 7 %, and that of 768 by 3 %. With the chance of the
    /// slow trace, the first 96 runs differ only by how many other traces they keep.
    #[test]
    fn where_one_trace_decides_its_chance_is_in_the_mean() {
        let (without, with) = by_hand(3000.0, 60.0);
        let exact = 0.98 * without + 0.02 * with;
        let workload = heavy_tailed(3000);
        let (found, hidden) = replayed(&workload, "ratio:0.02", Options::default().replays);
        assert_eq!(found.replays, REPLAYS);
        assert!((found.dist_over_entropy.mean / exact - 1.0).abs() < 0.005, "{found:?}, by hand {exact}");
        let deciding = found.deciding.expect("one");
        assert!((deciding.usual - 0.98).abs() < 1e-4 && deciding.traces == 1, "{deciding:?}");
        assert!((deciding.usual_mean / without - 1.0).abs() < 0.005, "{deciding:?}");
        assert!((deciding.other_mean / with - 1.0).abs() < 0.05, "{deciding:?}");
        let [warning] = &vague(&found, hidden)[..] else { panic!("{:?}", vague(&found, hidden)) };
        assert!(
            warning.starts_with("a single trace decides") && warning.contains("98.00 % of runs"),
            "{warning}"
        );
    }

    /// 60 replays of 100,000 traces are 6 million steps. Replays come in multiples of three, one
    /// for each jitter.
    #[test]
    fn an_equal_share_is_replayed_as_often_where_that_is_cheap() {
        assert_eq!(share_replays(60, 240), 60);
        assert_eq!(share_replays(61, 240), 60);
        assert_eq!(share_replays(60, 30), 30);
        assert_eq!(share_replays(1000, 384), 384);
        assert_eq!(share_replays(2, 96), 12);
    }

    /// A doubled number of replays begins with the same draws, and the first number suffices if
    /// runs are alike.
    #[test]
    fn replays_go_on_from_those_before() {
        let workload = heavy_tailed(600);
        // Behind a cap, chances are not known, even if the cap never takes effect.
        let sampler: Config = "ratio:0.05".parse().expect("a sampler");
        let sampler = Candidate::capped(sampler, "traces=1000".parse().expect("a cap"));
        let known = |most: u64| {
            let options = Options { replays: most, ..Options::default() };
            let run = Run { options: &options, stop: Stop::never(), watch: Watch::new(&|_| ()) };
            run.replay_until_known(&workload, &sampler).expect("not stopped")
        };
        let (found, _) = known(384);
        assert_eq!(found.replays, 384);
        let draws = Draw::unseen(384, Options::default().seed, RandomSource::Stratified);
        let at_once = Replayed::new(&workload, &sampler, &draws, Stop::never(), &|| ());
        assert_eq!(at_once, Some(found));
        let (few, hidden) = known(96);
        let [warning] = &vague(&few, hidden)[..] else { panic!("{:?}", vague(&few, hidden)) };
        assert!(few.replays == 96 && warning.starts_with("after 96 replays"), "{warning}");
        let workload = synthetic(3000, 1);
        let (alike, hidden) = replayed(&workload, "always", 384);
        assert_eq!((alike.replays, vague(&alike, hidden)), (REPLAYS, Vec::new()));
    }

    /// One run in 500 misses the slow trace and then has 14 times the distance. A few replays are
    /// all alike, but their mean includes it.
    #[test]
    fn a_trace_that_no_replay_missed_is_in_the_mean() {
        let (without, with) = by_hand(3000.0, 2994.0);
        let (found, hidden) = replayed(&heavy_tailed(3000), "ratio:0.998", 24);
        let exact = 0.002 * without + 0.998 * with;
        assert!((found.dist_over_entropy.mean / exact - 1.0).abs() < 0.02, "{found:?}, by hand {exact}");
        assert!(uncertainty(&found) <= KNOWN && hidden.share <= KNOWN, "{hidden:?}");
        let deciding = found.deciding.expect("one");
        assert!(vague(&found, hidden)[0].starts_with("a single trace decides"), "{deciding:?}");
        // If usual runs have nearly this mean, there is no need to mention the others.
        let usual = |share: f64| Deciding { usual_mean: share * found.dist_over_entropy.mean, ..deciding };
        let found = |share: f64| Replayed { deciding: Some(usual(share)), ..found };
        assert_eq!((vague(&found(0.95), hidden).len(), vague(&found(0.96), hidden).len()), (1, 0));
        let found = found(1.0);
        // If a chance is not known, there is a warning.
        let hidden = Hidden { share: 1.5, missed: 0.125, missed_ms: 1.0 };
        let [warning] = &vague(&found, hidden)[..] else { panic!("{:?}", vague(&found, hidden)) };
        assert!(warning.starts_with("all 24 replays kept a trace") && warning.contains("one run in 8 "));
        assert_eq!(vague(&found, Hidden { share: KNOWN, ..hidden }), Vec::<String>::new());
    }

    /// If all replays kept everything, usual runs have a distance of 0, and a run that misses the
    /// slow trace cannot be described as a multiple of it.
    #[test]
    fn a_mean_of_nothing_is_not_multiplied() {
        let (found, _) = replayed(&heavy_tailed(600), "ratio:0.999999", 24);
        let missed_ms = by_hand(600.0, 600.0).0;
        let mean = found.dist_over_entropy.mean;
        // The 599 other traces that may be missed are negligible.
        assert!((mean / (1e-6 * missed_ms) - 1.0).abs() < 0.05, "{mean}, by hand {missed_ms}");
        let none = Distribution { mean: 0.0, mean_interval: [0.0; 2], ..found.dist_over_entropy };
        let found = Replayed { dist_over_entropy: none, deciding: None, ..found };
        let hidden = Hidden { share: f64::INFINITY, missed: 0.125, missed_ms };
        let [warning] = &vague(&found, hidden)[..] else { panic!("{:?}", vague(&found, hidden)) };
        assert!(
            warning.contains("one run in 8 ") && warning.contains(&format!("{missed_ms:.3} ms off")),
            "{warning}"
        );
        assert!(!warning.contains("inf") && !warning.contains("NaN"), "{warning}");
        let endless = Distribution { mean: f64::INFINITY, ..none };
        assert_eq!(vague(&Replayed { dist_over_entropy: endless, ..found }, hidden), Vec::<String>::new());
    }
}
