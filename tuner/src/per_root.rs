//! Parameters for single roots: the same budget, spent where it tells more.
//!
//! A root whose durations vary little needs few traces, one with rare slow calls many; parameters for all of them
//! cannot say so. From the best common parameters a second annealing moves those of a few roots at a time: what one
//! root gives up another may use. Since a move changes what the whole keeps, the limits hold for the sum, and a root
//! ends where a byte more for it would bring no more than a byte more for any other.

use std::sync::atomic::AtomicBool;

use rayon::prelude::*;

use crate::anneal::{Schedule, anneal};
use crate::limits::Kept;
use crate::problem::{Archive, Evaluated, Landscape, Problem, ProblemScratch};
use crate::random::Random;
use crate::space::{Parameters, Point, Space};
use crate::workload::Workload;

/// A root with fewer traces shares the common parameters: what it would be fitted to is chance.
const TRACES_MIN: u32 = 20;
/// So many roots, those with most bytes, have parameters of their own at most.
const ROOTS_MAX: usize = 64;
/// Walks from the same point, each with its own randomness.
const STARTS: u64 = 2;
/// Most moves change one or two roots.
const ROOTS_MOVED: u32 = 3;

/// A common point, and one for each of some roots.
#[derive(Debug)]
pub(crate) struct PerRoot<'p, 'w> {
    problem: &'p Problem<'w>,
    space: Space,
    /// By key: which of a place's points it has; 0 is the common one.
    slots: Vec<usize>,
    /// By point, without the common one: the key.
    keys: Vec<usize>,
}

/// The best that was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// The point of all other roots.
    pub(crate) common: Parameters,
    /// Keys with parameters of their own.
    pub(crate) roots: Vec<(usize, Parameters)>,
    pub(crate) best: Evaluated<Vec<Point>>,
    pub(crate) evaluations: u64,
}

impl<'p, 'w> PerRoot<'p, 'w> {
    pub(crate) fn new(problem: &'p Problem<'w>, workload: &Workload) -> Self {
        let mut sizes = vec![(0u32, 0u64); workload.keys().len()];
        for arrival in workload.arrivals() {
            let (traces, bytes) = &mut sizes[arrival.key as usize];
            *traces += 1;
            *bytes += arrival.bytes;
        }
        let mut keys: Vec<usize> = (0..sizes.len()).filter(|&key| sizes[key].0 >= TRACES_MIN).collect();
        keys.sort_by_key(|&key| (std::cmp::Reverse(sizes[key].1), key));
        keys.truncate(ROOTS_MAX);
        let mut slots = vec![0; sizes.len()];
        for (slot, &key) in keys.iter().enumerate() {
            slots[key] = slot + 1;
        }
        Self { problem, space: problem.space.for_roots(), slots, keys }
    }

    /// Searches around the best common point; `None` if there are not two roots to shift anything between.
    pub(crate) fn search(
        &self,
        common: &Point,
        schedule: Schedule,
        seed: u64,
        stop: &AtomicBool,
        done: &(dyn Fn() + Sync),
    ) -> Option<Found> {
        if self.keys.len() < 2 {
            return None;
        }
        let start = vec![self.problem.space.root_point(common); self.keys.len() + 1];
        let walk =
            |stream: u64| anneal(self, start.clone(), schedule, Random::new(seed, stream), stop, &|_| done());
        let archives: Vec<Archive<Vec<Point>>> = (0..STARTS).into_par_iter().map(walk).collect();
        let evaluations = archives.iter().map(|archive| archive.evaluations).sum();
        let bests = archives.into_iter().filter_map(|archive| archive.best);
        let best = bests.min_by(|a, b| a.value.total_cmp(&b.value))?;
        let parameters = |point: &Point| self.space.parameters(point);
        let common = parameters(&best.point[0]);
        let roots = self.keys.iter().zip(&best.point[1..]).map(|(&key, point)| (key, parameters(point)));
        let roots = roots.filter(|(_, parameters)| *parameters != common).collect();
        Some(Found { common, roots, best, evaluations })
    }

    fn kept(&self, points: &[Point], scratch: &mut ProblemScratch) -> Kept {
        self.problem.kept_by(&self.space, points, |key| self.slots[key], scratch)
    }
}

impl Landscape for PerRoot<'_, '_> {
    type Point = Vec<Point>;
    type Scratch = ProblemScratch;

    fn scratch(&self) -> ProblemScratch {
        ProblemScratch::default()
    }

    fn allows(&self, points: &Vec<Point>, scratch: &mut ProblemScratch) -> bool {
        self.problem.limits.hold(&self.kept(points, scratch))
    }

    fn step(&self, from: &Vec<Point>, scale: f64, random: &mut Random) -> Vec<Point> {
        let mut points = from.clone();
        for _ in 0..1 + random.below(ROOTS_MOVED) {
            let moved = random.below(points.len() as u32) as usize;
            points[moved] = self.space.step(&points[moved], scale, random);
        }
        points
    }

    fn evaluate(&self, points: &Vec<Point>, scratch: &mut ProblemScratch) -> Evaluated<Vec<Point>> {
        let expected = self.problem.expected_by(&self.space, points, |key| self.slots[key], scratch);
        Evaluated { point: points.clone(), expected, value: self.problem.value(&expected) }
    }
}
