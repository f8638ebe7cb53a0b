//! Runs: what differs more between good and bad runs than between good runs.
//!
//! Two recordings of one workload always differ: caches, neighbours and clocks do. So with several
//! good runs, each feature has a *null ratio*: the least |t| of a bad run against a good one, by
//! the largest |t| between two good ones. A feature is *confirmed* if it is significant against
//! each good run, in the same direction, and its ratio is 3 or more.

use super::instances::{Class, Head};
use super::moments::weight_at;
use super::ranking::LEVEL;
use super::sample::{Column, Sample};
use super::typed::{Conditions, Part, Sums};
use super::welch::Outcome;

/// The null ratio of a confirmed feature.
pub const RATIO_MIN: f64 = 3.0;
/// The largest null ratio. Good runs that do not differ at all would have an infinite one.
pub const RATIO_MAX: f64 = 1_000.0;

/// Comparisons of single runs.
#[derive(Debug)]
pub struct Runs {
    /// Each bad run against each good one.
    against: Vec<Vec<Outcome>>,
    /// Each pair of good runs.
    between: Vec<Vec<Outcome>>,
}

/// A feature in several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfRuns {
    /// The null ratio, at most [`RATIO_MAX`]; `None` if too few values of some run are known.
    pub null_ratio: Option<f64>,
    /// True if the feature is confirmed.
    pub is_confirmed: bool,
}

impl Runs {
    /// Compares the runs of a sample. `None` with fewer than two good runs.
    pub fn new(sample: &Sample, heads: &[Head], types: usize, weights: Option<&[f64]>) -> Option<Self> {
        // In the order of instances, which does not depend on the order of files: the test of two
        // runs takes its mix of types from the second.
        let numbers = |class| {
            let mut numbers: Vec<u32> = Vec::new();
            for head in heads.iter().filter(|head| head.class == class) {
                if !numbers.contains(&head.run) {
                    numbers.push(head.run);
                }
            }
            numbers
        };
        let (good, bad) = (numbers(Class::Good), numbers(Class::Bad));
        if good.len() < 2 {
            return None;
        }
        let part = |(at, head): (usize, &Head)| {
            let (runs, before) = match head.class {
                Class::Good => (&good, 0),
                Class::Bad => (&bad, good.len()),
            };
            let group = (before + runs.iter().position(|&run| run == head.run).unwrap_or(0)) as u32;
            Part { at, stratum: head.stratum, group, weight: weight_at(weights, at) }
        };
        let parts: Vec<Part> = heads.iter().enumerate().map(part).collect();
        let sums = Sums::new(sample, &parts, types, good.len() + bad.len());
        let between = |(one, other)| sums.between(one, other, &Conditions::TYPED);
        // Good runs whose values are constant and differ have an infinite |t|.
        let conditions = Conditions { constants: false, ..Conditions::TYPED };
        let between_good = |(one, other)| sums.between(one, other, &conditions);
        let pairs = |others: std::ops::Range<usize>| {
            let of = move |one: usize| others.clone().map(move |other| (one, other));
            (0..good.len()).flat_map(of).filter(|(one, other)| one < other)
        };
        Some(Runs {
            against: pairs(good.len()..good.len() + bad.len()).map(between).collect(),
            between: pairs(0..good.len()).map(between_good).collect(),
        })
    }

    /// The result for a column, which is one of `tested` tests.
    pub fn of(&self, column: Column, tested: usize) -> OfRuns {
        let unknown = OfRuns { null_ratio: None, is_confirmed: false };
        let column = column as usize;
        let mut least = f64::INFINITY;
        let (mut positive, mut negative, mut is_significant) = (false, false, true);
        for outcomes in &self.against {
            let Some(test) = outcomes.get(column).and_then(|outcome| outcome.test()) else {
                return unknown;
            };
            least = least.min(test.t.abs());
            (positive, negative) = (positive || test.t > 0.0, negative || test.t < 0.0);
            is_significant &= test.p < LEVEL / tested as f64;
        }
        if positive && negative {
            least = 0.0;
        }
        let mut largest = 0.0f64;
        for outcomes in &self.between {
            let t = match outcomes.get(column) {
                Some(Outcome::Tested(test)) => test.t.abs(),
                Some(Outcome::Constant { differs: false }) => 0.0,
                Some(Outcome::Constant { differs: true }) => f64::INFINITY,
                Some(Outcome::TooFew) | None => return unknown,
            };
            largest = largest.max(t);
        }
        let null_ratio = if least > 0.0 { (least / largest).min(RATIO_MAX) } else { 0.0 };
        OfRuns { null_ratio: Some(null_ratio), is_confirmed: is_significant && null_ratio >= RATIO_MIN }
    }
}
