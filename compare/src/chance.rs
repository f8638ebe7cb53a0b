//! The share of chance draws with a difference as large: labels permuted within types.
//!
//! In each draw the labels good and bad are dealt again among the instances of each type, all
//! features are tested, and the largest |t| is noted. The *chance* of a feature is the share of
//! draws whose largest |t| reaches the feature's own (P. Westfall and S. Young, "Resampling-Based
//! Multiple Testing", 1993, the single-step maxT method), so it holds for all features together.
//! These t take the variance from both classes together: a small class without spread looks certain
//! else. The draw as observed is one of the draws, so that no chance is 0 (B. Phipson and G. Smyth,
//! 2010).

use astracer_recording::stop::Pulse;

use super::instances::Class;
use super::sample::{Column, Sample};
use super::typed::{self, DF_MIN, ERROR_MIN, Part, VALUES_MIN};

/// The number of draws.
pub const DRAWS: usize = 200;
/// Above this many instances labels are not permuted: Bonferroni's bound is little worse there.
pub const INSTANCES_MAX: usize = 20_000;

/// The largest |t| of each draw, and each column's own |t|.
#[derive(Clone, Debug)]
pub struct Chance {
    largest: Vec<f64>,
    own: Vec<f64>,
}

impl Chance {
    /// Permutes the groups of these instances, 0 (good) and 1 (bad), [`DRAWS`] times. `None` if
    /// `pulse` stopped the work.
    pub fn new(
        sample: &Sample,
        parts: &[Part],
        types: usize,
        seed: u64,
        pulse: &mut Pulse<'_>,
    ) -> Option<Self> {
        let mut of_types = vec![Vec::new(); types];
        parts.iter().enumerate().for_each(|(at, part)| of_types[part.stratum as usize].push(at));
        let mut numbers = vec![u32::MAX; sample.columns()];
        let types = of_types.into_iter().filter(|instances| !instances.is_empty());
        let mut types: Vec<OfType> =
            types.map(|instances| OfType::new(sample, parts, instances, &mut numbers)).collect();
        let class = |part: &Part| if part.group == 0 { Class::Good } else { Class::Bad };
        let mut labels: Vec<Class> = parts.iter().map(class).collect();
        let mut all = vec![Sum::default(); sample.columns()];
        let mut test = |types: &mut [OfType], labels: &[Class]| -> Vec<f64> {
            all.fill(Sum::default());
            types.iter_mut().for_each(|of_one| of_one.add(labels, &mut all));
            all.iter().map(|sum| sum.t().unwrap_or(f64::NAN)).collect()
        };
        let own = test(&mut types, &labels);
        let mut random = Random(seed);
        let mut largest = Vec::with_capacity(DRAWS);
        for _ in 0..DRAWS {
            for OfType { instances, .. } in &types {
                // Fisher and Yates.
                for last in (1..instances.len()).rev() {
                    labels.swap(instances[last], instances[random.below(last + 1)]);
                }
            }
            largest.push(test(&mut types, &labels).into_iter().fold(0.0, f64::max));
            if pulse.stopped_after(sample.columns() + parts.len()) {
                return None;
            }
        }
        Some(Chance { largest, own })
    }

    /// The chance of a column, in (0, 1]. `None` if it cannot be tested.
    pub fn of(&self, column: Column) -> Option<f64> {
        let own = self.own.get(column as usize).copied().filter(|t| !t.is_nan())?;
        let reached = self.largest.iter().filter(|&&largest| largest >= own).count();
        Some((reached + 1) as f64 / (self.largest.len() + 1) as f64)
    }

    /// True if a column's values differ between the classes and not within them.
    pub(super) fn separates(&self, column: Column) -> bool {
        self.own.get(column as usize).is_some_and(|t| t.is_infinite())
    }
}

/// SplitMix64 (G. Steele, D. Lea and C. Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, by the high half of a product: uniform to 2^-40 for any bound here.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

/// The values of one type of request. Columns are numbered anew: those with enough values.
struct OfType {
    /// The places of its instances among the parts.
    instances: Vec<usize>,
    columns: Vec<Total>,
    /// One row for each of `instances`: (place in `columns`, value less the column's mean). Values
    /// of counts are as they are, since zeros are not stored.
    rows: Vec<Vec<(u32, f64)>>,
    /// The class of which fewer are in this type. Permutations do not change that.
    smaller: Class,
    /// The values of the smaller class in the present draw: their number and sum.
    part: Vec<(u32, f64)>,
}

/// The sums of a column over both classes.
struct Total {
    column: Column,
    n: f64,
    mean: f64,
    /// The sum of squares about the mean.
    square: f64,
    is_count: bool,
    /// The least values of each class.
    least: f64,
}

impl OfType {
    /// `numbers` is memory for the place of each column: `u32::MAX` before and after.
    fn new(sample: &Sample, parts: &[Part], instances: Vec<usize>, numbers: &mut [u32]) -> Self {
        let bad = instances.iter().filter(|&&at| parts[at].group != 0).count();
        let smaller = if bad * 2 <= instances.len() { Class::Bad } else { Class::Good };
        let together: Vec<Part> =
            instances.iter().map(|&at| Part { group: 0, weight: 1.0, ..parts[at] }).collect();
        let all = typed::OfType::new(sample, &together, 1, numbers);
        let mut columns = Vec::new();
        for (&column, moments) in all.columns.iter().zip(all.sums.iter().flatten()) {
            let is_presence = sample.is_presence(column);
            let least = if is_presence { 1 } else { VALUES_MIN };
            if moments.n() >= 2 * least && moments.deviation() > 0.0 {
                numbers[column as usize] = columns.len() as u32;
                let n = moments.n() as f64;
                columns.push(Total {
                    column,
                    n,
                    mean: moments.mean(),
                    square: moments.deviation().powi(2) * (n - 1.0),
                    is_count: sample.is_count(column),
                    least: least as f64,
                });
            }
        }
        let row = |&at: &usize| {
            let cells = sample.row(parts[at].at);
            let cell = |(column, value): (Column, f64)| {
                let number = numbers[column as usize];
                let total = columns.get(number as usize)?;
                Some((number, if total.is_count { value } else { value - total.mean }))
            };
            cells.filter_map(cell).collect()
        };
        let rows = instances.iter().map(row).collect();
        all.columns.iter().for_each(|&column| numbers[column as usize] = u32::MAX);
        let part = vec![(0, 0.0); columns.len()];
        OfType { instances, columns, rows, smaller, part }
    }

    /// Adds this type to the sums of all columns, with these labels.
    fn add(&mut self, labels: &[Class], all: &mut [Sum]) {
        self.part.fill((0, 0.0));
        let mut rows = 0.0;
        for (&at, row) in self.instances.iter().zip(&self.rows) {
            if labels[at] == self.smaller {
                rows += 1.0;
                for &(number, value) in row {
                    let (n, sum) = &mut self.part[number as usize];
                    *n += 1;
                    *sum += value;
                }
            }
        }
        for (total, &(n, sum)) in self.columns.iter().zip(&self.part) {
            let (small, sum) = match total.is_count {
                true => (rows, sum - rows * total.mean),
                false => (f64::from(n), sum),
            };
            let large = total.n - small;
            if small < total.least || large < total.least {
                continue;
            }
            // All values together sum to 0 here, so the other class's sum is `-sum`.
            let inverse = 1.0 / small + 1.0 / large;
            let within = (total.square - sum * sum * inverse).max(0.0) / (total.n - 2.0);
            let (bad, difference) = match self.smaller {
                Class::Bad => (small, -sum * inverse),
                Class::Good => (large, sum * inverse),
            };
            let own = &mut all[total.column as usize];
            own.bad += bad;
            own.difference += bad * difference;
            own.variance += bad * bad * within * inverse;
            own.n += total.n;
            own.square += total.square;
            own.df += total.n - 2.0;
        }
    }
}

/// The sums of a column over all types.
#[derive(Clone, Copy, Default)]
struct Sum {
    /// Bad instances.
    bad: f64,
    /// The difference of the means, times `bad`.
    difference: f64,
    /// The variance of `difference`.
    variance: f64,
    n: f64,
    square: f64,
    df: f64,
}

impl Sum {
    /// |t|, which is infinite if the values differ between the classes and not within them. `None`
    /// if too little is known of the error.
    fn t(&self) -> Option<f64> {
        let (error, spread) = (self.variance.sqrt(), (self.square / self.n).sqrt());
        if self.df < DF_MIN || self.bad == 0.0 {
            return None;
        }
        let is_known = error > ERROR_MIN * spread * self.bad;
        Some(if is_known { (self.difference / error).abs() } else { f64::INFINITY })
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::InstancesFile;
    use super::super::instances::{Head, Source as _};
    use super::*;

    /// One type, two classes of 6: by hand, the pooled t of 1..6 against 4..9 is
    /// -3 / sqrt(3.5 x (1/6 + 1/6)).
    #[test]
    fn the_own_t_has_the_pooled_variance() {
        let lines: String = (0..12)
            .map(|n| {
                let value = if n < 6 { n + 1 } else { n - 2 };
                format!("{{\"cls\":{},\"dur\":10,\"st\":{{\"v\":[[1,{value}]]}}}}\n", n / 6)
            })
            .collect();
        let mut file = InstancesFile::default();
        file.read(lines.as_bytes(), 0).expect("instances");
        let mut pulse = Pulse::never();
        let sample = Sample::new(&file, 10, true, &mut pulse).expect("a sample");
        let part = |(at, head): (usize, &Head)| Part {
            at,
            stratum: 0,
            group: head.class.index() as u32,
            weight: 1.0,
        };
        let parts: Vec<Part> = file.heads().iter().enumerate().map(part).collect();
        let chance = Chance::new(&sample, &parts, 1, 7, &mut pulse).expect("draws");
        let want = 3.0 / (3.5f64 / 3.0).sqrt();
        assert!((chance.own[0] - want).abs() < 1e-12, "{} {want}", chance.own[0]);
        // All 10 features of the state are equal or missing, so the chance is that of one test:
        // 0.0207 by all 924 ways to deal the labels, two-sided.
        let share = chance.of(0).expect("tested");
        assert!((0.005..0.08).contains(&share), "{share}");
        assert_eq!(chance.of(sample.columns() as Column), None);
    }
}
