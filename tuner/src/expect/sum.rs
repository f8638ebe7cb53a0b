//! The sum over many families of functions, and the mean of its root.

use super::moments::Moments;
use super::spread::Spread;

/// The number of families that are added level by level; each additional one costs some 10 us per
/// candidate.
const FAMILIES_BY_LEVEL: usize = 3;

/// The sum over all families, which are independent of each other.
#[derive(Default)]
pub(super) struct Sum {
    all: Moments,
    /// The families with the largest variances, in descending order.
    widest: Vec<(Moments, Source)>,
    /// The sum of all others.
    rest: Moments,
}

/// Identifies a family, to calculate its levels later.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Family(usize),
    /// The only function of its family.
    Function(usize),
}

impl Sum {
    pub(super) fn add(&mut self, family: Moments, source: impl FnOnce() -> Source) {
        self.all = self.all.plus(family);
        let is_wide = |(narrowest, _): &(Moments, Source)| narrowest.variance < family.variance;
        if self.widest.len() == FAMILIES_BY_LEVEL && !self.widest.last().is_some_and(is_wide) {
            self.rest = self.rest.plus(family);
            return;
        }
        let place = self.widest.partition_point(|(wider, _)| wider.variance >= family.variance);
        self.widest.insert(place, (family, source()));
        if self.widest.len() > FAMILIES_BY_LEVEL
            && let Some((narrowest, _)) = self.widest.pop()
        {
            self.rest = self.rest.plus(narrowest);
        }
    }

    /// The mean of the sum.
    pub(super) fn mean(&self) -> f64 {
        self.all.mean
    }

    /// The mean of the sum's root. The families with the largest variances are added level by
    /// level, the others by mean and variance.
    pub(super) fn mean_of_root(
        &self,
        mut spread: impl FnMut(Source, &mut Vec<(f64, Moments)>) -> Spread,
    ) -> f64 {
        let mut memory = Vec::new();
        let mut sum: Option<Spread> = None;
        for &(_, source) in &self.widest {
            let family = spread(source, &mut memory);
            sum = Some(match sum {
                Some(sum) => sum.plus_independent(&family, &mut memory),
                None => family,
            });
        }
        sum.unwrap_or(Spread::ZERO).mean_of_root(self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In whatever order families are added, the widest are added level by level, and mean and
    /// variance cover all of them.
    #[test]
    fn the_widest_are_kept_and_all_are_summed_up() {
        let family = |variance: f64| Moments { mean: 10.0 * variance, variance };
        for variances in [[1.0, 2.0, 3.0, 4.0, 5.0], [5.0, 4.0, 3.0, 2.0, 1.0], [3.0, 5.0, 1.0, 4.0, 2.0]] {
            let mut sum = Sum::default();
            variances.iter().for_each(|&of| sum.add(family(of), || Source::Function(of as usize)));
            let widest: Vec<f64> = sum.widest.iter().map(|(moments, _)| moments.variance).collect();
            assert_eq!((widest, sum.mean(), sum.rest), (vec![5.0, 4.0, 3.0], 150.0, family(3.0)));
            let mut asked = Vec::new();
            let root = sum.mean_of_root(|source, memory| {
                let Source::Function(of) = source else { panic!("all are functions") };
                asked.push(of);
                memory.clear();
                memory.push((1.0, family(of as f64)));
                Spread::of(memory)
            });
            assert_eq!(asked, [5, 4, 3]);
            // Mean 150 and variance 15.
            assert!((root / 150f64.sqrt() - 1.0).abs() < 1e-3, "{root}");
        }
    }
}
