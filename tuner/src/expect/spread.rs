//! The distribution of a sum of squares over replays, as a few levels with a probability, a mean
//! and a standard deviation each.
//!
//! Mean and variance alone do not distinguish a sum that always varies a little from one that is
//! nearly constant but huge once in a hundred replays, when the one slow call is kept. The mean of
//! the root is very different in these two cases.

use super::moments::{Moments, mean_of_root};

/// The levels' probabilities, from the smallest sums to the largest. Rare large sums have finer
/// levels.
const WIDTHS: [f64; LEVELS] =
    [0.01, 0.04, 0.05, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.05, 0.03, 0.01, 0.005, 0.003, 0.001, 0.001];
const LEVELS: usize = 18;

/// The levels of a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    means: [f64; LEVELS],
    sds: [f64; LEVELS],
}

impl Spread {
    /// The constant 0.
    pub(crate) const ZERO: Self = Self { means: [0.0; LEVELS], sds: [0.0; LEVELS] };

    /// The levels of a sum that has these moments with these probabilities. Sorts `components` by
    /// mean.
    pub(crate) fn of(components: &mut [(f64, Moments)]) -> Self {
        components.sort_unstable_by(|a, b| a.1.mean.total_cmp(&b.1.mean));
        let all: f64 = components.iter().map(|(probability, _)| probability).sum();
        let mut spread = Self::ZERO;
        let mut parts = components.iter().map(|&(probability, moments)| (probability / all, moments));
        let (mut left, mut moments) = parts.next().unwrap_or((f64::INFINITY, Moments::default()));
        for (level, width) in WIDTHS.into_iter().enumerate() {
            let (mut open, mut first, mut second) = (width, 0.0, 0.0);
            loop {
                let share = left.min(open);
                first += share * moments.mean;
                second += share * (moments.variance + moments.mean * moments.mean);
                left -= share;
                open -= share;
                if open <= 0.0 {
                    break;
                }
                // Rounding may leave the last level slightly open; the largest component then fills
                // it.
                (left, moments) = parts.next().unwrap_or((f64::INFINITY, moments));
            }
            let mean = first / width;
            spread.means[level] = mean;
            spread.sds[level] = (second / width - mean * mean).max(0.0).sqrt();
        }
        spread
    }

    /// Adds a sum that rises and falls together with this one.
    pub(crate) fn add_rising_together(&mut self, other: &Self) {
        self.means.iter_mut().zip(other.means).for_each(|(sum, mean)| *sum += mean);
        self.sds.iter_mut().zip(other.sds).for_each(|(sum, sd)| *sum += sd);
    }

    /// The sum of this and an independent one. `memory` is reused working memory.
    pub(crate) fn plus_independent(&self, other: &Self, memory: &mut Vec<(f64, Moments)>) -> Self {
        memory.clear();
        for (width, here) in WIDTHS.into_iter().zip(self.levels()) {
            let pairs = WIDTHS.into_iter().zip(other.levels());
            memory.extend(pairs.map(|(other_width, there)| (width * other_width, here.plus(there))));
        }
        Self::of(memory)
    }

    /// Mean and variance over all levels.
    pub(crate) fn moments(&self) -> Moments {
        let mean = self.average(|moments| moments.mean);
        let square = self.average(|moments| moments.variance + (moments.mean - mean).powi(2));
        Moments { mean, variance: square }
    }

    /// The mean of the root of this sum plus an independent `rest`, assuming a gamma distribution
    /// within each level.
    pub(crate) fn mean_of_root(&self, rest: Moments) -> f64 {
        self.average(|moments| mean_of_root(moments.plus(rest)))
    }

    fn levels(&self) -> impl Iterator<Item = Moments> {
        self.means.iter().zip(&self.sds).map(|(&mean, &sd)| Moments { mean, variance: sd * sd })
    }

    fn average(&self, of: impl Fn(Moments) -> f64) -> f64 {
        WIDTHS.into_iter().zip(self.levels()).map(|(width, moments)| width * of(moments)).sum()
    }
}

impl Moments {
    /// The moments of the sum of two independent variables.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { mean: self.mean + other.mean, variance: self.variance + other.variance }
    }

    /// The moments of a variable that has these moments with these probabilities. They equal those
    /// of [`Spread::of`], which preserves mean and variance.
    pub(crate) fn of(components: &[(f64, Self)]) -> Self {
        let all: f64 = components.iter().map(|(probability, _)| probability).sum();
        if all == 0.0 {
            return Self::default();
        }
        let average = |of: &dyn Fn(&Self) -> f64| {
            components.iter().map(|(probability, moments)| probability * of(moments)).sum::<f64>() / all
        };
        let mean = average(&|moments| moments.mean);
        Self { mean, variance: average(&|moments| moments.variance + (moments.mean - mean).powi(2)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1e-9), "{found}, should be {expected}");
    }

    fn fixed(mean: f64) -> Moments {
        Moments { mean, variance: 0.0 }
    }

    #[test]
    fn widths_are_all_of_the_probability() {
        close(WIDTHS.iter().sum(), 1.0);
    }

    /// Nearly always 500^2, but once in a hundred replays with a root seven times as large. A gamma
    /// distribution with these moments has a mean root of 320.
    #[test]
    fn what_is_rare_and_huge_does_not_hide_what_is_common() {
        let spread = Spread::of(&mut [(0.01, fixed(3500.0 * 3500.0)), (0.99, fixed(500.0 * 500.0))]);
        close(spread.moments().mean, 370_000.0);
        close(spread.moments().variance, 0.99 * 0.01 * 12e6 * 12e6);
        close(spread.mean_of_root(Moments::default()), 0.99 * 500.0 + 0.01 * 3500.0);
        assert!(mean_of_root(spread.moments()) < 0.65 * spread.mean_of_root(Moments::default()));
    }

    #[test]
    fn moments_survive_whatever_the_levels() {
        let mut components = [
            (0.123, Moments { mean: 3.0, variance: 2.0 }),
            (0.4, fixed(7.0)),
            (0.477, Moments { mean: 1.0, variance: 0.5 }),
        ];
        let mean = 0.123 * 3.0 + 0.4 * 7.0 + 0.477;
        let second = 0.123 * (9.0 + 2.0) + 0.4 * 49.0 + 0.477 * 1.5;
        let spread = Spread::of(&mut components);
        close(spread.moments().mean, mean);
        close(spread.moments().variance, second - mean * mean);
        close(Moments::of(&components).mean, mean);
        close(Moments::of(&components).variance, second - mean * mean);
        // Rare combinations are left out, and the remaining ones are scaled to probability 1: here
        // 1 or 3, half the time each.
        let mut rest = [(0.2, fixed(1.0)), (0.2, fixed(3.0))];
        for moments in [Spread::of(&mut rest).moments(), Moments::of(&rest)] {
            close(moments.mean, 2.0);
            close(moments.variance, 1.0);
        }
        assert_eq!(Moments::of(&[]), Moments::default());
        assert_eq!(Spread::of(&mut []), Spread::ZERO);
    }

    #[test]
    fn sums_together_and_apart() {
        let one = Spread::of(&mut [(0.5, fixed(1.0)), (0.5, fixed(3.0))]);
        let mut together = one;
        together.add_rising_together(&one);
        // Together they are 2 or 6, with variance 4; if independent they are 2, 4 or 6, with
        // variance 2.
        close(together.moments().mean, 4.0);
        close(together.moments().variance, 4.0);
        close(together.mean_of_root(Moments::default()), 0.5 * 2f64.sqrt() + 0.5 * 6f64.sqrt());
        // Within a level, standard deviations of 2 and 3 add up to 5.
        let mut within = Spread::of(&mut [(1.0, Moments { mean: 1.0, variance: 4.0 })]);
        within.add_rising_together(&Spread::of(&mut [(1.0, Moments { mean: 2.0, variance: 9.0 })]));
        close(within.moments().mean, 3.0);
        close(within.moments().variance, 25.0);
        let apart = one.plus_independent(&one, &mut Vec::new());
        close(apart.moments().mean, 4.0);
        close(apart.moments().variance, 2.0);
    }
}
