//! How good each sampler is at several sizes: ours tuned for each, baselines with their knob turned until they keep as much.

use std::sync::atomic::{AtomicBool, Ordering};

use astracer_baselines::BaselineSpec;
use rayon::prelude::*;
use serde::Serialize;

use crate::candidate::Candidate;
use crate::equal_size::at_equal_size;
use crate::evaluate::Evaluator;
use crate::limits::Limits;
use crate::space::Tunable;
use crate::statistics::MeanSd;
use crate::tune::{Options, Tuning, tune, windows_for_a_look};
use crate::workload::Workload;

/// Sizes as shares of the largest.
const STEPS: [f64; 3] = [1.0, 0.3, 0.1];
/// Replays of each sampler at each size: more of small workloads, where chance is larger and a replay cheaper.
const SEEDS: std::ops::RangeInclusive<u64> = 2..=5;
/// All replays of a sampler at a size decide so many traces, roughly.
const DECISIONS: u64 = 1_000_000;
/// A quick search for our samplers.
const STARTS: u32 = 2;
const ITERATIONS: u64 = 200;

/// Samplers at several sizes.
#[derive(Clone, Debug, Serialize)]
pub struct Curves {
    /// The shares of the bytes that were to be kept, the largest first.
    pub sizes: Vec<f64>,
    /// An equal share of everything first, then what was found, then ours, then baselines.
    pub series: Vec<Series>,
}

/// One sampler.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// What kind it is.
    pub name: String,
    /// What it does, in one line.
    pub about: &'static str,
    /// Whether it is one of ours.
    pub ours: bool,
    /// At each of the sizes; `None` if it can keep no such share.
    pub points: Vec<Option<CurvePoint>>,
}

/// One sampler at one size: means over some replays.
#[derive(Clone, Debug, Serialize)]
pub struct CurvePoint {
    /// With its parameters.
    pub sampler: String,
    /// The share of the bytes that it keeps.
    pub size: f64,
    /// Whether that is the wanted share, within a twentieth of it for baselines; ours may keep less.
    pub size_met: bool,
    /// dist/entropy.
    pub dist_over_entropy: f64,
    /// Call trees found.
    pub call_trees: f64,
}

/// Compares samplers at the largest size that the limits allow, at 3/10 and at a tenth of it; what was `found` only where
/// it is. `None` if `stop` became true.
pub fn curves(
    workload: &Workload,
    found: &Tuning,
    options: &Options,
    baselines: &[BaselineSpec],
    stop: &AtomicBool,
    done: &(dyn Fn() + Sync),
) -> Option<Curves> {
    let sizes = STEPS.map(|step| step * options.limits.size_max).to_vec();
    let evaluator = Evaluator::new(workload);
    let mut series = vec![equal_share(&evaluator, &sizes), this_tuning(&evaluator, found, &sizes)];
    for sampler in [Tunable::Bump, Tunable::Bucket] {
        series.push(ours(&evaluator, sampler, options, &sizes, stop, done)?);
    }
    let seconds = workload.arrivals().last().map_or(0.0, |last| last.at_ns as f64 / 1e9);
    let of_baseline = |baseline: &BaselineSpec| {
        // The search for the next knob begins at the last one.
        let mut spec = baseline.quickened_for(seconds);
        let point = |&size: &f64| {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let found = at_equal_size(workload, &spec, size, seeds(workload));
            spec = found.spec.clone();
            let point = point(&evaluator, &found.spec.into(), |kept| (kept / size - 1.0).abs() <= 0.05);
            done();
            Some(point)
        };
        let points = sizes.iter().map(point).collect();
        Series { name: baseline.kind().name.to_owned(), about: baseline.kind().about, ours: false, points }
    };
    series.extend(baselines.par_iter().map(of_baseline).collect::<Vec<_>>());
    (!stop.load(Ordering::Relaxed)).then_some(Curves { sizes, series })
}

impl Curves {
    /// How often `done` is called for so many baselines.
    pub fn steps(baselines: usize) -> u64 {
        ((2 + baselines) * STEPS.len()) as u64
    }
}

fn equal_share(evaluator: &Evaluator<'_>, sizes: &[f64]) -> Series {
    let points = sizes.iter().map(|size| {
        let expected = crate::held_out::equal_share(evaluator.workload(), *size);
        Some(CurvePoint {
            sampler: format!("ratio:{size}"),
            size: expected.tfcr,
            size_met: true,
            dist_over_entropy: expected.dist_over_entropy,
            call_trees: expected.call_trees,
        })
    });
    let about = "keeps every trace with the same probability";
    Series { name: "equal share".to_owned(), about, ours: false, points: points.collect() }
}

fn this_tuning(evaluator: &Evaluator<'_>, found: &Tuning, sizes: &[f64]) -> Series {
    let mut points = vec![None; sizes.len()];
    if let (true, Ok(config)) = (found.feasible, found.config()) {
        points[0] = Some(point(evaluator, &config.into(), |kept| kept <= sizes[0] * 1.02));
    }
    let about = "the parameters of this page";
    Series { name: "this tuning".to_owned(), about, ours: true, points }
}

fn ours(
    evaluator: &Evaluator<'_>,
    sampler: Tunable,
    options: &Options,
    sizes: &[f64],
    stop: &AtomicBool,
    done: &(dyn Fn() + Sync),
) -> Option<Series> {
    let mut points = Vec::new();
    for &size in sizes {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let options = Options {
            sampler,
            limits: Limits { size_min: size / 10.0, size_max: size, ..options.limits },
            windows: windows_for_a_look(options, evaluator.workload()),
            starts: STARTS,
            iterations: ITERATIONS,
            ..options.search_only()
        };
        let tuning = tune(evaluator.workload(), &options, stop, &|_| ());
        let config = if tuning.feasible { tuning.config().ok() } else { None };
        // Chance may take a replay a little above the size that is expected.
        points.push(config.map(|config| point(evaluator, &config.into(), |kept| kept <= size * 1.02)));
        done();
    }
    let about = match sampler {
        Tunable::Bump => "keeps the first calls of each root in each window, then fewer and fewer",
        Tunable::Bucket => "keeps while the root's bucket has tokens",
    };
    Some(Series { name: sampler.name().to_owned(), about, ours: true, points })
}

fn seeds(workload: &Workload) -> u64 {
    (DECISIONS / workload.arrivals().len().max(1) as u64).clamp(*SEEDS.start(), *SEEDS.end())
}

fn point(evaluator: &Evaluator<'_>, sampler: &Candidate, size_met: impl Fn(f64) -> bool) -> CurvePoint {
    let seeds = 1..=seeds(evaluator.workload());
    let scores: Vec<_> = seeds.into_par_iter().map(|seed| evaluator.score(sampler, seed)).collect();
    let mean = |of: fn(&crate::Score) -> f64| MeanSd::of(scores.iter().map(of)).mean;
    let size = mean(|score| score.tfcr);
    CurvePoint {
        sampler: sampler.to_string(),
        size,
        size_met: size_met(size),
        dist_over_entropy: mean(|score| score.dist_over_entropy),
        call_trees: mean(|score| score.call_trees as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic;
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
        let tuning = tune(&workload, &options, &AtomicBool::new(false), &|_| ());
        let found = curves(&workload, &tuning, &options, &baselines, &AtomicBool::new(false), &done);
        let found = found.expect("not stopped");
        assert_eq!(steps.into_inner(), Curves::steps(baselines.len()));
        assert_eq!(found.series.len(), 4 + baselines.len());
        for series in &found.series {
            assert_eq!(series.points.len(), found.sizes.len(), "{}", series.name);
            for (point, wanted) in
                series.points.iter().zip(&found.sizes).filter_map(|(p, w)| Some((p.as_ref()?, w)))
            {
                assert!(!point.size_met || point.size <= 1.05 * wanted, "{point:?}");
            }
        }
        // An equal share and the ratio at equal size are the same sampler.
        let (share, ratio) = (&found.series[0].points[0], &found.series[4].points[0]);
        let (share, ratio) = (share.as_ref().expect("possible"), ratio.as_ref().expect("possible"));
        assert!((share.call_trees - ratio.call_trees).abs() < 3.0, "{share:?} {ratio:?}");
        assert_eq!(
            curves(&workload, &tuning, &options, &baselines, &AtomicBool::new(true), &|| ()).map(|_| ()),
            None
        );
    }
}
