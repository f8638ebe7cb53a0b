//! Tests of presence: in how many instances of each group an event happens.
//!
//! The difference D of the shares is that of other features: within types, by the bad group's mix.
//! Its error takes each share as (x + 1) / (n + 2), as A. Agresti and B. Caffo propose ("Simple and
//! Effective Confidence Intervals for Proportions", The American Statistician, 2000). So 0 of n and
//! n of n have one, too, and rows compare by |t| with those of values. The p-value is that of the
//! Mantel-Haenszel test. It is exact for few events: given how often the event happens in each
//! type, the number in the bad group is a sum of hypergeometric numbers (N. Mantel and W. Haenszel,
//! 1959; R. Fisher, 1935, for one type). With unequal weights, numbers are effective ones, the
//! variance is at least that of the weighted shares, and the distribution is Student's: one trace
//! of weight 80 with a rare event is one trace.

use super::moments::Moments;
use super::student;
use super::welch::{Outcome, Test};

/// The least instances of each group, over all types.
pub(super) const INSTANCES_MIN: u64 = 4;
/// The exact test is made if the events of the bad group have at most this many possible numbers.
const EXACT_MAX: usize = 200;
/// The degrees of freedom above which Student's distribution is the normal one.
const NORMAL_DF: f64 = 1e9;

/// The instances of both groups in all types.
#[derive(Debug)]
pub(super) struct Instances {
    of_types: Vec<[Moments; 2]>,
    n: [u64; 2],
    /// Σ of the bad group's weights, in types that have both groups.
    weight: f64,
}

impl Instances {
    pub(super) fn new(of_types: impl Iterator<Item = [Moments; 2]>) -> Self {
        let is_whole = |of: &[Moments; 2]| of.iter().all(|moments| moments.n() > 0);
        let of_types: Vec<_> = of_types.filter(is_whole).collect();
        let n = [0, 1].map(|group: usize| of_types.iter().map(|of| of[group].n()).sum());
        let weight = of_types.iter().map(|[_, bad]| bad.weight()).sum();
        Self { of_types, n, weight }
    }
}

/// An event in the types in which it happens.
#[derive(Clone, Debug, Default)]
pub(super) struct Presence {
    of_types: Vec<[Moments; 2]>,
}

impl Presence {
    /// Adds a type: presences, 0 or 1, of all its instances.
    pub(super) fn add(&mut self, good: &Moments, bad: &Moments) {
        if good.n() > 0 && bad.n() > 0 {
            self.of_types.push([*good, *bad]);
        }
    }

    /// Compares the groups. In the other types of `all` the event never happens.
    pub(super) fn outcome(&self, all: &Instances) -> Outcome {
        if all.n.iter().any(|&n| n < INSTANCES_MIN) || self.of_types.is_empty() {
            return Outcome::TooFew;
        }
        let (mut means, mut variance) = ([0.0; 2], 0.0);
        for of in &self.of_types {
            let share = of[1].weight() / all.weight;
            for (mean, moments) in means.iter_mut().zip(of) {
                *mean += share * moments.mean();
                let n = moments.effective();
                let smoothed = (n * moments.mean() + 1.0) / (n + 2.0);
                variance += share * share * smoothed * (1.0 - smoothed) / (n + 2.0);
            }
        }
        if means[0] == means[1] {
            return Outcome::Constant { differs: false };
        }
        let t = (means[0] - means[1]) / variance.sqrt();
        let df = all.of_types.iter().flatten().map(Moments::effective).sum::<f64>() - 2.0;
        Outcome::Tested(Test { n: all.n, means, t, df, p: self.p() })
    }

    /// The two-sided p-value of the Mantel-Haenszel test.
    fn p(&self) -> f64 {
        let tables: Vec<Table> = self.of_types.iter().map(Table::new).collect();
        let is_whole = tables.iter().all(Table::is_whole);
        let possible: f64 = tables.iter().map(|table| table.most() - table.least()).sum();
        if is_whole && possible <= EXACT_MAX as f64 {
            return exact(&tables);
        }
        let off: f64 = tables.iter().map(|table| table.bad - table.expected()).sum();
        let variance = |table: &Table| match is_whole {
            true => table.variance(),
            false => table.variance().max(table.of_shares),
        };
        let variance: f64 = tables.iter().map(variance).sum();
        // Effective sizes of few unequal weights are themselves uncertain.
        let smaller: f64 = tables.iter().map(|table| table.of_bad.min(table.all - table.of_bad) - 1.0).sum();
        let df = if is_whole { NORMAL_DF } else { smaller };
        if variance > 0.0 && df > 0.0 { student::two_sided(off / variance.sqrt(), df) } else { 1.0 }
    }
}

/// The four counts of a type, by their margins.
struct Table {
    /// Instances of the bad group with the event.
    bad: f64,
    of_bad: f64,
    with: f64,
    all: f64,
    /// The variance of `bad` by those of the shares in both groups.
    of_shares: f64,
}

impl Table {
    fn new([good, bad]: &[Moments; 2]) -> Self {
        let with = |moments: &Moments| moments.effective() * moments.mean();
        let all = good.effective() + bad.effective();
        // The number less the expected one is the difference of the shares times this.
        let factor = good.effective() * bad.effective() / all;
        Self {
            bad: with(bad),
            of_bad: bad.effective(),
            with: with(good) + with(bad),
            all,
            of_shares: factor * factor * (good.variance_of_mean() + bad.variance_of_mean()),
        }
    }

    fn is_whole(&self) -> bool {
        [self.bad, self.of_bad, self.with, self.all].iter().all(|value| (value - value.round()).abs() < 1e-6)
    }

    fn least(&self) -> f64 {
        (self.of_bad + self.with - self.all).max(0.0)
    }

    fn most(&self) -> f64 {
        self.of_bad.min(self.with)
    }

    fn expected(&self) -> f64 {
        self.of_bad * self.with / self.all
    }

    fn variance(&self) -> f64 {
        if self.all <= 1.0 {
            return 0.0;
        }
        let of_good = self.all - self.of_bad;
        self.expected() * of_good * (self.all - self.with) / (self.all * (self.all - 1.0))
    }

    /// The probability of each possible number in the bad group, from the least.
    fn probabilities(&self) -> Vec<f64> {
        let (least, most) = (self.least().round(), self.most().round());
        let mut logs = vec![0.0];
        let mut x = least;
        while x < most {
            let up = (self.with - x) * (self.of_bad - x);
            let down = (x + 1.0) * (self.all - self.with - self.of_bad + x + 1.0);
            logs.push(logs[logs.len() - 1] + (up / down).ln());
            x += 1.0;
        }
        let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let all: f64 = logs.iter().map(|log| (log - top).exp()).sum();
        logs.iter().map(|log| (log - top).exp() / all).collect()
    }
}

/// The probability of a number in the bad group at least as far from the expected one.
fn exact(tables: &[Table]) -> f64 {
    let mut probabilities = vec![1.0];
    for table in tables {
        let own = table.probabilities();
        let mut next = vec![0.0; probabilities.len() + own.len() - 1];
        for (at, one) in probabilities.iter().enumerate() {
            own.iter().enumerate().for_each(|(more, other)| next[at + more] += one * other);
        }
        probabilities = next;
    }
    let sum = |of: fn(&Table) -> f64| tables.iter().map(of).sum::<f64>();
    let (least, expected, seen) = (sum(Table::least), sum(Table::expected), sum(|table| table.bad));
    let far = (seen - expected).abs() - 1e-9;
    let is_far = |&(at, _): &(usize, &f64)| (least + at as f64 - expected).abs() >= far;
    probabilities.iter().enumerate().filter(is_far).map(|(_, one)| one).sum::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Presences of a type: (instances, with the event) of the good and the bad group.
    fn of_type(counts: [(u32, u32); 2]) -> [Moments; 2] {
        counts.map(|(all, with)| {
            let mut moments = Moments::default();
            (0..all).for_each(|at| moments.add(f64::from(u32::from(at < with)), 1.0));
            moments
        })
    }

    fn test(types: &[[(u32, u32); 2]]) -> Outcome {
        let of_types: Vec<_> = types.iter().map(|&counts| of_type(counts)).collect();
        let mut presence = Presence::default();
        of_types.iter().for_each(|[good, bad]| presence.add(good, bad));
        presence.outcome(&Instances::new(of_types.into_iter()))
    }

    /// By hand: with four of each, 2 of the 70 ways to deal four events separate the groups.
    #[test]
    fn four_of_each_class_are_tested_exactly() {
        let found = test(&[[(4, 0), (4, 4)]]).test().expect("tested");
        assert!((found.p - 2.0 / 70.0).abs() < 1e-12, "{}", found.p);
        assert_eq!(found.means, [0.0, 1.0]);
        assert_eq!(test(&[[(4, 0), (3, 3)]]), Outcome::TooFew);
        assert_eq!(test(&[[(4, 2), (4, 2)]]), Outcome::Constant { differs: false });
    }

    /// Fisher's tea: 3 of 4 and 1 of 4, p = 34/70 two-sided.
    #[test]
    fn the_lady_tasting_tea() {
        let found = test(&[[(4, 1), (4, 3)]]).test().expect("tested");
        assert!((found.p - 34.0 / 70.0).abs() < 1e-12, "{}", found.p);
    }

    /// Two types of two and two: each separates its classes in 1 of 6 ways, and so both do in 1 of
    /// 36, on either side.
    #[test]
    fn types_are_combined_by_their_margins() {
        let found = test(&[[(2, 0), (2, 2)], [(2, 0), (2, 2)]]).test().expect("tested");
        assert!((found.p - 2.0 / 36.0).abs() < 1e-12, "{}", found.p);
    }

    /// Above the bound for exact tests the normal approximation agrees with scipy's
    /// `fisher_exact([[300, 700], [400, 600]])`, 3.0e-6, within a factor of 1.5.
    #[test]
    fn many_events_are_tested_by_the_normal_distribution() {
        let found = test(&[[(1000, 300), (1000, 400)]]).test().expect("tested");
        assert!((2.0e-6..4.5e-6).contains(&found.p), "{}", found.p);
    }

    /// One trace of weight 80 among 40 of weight 1 to 80, and none of 1,000: the effective number
    /// 15.6 would have 2.1 of them, where less than 0.04 are expected. But it is a single trace.
    #[test]
    fn a_trace_of_large_weight_is_one_trace() {
        let (mut good, mut bad) = (Moments::default(), Moments::default());
        (0..40u8).for_each(|at| good.add(f64::from(u8::from(at == 0)), if at < 10 { 80.0 } else { 4.0 }));
        (0..1000).for_each(|_| bad.add(0.0, 1.0));
        let mut presence = Presence::default();
        presence.add(&good, &bad);
        let found = presence.outcome(&Instances::new([[good, bad]].into_iter())).test().expect("tested");
        assert!(found.p > 0.1, "{}", found.p);
    }
}
