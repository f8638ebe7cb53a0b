//! The result of Welch's t-test.

use serde::Serialize;

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
