//! The searches that annealing is compared with: random points, and a regular grid.

use rayon::prelude::*;

use crate::family::Family;
use crate::problem::{Archive, Landscape, Problem};
use crate::random::Random;
use crate::space::{self, Point};
use crate::stop::Stop;

/// Random points that estimate which share of the space is within the limits.
const PROBES: u64 = 2000;
/// The most points of a grid, within the limits or not.
const GRID_MAX: f64 = 3e5;
/// Points per batch of one thread.
const BATCH: usize = 256;

/// Scores `evaluations` random points within the limits, or fewer if a hundred times as many draws
/// do not find them.
pub(crate) fn random_search<F: Family>(
    problem: &Problem<'_, F>,
    evaluations: u64,
    seed: u64,
    stop: Stop<'_>,
    done: &(dyn Fn() + Sync),
) -> Archive {
    let batches = evaluations.div_ceil(BATCH as u64);
    let draw = |batch: u64| {
        let mut random = Random::new(seed, batch);
        let mut scratch = F::Scratch::default();
        let wanted = (evaluations - batch * BATCH as u64).min(BATCH as u64) as usize;
        let mut archive = Archive::default();
        for _ in 0..wanted * 100 {
            if archive.evaluations == wanted as u64 || stop.is_asked() {
                break;
            }
            let point = space::anywhere(problem.family.dimensions(), &mut random);
            if problem.allows(&point) {
                let Some(evaluated) = problem.evaluate(&point, &mut scratch) else { break };
                archive.add(evaluated);
                done();
            }
        }
        archive
    };
    merge((0..batches).into_par_iter().map(draw).collect())
}

/// Scores the points of a grid that are within the limits. The grid is chosen so that there are
/// about `evaluations` of them.
pub(crate) fn grid_search<F: Family>(
    problem: &Problem<'_, F>,
    evaluations: u64,
    seed: u64,
    stop: Stop<'_>,
    done: &(dyn Fn() + Sync),
) -> Archive {
    let mut random = Random::new(seed, 0);
    let within = (0..PROBES)
        .take_while(|_| !stop.is_asked())
        .filter(|_| {
            let point = space::anywhere(problem.family.dimensions(), &mut random);
            problem.allows(&point)
        })
        .count();
    if stop.is_asked() {
        return Archive::default();
    }
    let share = within.max(1) as f64 / PROBES as f64;
    let points = (evaluations as f64 / share).min(GRID_MAX);
    let steps = points.powf(1.0 / problem.family.dimensions() as f64).round() as usize;
    let points: Vec<Point> = space::grid(problem.family.dimensions(), steps).collect();
    let batch = |points: &[Point]| {
        let mut scratch = F::Scratch::default();
        let mut archive = Archive::default();
        for point in points {
            if stop.is_asked() {
                break;
            }
            if problem.allows(point) {
                let Some(evaluated) = problem.evaluate(point, &mut scratch) else { break };
                archive.add(evaluated);
                done();
            }
        }
        archive
    };
    merge(points.par_chunks(BATCH).map(batch).collect())
}

/// Joins archives as if their searches had run one after the other, in order.
fn merge(archives: Vec<Archive>) -> Archive {
    let mut all = Archive::default();
    for archive in archives {
        let before = all.evaluations;
        all.evaluations += archive.evaluations;
        all.merge_fronts(&archive);
        for (evaluation, value) in &archive.convergence {
            if all.convergence.last().is_none_or(|&(_, best)| *value < best) {
                all.convergence.push((before + evaluation, *value));
            }
        }
        if let Some(best) =
            archive.best.filter(|best| all.best.as_ref().is_none_or(|old| best.value < old.value))
        {
            all.best = Some(best);
        }
    }
    all
}
