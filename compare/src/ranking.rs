//! Variables, ranked by how much their features differ.

use astracer_recording::log_event::is_position;
use serde::Serialize;

use super::chance::Chance;
use super::features::{Feature, Kind};
use super::instances::Variables;
use super::sample::{Column, column_feature};
use super::welch::{Test, Tested};

/// The level of all tests together. Rows within it come first.
pub const LEVEL: f64 = 0.05;
/// The level at which differences are called significant. At [`LEVEL`], comparing each change of a
/// program would raise a false alarm once in twenty times.
pub const SURE: f64 = 0.01;

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
    /// True if chance explains some feature in at most 5 % of draws.
    #[serde(skip)]
    pub is_certain: bool,
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

/// Ranks variables by their significant features, by Bonferroni or by chance: the largest score
/// first, and equal scores by kind and name.
///
/// With [`Score::Largest`], variables that chance does not explain come first. Those for which
/// `is_last` is true, and numbers that a log message does not name, come last. A value at a share of the run's length represents a variable
/// only if no other feature differs, and not at all if `metric_differs`, which explains it.
pub fn rank(
    tests: &[Tested],
    variables: &Variables,
    score: Score,
    chance: Option<&Chance>,
    metric_differs: bool,
    is_last: impl Fn(&Ranked) -> bool,
) -> Vec<Ranked> {
    let is_beyond_chance = |tested: &Tested| {
        chance.and_then(|chance| chance.of(tested.column)).is_some_and(|share| share <= LEVEL)
    };
    let is_listed = |tested: &&Tested| {
        let is_explained = score == Score::Largest && metric_differs && {
            let (_, feature) = column_feature(variables, tested.column);
            feature.is_relative()
        };
        let is_found =
            is_significant(&tested.test, tests.len()) || tested.test.p < LEVEL && is_beyond_chance(tested);
        is_found && !is_explained
    };
    let separates = |tested: &Tested| chance.is_some_and(|chance| chance.separates(tested.column));
    // Among features of one variable, and |t| as they are compared there.
    let preferred = |tested: &Tested| {
        let (_, feature) = column_feature(variables, tested.column);
        let t = tested.test.t.abs();
        match score {
            Score::Sum => (true, true, 0, t),
            // A count of 0 or 1 is a presence, which says the same in plainer words.
            Score::Largest => {
                let t = if feature == Feature::Present { t * 1.2 } else { t };
                // True of each trace of one class and of none of the other says more
                // than a time.
                let plain = match feature {
                    Feature::Present if separates(tested) => 2,
                    Feature::Count if separates(tested) => 1,
                    _ => 0,
                };
                (is_beyond_chance(tested), !feature.is_relative(), plain, t)
            }
        }
    };
    let mut ranked: Vec<Ranked> = Vec::new();
    let mut order: Vec<&Tested> = tests.iter().filter(is_listed).collect();
    order.sort_by_key(|tested| tested.column);
    for of_one in
        order.chunk_by(|a, b| column_feature(variables, a.column).0 == column_feature(variables, b.column).0)
    {
        let Some(best) = of_one
            .iter()
            .copied()
            .reduce(|best, own| if preferred(own) > preferred(best) { own } else { best })
        else {
            continue;
        };
        let (variable, feature) = column_feature(variables, best.column);
        let (kind, name) = variables.get(variable);
        let is_certain = of_one.iter().any(|tested| is_beyond_chance(tested));
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
            is_certain,
        });
    }
    // A number to which the message gives no name is often an id, so it ranks behind what has one.
    // The paper has no such variables.
    let is_behind = |own: &Ranked| score == Score::Largest && (is_position(&own.variable) || is_last(own));
    ranked.sort_by(|a, b| {
        is_behind(a)
            .cmp(&is_behind(b))
            .then_with(|| b.is_certain.cmp(&a.is_certain))
            .then_with(|| b.score.total_cmp(&a.score))
            .then_with(|| (a.kind, &a.variable).cmp(&(b.kind, &b.variable)))
    });
    ranked
}
