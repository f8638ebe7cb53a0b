//! Runs: what differs more between good and bad runs than between good runs.
//!
//! Two recordings of one workload always differ: caches, neighbours and clocks do. So with several
//! good runs, each feature has a *null ratio*: the least |t| of the bad runs against a good one, by
//! the largest |t| between two good ones. A feature is *confirmed* if it is significant against
//! each good run, in the same direction, and its ratio is 3 or more.

use super::instances::{Class, Head};
use super::ranking::LEVEL;
use super::sample::{Column, Sample};
use super::typed::Sums;

/// The null ratio of a confirmed feature.
pub const RATIO_MIN: f64 = 3.0;

/// Tests of single runs.
#[derive(Debug)]
pub struct Runs {
    /// All bad runs against each good one.
    against: Vec<Sums>,
    /// Each pair of good runs.
    between: Vec<Sums>,
}

/// A feature in several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfRuns {
    /// The null ratio; infinite if no two good runs differ at all.
    pub null_ratio: f64,
    /// True if the feature is confirmed.
    pub is_confirmed: bool,
}

impl Runs {
    /// Tests the runs of a sample. `None` with fewer than two good runs.
    pub fn new(sample: &Sample, heads: &[Head], types: usize, weights: Option<&[f64]>) -> Option<Self> {
        let mut good: Vec<u32> =
            heads.iter().filter(|head| head.class == Class::Good).map(|head| head.run).collect();
        good.sort_unstable();
        good.dedup();
        if good.len() < 2 {
            return None;
        }
        let against = |&run: &u32| {
            let label = |head: &Head| (head.class == Class::Bad || head.run == run).then_some(head.class);
            Sums::labelled(sample, heads, types, weights, label)
        };
        let between = |one: u32, other: u32| {
            let label = |head: &Head| match head.class {
                Class::Good if head.run == one => Some(Class::Good),
                Class::Good if head.run == other => Some(Class::Bad),
                _ => None,
            };
            Sums::labelled(sample, heads, types, weights, label)
        };
        let pairs = good
            .iter()
            .enumerate()
            .flat_map(|(at, &one)| good[at + 1..].iter().map(move |&other| (one, other)));
        Some(Runs {
            against: good.iter().map(against).collect(),
            between: pairs.map(|(one, other)| between(one, other)).collect(),
        })
    }

    /// The result for a column, which is one of `tested` tests.
    pub fn of(&self, column: Column, tested: usize) -> OfRuns {
        let mut least = f64::INFINITY;
        let (mut positive, mut negative, mut is_significant) = (false, false, true);
        for sums in &self.against {
            let Some(test) = sums.test(column) else {
                return OfRuns { null_ratio: 0.0, is_confirmed: false };
            };
            least = least.min(test.t.abs());
            (positive, negative) = (positive || test.t > 0.0, negative || test.t < 0.0);
            is_significant &= test.p < LEVEL / tested as f64;
        }
        if positive && negative {
            least = 0.0;
        }
        let null = self.between.iter().filter_map(|sums| sums.test(column));
        let null = null.map(|test| test.t.abs()).fold(0.0, f64::max);
        let null_ratio = if least == 0.0 { 0.0 } else { least / null };
        OfRuns { null_ratio, is_confirmed: is_significant && null_ratio >= RATIO_MIN }
    }
}
