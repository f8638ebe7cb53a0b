//! Replays parameters on draws that no search used, and on traces that they were not tuned on.

use astracer_report::numbers::{fixed, is_above};
use astracer_samplers::{Config, RandomSource};
use serde::Serialize;

use crate::candidate::Candidate;
use crate::chunks::{add_up, held};
use crate::counts::{Estimates, MeanSquares, estimates};
use crate::draw::Draw;
use crate::expect::{Design, Expectation, Expected, Extras, Scratch};
use crate::latency::LatencyTally;
pub use crate::lone::Deciding;
use crate::lone::{Hidden, Lone, Mixture, WatchedRun};
use crate::objective::Target;
use crate::paths::{PathScore, PathTally};
use crate::score::{Reference, Score, Tally, dist_over_entropy};
use crate::statistics::{Distribution, MeanSd, Twentieths};
use crate::stop::Stop;
use crate::workload::Workload;

/// Parameters are over-fitted if their figure is worse, by more than this factor, than the figure
/// that tuning there reaches.
const OVER_FITTED: f64 = 1.3;

/// The results of a sampler over several draws.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Replayed {
    /// The number of replays, each on its own draw.
    pub replays: u64,
    /// dist/entropy.
    pub dist_over_entropy: Distribution,
    /// The dist/entropy of single runs.
    pub dist_over_entropy_runs: Twentieths,
    /// The single traces that decide dist/entropy, in which case each replay counts with every
    /// outcome for them. `None` if there are none, or if chances were not calculated.
    pub deciding: Option<Deciding>,
    /// dist/entropy with SS from weighted means and standard deviations. `None` if decisions have
    /// no weights.
    pub dist_over_entropy_weighted: Option<Distribution>,
    /// Share of the bytes.
    pub tfcr: Distribution,
    /// Functions found. Not in JSON, because the score has it.
    #[serde(skip)]
    pub functions: Distribution,
    /// Distance, ms, and entropy, bits. Not in JSON either.
    #[serde(skip)]
    pub(crate) ss_and_entropy: [f64; 2],
    /// Call trees found.
    pub call_trees: Distribution,
    /// Traces kept.
    pub traces: Distribution,
    /// The distance of latencies, weighted if decisions have weights.
    pub latency: Distribution,
    /// Path kinds found.
    pub paths: Distribution,
    /// The distance of the path kinds' shares, weighted if decisions have weights.
    pub path_distance: Distribution,
    /// Errors of counts that are estimated by weights. `None` if decisions have no weights.
    pub counts: Option<CountErrors>,
}

impl Replayed {
    /// dist/entropy by weights, or as counted if decisions have no weights.
    pub fn by_weights(&self) -> Distribution {
        self.dist_over_entropy_weighted.unwrap_or(self.dist_over_entropy)
    }
}

/// Relative errors of estimated counts: the root mean square over the replays, averaged over
/// functions or roots.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CountErrors {
    /// The error of the functions' numbers of calls.
    pub functions: f64,
    /// The same after scaling each root's weights to add up to the exact number of its traces,
    /// which the record table knows.
    pub functions_calibrated: f64,
    /// The error of the roots' numbers of traces.
    pub roots: f64,
}

/// Squared relative errors of counts, summed over replays. Single runs are not stored, because each
/// has a few numbers per function and root.
#[derive(Debug, Default)]
pub(crate) struct CountSums {
    functions: MeanSquares,
    calibrated: MeanSquares,
    roots: MeanSquares,
}

impl CountSums {
    pub(crate) fn add(&mut self, run: &Estimates) {
        self.functions.add(&run.functions);
        self.calibrated.add(&run.calibrated);
        self.roots.add(&run.roots);
    }

    pub(crate) fn errors(&self) -> CountErrors {
        CountErrors {
            functions: self.functions.mean_root(),
            functions_calibrated: self.calibrated.mean_root(),
            roots: self.roots.mean_root(),
        }
    }
}

/// One replay.
#[derive(Debug)]
struct Run {
    score: Score,
    latency: f64,
    paths: PathScore,
    /// SS from weighted means and standard deviations. `None` if any decision had no weight.
    ss_by_weights_ms: Option<f64>,
    /// `None` if chances are not calculated.
    seen: Option<WatchedRun>,
}

/// Replays of one sampler, to which more can be added.
#[derive(Debug)]
pub(crate) struct Replays<'w> {
    workload: &'w Workload,
    sampler: &'w Candidate,
    reference: Reference,
    runs: Vec<Run>,
    counts: CountSums,
    /// `None` if chances are not calculated.
    lone: Option<Lone>,
}

impl<'w> Replays<'w> {
    /// Starts without replays; `None` if asked to stop. With `by_chances`, each replay stands for
    /// all runs that differ from it only in the few traces that decide, if there are any (see
    /// [`crate::lone`]).
    pub(crate) fn new(
        workload: &'w Workload,
        sampler: &'w Candidate,
        by_chances: bool,
        stop: Stop<'_>,
    ) -> Option<Self> {
        let reference = Reference::unless_stopped(workload, stop)?;
        let lone = if by_chances { Some(Lone::new(workload, sampler, stop)?) } else { None };
        Some(Self { workload, sampler, reference, runs: Vec::new(), counts: CountSums::default(), lone })
    }

    /// Replays on each of some draws, using all cores; `done` is called after each. Draws that were
    /// not finished before a stop are left out.
    pub(crate) fn add(&mut self, draws: &[Draw], stop: Stop<'_>, done: &(dyn Fn() + Sync)) {
        let (workload, sampler) = (self.workload, self.sampler);
        let (reference, lone) = (&self.reference, self.lone.as_ref());
        let run = |draw: &Draw| {
            let mut tally = Tally::new(workload, reference);
            let (mut histograms, mut paths) = (LatencyTally::new(workload), PathTally::new(workload));
            let (mut kept, mut weighted) = (Vec::new(), true);
            let mut watch = lone.map(|lone| lone.watch(workload, draw));
            let finished = sampler.decide_each(workload, draw, stop, |decided| {
                let arrival = decided.arrival;
                if let Some(watch) = &mut watch {
                    watch.decided(&decided, workload.arrivals()[arrival].key);
                }
                if !decided.keep {
                    return;
                }
                let weight = decided.weight();
                if lone.is_none_or(|lone| !lone.has(arrival)) {
                    tally.keep(arrival);
                }
                histograms.keep(arrival, weight.unwrap_or(1.0));
                paths.keep(arrival, weight.unwrap_or(1.0));
                weighted &= weight.is_some();
                kept.push((arrival, weight.unwrap_or(1.0)));
            });
            let seen = watch.map(|watch| watch.finish(&tally));
            if let (Some(lone), Some(seen)) = (lone, &seen) {
                seen.kept(lone).for_each(|arrival| tally.keep(arrival));
            }
            let estimates = (finished && weighted).then(|| estimates(workload, reference, &kept));
            done();
            let (score, latency, paths) = (tally.score(), histograms.distance(), paths.score());
            let ss_by_weights_ms = estimates.as_ref().map(|estimates| estimates.ss_ms);
            finished.then_some((Run { score, latency, paths, ss_by_weights_ms, seen }, estimates))
        };
        let (runs, counts) = (&mut self.runs, &mut self.counts);
        add_up(draws, held(workload), run, |_, finished| {
            if let Some((run, estimates)) = finished {
                runs.push(run);
                estimates.iter().for_each(|estimates| counts.add(estimates));
            }
        });
    }

    /// Returns how far off the mean may be if no replay so far dropped the deciding traces.
    pub(crate) fn hidden(&self) -> Hidden {
        let mean_ms = MeanSd::of(self.runs.iter().map(|run| run.score.ss_ms)).mean;
        self.lone
            .as_ref()
            .map_or_else(Hidden::default, |lone| lone.hidden(&self.seen(), self.mixture().as_ref(), mean_ms))
    }

    fn seen(&self) -> Vec<&WatchedRun> {
        self.runs.iter().filter_map(|run| run.seen.as_ref()).collect()
    }

    /// `None` if no trace decides.
    fn mixture(&self) -> Option<Mixture> {
        let mut ss_ms: Vec<f64> = self.runs.iter().map(|run| run.score.ss_ms).collect();
        ss_ms.sort_unstable_by(f64::total_cmp);
        let usual_ms = ss_ms.get(ss_ms.len() / 2)?;
        Mixture::of(self.lone.as_ref()?, (self.workload, &self.reference), &self.seen(), *usual_ms)
    }

    /// The results of all replays so far; `None` if there are none.
    pub(crate) fn replayed(&self) -> Option<Replayed> {
        let runs = &self.runs;
        let of = |number: fn(&Run) -> f64| Distribution::of(runs.iter().map(number).collect());
        let by_weights: Option<Vec<f64>> = runs
            .iter()
            .map(|run| Some(dist_over_entropy(run.ss_by_weights_ms?, run.score.entropy_bits)))
            .collect();
        let dist_over_entropy = || runs.iter().map(|run| run.score.dist_over_entropy).collect();
        let mixture = self.mixture();
        (!runs.is_empty()).then(|| Replayed {
            replays: runs.len() as u64,
            dist_over_entropy: mixture
                .as_ref()
                .map_or_else(|| Distribution::of(dist_over_entropy()), |mixture| mixture.distribution),
            dist_over_entropy_runs: mixture
                .as_ref()
                .map_or_else(|| Twentieths::of(dist_over_entropy()), |mixture| mixture.runs),
            deciding: mixture.map(|mixture| mixture.deciding),
            tfcr: of(|run| run.score.tfcr),
            functions: of(|run| run.score.functions as f64),
            ss_and_entropy: [
                MeanSd::of(runs.iter().map(|run| run.score.ss_ms)).mean,
                MeanSd::of(runs.iter().map(|run| run.score.entropy_bits)).mean,
            ],
            call_trees: of(|run| run.score.call_trees as f64),
            traces: of(|run| run.score.traces as f64),
            latency: of(|run| run.latency),
            paths: of(|run| run.paths.paths as f64),
            path_distance: of(|run| run.paths.path_distance),
            counts: by_weights.is_some().then(|| self.counts.errors()),
            dist_over_entropy_weighted: by_weights.map(Distribution::of),
        })
    }
}

impl Replayed {
    /// Replays a sampler on each of some draws, using all cores; `done` is called after each. Draws
    /// that were not finished before a stop are left out; `None` if there are no others.
    pub fn new(
        workload: &Workload,
        sampler: &Candidate,
        draws: &[Draw],
        stop: Stop<'_>,
        done: &(dyn Fn() + Sync),
    ) -> Option<Self> {
        Self::of(Replays::new(workload, sampler, false, stop)?, draws, stop, done)
    }

    /// Like [`new`](Self::new), but if some traces decide, each replay counts with every outcome
    /// for them.
    pub(crate) fn by_chances(
        workload: &Workload,
        sampler: &Candidate,
        draws: &[Draw],
        stop: Stop<'_>,
        done: &(dyn Fn() + Sync),
    ) -> Option<Self> {
        Self::of(Replays::new(workload, sampler, true, stop)?, draws, stop, done)
    }

    fn of(
        mut replays: Replays<'_>,
        draws: &[Draw],
        stop: Stop<'_>,
        done: &(dyn Fn() + Sync),
    ) -> Option<Self> {
        replays.add(draws, stop, done);
        // Threads checked the stop condition until here; the sums over all runs follow on this one.
        if stop.is_interrupted() { None } else { replays.replayed() }
    }

    /// The means, in the form in which a search scores them.
    pub(crate) fn expected(&self, workload: &Workload) -> Expected {
        Expected {
            traces: self.traces.mean,
            tfcr: self.tfcr.mean,
            call_trees: self.call_trees.mean,
            call_trees_all: f64::from(workload.call_trees()),
            // These are moments of the quotient. Only their ratio, the relative deviation, is used.
            ss_ms: self.dist_over_entropy.mean,
            ss_sd_ms: self.dist_over_entropy.sd,
            dist_over_entropy: self.dist_over_entropy.mean,
            latency: Some(self.latency.mean),
            count_error: self.counts.map(|counts| counts.functions),
            paths: Some(self.paths.mean),
            paths_all: workload.path_kinds().iter().filter(|&&traces| traces > 0).count() as f64,
            path_distance: Some(self.path_distance.mean),
            ..Expected::default()
        }
    }

    /// Replaces a search's expectations by these means, so that there is one number for one thing.
    pub(crate) fn replace(&self, score: &mut Expected) {
        *score = Expected {
            traces: self.traces.mean,
            tfcr: self.tfcr.mean,
            functions: self.functions.mean,
            call_trees: self.call_trees.mean,
            ss_ms: self.ss_and_entropy[0],
            entropy_bits: self.ss_and_entropy[1],
            dist_over_entropy: self.dist_over_entropy.mean,
            latency: score.latency.map(|_| self.latency.mean),
            count_error: self.counts.map(|counts| counts.functions),
            paths: score.paths.map(|_| self.paths.mean),
            path_distance: score.path_distance.map(|_| self.path_distance.mean),
            ..*score
        };
    }

    /// The target's value relative to an equal share of the same size. `None` if asked to stop.
    pub(crate) fn beside_share(
        &self,
        workload: &Workload,
        target: &Target,
        random: RandomSource,
        stop: Stop<'_>,
    ) -> Option<f64> {
        let share = equal_share(workload, self.tfcr.mean, random, stop)?;
        Some(target.beside(&self.expected(workload), &share))
    }
}

/// The result of parameters on another workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HeldOut {
    /// The name of this workload.
    pub name: String,
    /// The number of its traces.
    pub traces: u64,
    /// The replayed parameters.
    pub replayed: Replayed,
    /// An equal share of the same size, on the same draws. `None` if the parameters keep nothing.
    pub replayed_share: Option<Replayed>,
    /// Parameters that were tuned on this workload.
    pub tuned_there: Option<Replayed>,
}

impl HeldOut {
    /// Replays parameters on another workload, and for comparison those tuned there. `None` if
    /// asked to stop.
    pub fn new(
        name: &str,
        workload: &Workload,
        sampler: &Candidate,
        tuned_there: Option<&Config>,
        draws: &[Draw],
        stop: Stop<'_>,
    ) -> Option<Self> {
        let replay = |sampler: &Candidate| Replayed::by_chances(workload, sampler, draws, stop, &|| ());
        let replayed = replay(sampler)?;
        let share = Candidate::equal_share(replayed.tfcr.mean);
        Some(Self {
            name: name.to_owned(),
            traces: workload.arrivals().len() as u64,
            replayed_share: match share {
                Some(share) => Some(replay(&share)?),
                None => None,
            },
            replayed,
            tuned_there: tuned_there.and_then(|config| replay(&config.clone().into())),
        })
    }

    /// Warnings for people.
    pub fn warnings(&self, size_max: f64) -> Vec<String> {
        let mut warnings = Vec::new();
        let here = self.replayed.dist_over_entropy.mean;
        if let Some(there) = &self.tuned_there {
            let best = there.dist_over_entropy.mean;
            if is_above(here, OVER_FITTED * best, 3) {
                warnings.push(format!(
                    "over-fitted: on {} dist/entropy is {}, but {} if tuned there; record longer",
                    self.name,
                    fixed(here),
                    fixed(best)
                ));
            }
        }
        if let Some(share) = &self.replayed_share {
            let equal = share.dist_over_entropy;
            if is_worse(&self.replayed.dist_over_entropy, &equal) {
                warnings.push(format!(
                    "on {} these parameters are no better than an equal share (dist/entropy {} and {}): record longer, or \
                     use the sampler `ratio`",
                    self.name,
                    fixed(here),
                    fixed(equal.mean)
                ));
            }
        }
        let size = self.replayed.tfcr.mean;
        if is_above(size * 1e2, size_max * 1e2, 2) {
            warnings.push(format!(
                "on {} {:.2} % of the bytes are kept, above the limit of {:.2} %",
                self.name,
                size * 1e2,
                size_max * 1e2
            ));
        }
        warnings
    }
}

/// Whether a figure is worse than another by more than chance explains.
pub(crate) fn is_worse(one: &Distribution, other: &Distribution) -> bool {
    is_above(one.mean, other.mean, 3) && !is_by_chance(one, other)
}

/// Whether chance explains the difference of two means, at 95 % confidence. An infinite mean always
/// differs.
fn is_by_chance(one: &Distribution, other: &Distribution) -> bool {
    let half = |of: &Distribution| of.mean_interval[1] - of.mean;
    (one.mean - other.mean).abs() <= half(one).hypot(half(other))
}

/// The expected score of keeping each trace with the same probability. `None` if asked to stop.
pub(crate) fn equal_share(
    workload: &Workload,
    share: f64,
    random: RandomSource,
    stop: Stop<'_>,
) -> Option<Expected> {
    let stratified = random == RandomSource::Stratified;
    let expectation = Expectation::new(workload, &Design::uncounted(Extras::ALL, stratified), stop)?;
    expectation.ratio(share, &mut Scratch::default(), stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replayed(mean: f64, size: f64) -> Replayed {
        let of = |mean: f64| Distribution::of(vec![mean]);
        Replayed {
            replays: 1,
            dist_over_entropy: of(mean),
            dist_over_entropy_runs: Twentieths::default(),
            deciding: None,
            dist_over_entropy_weighted: None,
            tfcr: of(size),
            functions: of(1.0),
            ss_and_entropy: [1.0; 2],
            call_trees: of(1.0),
            traces: of(1.0),
            latency: of(0.0),
            paths: of(1.0),
            path_distance: of(0.0),
            counts: None,
        }
    }

    /// Each warning has its own cause, and appears just above its bound.
    #[test]
    fn each_warning_has_its_cause() {
        let warnings = |here: f64, there: f64, equal: f64, size: f64| {
            let held_out = HeldOut {
                name: "tuesday".to_owned(),
                traces: 1,
                replayed: replayed(here, size),
                replayed_share: Some(replayed(equal, size)),
                tuned_there: Some(replayed(there, size)),
            };
            held_out.warnings(0.1)
        };
        assert_eq!(warnings(12.9, 10.0, 20.0, 0.1), Vec::<String>::new());
        for (found, says) in [
            (
                warnings(13.1, 10.0, 20.0, 0.1),
                "over-fitted: on tuesday dist/entropy is 13.100, but 10.000 if tuned there",
            ),
            (
                warnings(20.1, 20.0, 20.0, 0.1),
                "no better than an equal share (dist/entropy 20.100 and 20.000)",
            ),
            (warnings(12.0, 10.0, 20.0, 0.101), "10.10 % of the bytes are kept"),
        ] {
            assert!(found.len() == 1 && found[0].contains(says), "{found:?}");
        }
        // Figures of 0 cause no warnings.
        assert_eq!(warnings(0.0, 0.0, 0.0, 0.1), Vec::<String>::new());
        assert_eq!(warnings(12.0, 10.0, 20.0, 0.100_004), Vec::<String>::new(), "equal when rounded");
    }

    /// An equal share is not worse than itself, although its expectation is some percent below its
    /// replays.
    #[test]
    fn an_equal_share_is_compared_with_replays_of_itself() {
        let workload = crate::testing::synthetic(500, 2);
        let share = Candidate::equal_share(0.1).expect("a share");
        for random in [RandomSource::Independent, RandomSource::Stratified] {
            let draws = Draw::unseen(96, 1, random);
            let held_out = HeldOut::new("itself", &workload, &share, None, &draws, Stop::never());
            let warnings = held_out.expect("not stopped").warnings(1.0);
            assert_eq!(warnings, Vec::<String>::new(), "{random:?}");
        }
    }

    /// 78.331 is no worse than 78.326 if both are known to within a tenth.
    #[test]
    fn figures_are_compared_by_their_errors() {
        let around = |mean: f64| Distribution::of((0..96).map(|n| mean + f64::from(n % 5 - 2)).collect());
        let (one, other) = (around(78.331), around(78.326));
        assert!(is_above(one.mean, other.mean, 3) && !is_worse(&one, &other));
        assert!(is_worse(&around(79.331), &other) && !is_worse(&other, &around(79.331)));
    }
}
