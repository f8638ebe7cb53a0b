//! A tuning problem (a sampler's parameters, limits and an objective), and an archive of what a
//! search has seen.

use serde::Serialize;

use crate::expect::Expected;
use crate::family::Family;
use crate::limits::{KeptSizes, Limits, Scale};
use crate::objective::{Target, count_factor};
use crate::random::Random;
use crate::space::{self, Parameters, Point};
use crate::stop::Stop;

/// Random points tried before some are moved into the limits.
const DRAWS: u32 = 50;
/// Bisection steps between a point that keeps too much and one that keeps too little.
const HALVINGS: u32 = 40;
/// Longer fronts are thinned out.
const FRONT_MAX: usize = 256;

/// Which parameters are searched, within which limits, and for which objective.
#[derive(Debug)]
pub(crate) struct Problem<'t, F> {
    pub(crate) family: &'t F,
    pub(crate) limits: Limits,
    pub(crate) scale: Scale,
    pub(crate) target: &'t Target,
    /// Whether one key has nearly all bytes. A loop's calls are alike, so its objective hardly
    /// depends on how many of them are kept, while the counts of rare functions below it depend on
    /// a few traces. So the error of counts is part of the minimised value in this case.
    pub(crate) is_loop: bool,
    /// Checked during each score.
    pub(crate) stop: Stop<'t>,
}

/// A point and its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Evaluated<P = Point> {
    pub(crate) point: P,
    /// The mean over the draws.
    pub(crate) expected: Expected,
    /// The value of the objective.
    pub(crate) objective: f64,
    /// The value that a search minimises: the objective, which for a loop is increased by the error
    /// of counts.
    pub(crate) value: f64,
}

/// A point of a Pareto front.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FrontPoint {
    /// The parameters.
    pub parameters: Parameters,
    /// Share of the bytes kept.
    pub size: f64,
    /// dist/entropy.
    pub dist_over_entropy: f64,
    /// Call trees found.
    pub call_trees: f64,
    /// The objective's value.
    pub objective: f64,
}

impl<F: Family> Problem<'_, F> {
    /// The size of what a point keeps, without its score. `None` if asked to stop.
    pub(crate) fn kept(&self, point: &Point) -> Option<KeptSizes> {
        self.family.kept(point, self.stop).map(|shares| self.scale.kept(shares))
    }

    /// A random point within the limits; `None` if none was found, or if asked to stop.
    pub(crate) fn feasible(&self, random: &mut Random) -> Option<Point> {
        let mut last_draws = Vec::new();
        for _ in 0..DRAWS {
            // Sizes are so cheap that hundreds are calculated before the first score. Each
            // calculation starts a new pulse and ends before the pulse's first check.
            if self.stop.is_asked() {
                return None;
            }
            let point = space::anywhere(self.family.dimensions(), random);
            let kept = self.kept(&point)?;
            if self.limits.hold(&kept) {
                return Some(point);
            }
            last_draws.push((point, self.limits.excess(&kept) > 0.0));
        }
        // Moves the points towards the least that their window can keep, or towards the most.
        for (point, too_much) in last_draws {
            if self.stop.is_asked() {
                return None;
            }
            let (least, most) = self.family.extremes(&point);
            let target = if too_much { least } else { most };
            // If the end of the line violates the limits on the same side, so does all of it.
            let at_end = self.kept(&target)?;
            if (if too_much { self.limits.excess(&at_end) } else { self.limits.shortfall(&at_end) }) > 0.0 {
                continue;
            }
            let (mut near, mut far) = (0.0, 1.0);
            for _ in 0..HALVINGS {
                let middle = 0.5 * (near + far);
                let mut candidate = point;
                for (coordinate, target) in candidate.iter_mut().zip(target) {
                    *coordinate += middle * (target - *coordinate);
                }
                let kept = self.kept(&candidate)?;
                if self.limits.hold(&kept) {
                    return Some(candidate);
                }
                if (self.limits.excess(&kept) > 0.0) == too_much { near = middle } else { far = middle }
            }
        }
        None
    }

    /// The corner that violates the limits least, and why nothing satisfies them. `None` if asked
    /// to stop.
    pub(crate) fn infeasible(&self, scratch: &mut F::Scratch) -> Option<(Evaluated, String)> {
        let mut nearest: Option<(f64, Point, KeptSizes)> = None;
        let mut some_keep_little_enough = false;
        for point in self.family.corners() {
            let kept = self.kept(&point)?;
            let violation = self.limits.excess(&kept).max(self.limits.shortfall(&kept));
            some_keep_little_enough |= self.limits.excess(&kept) == 0.0;
            if nearest.is_none_or(|(least, ..)| violation < least) {
                nearest = Some((violation, point, kept));
            }
        }
        let (_, point, kept) = nearest.unwrap_or_default();
        let reason = if some_keep_little_enough {
            let (bytes, traces) = self.scale.largest(&self.limits);
            let (left, size_max) = (bytes.min(traces), self.limits.size_max);
            let by_second = match left < size_max {
                true => format!(" (the limit per second allows {:.3} %)", left * 1e2),
                false => String::new(),
            };
            format!(
                "nothing found keeps between {:.3} % and {:.3} % of the bytes{by_second}; the nearest keeps {:.3} %",
                self.limits.size_min * 1e2,
                size_max * 1e2,
                kept.size * 1e2
            )
        } else {
            let (kept_always, remedy) = self.family.least();
            format!("{kept_always}: that alone is {}. {remedy}", self.limits.exceeded(&kept))
        };
        Some((self.evaluate(&point, scratch)?, reason))
    }

    pub(crate) fn front_point(&self, evaluated: &Evaluated) -> FrontPoint {
        FrontPoint {
            parameters: self.family.parameters(&evaluated.point),
            size: evaluated.expected.tfcr,
            dist_over_entropy: evaluated.expected.dist_over_entropy,
            call_trees: evaluated.expected.call_trees,
            objective: evaluated.objective,
        }
    }

    fn factor(&self, expected: &Expected) -> f64 {
        if self.is_loop { count_factor(expected.count_error.unwrap_or(0.0)) } else { 1.0 }
    }
}

/// A search space: points with neighbours, some of them outside the limits, each with a score.
pub(crate) trait Landscape: Sync {
    /// A point of the space.
    type Point: Clone;
    /// Working memory of one thread.
    type Scratch: Default;

    /// Whether a point is within the limits; false if asked to stop.
    fn allows(&self, point: &Self::Point) -> bool;

    /// A random neighbour. `scale` is the typical length of a step, as a share of an axis.
    fn step(&self, from: &Self::Point, scale: f64, random: &mut Random) -> Self::Point;

    /// The score of a point. `None` if asked to stop.
    fn evaluate(&self, point: &Self::Point, scratch: &mut Self::Scratch) -> Option<Evaluated<Self::Point>>;
}

/// The search for common parameters of all keys.
impl<F: Family> Landscape for Problem<'_, F> {
    type Point = Point;
    type Scratch = F::Scratch;

    fn allows(&self, point: &Point) -> bool {
        self.kept(point).is_some_and(|kept| self.limits.hold(&kept))
    }

    fn step(&self, from: &Point, scale: f64, random: &mut Random) -> Point {
        space::step(self.family.dimensions(), from, scale, random)
    }

    fn evaluate(&self, point: &Point, scratch: &mut F::Scratch) -> Option<Evaluated> {
        let scores = self.family.expected(point, scratch, self.stop)?;
        let expected = Expected::mean(&scores);
        let objective = self.target.value(&scores);
        Some(Evaluated { point: *point, expected, objective, value: objective * self.factor(&expected) })
    }
}

/// The points that a search has scored.
#[derive(Clone, Debug)]
pub(crate) struct Archive<P = Point> {
    pub(crate) best: Option<Evaluated<P>>,
    /// The number of points scored.
    pub(crate) evaluations: u64,
    /// The evaluations that improved the best value, each with that value.
    pub(crate) convergence: Vec<(u64, f64)>,
    /// Points for which no smaller one has a better objective.
    pub(crate) by_objective: Front<P>,
    /// Points for which no smaller one finds more call trees.
    pub(crate) by_call_trees: Front<P>,
    /// Points for which none of a smaller value has a smaller error of counts, ascending by value.
    by_counts: Vec<Evaluated<P>>,
}

impl<P> Default for Archive<P> {
    fn default() -> Self {
        Self {
            best: None,
            evaluations: 0,
            convergence: Vec::new(),
            by_objective: Front::default(),
            by_call_trees: Front::default(),
            by_counts: Vec::new(),
        }
    }
}

impl<P: Clone> Archive<P> {
    pub(crate) fn add(&mut self, evaluated: Evaluated<P>) {
        self.evaluations += 1;
        if self.best.as_ref().is_none_or(|best| evaluated.value.total_cmp(&best.value).is_lt()) {
            self.best = Some(evaluated.clone());
            self.convergence.push((self.evaluations, evaluated.value));
        }
        self.by_objective.add(&evaluated, evaluated.objective);
        self.by_call_trees.add(&evaluated, -evaluated.expected.call_trees);
        self.add_by_counts(&evaluated);
    }

    fn add_by_counts(&mut self, evaluated: &Evaluated<P>) {
        let Some(error) = evaluated.expected.count_error else { return };
        let is_better = |other: &Evaluated<P>| other.expected.count_error.is_some_and(|other| other <= error);
        let place = self.by_counts.partition_point(|other| other.value <= evaluated.value);
        if evaluated.value.is_nan()
            || place.checked_sub(1).is_some_and(|before| is_better(&self.by_counts[before]))
        {
            return;
        }
        let worse = self.by_counts[place..].iter().take_while(|other| !is_better(other)).count();
        self.by_counts.splice(place..place + worse, [evaluated.clone()]);
    }

    /// The point with the smallest error of counts among those with at most this value.
    pub(crate) fn of_best_counts(&self, value_max: f64) -> Option<&Evaluated<P>> {
        self.by_counts.iter().take_while(|point| point.value <= value_max).last()
    }

    /// Adds the fronts of another search.
    pub(crate) fn merge_fronts(&mut self, other: &Self) {
        for (evaluated, bad) in &other.by_objective.points {
            self.by_objective.add(evaluated, *bad);
        }
        for (evaluated, bad) in &other.by_call_trees.points {
            self.by_call_trees.add(evaluated, *bad);
        }
    }
}

/// Points of which none is both smaller and better than another, ascending by size.
#[derive(Clone, Debug)]
pub(crate) struct Front<P = Point> {
    /// Each point with the number to minimise besides the size.
    points: Vec<(Evaluated<P>, f64)>,
}

impl<P> Default for Front<P> {
    fn default() -> Self {
        Self { points: Vec::new() }
    }
}

impl<P: Clone> Front<P> {
    pub(crate) fn points(&self) -> impl Iterator<Item = &Evaluated<P>> {
        self.points.iter().map(|(evaluated, _)| evaluated)
    }

    fn add(&mut self, evaluated: &Evaluated<P>, bad: f64) {
        let size = evaluated.expected.tfcr;
        let place = self.points.partition_point(|(other, _)| other.expected.tfcr < size);
        let not_larger = place.checked_sub(1).map(|before| self.points[before].1);
        let same_size =
            self.points.get(place).filter(|(other, _)| other.expected.tfcr == size).map(|point| point.1);
        if bad.is_nan() || not_larger.is_some_and(|other| other <= bad) || same_size.is_some_and(|o| o <= bad)
        {
            return;
        }
        let worse = self.points[place..].iter().take_while(|(_, other)| *other >= bad).count();
        self.points.splice(place..place + worse, [(evaluated.clone(), bad)]);
        if self.points.len() > FRONT_MAX {
            self.thin();
        }
    }

    /// Drops the point whose neighbours are closest to each other in size.
    fn thin(&mut self) {
        let log_size = |point: &(Evaluated<P>, f64)| point.0.expected.tfcr.max(f64::MIN_POSITIVE).ln();
        let gap = |place: usize| log_size(&self.points[place + 1]) - log_size(&self.points[place - 1]);
        let inner = 1..self.points.len() - 1;
        if let Some(place) = inner.min_by(|&a, &b| gap(a).total_cmp(&gap(b))) {
            self.points.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(size: f64, value: f64) -> Evaluated {
        let expected = Expected { tfcr: size, ..Expected::default() };
        Evaluated { point: [0.0; 4], expected, objective: value, value }
    }

    #[test]
    fn a_front_holds_what_nothing_beats() {
        let mut front = Front::default();
        for (size, value) in
            [(5.0, 5.0), (3.0, 7.0), (4.0, 8.0), (2.0, 9.0), (3.0, 6.0), (6.0, 5.0), (3.5, 4.0)]
        {
            front.add(&point(size, value), value);
        }
        let points: Vec<_> = front.points().map(|p| (p.expected.tfcr, p.value)).collect();
        assert_eq!(points, [(2.0, 9.0), (3.0, 6.0), (3.5, 4.0)]);
    }

    #[test]
    fn the_most_exact_counts_of_a_value_are_found() {
        let mut archive = Archive::default();
        for (value, error) in [(5.0, 0.5), (4.0, 0.9), (6.0, 0.6), (5.5, 0.2), (4.0, 0.7), (7.0, 0.1)] {
            let mut evaluated = point(0.1, value);
            evaluated.expected.count_error = Some(error);
            archive.add(evaluated);
        }
        let found =
            |most: f64| archive.of_best_counts(most).map(|found| (found.value, found.expected.count_error));
        assert_eq!(found(3.9), None);
        assert_eq!(found(4.2), Some((4.0, Some(0.7))));
        assert_eq!(found(5.4), Some((5.0, Some(0.5))));
        assert_eq!(found(6.5), Some((5.5, Some(0.2))));
        assert_eq!(found(9.0), Some((7.0, Some(0.1))));
        // A point without counts changes nothing.
        archive.add(point(0.1, 1.0));
        assert_eq!(archive.of_best_counts(3.9), None);
    }

    #[test]
    fn a_front_stays_short_and_keeps_its_ends() {
        let mut front = Front::default();
        for n in 0..1000 {
            let n = f64::from(n);
            front.add(&point(1.0 + n, 1000.0 - n), 1000.0 - n);
        }
        let sizes: Vec<_> = front.points().map(|p| p.expected.tfcr).collect();
        assert_eq!((sizes.len(), sizes[0], sizes[sizes.len() - 1]), (FRONT_MAX, 1.0, 1000.0));
    }
}
