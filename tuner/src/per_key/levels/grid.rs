//! Numbers whose sums are exact.

/// Multiples of a power of two. Those with absolute values of no more than a bound together have
/// sums that a double holds exactly, in any order, and what was added can be taken away without a
/// trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// 1.5 times 2^52 units: a double of this size has no room below one unit.
    shift: f64,
}

impl Grid {
    /// For numbers whose absolute values have at most this sum; a unit is 2^-51 to 2^-50 of it.
    pub(super) fn within(bound: f64) -> Self {
        // The power of two above the bound, with room for what rounding adds.
        let above = f64::from_bits((2.0 * bound.max(f64::MIN_POSITIVE)).to_bits() & EXPONENT);
        Self { shift: 3.0 * above }
    }

    /// The nearest multiple.
    #[inline]
    pub(super) fn round(self, value: f64) -> f64 {
        (value + self.shift) - self.shift
    }
}

/// The bits of a double's exponent.
const EXPONENT: u64 = 0x7ff0_0000_0000_0000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Numbers of 12 orders of magnitude, added forward, backward, and with others added and taken
    /// away between.
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

    /// Counts stay whole: a unit is a power of two of at most 1.
    #[test]
    fn whole_numbers_stay_as_they_are() {
        let grid = Grid::within(1e9);
        for number in [0.0, 1.0, 3.0, 12_345.0, 999_999_999.0] {
            assert_eq!(grid.round(number), number);
        }
        assert_eq!(Grid::within(0.0).round(0.0), 0.0);
    }
}
