//! Heavy tails: metrics of which a mean says little.

use super::instances::{Class, Head};
use super::moments::Moments;

/// The share of values beyond three standard deviations above which a class is flagged: four times
/// that of a normal distribution, as in the paper.
pub const HEAVY: f64 = 0.011;

/// The share of each class's metric outside its mean ± 3 standard deviations.
pub fn shares(heads: &[Head]) -> [f64; 2] {
    [Class::Good, Class::Bad].map(|class| {
        let values = || heads.iter().filter(|head| head.class == class).map(|head| head.metric);
        let mut moments = Moments::default();
        values().for_each(|value| moments.add(value, 1.0));
        let bound = 3.0 * moments.deviation();
        let outside = values().filter(|value| (value - moments.mean()).abs() > bound).count();
        outside as f64 / values().count().max(1) as f64
    })
}
