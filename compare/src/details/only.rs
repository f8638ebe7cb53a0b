//! Variables that only one class has.

use serde::Serialize;

use super::super::features::{FEATURES_MAX, Kind};
use super::super::instances::Class;
use super::Compared;

/// A variable that one class never has.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OnlyRow {
    /// The variable's kind.
    pub kind: Kind,
    /// The variable's name.
    pub variable: String,
    /// The number of instances that have it.
    pub instances: u64,
}

/// The variables that only good, and only bad instances have: those in the most instances first.
pub(super) fn rows(compared: &Compared<'_>) -> [Vec<OnlyRow>; 2] {
    let sample = compared.sample;
    let mut counts = vec![[0u64; 2]; sample.variables.len()];
    for (at, head) in compared.heads.iter().enumerate() {
        let mut before = None;
        // The features of one variable follow each other.
        for (column, _) in sample.row(at) {
            let variable = column as usize / FEATURES_MAX;
            if before.replace(variable) != Some(variable) {
                counts[variable][head.class.index()] += 1;
            }
        }
    }
    let order = sample.variables.sorted();
    [Class::Good, Class::Bad].map(|class| {
        let only = order.iter().filter_map(|&variable| {
            let counts = counts[variable as usize];
            let (own, other) = (counts[class.index()], counts[1 - class.index()]);
            let (kind, name) = sample.variables.get(variable);
            (own > 0 && other == 0).then(|| OnlyRow { kind, variable: name.to_owned(), instances: own })
        });
        let mut only: Vec<OnlyRow> = only.collect();
        // Stable: equal ones stay in the order of kinds and names.
        only.sort_by_key(|row| std::cmp::Reverse(row.instances));
        only
    })
}
