//! The paper's test: Welch's t-test of each feature over all instances of the two classes.

use super::instances::{Class, Head};
use super::moments::Moments;
use super::ranking::Tested;
use super::sample::{Column, Sample};
use super::welch::welch;

/// The sums of every column, of one class.
pub(super) fn sums(sample: &Sample, rows: impl Iterator<Item = (usize, f64)>) -> Vec<Moments> {
    let mut columns = vec![Moments::default(); sample.columns()];
    let mut all = Moments::default();
    for (at, weight) in rows {
        all.add(0.0, weight);
        for &(column, value) in sample.row(at) {
            columns[column as usize].add(value, weight);
        }
    }
    for (column, moments) in (0..).zip(&mut columns) {
        if sample.is_count(column) {
            moments.add_zeros(&all);
        }
    }
    columns
}

/// Tests all features. A weight of `None` is one, as every weight is in the paper.
pub fn tests(sample: &Sample, heads: &[Head], weights: Option<&[f64]>) -> Vec<Tested> {
    let weight = |at: usize| weights.map_or(1.0, |weights| weights[at]);
    let of = |class: Class| {
        let rows = heads.iter().enumerate().filter(|(_, head)| head.class == class);
        sums(sample, rows.map(|(at, _)| (at, weight(at))))
    };
    let (good, bad) = (of(Class::Good), of(Class::Bad));
    let tested = |column: usize| {
        let test = welch(&good[column], &bad[column])?;
        Some(Tested { column: column as Column, test })
    };
    (0..sample.columns()).filter_map(tested).collect()
}
