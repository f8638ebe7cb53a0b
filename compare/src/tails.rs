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

/// The largest weight of [`weight`].
const WEIGHT_MAX_LOG2: f64 = 10.0;

/// The weight of an instance by which those with a large metric count more: 2^floor(P / `step`),
/// at most 1,024.
pub fn weight(metric: f64, step: f64) -> f64 {
    let doublings = (metric / step).floor();
    if doublings > 0.0 { doublings.min(WEIGHT_MAX_LOG2).exp2() } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_doubles_the_weight() {
        let of = [0.0, 4.9, 5.0, 14.9, 15.0, 49.9, 50.0, 1e300, f64::INFINITY, f64::NAN, -7.0];
        let want = [1.0, 1.0, 2.0, 4.0, 8.0, 512.0, 1_024.0, 1_024.0, 1_024.0, 1.0, 1.0];
        assert_eq!(of.map(|metric| weight(metric, 5.0)), want);
    }
}
