//! Differences between the critical time of two recordings.
//!
//! A function's mean time over all traces can differ for two reasons: traces of the same root spend
//! a different time in it, or the shares of the roots have changed. The first is the effect of a
//! fault or of a change to the program, so it has a column of its own. It is the sum of q (a - b)
//! over the roots that both recordings have, where q is a root's share in this recording, and a and
//! b are the function's mean times for that root in this and in the other recording. The rest of
//! the difference is due to the mix of roots.
//!
//! Its error is that of two independent samples. Of few traces with large weights, all may spend no
//! time in a function, and their own variance is then 0. So in a root whose traces have weights,
//! the variance of each recording's mean is at least the one that the other recording's times have
//! in a sample of this effective number (a score test; C. R. Rao, 1948).

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::by_root::{ByRoot, OfRoot, RootTime};
use crate::profile::{Profile, Row};

/// The differences between a recording and another one.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// The mean length of a trace's path in the other recording, ms.
    pub before_ms: f64,
    /// The same in this recording, ms.
    pub after_ms: f64,
    /// The part of the difference that is due to traces of the same roots, ms.
    pub same_roots_ms: f64,
    /// The part that is due to the mix of roots, ms.
    pub mix_ms: f64,
    /// The weighted share, 0 to 1, of this recording's traces whose roots the other recording does
    /// not have. Their time counts as mix.
    pub new_roots: f64,
    /// One entry for each function, service or call path.
    pub differences: Vec<Difference>,
}

/// One function, service or call path in two recordings. Times are means over all traces of a
/// recording, weighted.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// Its name; for a call path, the names from the root down.
    pub name: Vec<String>,
    /// Its critical time per trace in the other recording, ms.
    pub before_ms: f64,
    /// The same in this recording, ms.
    pub after_ms: f64,
    /// `after_ms` less `before_ms`.
    pub difference_ms: f64,
    /// The part of the difference that is due to traces of the same roots, at this recording's mix
    /// of roots, ms.
    pub same_roots_ms: f64,
    /// The standard error of `same_roots_ms`, ms: how much of it may be chance.
    pub error_ms: f64,
    /// The part of the difference that is due to the mix of roots, ms.
    pub mix_ms: f64,
    /// Its share of all critical time in the other recording, 0 to 1.
    pub share_before: f64,
    /// The same in this recording.
    pub share_after: f64,
}

/// The number of standard errors on either side of a 95 % interval of a normal distribution.
const ERRORS: f64 = 1.96;

/// Turns a difference within the rounding error of numbers of this size into 0.
fn rounded(difference: f64, size: f64) -> f64 {
    if difference.abs() <= 1e-12 * size.abs() { 0.0 } else { difference }
}

impl Difference {
    /// The end of the 95 % interval of the same-roots change that is closer to 0, as an absolute
    /// value in ms; 0 if the interval contains 0.
    fn certain_ms(&self) -> f64 {
        (self.same_roots_ms.abs() - ERRORS * self.error_ms).max(0.0)
    }
}

/// The differences of two profiles with times by root
/// ([`crate::Profiler::with_roots`]). Without those, the mix is taken to be the
/// same. Sorted by the change of the same roots, largest first: by its least absolute value within
/// the 95 % interval, then by its absolute value.
pub fn compare(before: &Profile, after: &Profile) -> Comparison {
    let mut rows: BTreeMap<&[String], (Option<&Row>, Option<&Row>)> = BTreeMap::new();
    before.rows.iter().for_each(|row| rows.entry(&row.name).or_default().0 = Some(row));
    after.rows.iter().for_each(|row| rows.entry(&row.name).or_default().1 = Some(row));
    let mean = |row: Option<&Row>, profile: &Profile| {
        row.filter(|_| profile.weight > 0.0).map_or(0.0, |row| row.total_ms / profile.weight)
    };
    let same_roots = before.by_root.as_ref().zip(after.by_root.as_ref()).map(|(b, a)| same_roots(b, a));
    let mut differences: Vec<Difference> = rows
        .into_iter()
        .map(|(name, (row_before, row_after))| {
            let (before_ms, after_ms) = (mean(row_before, before), mean(row_after, after));
            let difference_ms = after_ms - before_ms;
            let (same_roots_ms, variance) = match &same_roots {
                Some(changes) => changes.get(name).copied().unwrap_or_default(),
                None => (difference_ms, 0.0),
            };
            Difference {
                name: name.to_vec(),
                before_ms,
                after_ms,
                difference_ms,
                same_roots_ms,
                error_ms: variance.sqrt(),
                mix_ms: rounded(difference_ms - same_roots_ms, before_ms + after_ms),
                share_before: row_before.map_or(0.0, |row| row.share),
                share_after: row_after.map_or(0.0, |row| row.share),
            }
        })
        .collect();
    // A stable sort: equal differences stay in the order of their names.
    differences.sort_by(|a, b| {
        let certain = b.certain_ms().total_cmp(&a.certain_ms());
        certain.then_with(|| b.same_roots_ms.abs().total_cmp(&a.same_roots_ms.abs()))
    });
    let (before_ms, after_ms) = (before.length.mean_ms, after.length.mean_ms);
    let same_roots_ms: f64 = differences.iter().map(|row| row.same_roots_ms).sum();
    Comparison {
        before_ms,
        after_ms,
        same_roots_ms,
        mix_ms: rounded(after_ms - before_ms - same_roots_ms, before_ms + after_ms),
        new_roots: before.by_root.as_ref().zip(after.by_root.as_ref()).map_or(0.0, |(b, a)| new_roots(b, a)),
        differences,
    }
}

/// For each row, the change in roots that both recordings have, at the mix of `after`, in ms, and
/// its variance, in ms^2.
fn same_roots<'p>(before: &'p ByRoot, after: &'p ByRoot) -> HashMap<&'p [String], (f64, f64)> {
    let all = total(after);
    let mut changes: HashMap<&[String], (f64, f64)> = HashMap::new();
    for (root, now) in &after.roots {
        let Some(then) = before.roots.get(root) else { continue };
        let share = if all > 0.0 { now.weight / all } else { 0.0 };
        let mut add = |of: &'p OfRoot, other: &'p OfRoot, sign: f64| {
            let is_weighted = of.is_weighted || other.is_weighted;
            for (name, time) in &of.rows {
                let least = other.rows.get(name).filter(|_| is_weighted);
                let least = least.map_or(0.0, |expected| expected.variance_in(of));
                let (change, variance) = changes.entry(name).or_default();
                *change += sign * share * time.mean_ms;
                *variance += share * share * time.variance.max(least);
            }
            // Functions in which no trace of the other recording spends time.
            for (name, time) in
                of.rows.iter().filter(|(name, _)| is_weighted && !other.rows.contains_key(*name))
            {
                changes.entry(name).or_default().1 += share * share * time.variance_in(other);
            }
        };
        add(now, then, 1.0);
        add(then, now, -1.0);
    }
    changes
}

impl RootTime {
    /// The variance of the mean of such times in a sample as large as that of `root`, ms^2.
    fn variance_in(&self, root: &OfRoot) -> f64 {
        self.spread / root.draws_beside_one.max(1.0)
    }
}

fn total(by_root: &ByRoot) -> f64 {
    by_root.roots.values().map(|of| of.weight).sum()
}

fn new_roots(before: &ByRoot, after: &ByRoot) -> f64 {
    let new = after.roots.iter().filter(|(root, _)| !before.roots.contains_key(*root));
    // Folded from 0.0, because the sum of no floats is -0.
    let (new, all) = (new.fold(0.0, |sum, (_, of)| sum + of.weight), total(after));
    if all > 0.0 { new / all } else { 0.0 }
}
