//! Numbers with exact sums.

/// Multiples of a power of two. If the sum of their absolute values does not exceed the bound, a
/// double holds every partial sum exactly, in any order. So a number that was added can be
/// subtracted again without a rounding error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// 1.5 times 2^52 units: a double of this size has no bits below one unit.
    shift: f64,
}

impl Grid {
    /// A grid for numbers whose absolute values add up to at most `bound`. A unit is 2^-51 to 2^-50
    /// of it.
    pub(super) fn within(bound: f64) -> Self {
        // The power of two above the bound, which leaves a margin for rounding.
        let above = f64::from_bits((2.0 * bound.max(f64::MIN_POSITIVE)).to_bits() & EXPONENT);
        Self { shift: 3.0 * above }
    }

    /// The nearest multiple.
    #[inline]
    pub(super) fn round(self, value: f64) -> f64 {
        (value + self.shift) - self.shift
    }
}

/// The exponent bits of a double.
const EXPONENT: u64 = 0x7ff0_0000_0000_0000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Numbers of 12 orders of magnitude, added forward, backward, and with others added and
    /// subtracted in between.
    #[test]
    fn sums_do_not_depend_on_the_way() {
        let mut random = Random::new(3, 0);
        let numbers: Vec<f64> =
            (0..500).map(|_| (random.uniform() - 0.5) * 10f64.powf(12.0 * random.uniform())).collect();
        let bound = numbers.iter().map(|number| number.abs()).sum::<f64>();
        let grid = Grid::within(bound);
        let on_grid: Vec<f64> = numbers.iter().map(|&number| grid.round(number)).collect();
        assert!(
            numbers
                .iter()
                .zip(&on_grid)
                .all(|(number, on_grid)| (number - on_grid).abs() <= bound * 2f64.powi(-51))
        );
        let forward: f64 = on_grid.iter().sum();
        assert_eq!(forward, on_grid.iter().rev().sum::<f64>());
        let there: f64 = on_grid[..250].iter().sum();
        let back = on_grid[10..240].iter().fold(there, |sum, number| sum - number);
        let around = on_grid[..10].iter().chain(&on_grid[240..250]).sum::<f64>();
        assert_eq!(back, around);
    }

    /// Counts stay whole, because a unit is a power of two of at most 1.
    #[test]
    fn whole_numbers_stay_as_they_are() {
        let grid = Grid::within(1e9);
        for number in [0.0, 1.0, 3.0, 12_345.0, 999_999_999.0] {
            assert_eq!(grid.round(number), number);
        }
        assert_eq!(Grid::within(0.0).round(0.0), 0.0);
    }
}
