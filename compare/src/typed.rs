//! Tests of two groups of instances: within types of requests, or of all together as in the paper.
//!
//! Plain Welch tests on mixed requests raise false alarms when the mix changes, and lose power when
//! it does not. So each feature is compared within each type (stratum), and the differences are
//! added with the bad group's shares: D = Σ p (m0 - m1), Var D = Σ p² (Var m0 + Var m1), with the
//! degrees of freedom by Satterthwaite. With a single type these are Welch's formulas.
//!
//! If weights differ within a group, the variance of its mean is at least the one that the other
//! group's values imply (`unseen.rs`).
//!
//! Groups are classes, runs or windows of time, so one pass over the sample serves several
//! comparisons.

use std::collections::HashMap;

use rapidhash::fast::RandomState;

use super::moments::Moments;
use super::presence::{Instances, Presence};
use super::sample::{Column, Sample};
use super::student;
use super::unseen::Weights;
use super::welch::{Outcome, Test, Tested};

/// A type counts for a feature if each class has this many values of it.
pub const VALUES_MIN: u64 = 5;
/// A feature is tested with at least these degrees of freedom: below, a small class without spread
/// looks certain.
pub const DF_MIN: f64 = 5.0;
/// A feature is tested if the error of its difference is above this share of its spread.
pub const ERROR_MIN: f64 = 1e-4;
/// Means that differ by no more than this share are equal but for rounding.
const ROUNDING: f64 = 1e-12;

/// The conditions under which a feature is tested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// The values that each group needs of a type.
    pub values_min: u64,
    /// The least degrees of freedom.
    pub df_min: f64,
    /// The least error of the difference, as a share of the feature's spread.
    pub error_min: f64,
    /// True if values that differ between the groups but not within them are tested too: by the
    /// variance of all values together, since within the groups there is none.
    pub constants: bool,
}

impl Conditions {
    /// The conditions of the default test.
    pub const TYPED: Self =
        Conditions { values_min: VALUES_MIN, df_min: DF_MIN, error_min: ERROR_MIN, constants: true };
    /// The conditions of the paper: two values, and not both variances 0.
    pub const PAPER: Self = Conditions { values_min: 2, df_min: 0.0, error_min: 0.0, constants: false };
}

/// An instance that takes part in comparisons.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Its place in the sample.
    pub at: usize,
    /// Its type.
    pub stratum: u32,
    /// Its group.
    pub group: u32,
    /// Its weight.
    pub weight: f64,
}

/// The sums of all columns, by type and group.
#[derive(Debug)]
pub struct Sums<'s> {
    sample: &'s Sample,
    types: Vec<OfType>,
    /// The instances of each type, if weights differ within a group: what a group's own sample may
    /// have missed is then found in the other group.
    weighted: Option<Vec<Vec<Part>>>,
}

/// The sums of one type. Only its own columns are there: there may be many types.
#[derive(Debug)]
pub(super) struct OfType {
    pub(super) columns: Vec<Column>,
    /// `[group][place in columns]`.
    pub(super) sums: Vec<Vec<Moments>>,
    /// The instances of each group, as sums of zeros.
    instances: Vec<Moments>,
}

impl<'s> Sums<'s> {
    /// The sums of these instances, of which `groups` groups and `types` types exist.
    pub fn new(sample: &'s Sample, parts: &[Part], types: usize, groups: usize) -> Self {
        let mut of_types = vec![Vec::new(); types];
        for part in parts {
            of_types[part.stratum as usize].push(*part);
        }
        of_types.retain(|parts| !parts.is_empty());
        let mut numbers = vec![u32::MAX; sample.columns()];
        let types = of_types.iter().map(|parts| OfType::new(sample, parts, groups, &mut numbers)).collect();
        let weighted = has_unequal_weights(parts, groups).then_some(of_types);
        Sums { sample, types, weighted }
    }

    /// Compares two groups: the outcome for each column.
    pub fn between(&self, good: usize, bad: usize, conditions: &Conditions) -> Vec<Outcome> {
        let mut columns = vec![Sum::default(); self.sample.columns()];
        let mut zeros = Sum::default();
        let mut presences: HashMap<Column, Presence, RandomState> = HashMap::default();
        let mut numbers = vec![u32::MAX; self.weighted.as_ref().map_or(0, |_| self.sample.columns())];
        for (at, of_type) in self.types.iter().enumerate() {
            let least = match &self.weighted {
                Some(parts) => of_type.least_variances(self.sample, &parts[at], [good, bad], &mut numbers),
                None => vec![[0.0; 2]; of_type.columns.len()],
            };
            for (place, &column) in of_type.columns.iter().enumerate() {
                let [good, bad] = [good, bad].map(|group| &of_type.sums[group][place]);
                if self.sample.is_presence(column) {
                    presences.entry(column).or_default().add(good, bad);
                } else {
                    columns[column as usize].add(good, bad, least[place], conditions);
                }
            }
            zeros.add(&of_type.instances[good], &of_type.instances[bad], [0.0; 2], conditions);
        }
        let all = self.types.iter().map(|of_type| [good, bad].map(|group| of_type.instances[group]));
        let instances = Instances::new(all);
        let outcome = |(column, mut sum): (Column, Sum)| {
            if self.sample.is_presence(column) {
                return presences.get(&column).map_or(Outcome::TooFew, |own| own.outcome(&instances));
            }
            if self.sample.is_count(column) {
                sum.add_zeros(&zeros);
            }
            sum.outcome(conditions)
        };
        (0..).zip(columns).map(outcome).collect()
    }

    /// Those columns of [`Self::between`] that can be tested.
    pub fn tested(&self, good: usize, bad: usize, conditions: &Conditions) -> Vec<Tested> {
        let outcomes = (0..).zip(self.between(good, bad, conditions));
        outcomes.filter_map(|(column, outcome)| Some(Tested { column, test: outcome.test()? })).collect()
    }
}

impl OfType {
    /// `numbers` is memory for the place of each column: `u32::MAX` before and after.
    pub(super) fn new(sample: &Sample, parts: &[Part], groups: usize, numbers: &mut [u32]) -> Self {
        let mut columns: Vec<Column> = Vec::new();
        let mut sums = vec![Vec::new(); groups];
        let mut instances = vec![Moments::default(); groups];
        for part in parts {
            instances[part.group as usize].add(0.0, part.weight);
            for (column, value) in sample.row(part.at) {
                let number = &mut numbers[column as usize];
                if *number == u32::MAX {
                    *number = columns.len() as u32;
                    columns.push(column);
                    sums.iter_mut().for_each(|own| own.push(Moments::default()));
                }
                sums[part.group as usize][*number as usize].add(value, part.weight);
            }
        }
        for (place, &column) in columns.iter().enumerate() {
            numbers[column as usize] = u32::MAX;
            if sample.is_count(column) {
                sums.iter_mut().zip(&instances).for_each(|(own, all)| own[place].add_zeros(all));
            }
        }
        OfType { columns, sums, instances }
    }

    /// The least variances of the means of both groups of `pair`, for each column
    /// ([`super::unseen`]). `parts` are the type's instances; `numbers` is memory for the place of
    /// each column: `u32::MAX` before and after.
    fn least_variances(
        &self,
        sample: &Sample,
        parts: &[Part],
        pair: [usize; 2],
        numbers: &mut [u32],
    ) -> Vec<[f64; 2]> {
        let weights = pair.map(|group| {
            let own = parts.iter().filter(|part| part.group as usize == group);
            Weights::new(own.map(|part| (sample.length(part.at), part.weight)))
        });
        for (place, &column) in self.columns.iter().enumerate() {
            numbers[column as usize] = place as u32;
        }
        let mut all = [0.0; 2];
        let mut sums = vec![[(0.0, 0.0); 2]; self.columns.len()];
        let mean = |group: usize, place: usize| self.sums[group][place].mean();
        for part in parts {
            let Some(own) = pair.iter().position(|&group| group == part.group as usize) else { continue };
            let other = 1 - own;
            let weight = part.weight * weights[other].of(sample.length(part.at));
            all[other] += weight;
            for (column, value) in sample.row(part.at) {
                let place = numbers[column as usize] as usize;
                let (square, present) = &mut sums[place][other];
                *square += weight * (value - mean(pair[own], place)).powi(2);
                *present += weight;
            }
        }
        let columns = self.columns.iter().zip(sums).enumerate();
        let least = columns.map(|(place, (&column, sums))| {
            numbers[column as usize] = u32::MAX;
            let both: f64 = pair.iter().map(|&group| self.sums[group][place].weight()).product();
            [0, 1].map(|group: usize| {
                let (mut square, present) = sums[group];
                if sample.is_count(column) {
                    square += (all[group] - present) * mean(pair[1 - group], place).powi(2);
                }
                if both > 0.0 && square.is_finite() { square / both } else { 0.0 }
            })
        });
        least.collect()
    }
}

/// True if weights differ within some group.
fn has_unequal_weights(parts: &[Part], groups: usize) -> bool {
    let mut first = vec![None; groups];
    parts.iter().any(|part| *first[part.group as usize].get_or_insert(part.weight) != part.weight)
}

/// Welch's t-test of two means with different variances. `None` if a class has fewer than two
/// values, or if neither class has any variance.
pub fn welch(good: &Moments, bad: &Moments) -> Option<Test> {
    let mut sum = Sum::default();
    sum.add(good, bad, [0.0; 2], &Conditions::PAPER);
    sum.outcome(&Conditions::PAPER).test()
}

/// The sums of a column over all types that count.
#[derive(Clone, Copy, Default)]
struct Sum {
    n: [u64; 2],
    /// Σ of the bad group's weights, by which the sums below are divided in the end.
    weight: f64,
    means: [f64; 2],
    variance: f64,
    /// Σ variance² / df.
    below: f64,
    /// The variance if all values of a type were of one group, and its degrees of freedom.
    together: f64,
    together_df: f64,
    all: Moments,
}

impl Sum {
    /// Adds a type. `least` are the least variances of both means.
    fn add(&mut self, good: &Moments, bad: &Moments, least: [f64; 2], conditions: &Conditions) {
        let both = [good, bad];
        if both.iter().any(|moments| moments.n() < conditions.values_min) {
            return;
        }
        let share = bad.weight();
        self.weight += share;
        for (class, moments) in both.into_iter().enumerate() {
            self.n[class] += moments.n();
            self.means[class] += share * moments.mean();
            let variance = share * share * moments.variance_of_mean().max(least[class]);
            self.variance += variance;
            if variance > 0.0 {
                let df = (moments.effective() - 1.0).max(f64::MIN_POSITIVE);
                self.below += variance * (variance / df);
            }
            self.all.merge(moments);
        }
        let mut together = *good;
        together.merge(bad);
        let numbers = both.map(Moments::effective);
        let is_equal = together.effective() == together.n() as f64;
        let variance = match is_equal {
            true => together.deviation().powi(2) * numbers.iter().map(|n| 1.0 / n).sum::<f64>(),
            // The same of effective numbers without variance within the groups.
            false => (good.mean() - bad.mean()).powi(2) / (numbers[0] + numbers[1] - 1.0),
        };
        self.together += share * share * variance;
        self.together_df += together.effective() - 1.0;
    }

    /// Adds the types in which the event never happened: counts of 0. `zeros` has all types.
    fn add_zeros(&mut self, zeros: &Sum) {
        let missing = [0, 1].map(|class| zeros.n[class].saturating_sub(self.n[class]));
        if missing != [0, 0] {
            self.n = zeros.n;
            self.weight = self.weight.max(zeros.weight);
            self.all.add_zeros(&zeros.all);
        }
    }

    fn outcome(&self, conditions: &Conditions) -> Outcome {
        let means = self.means.map(|mean| mean / self.weight);
        if means.iter().any(|mean| !mean.is_finite()) {
            return Outcome::TooFew;
        }
        let error = self.variance.sqrt() / self.weight;
        // Equal values may have means that differ by rounding, and so may their errors.
        let rounding = ROUNDING * means[0].abs().max(means[1].abs());
        let is_rounded = (means[0] - means[1]).abs() <= rounding;
        let is_constant = error <= conditions.error_min * self.all.deviation()
            || conditions.error_min > 0.0 && error <= rounding;
        let differs = means[0] != means[1];
        let (error, df) = match is_constant {
            true if !conditions.constants || is_rounded => return Outcome::Constant { differs },
            true => (self.together.sqrt() / self.weight, self.together_df),
            false => (error, self.variance * (self.variance / self.below)),
        };
        if !error.is_finite() || df.is_nan() || df < conditions.df_min {
            return Outcome::TooFew;
        }
        let t = (means[0] - means[1]) / error;
        Outcome::Tested(Test { n: self.n, means, t, df, p: student::two_sided(t, df) })
    }
}

#[cfg(test)]
mod tests {
    use astracer_recording::stop::Pulse;

    use super::super::file::InstancesFile;
    use super::super::sample::COUNT;
    use super::*;

    /// Welch's formulas by hand: 1, 2, 3 against 4, 6, 8, 10. Means 2 and 7, variances of the means
    /// 1/3 and 20/12; t = -5/√2; df = 4 / (1/9/2 + 25/9/3) = 108/26.5.
    #[test]
    fn a_test_worked_by_hand() {
        let of = |values: &[f64]| {
            let mut moments = Moments::default();
            values.iter().for_each(|&value| moments.add(value, 1.0));
            moments
        };
        let test = welch(&of(&[1.0, 2.0, 3.0]), &of(&[4.0, 6.0, 8.0, 10.0])).expect("a test");
        assert_eq!((test.n, test.means), ([3, 4], [2.0, 7.0]));
        assert!((test.t + 5.0 / 2.0f64.sqrt()).abs() < 1e-14, "{}", test.t);
        assert!((test.df - 4.0 / (1.0 / 18.0 + 25.0 / 27.0)).abs() < 1e-13, "{}", test.df);
        assert!(welch(&of(&[1.0]), &of(&[1.0, 2.0])).is_none(), "one value has no variance");
        assert!(welch(&of(&[1.0, 1.0]), &of(&[2.0, 2.0])).is_none(), "nothing varies");
        assert!(welch(&of(&[1.0, 1.0]), &of(&[2.0, 3.0])).is_some());
    }

    /// The number of a group's instances, and the weight of each.
    type Weighted = (u64, fn(u64) -> f64);

    /// The outcome of the count of an event, which `has` tells for (group, number) of instances of
    /// these weights.
    fn counts(of: [Weighted; 2], has: fn(usize, u64) -> bool) -> Outcome {
        let mut lines = String::new();
        let mut parts = Vec::new();
        for (group, (n, weight)) in of.into_iter().enumerate() {
            for number in 0..n {
                let times = if has(group, number) { "1" } else { "" };
                lines += &format!("{{\"cls\":{group},\"dur\":10,\"ev\":{{\"e\":[{times}]}}}}\n");
                parts.push(Part { at: parts.len(), stratum: 0, group: group as u32, weight: weight(number) });
            }
        }
        let mut file = InstancesFile::default();
        file.read(lines.as_bytes(), 0).expect("instances");
        let sample = Sample::new(&file, 10, true, &mut Pulse::never()).expect("a sample");
        Sums::new(&sample, &parts, 1, 2).between(0, 1, &Conditions::TYPED)[COUNT]
    }

    /// 30 traces of weight 80 and 10 of weight 1 without an error; 45 of 2,500 with one. The
    /// sample's own variance is 0. By the other class's it is .018 x .982 x 79.67 / 2,410 =
    /// 5.84e-4, where 79.67 is the mean weight by weight, and t = -.018 / sqrt(5.84e-4 + 7.07e-6) =
    /// -.740.
    #[test]
    fn few_traces_of_large_weight_are_not_certain() {
        let weights: [Weighted; 2] = [(40, |number| if number < 30 { 80.0 } else { 1.0 }), (2_500, |_| 1.0)];
        let test = counts(weights, |group, number| group == 1 && number < 45).test().expect("tested");
        assert!((test.t + 0.740).abs() < 1e-3, "{}", test.t);
        // 96 % of them against none: a difference.
        let test = counts(weights, |group, number| group == 1 && number < 2_400).test().expect("tested");
        assert!(test.p < 1e-9, "{}", test.p);
        // All of them against none: t² is the effective number 2,410² / 192,010 + 2,500, less one.
        let test = counts(weights, |group, _| group == 1).test().expect("tested");
        assert!((test.t * test.t - 2_529.25).abs() < 0.01, "{}", test.t);
        // Means of equal counts may differ by rounding.
        let thirds: [Weighted; 2] =
            [(40, |number| 1.0 / (number + 1) as f64), (300, |number| (number + 1) as f64 / 3.0)];
        assert_eq!(counts(thirds, |_, _| true).test(), None);
    }
}
