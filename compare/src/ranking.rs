//! Variables, ranked by how much their features differ.

use astracer_recording::log_event::is_position;
use serde::Serialize;

use super::features::{Feature, Kind};
use super::instances::Variables;
use super::sample::{Column, column_feature};
use super::welch::Test;

/// The level of all tests together.
pub const LEVEL: f64 = 0.05;

/// A tested feature.
#[derive(Clone, Copy, Debug)]
pub struct Tested {
    /// The feature's column.
    pub column: Column,
    /// The test.
    pub test: Test,
}

/// A variable with at least one significant feature.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Ranked {
    /// The variable's kind.
    pub kind: Kind,
    /// The variable's name.
    pub variable: String,
    /// The sum of |t| over its significant features, or the largest |t|, by the kind of test.
    pub score: f64,
    /// The number of its significant features.
    pub features: u64,
    /// The feature with the largest |t|.
    pub feature: Feature,
    /// That feature's test.
    #[serde(flatten)]
    pub test: Test,
    /// The column of that feature.
    #[serde(skip)]
    pub column: Column,
}

/// The score of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// The sum of |t| over its significant features, as in the paper.
    Sum,
    /// The largest |t|.
    Largest,
}

/// True if a test is significant among `tested` tests, by Bonferroni.
pub fn is_significant(test: &Test, tested: usize) -> bool {
    test.p < LEVEL / tested as f64
}

/// Ranks variables by their significant features: the largest score first, and equal scores by kind
/// and name. With [`Score::Largest`], numbers that a log message does not name come last.
pub fn rank(tests: &[Tested], variables: &Variables, score: Score) -> Vec<Ranked> {
    let mut ranked: Vec<Ranked> = Vec::new();
    let mut order: Vec<&Tested> =
        tests.iter().filter(|tested| is_significant(&tested.test, tests.len())).collect();
    order.sort_by_key(|tested| tested.column);
    for of_one in
        order.chunk_by(|a, b| column_feature(variables, a.column).0 == column_feature(variables, b.column).0)
    {
        let Some(best) = of_one
            .iter()
            .copied()
            .reduce(|best, own| if own.test.t.abs() > best.test.t.abs() { own } else { best })
        else {
            continue;
        };
        let (variable, feature) = column_feature(variables, best.column);
        let (kind, name) = variables.get(variable);
        ranked.push(Ranked {
            kind,
            variable: name.to_owned(),
            score: match score {
                Score::Sum => of_one.iter().map(|tested| tested.test.t.abs()).sum(),
                Score::Largest => best.test.t.abs(),
            },
            features: of_one.len() as u64,
            feature,
            test: best.test,
            column: best.column,
        });
    }
    // A number to which the message gives no name is often an id, so it ranks behind what has one.
    // The paper has no such variables.
    let is_behind = |own: &Ranked| score == Score::Largest && is_position(&own.variable);
    ranked.sort_by(|a, b| {
        is_behind(a)
            .cmp(&is_behind(b))
            .then_with(|| b.score.total_cmp(&a.score))
            .then_with(|| (a.kind, &a.variable).cmp(&(b.kind, &b.variable)))
    });
    ranked
}
