//! The rejection threshold: OpenTelemetry's form of a sampling probability, and its text form `th`.
//!
//! Source: OpenTelemetry specification, "TraceState: Probability Sampling" and "TraceState
//! Handling".

use std::fmt;

use crate::probability::Probability;
use crate::randomness::Randomness;

/// 2^56: the number of values that randomness has.
const RANGE: u64 = 1 << Randomness::BITS;
/// The number of hexadecimal digits in 56 bits.
const DIGITS_MAX: u32 = 14;
/// The number of digits that OpenTelemetry recommends for a configured probability.
const PRECISION: u32 = 4;

/// A rejection threshold `T`, below 2^56. A trace is kept if its randomness is at least `T`, so
/// with probability 1 - T / 2^56. Displays as the value of `th`: hexadecimal, with leading zeros
/// and without trailing ones.
///
/// "Never" has no threshold: the least probability in the specification is 2^-56.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Threshold(u64);

impl Threshold {
    /// Keeps everything: `th:0`.
    pub const ALWAYS: Threshold = Threshold(0);
    /// 2^56: the number of values of randomness, and one past the largest threshold.
    pub(crate) const RANGE: u64 = RANGE;
    /// The largest threshold: keeps only one of the 2^56 values of randomness.
    pub const MAX: Threshold = Threshold(RANGE - 1);

    /// The threshold with this value; `None` if it is 2^56 or more.
    pub const fn new(value: u64) -> Option<Self> {
        if value < RANGE { Some(Threshold(value)) } else { None }
    }

    /// The nearest threshold, (1 - p) * 2^56. Probabilities below 2^-56 count as 2^-56.
    pub fn from_probability(probability: Probability) -> Self {
        // 2^56 * p is exact in a double; 1 - p would round a small p away.
        let kept = (probability.get() * RANGE as f64).round() as u64;
        Threshold(RANGE - kept.clamp(1, RANGE))
    }

    /// The threshold of a configured ratio: rounded to four hexadecimal digits, and one more for
    /// each leading `f` or `0`, so that `th` stays short and the relative error small.
    pub fn from_ratio(probability: Probability) -> Self {
        let exact = Self::from_probability(probability);
        // Each hexadecimal digit is four binary places: p has as many leading zero digits as the
        // threshold has leading `f`s, and 1 - p as many as it has leading `0`s.
        let leading = |value: u64| value.leading_zeros().saturating_sub(u64::BITS - Randomness::BITS) / 4;
        let kept = RANGE - exact.0;
        let digits = PRECISION + leading(exact.0).max(leading(kept));
        let dropped_bits = 4 * DIGITS_MAX.saturating_sub(digits);
        if dropped_bits == 0 {
            return exact;
        }
        let half = 1u64 << (dropped_bits - 1);
        let rounded = (exact.0 + half) >> dropped_bits << dropped_bits;
        // Rounding cannot reach 2^56: half a step is far below `kept`, which has only `digits` - 4
        // leading zeros.
        Threshold(rounded)
    }

    /// The value, below 2^56.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns true if a trace with this randomness is kept.
    pub const fn keeps(self, randomness: Randomness) -> bool {
        randomness.get() >= self.0
    }

    /// The share of traces that this threshold keeps.
    pub fn probability(self) -> Probability {
        // The value is from 2^-56 to 1, so the fallback is only for the type.
        Probability::new((RANGE - self.0) as f64 / RANGE as f64).unwrap_or(Probability::ONE)
    }

    /// The number of traces that a kept one stands for: 1 / probability.
    pub fn adjusted_count(self) -> f64 {
        RANGE as f64 / (RANGE - self.0) as f64
    }

    /// Parses the value of `th`: 1 to 14 lower-case hexadecimal digits, padded with zeros on the
    /// right.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = lower_hex(text, 1..=DIGITS_MAX as usize)?;
        Some(Threshold(digits << (4 * (DIGITS_MAX as usize - text.len()))))
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trailing = (self.0.trailing_zeros() / 4).min(DIGITS_MAX - 1);
        let width = (DIGITS_MAX - trailing) as usize;
        write!(f, "{:0width$x}", self.0 >> (4 * trailing))
    }
}

/// Parses lower-case hexadecimal digits; `None` for other text or another length. Lengths must not
/// exceed 16.
pub(crate) fn lower_hex(text: &str, length: std::ops::RangeInclusive<usize>) -> Option<u64> {
    let valid = length.contains(&text.len()) && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if valid { u64::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(value: f64) -> Probability {
        Probability::new(value).unwrap()
    }

    /// Test vectors: the specification's table for four digits, and those of the collector's
    /// package for probabilities near one.
    #[test]
    fn ratios_print_as_the_specification_says() {
        for (n, th) in [
            (1.0, "0"),
            (2.0, "8"),
            (3.0, "aaab"),
            (4.0, "c"),
            (5.0, "cccd"),
            (8.0, "e"),
            (10.0, "e666"),
            (16.0, "f"),
            (100.0, "fd70a"),
            (1_000.0, "ffbe77"),
            (10_000.0, "fff9724"),
            (100_000.0, "ffff583a"),
            (1_000_000.0, "ffffef39"),
        ] {
            assert_eq!(Threshold::from_ratio(p(1.0 / n)).to_string(), th, "1/{n}");
        }
        assert_eq!(Threshold::from_ratio(p(0.99)).to_string(), "028f6");
        assert_eq!(Threshold::from_ratio(p(0.999)).to_string(), "004189");
        // 2^-56 and anything below it give the largest threshold; 1 - 2^-53 gives the smallest one
        // that a double can express.
        assert_eq!(Threshold::from_ratio(p(2f64.powi(-56))), Threshold::MAX);
        assert_eq!(Threshold::from_ratio(p(1.0 - f64::EPSILON / 2.0)).to_string(), "00000000000008");
    }

    #[test]
    fn probabilities_become_the_nearest_threshold() {
        assert_eq!(Threshold::from_probability(p(1.0)), Threshold::ALWAYS);
        assert_eq!(Threshold::from_probability(p(0.5)).get(), 1 << 55);
        assert_eq!(Threshold::from_probability(p(0.0)), Threshold::MAX);
        // (1 - 0.01) * 2^56 = 71337018097548656.64 = fd70a3d70a3d70.a3...
        assert_eq!(Threshold::from_probability(p(0.01)).get(), 71_337_018_097_548_657);
        assert_eq!(Threshold::from_probability(p(3.0 * 2f64.powi(-56))).get(), (1 << 56) - 3);
    }

    #[test]
    fn gives_back_probability_and_weight() {
        let quarter = Threshold::parse("c").unwrap();
        assert_eq!(quarter.probability(), p(0.25));
        assert_eq!(quarter.adjusted_count(), 4.0);
        assert_eq!(Threshold::ALWAYS.adjusted_count(), 1.0);
        assert_eq!(Threshold::MAX.adjusted_count(), 2f64.powi(56));
        // From the specification's table: e666 stands for 9.99938968568813 traces.
        assert!((Threshold::parse("e666").unwrap().adjusted_count() - 9.99938968568813).abs() < 1e-13);
    }

    #[test]
    fn keeps_what_is_not_below_it() {
        let half = Threshold::parse("8").unwrap();
        assert!(half.keeps(Randomness::from_low_bits(1 << 55)));
        assert!(!half.keeps(Randomness::from_low_bits((1 << 55) - 1)));
        assert!(Threshold::MAX.keeps(Randomness::MAX));
        assert!(Threshold::ALWAYS.keeps(Randomness::MIN));
    }

    #[test]
    fn reads_one_to_fourteen_lower_case_digits() {
        for (text, value) in [("0", 0), ("8", 1 << 55), ("00000000000001", 1), ("028f6", 0x02_8f60_0000_0000)]
        {
            assert_eq!(Threshold::parse(text).map(Threshold::get), Some(value), "{text}");
        }
        for text in ["", "000000000000000", "E666", "g", "+1", " 1", "0x1", "é", "-1"] {
            assert_eq!(Threshold::parse(text), None, "{text}");
        }
        assert_eq!(Threshold::new(1 << 56), None);
        assert_eq!(Threshold::new((1 << 56) - 1), Some(Threshold::MAX));
    }
}
