//! The default test: differences within types of requests.
//!
//! Plain Welch tests on mixed requests raise false alarms when the mix changes, and lose power when
//! it does not. So each feature is compared within each type (stratum), and the differences are
//! added with the bad class's shares: D = Σ p (m0 - m1), Var D = Σ p² (Var m0 + Var m1), with the
//! degrees of freedom by Satterthwaite.

use super::instances::{Class, Head};
use super::moments::Moments;
use super::paper::sums;
use super::ranking::Tested;
use super::sample::{Column, Sample};
use super::student;
use super::welch::{Part, Test, satterthwaite};

/// A type counts for a feature if each class has this many values of it.
pub const VALUES_MIN: u64 = 5;
/// A feature is tested with at least these degrees of freedom: below, a small class without spread
/// looks certain.
pub const DF_MIN: f64 = 5.0;
/// A feature is tested if the error of its difference is above this share of its spread.
pub const ERROR_MIN: f64 = 1e-4;

/// The sums of all columns, by type and class.
#[derive(Debug)]
pub struct Sums {
    /// `[type][class][column]`.
    by_type: Vec<[Vec<Moments>; 2]>,
}

impl Sums {
    /// The sums of a sample. `weights` of `None` are all 1.
    pub fn new(sample: &Sample, heads: &[Head], types: usize, weights: Option<&[f64]>) -> Self {
        Self::labelled(sample, heads, types, weights, |head| Some(head.class))
    }

    /// The same with other classes, which leave out the instances without a label.
    pub fn labelled(
        sample: &Sample,
        heads: &[Head],
        types: usize,
        weights: Option<&[f64]>,
        label: impl Fn(&Head) -> Option<Class>,
    ) -> Self {
        let weight = |at: usize| weights.map_or(1.0, |weights| weights[at]);
        let mut rows = vec![[Vec::new(), Vec::new()]; types];
        for (at, head) in heads.iter().enumerate() {
            if let Some(class) = label(head) {
                rows[head.stratum as usize][class.index()].push((at, weight(at)));
            }
        }
        let by_type = rows.into_iter().map(|of| of.map(|rows| sums(sample, rows.into_iter())));
        Sums { by_type: by_type.collect() }
    }

    /// The types that count for a column, as sums of good and bad instances.
    fn counted(&self, column: usize) -> impl Iterator<Item = [&Moments; 2]> {
        self.by_type
            .iter()
            .map(move |[good, bad]| [&good[column], &bad[column]])
            .filter(|both| both.iter().all(|moments| moments.n() >= VALUES_MIN))
    }

    /// The test of a column. `None` if no type counts, or if too little is known of the error.
    pub fn test(&self, column: Column) -> Option<Test> {
        let column = column as usize;
        let weight: f64 = self.counted(column).map(|[_, bad]| bad.weight()).sum();
        let (mut parts, mut n, mut means, mut all) = (Vec::new(), [0; 2], [0.0; 2], Moments::default());
        for both in self.counted(column) {
            let share = both[Class::Bad.index()].weight() / weight;
            for (class, moments) in both.into_iter().enumerate() {
                parts.push(Part::new(share, moments));
                n[class] += moments.n();
                means[class] += share * moments.mean();
                all.merge(moments);
            }
        }
        let (variance, df) = satterthwaite(&parts)?;
        let error = variance.sqrt();
        if df < DF_MIN || error <= ERROR_MIN * all.deviation() {
            return None;
        }
        let t = (means[0] - means[1]) / error;
        Some(Test { n, means, t, df, p: student::two_sided(t, df) })
    }

    /// The tests of all columns that can be tested.
    pub fn tests(&self) -> Vec<Tested> {
        let columns = self.by_type.first().map_or(0, |[good, _]| good.len()) as Column;
        (0..columns).filter_map(|column| Some(Tested { column, test: self.test(column)? })).collect()
    }
}
