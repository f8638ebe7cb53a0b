//! Bump's curve: from a count to a threshold without computing f.

use super::Bump;
use crate::threshold::Threshold;

/// Below this count each has its own threshold.
const EXACT_BITS: u32 = 16;
/// Beyond, 2^10 thresholds serve each doubling of the count: they are those of the middle of their counts, which lie
/// within 1 / 2048 of it, so that the probability is right to 0.1 %.
const STEP_BITS: u32 = 10;
/// A count stays well below 2^32, where it would reach into the window's number.
const COUNT_MAX: u32 = u32::MAX - (1 << 16);

/// The thresholds of max(f(x), minimum): half a megabyte at most for counts below 2^16, and a quarter of that for those
/// beyond. Only as many as it takes for f to fall to the minimum.
#[derive(Debug)]
pub(crate) struct Curve {
    thresholds: Box<[u64]>,
    minimum: u64,
    saturation: u32,
}

impl Curve {
    pub(super) fn new(bump: &Bump) -> Self {
        let threshold = |count: u32| Threshold::from_probability(bump.probability(u64::from(count))).get();
        let minimum = Threshold::from_probability(bump.minimum()).get();
        let saturation = first(1, COUNT_MAX, |count| threshold(count) >= minimum);
        let thresholds = (0..=place(saturation - 1)).map(|place| threshold(middle(place))).collect();
        Curve { thresholds, minimum, saturation }
    }

    /// The least count, at least 1, from which on f(x) is not above the minimum; or the largest that is counted.
    #[inline]
    pub(super) fn saturation(&self) -> u32 {
        self.saturation
    }

    /// The threshold from there on.
    #[inline]
    pub(super) fn minimum(&self) -> u64 {
        self.minimum
    }

    /// The threshold of a count below saturation.
    #[inline]
    pub(super) fn threshold(&self, count: u32) -> u64 {
        self.thresholds.get(place(count)).copied().unwrap_or(self.minimum)
    }
}

/// Where a count's threshold stands.
#[inline]
fn place(count: u32) -> usize {
    match (count >> EXACT_BITS).checked_ilog2() {
        None => count as usize,
        Some(doubling) => {
            let step = (count >> (doubling + EXACT_BITS - STEP_BITS)) - (1 << STEP_BITS);
            (1 << EXACT_BITS) + ((doubling as usize) << STEP_BITS) + step as usize
        }
    }
}

/// The middle of the counts whose threshold stands there.
fn middle(place: usize) -> u32 {
    match place.checked_sub(1 << EXACT_BITS) {
        None => place as u32,
        Some(beyond) => {
            let width = EXACT_BITS - STEP_BITS + (beyond >> STEP_BITS) as u32;
            let step = (1 << STEP_BITS) + (beyond as u32 & ((1 << STEP_BITS) - 1));
            (step << width) + (1 << (width - 1))
        }
    }
}

/// The least of `low..=high` for which `is` holds, given that it goes on holding from there; `high` if none.
fn first(mut low: u32, mut high: u32, is: impl Fn(u32) -> bool) -> u32 {
    while low < high {
        let middle = low + (high - low) / 2;
        if is(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nanos::Nanos;
    use crate::probability::Probability;
    use proptest::prelude::*;

    fn bump(lambda: f64, minimum: f64) -> Bump {
        Bump::new(lambda, Probability::new(minimum).unwrap(), Nanos::from_secs(1)).unwrap()
    }

    fn probability(threshold: u64) -> f64 {
        Threshold::new(threshold).unwrap().probability().get()
    }

    /// f falls to m at x = lambda / sqrt(-ln(1 - m)): 99.75 for (10, 0.01), 9044.1 for (1034, 0.013).
    #[test]
    fn saturates_where_f_falls_to_the_minimum() {
        for (lambda, minimum, saturation) in [
            (10.0, 0.01, 100),
            (1034.0, 0.013, 9040),
            (1.0, 1.0, 1),
            (1.0, 0.9, 1),
            (0.0, 0.0, 1),
            (0.0, 0.5, 1),
            // The end of counting: 2^32 - 2^16 - 1.
            (100.0, 0.0, 4_294_901_759),
            // f(x) * 2^56 = 1.5 at x = 10 * 2^28 / sqrt(1.5): from there on the nearest threshold is the largest.
            (10.0, 0.0, 2_191_766_321),
            (1e300, 0.5, 4_294_901_759),
        ] {
            let curve = Curve::new(&bump(lambda, minimum));
            assert_eq!(curve.saturation(), saturation, "lambda {lambda}, minimum {minimum}");
            assert_eq!(
                curve.minimum(),
                Threshold::from_probability(Probability::new(minimum).unwrap()).get()
            );
        }
    }

    #[test]
    fn is_exact_below_2_to_the_16_and_close_beyond() {
        let bump = bump(1e5, 0.0);
        let curve = Curve::new(&bump);
        for count in (0..1 << 16).step_by(997).chain([1, (1 << 16) - 1]) {
            let exact = Threshold::from_probability(bump.probability(u64::from(count))).get();
            assert_eq!(curve.threshold(count), exact, "{count}");
        }
        for bits in 16..32 {
            for count in
                [1u32 << bits, (1 << bits) + 1, (3 << (bits - 1)) - 1, ((1u64 << (bits + 1)) - 1) as u32]
            {
                let exact = bump.probability(u64::from(count)).get();
                let error = probability(curve.threshold(count)) / exact - 1.0;
                assert!(error.abs() < 1e-3, "{count}: {error}");
            }
        }
    }

    #[test]
    fn costs_no_more_than_its_saturation_needs() {
        assert_eq!(Curve::new(&bump(10.0, 0.01)).thresholds.len(), 100);
        let largest = Curve::new(&bump(100.0, 0.0)).thresholds.len();
        assert_eq!(largest, (1 << 16) + (16 << 10), "16 doublings from 2^16 to 2^32");
    }

    proptest! {
        #[test]
        fn a_count_lies_within_its_step(count in 0..COUNT_MAX) {
            let middle = middle(place(count));
            prop_assert!(u64::from(middle.abs_diff(count)) * 2048 <= u64::from(count), "{count} {middle}");
        }

    }

    proptest! {
        // Each case computes a curve.
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn thresholds_rise_with_the_count(lambda in 0.0..1e6f64, minimum in 0.0..=1.0, count in 0..COUNT_MAX) {
            let curve = Curve::new(&bump(lambda, minimum));
            let at = |count: u32| {
                if count < curve.saturation() { curve.threshold(count) } else { curve.minimum() }
            };
            prop_assert!(at(0) <= at(count) && at(count) <= at(count + 1) && at(count + 1) <= curve.minimum());
        }
    }
}
