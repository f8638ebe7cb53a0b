//! Heavy tails: metrics of which a mean says little.

use super::instances::{Class, Head};
use super::moments::{Moments, is_usable, weight_at};

/// The share of values beyond three standard deviations above which a class is flagged: four times
/// that of a normal distribution, as in the paper.
pub const HEAVY: f64 = 0.011;

/// The share of each class's metric outside its mean ± 3 standard deviations, all by weight.
pub fn shares(heads: &[Head], weights: Option<&[f64]>) -> [f64; 2] {
    [Class::Good, Class::Bad].map(|class| {
        let of = || heads.iter().enumerate().filter(|(_, head)| head.class == class);
        let values = || of().map(|(at, head)| (head.metric, weight_at(weights, at)));
        let mut moments = Moments::default();
        values().for_each(|(value, weight)| moments.add(value, weight));
        let bound = 3.0 * deviation(values(), &moments);
        let all: f64 = values().map(|(_, weight)| weight).sum();
        let outside = values().filter(|(value, _)| (value - moments.mean()).abs() > bound);
        if all > 0.0 { outside.map(|(_, weight)| weight).sum::<f64>() / all } else { 0.0 }
    })
}

/// The standard deviation of weighted values, by n - 1.
fn deviation(values: impl Iterator<Item = (f64, f64)>, moments: &Moments) -> f64 {
    let square: f64 = values
        .filter(|(value, _)| is_usable(*value))
        .map(|(value, weight)| weight * (value - moments.mean()).powi(2))
        .sum();
    let n = moments.n() as f64;
    (square / moments.weight() * n / (n - 1.0)).sqrt()
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

    /// Ten values of 0 with weight 10, and one of 10 with weight 1: the mean is 10/101, and 10 is
    /// 9.5 deviations from it, in 1/101 of the weight. As counted it would be one value in 11.
    #[test]
    fn a_tail_is_a_share_of_the_weight() {
        let head = |at: usize| Head {
            id: at.to_string(),
            class: Class::Good,
            run: 0,
            stratum: 0,
            weight: None,
            length_ms: 1.0,
            metric: if at == 10 { 10.0 } else { 0.0 },
            start_ns: 0,
        };
        let heads: Vec<Head> = (0..11).map(head).collect();
        let weights: Vec<f64> = (0..11).map(|at| if at == 10 { 1.0 } else { 10.0 }).collect();
        assert_eq!(shares(&heads, Some(&weights)), [1.0 / 101.0, 0.0]);
        assert_eq!(shares(&heads, None), [1.0 / 11.0, 0.0]);
    }

    #[test]
    fn each_step_doubles_the_weight() {
        let of = [0.0, 4.9, 5.0, 14.9, 15.0, 49.9, 50.0, 1e300, f64::INFINITY, f64::NAN, -7.0];
        let want = [1.0, 1.0, 2.0, 4.0, 8.0, 512.0, 1_024.0, 1_024.0, 1_024.0, 1.0, 1.0];
        assert_eq!(of.map(|metric| weight(metric, 5.0)), want);
    }
}
