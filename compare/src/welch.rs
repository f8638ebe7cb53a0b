//! The result of a test of one feature.

use serde::Serialize;

use super::sample::Column;

/// The result of a t-test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Test {
    /// The number of values in the good and in the bad class.
    pub n: [u64; 2],
    /// The means of both classes.
    pub means: [f64; 2],
    /// The difference of the means, good less bad, by its standard error.
    pub t: f64,
    /// Degrees of freedom by Welch and Satterthwaite.
    pub df: f64,
    /// The two-sided p-value.
    pub p: f64,
}

/// A tested feature.
#[derive(Clone, Copy, Debug)]
pub struct Tested {
    /// The feature's column.
    pub column: Column,
    /// The test.
    pub test: Test,
}

/// The comparison of a column between two groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// The test.
    Tested(Test),
    /// The values do not vary within the groups, or hardly, so there is no error to compare with.
    Constant {
        /// True if the groups' means differ.
        differs: bool,
    },
    /// Too few values.
    TooFew,
}

impl Outcome {
    /// The test, if there is one.
    pub fn test(self) -> Option<Test> {
        match self {
            Self::Tested(test) => Some(test),
            Self::Constant { .. } | Self::TooFew => None,
        }
    }
}
