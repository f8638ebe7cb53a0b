//! Compares samplers at several sizes: ours tuned for each size, and baselines with their parameter
//! adjusted until they keep as much.

use astracer_baselines::BaselineSpec;
use astracer_samplers::{Config, Probability, Ratio};
use rayon::prelude::*;
use serde::Serialize;

use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::equal_size::{COMPARABLE, at_equal_size};
use crate::held_out::Replayed;
use crate::limits::Limits;
use crate::space::Tunable;
use crate::stop::Stop;
use crate::tune::{Options, StrataTuning, Tuning, search};
use crate::workload::Workload;

/// The sizes, as shares of the largest size that the limits allow.
const STEPS: [f64; 3] = [1.0, 0.3, 0.1];
/// Bounds on the replays of each sampler at each size. Small workloads get more, because chance
/// matters more there and a replay is cheaper.
const REPLAYS: std::ops::RangeInclusive<usize> = 3..=9;
/// The replays of a sampler at one size decide about this many traces in total.
const DECISIONS: usize = 300_000;
/// By chance, the mean size of a few replays may exceed the expected size by this factor.
const SIZE_TOLERANCE: f64 = 1.02;
/// Annealing starts of the search for our samplers, which is short.
const STARTS: u32 = 2;
const ITERATIONS: u64 = 80;

/// Samplers at several sizes.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Curves {
    /// The wanted shares of the bytes, largest first.
    pub sizes: Vec<f64>,
    /// In this order: an equal share of everything, the tuning found, our samplers, the baselines.
    pub series: Vec<Series>,
    /// Among the baselines that can keep the largest size, the one with the lowest dist/entropy
    /// there, replayed on the draws that the tuning was checked on.
    pub best_baseline: Option<(String, Replayed)>,
}

/// One sampler.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Series {
    /// The kind of sampler.
    pub name: String,
    /// A description in one line.
    pub about: &'static str,
    /// Whether the sampler is one of ours.
    pub ours: bool,
    /// One point for each size. `None` if the sampler cannot keep this share or cannot be tuned for
    /// the objective.
    pub points: Vec<Option<CurvePoint>>,
}

/// One sampler at one size, as means over some replays.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CurvePoint {
    /// The sampler with its parameters.
    pub sampler: String,
    /// The share of the bytes that is kept.
    pub size: f64,
    /// Whether the size is the wanted one. Baselines must be within 5 % of it; our samplers may
    /// keep less.
    pub size_met: bool,
    /// dist/entropy.
    pub dist_over_entropy: f64,
    /// The interval that contains the dist/entropy of nine in ten single runs.
    pub run_interval: [f64; 2],
    /// Call trees found.
    pub call_trees: f64,
}

/// Compares samplers at the largest size that the limits allow, and at 3/10 and 1/10 of it. The
/// tuning `found` has a point at the largest size only. `None` if `stop` became true.
pub fn curves(
    workload: &Workload,
    found: &Tuning,
    options: &Options,
    baselines: &[BaselineSpec],
    stop: Stop<'_>,
    done: &(dyn Fn() + Sync),
) -> Option<Curves> {
    let largest = options.limits.largest_share(workload);
    let sizes = STEPS.map(|step| step * largest).to_vec();
    let draws = Draw::unseen(replays(workload), options.seed, options.random);
    let at = Replay { workload, draws: &draws, stop };
    let mut series = vec![equal_share(&at, &sizes)?, this_tuning(&at, found, &sizes)?];
    for sampler in [Tunable::Bump, Tunable::Tumbling, Tunable::Bucket] {
        series.push(ours(&at, sampler, options, &sizes, stop, done)?);
    }
    let seconds = workload.seconds();
    let of_baseline = |baseline: &BaselineSpec| {
        // Each search starts from the parameter found for the previous size.
        let mut spec = baseline.quickened_for(seconds);
        let mut largest = None;
        let point = |&size: &f64| {
            let found = at_equal_size(workload, &spec, size, &draws, stop)?;
            spec = found.spec.clone();
            largest.get_or_insert_with(|| spec.clone());
            let point = at.point(&found.spec.into(), |kept| (kept / size - 1.0).abs() <= COMPARABLE)?;
            done();
            Some(Some(point))
        };
        let points = sizes.iter().map(point).collect::<Option<_>>()?;
        let (name, about) = (baseline.kind().name.to_owned(), baseline.kind().about);
        Some((Series { name, about, ours: false, points }, largest))
    };
    let of_baselines = baselines.par_iter().map(of_baseline).collect::<Option<Vec<_>>>()?;
    let best_baseline = match best(&of_baselines).zip(found.replayed) {
        None => None,
        Some(((name, spec), checked)) => {
            let draws = Draw::unseen(checked.replays as usize, options.seed, options.random);
            Some((name, Replayed::new(workload, &Candidate::from(spec), &draws, stop, &|| ())?))
        }
    };
    series.extend(of_baselines.into_iter().map(|(series, _)| series));
    Some(Curves { sizes, series, best_baseline })
}

/// The baseline with the lowest dist/entropy among those that keep the largest size.
fn best(baselines: &[(Series, Option<BaselineSpec>)]) -> Option<(String, BaselineSpec)> {
    let met = baselines.iter().filter_map(|(series, spec)| {
        let point = series.points.first()?.as_ref().filter(|point| point.size_met)?;
        Some((point.dist_over_entropy, series, spec.as_ref()?))
    });
    met.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, series, spec)| (series.name.clone(), spec.clone()))
}

/// The workload and the draws on which samplers are compared.
struct Replay<'a> {
    workload: &'a Workload,
    draws: &'a [Draw],
    stop: Stop<'a>,
}

impl Replay<'_> {
    fn point(&self, sampler: &Candidate, size_met: impl Fn(f64) -> bool) -> Option<CurvePoint> {
        let replayed = Replayed::new(self.workload, sampler, self.draws, self.stop, &|| ())?;
        Some(CurvePoint {
            sampler: sampler.to_string(),
            size: replayed.tfcr.mean,
            size_met: size_met(replayed.tfcr.mean),
            dist_over_entropy: replayed.dist_over_entropy.mean,
            run_interval: replayed.dist_over_entropy.run_interval,
            call_trees: replayed.call_trees.mean,
        })
    }
}

impl Curves {
    /// The number of calls of `done` for this many baselines.
    pub fn steps(baselines: usize) -> u64 {
        ((3 + baselines) * STEPS.len()) as u64
    }
}

impl Curves {
    /// These curves with strata in the place of the tuning found.
    #[must_use]
    pub fn of_strata(mut self, strata: &StrataTuning) -> Self {
        let replayed = &strata.replayed;
        let by_weights = replayed.by_weights();
        let point = CurvePoint {
            sampler: "strata".to_owned(),
            size: replayed.tfcr.mean,
            size_met: true,
            dist_over_entropy: by_weights.mean,
            run_interval: by_weights.run_interval,
            call_trees: replayed.call_trees.mean,
        };
        if let Some(own) = self.series.get_mut(1).and_then(|series| series.points.first_mut()) {
            *own = Some(point);
        }
        self
    }
}

fn equal_share(at: &Replay<'_>, sizes: &[f64]) -> Option<Series> {
    let point = |&size: &f64| {
        let share = Probability::new(size).and_then(|share| Ratio::new(share).ok()).map(Config::from);
        // A size that is not a valid probability has no point; a stop ends the whole series.
        share.map_or(Some(None), |share| at.point(&share.into(), |_| true).map(Some))
    };
    let about = "keeps every trace with the same probability";
    let points = sizes.iter().map(point).collect::<Option<_>>()?;
    Some(Series { name: "equal share".to_owned(), about, ours: false, points })
}

fn this_tuning(at: &Replay<'_>, found: &Tuning, sizes: &[f64]) -> Option<Series> {
    let mut points = vec![None; sizes.len()];
    if let (true, Ok(config)) = (found.feasible, found.config()) {
        points[0] = Some(at.point(&config.into(), |kept| kept <= sizes[0] * SIZE_TOLERANCE)?);
    }
    let about = "the parameters of this page";
    Some(Series { name: "this tuning".to_owned(), about, ours: true, points })
}

fn ours(
    at: &Replay<'_>,
    sampler: Tunable,
    options: &Options,
    sizes: &[f64],
    stop: Stop<'_>,
    done: &(dyn Fn() + Sync),
) -> Option<Series> {
    let mut points = Vec::new();
    for &size in sizes {
        let options = Options {
            sampler,
            limits: Limits { size_min: size / 10.0, size_max: size, ..options.limits },
            starts: STARTS,
            iterations: ITERATIONS,
            time_max: None,
            ..options.search_only()
        };
        // `check` fails for the bucket with an objective that needs weights: a bucket has none, so
        // every point of its search would score the same.
        let tuning = options.check().is_ok().then(|| search(at.workload, &options, stop, &|_| ()));
        let config = tuning.filter(|tuning| tuning.feasible).and_then(|tuning| tuning.config().ok());
        points.push(match config {
            Some(config) => Some(at.point(&config.into(), |kept| kept <= size * SIZE_TOLERANCE)?),
            None => None,
        });
        done();
    }
    let about = match sampler {
        Tunable::Bump => "keeps the first calls of each root, then fewer the more calls there were recently",
        Tunable::Tumbling => {
            "keeps the first calls of each root in each window, then fewer and fewer of the rest"
        }
        Tunable::Bucket => "keeps a trace while the bucket of its root has tokens",
    };
    Some(Series { name: sampler.name().to_owned(), about, ours: true, points })
}

fn replays(workload: &Workload) -> usize {
    (DECISIONS / workload.arrivals().len().max(1)).clamp(*REPLAYS.start(), *REPLAYS.end())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::testing::synthetic;
    use crate::tune::tune;
    use astracer_baselines as baselines;

    #[test]
    fn each_sampler_is_looked_at_for_each_size() {
        let workload = synthetic(2000, 6);
        let baselines = ["ratio", "every", "xray"].map(|name| {
            baselines::all().into_iter().find(|baseline| baseline.kind().name.contains(name)).expect(name)
        });
        let options =
            Options { windows: Some(vec![std::time::Duration::from_secs(20)]), ..Options::default() };
        let steps = std::sync::atomic::AtomicU64::new(0);
        let done = || {
            steps.fetch_add(1, Ordering::Relaxed);
        };
        let tuning = tune(&workload, &options, Stop::never(), &|_| ());
        let found = curves(&workload, &tuning, &options, &baselines, Stop::never(), &done);
        let found = found.expect("not stopped");
        assert_eq!(steps.into_inner(), Curves::steps(baselines.len()));
        assert_eq!(found.series.len(), 5 + baselines.len());
        let (name, best) = found.best_baseline.as_ref().expect("one keeps a tenth");
        let of_best = found.series.iter().find(|series| series.name == *name).expect("it is there");
        let least = found.series[5..].iter().filter_map(|series| series.points[0].as_ref());
        let least = least.filter(|point| point.size_met).map(|point| point.dist_over_entropy);
        let point = of_best.points[0].as_ref().expect("possible");
        assert_eq!(point.dist_over_entropy, least.fold(f64::INFINITY, f64::min));
        assert_eq!(Some(best.replays), tuning.replayed.map(|replayed| replayed.replays));
        assert!((best.tfcr.mean / point.size - 1.0).abs() < 0.2, "{best:?} {point:?}");
        for series in &found.series {
            assert_eq!(series.points.len(), found.sizes.len(), "{}", series.name);
            for (point, wanted) in
                series.points.iter().zip(&found.sizes).filter_map(|(p, w)| Some((p.as_ref()?, w)))
            {
                assert!(!point.size_met || point.size <= 1.05 * wanted, "{point:?}");
            }
        }
        // An equal share and the baseline `ratio` at the same size are the same sampler.
        let (share, ratio) = (&found.series[0].points[0], &found.series[5].points[0]);
        let (share, ratio) = (share.as_ref().expect("possible"), ratio.as_ref().expect("possible"));
        assert!((share.call_trees - ratio.call_trees).abs() < 3.0, "{share:?} {ratio:?}");
        assert_eq!(
            curves(&workload, &tuning, &options, &baselines, Stop::when(&|| true), &|| ()).map(|_| ()),
            None
        );
        // A sampler that cannot be tuned for the objective has no points.
        let objective = "counts".parse().expect("an objective");
        let options = Options { objective, ..options };
        let found = curves(&workload, &tuning, &options, &[], Stop::never(), &|| ()).expect("not stopped");
        let points = |name: &str| {
            let named = found.series.iter().find(|series| series.name == name).expect(name);
            named.points.iter().flatten().count()
        };
        assert_eq!((points("bucket"), points("bump") > 0), (0, true));
    }
}
