//! f by table lookup: from a count to a threshold, without a logarithm or an exponential per call.
//!
//! With v = exponent * log2(count / lambda), f is 1 - exp(-2^-v): one function of one number,
//! whatever the parameters. [`Tables`] holds it once for all samplers of a process, so that
//! parameters of single keys cost no table. Small whole counts, which matter most, have exact
//! thresholds in a table for each pair of lambda and exponent. Equal parameters share these tables,
//! and their total size is bounded.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::{Bump, Count};
use crate::threshold::Threshold;

/// Whole counts below this have exact thresholds.
const EXACT_COUNTS: u32 = 1 << 12;
/// The greatest total size of a sampler's exact tables. Parameters that no longer fit are looked up
/// in [`Tables`] from the first call on.
const EXACT_BYTES_MAX: usize = 4 << 20;
/// The largest count, well below 2^32, where it would overflow into the window's number.
const COUNT_MAX: u32 = u32::MAX - (1 << 16);

/// The number of fraction bits of a fixed-point logarithm.
pub(super) const LOG_BITS: u32 = 32;
/// 1 as a fixed-point logarithm.
pub(super) const LOG_ONE: i64 = 1 << LOG_BITS;

/// Table entries per unit of a logarithm: 2^6. Interpolation between them is right to (ln 2 / 64)^2
/// / 8 = 1.5e-5 of f.
const STEP_BITS: u32 = 6;
/// The same for the table of logarithms: 2^8 entries, right to (1 / 256)^2 / (8 ln 2) = 2.8e-6.
const LOG_STEP_BITS: u32 = 8;
/// The first v of the table: 1 - exp(-2^6) is 1 as a double, and its threshold is 0.
const V_MIN: i64 = -6 * LOG_ONE;
/// The number of units of v in the table: it ends at 57, and 2^-57 is below the least probability.
const V_UNITS: usize = 63;
/// The number of units in the table of sums: log2(1 + 2^-32) rounds to the least fixed-point number
/// above 0.
const SUM_UNITS: usize = 32;

/// The functions that all samplers of a process share: 50 kB.
#[derive(Debug)]
pub(super) struct Tables {
    /// The thresholds of 1 - exp(-2^-v), from v = [`V_MIN`] on.
    thresholds: Box<[u64]>,
    /// log2(1 + 2^-d), from d = 0 on.
    sums: Box<[u64]>,
    /// log2(1 + m), for m from 0 to 1.
    logs: Box<[u64]>,
    /// 2^(32 - m), for m from 0 to 1.
    powers: Box<[u64]>,
}

pub(super) static TABLES: LazyLock<Tables> = LazyLock::new(Tables::new);

impl Tables {
    fn new() -> Self {
        let points = |units: usize, step_bits: u32| {
            (0..=units << step_bits).map(move |at| at as f64 / f64::from(1 << step_bits))
        };
        let fixed = |log: f64| (log * LOG_ONE as f64).round() as u64;
        let kept = |v: f64| -(-(-v).exp2()).exp_m1() * Threshold::RANGE as f64;
        Tables {
            thresholds: points(V_UNITS, STEP_BITS)
                .map(|at| Threshold::RANGE - (kept(at - 6.0).round() as u64).clamp(1, Threshold::RANGE))
                .collect(),
            sums: points(SUM_UNITS, STEP_BITS)
                .map(|d| fixed((-d).exp2().ln_1p() / std::f64::consts::LN_2))
                .collect(),
            powers: points(1, STEP_BITS).map(|m| fixed((-m).exp2())).collect(),
            logs: points(1, LOG_STEP_BITS).map(|m| fixed(m.ln_1p() / std::f64::consts::LN_2)).collect(),
        }
    }

    /// The table's value at `at`, which is at least 0, interpolated between two entries; beyond the
    /// end, the last entry.
    #[inline]
    fn interpolate<const STEP_BITS: u32>(table: &[u64], at: i64) -> u64 {
        let rest_bits = LOG_BITS - STEP_BITS;
        let entry = (at >> rest_bits) as usize;
        match table.get(entry..entry + 2) {
            Some(&[from, to]) => {
                let rest = i128::from(at & ((1 << rest_bits) - 1));
                // Either entry may be the larger one, so the difference is signed.
                from.wrapping_add_signed(
                    ((i128::from(to.wrapping_sub(from) as i64) * rest) >> rest_bits) as i64,
                )
            }
            _ => table.last().copied().unwrap_or_default(),
        }
    }

    /// The threshold of 1 - exp(-2^-v).
    #[inline]
    fn threshold(&self, v: i64) -> u64 {
        Self::interpolate::<STEP_BITS>(&self.thresholds, v.saturating_sub(V_MIN).max(0))
    }

    /// log2(2^a + 2^b). Both arguments may have wrapped around, so their difference is read as a
    /// signed number.
    #[inline]
    pub(super) fn sum(&self, a: u64, b: u64) -> u64 {
        let difference = a.wrapping_sub(b) as i64;
        let larger = if difference >= 0 { a } else { b };
        larger.wrapping_add(Self::interpolate::<STEP_BITS>(&self.sums, difference.saturating_abs()))
    }

    /// `value` * 2^-by, for a `value` of at most 2^56.
    #[inline]
    pub(super) fn power(&self, value: u64, by: u64) -> u64 {
        let part = Self::interpolate::<STEP_BITS>(&self.powers, (by & (LOG_ONE as u64 - 1)) as i64);
        let value = (u128::from(value) * u128::from(part)) >> LOG_BITS;
        (value >> (by >> LOG_BITS).min(127)) as u64
    }

    /// log2(count), for a count of at least 1.
    #[inline]
    fn log2(&self, count: u32) -> i64 {
        let whole = i64::from(count.max(1).ilog2());
        let rest = (u64::from(count) << LOG_BITS >> whole) as i64 - LOG_ONE;
        whole * LOG_ONE + Self::interpolate::<LOG_STEP_BITS>(&self.logs, rest.max(0)) as i64
    }
}

/// max(f, minimum) as thresholds, for one set of parameters.
#[derive(Debug)]
pub(super) struct Curve {
    exact: Arc<[u64]>,
    pub(super) tables: &'static Tables,
    lambda_log2: i64,
    exponent: i64,
    minimum: u64,
    saturation: u32,
}

impl Curve {
    /// The least whole count, at least 1, from which on f is at most the minimum; or the largest
    /// count, if f never falls that far.
    #[inline]
    pub(super) fn saturation(&self) -> u32 {
        self.saturation
    }

    /// The minimum's threshold, which holds from the saturation on.
    #[inline]
    pub(super) fn minimum(&self) -> u64 {
        self.minimum
    }

    /// The threshold of f for a whole count; 0 for a count of 0.
    #[inline]
    pub(super) fn threshold(&self, count: u32) -> u64 {
        match self.exact.get(count as usize) {
            Some(&threshold) => threshold,
            None => self.look_up(count),
        }
    }

    #[inline(never)]
    fn look_up(&self, count: u32) -> u64 {
        if count == 0 { 0 } else { self.threshold_of_log2(self.tables.log2(count)) }
    }

    /// The threshold of f for a count above 0, given its logarithm.
    #[inline]
    pub(super) fn threshold_of_log2(&self, count_log2: i64) -> u64 {
        let v = i128::from(self.exponent) * i128::from(count_log2 - self.lambda_log2);
        self.tables.threshold((v >> LOG_BITS) as i64)
    }
}

/// The exact tables of all parameters of a sampler.
#[derive(Debug)]
pub(crate) struct Curves(HashMap<[u64; 2], Arc<[u64]>>);

impl Curves {
    /// Computes the tables of these parameters, in order, until they would exceed
    /// [`EXACT_BYTES_MAX`].
    pub(crate) fn new<'a>(bumps: impl Iterator<Item = &'a Bump> + Clone) -> Self {
        let mut counts: HashMap<[u64; 2], u32> = HashMap::new();
        for bump in bumps.clone() {
            let length = counts.entry(Self::name(bump)).or_default();
            *length = exact_counts(bump).max(*length);
        }
        let mut left = EXACT_BYTES_MAX / size_of::<u64>();
        let mut curves = HashMap::new();
        for bump in bumps {
            let name = Self::name(bump);
            let length = counts.remove(&name).unwrap_or(0);
            if length == 0 || length as usize > left {
                continue;
            }
            left -= length as usize;
            curves.insert(name, (0..length).map(|count| exact(bump, count)).collect());
        }
        Curves(curves)
    }

    /// Identifies f: parameters with the same name share a table.
    fn name(bump: &Bump) -> [u64; 2] {
        [bump.lambda().to_bits(), bump.exponent().to_bits()]
    }

    pub(super) fn of(&self, bump: &Bump) -> Curve {
        let mut curve = looked_up(bump);
        if let Some(exact) = self.0.get(&Self::name(bump)) {
            curve.exact = Arc::clone(exact);
        }
        curve.saturation = saturation(bump, &curve);
        curve
    }
}

/// The number of counts with an exact threshold.
fn exact_counts(bump: &Bump) -> u32 {
    match bump.count() {
        Count::Tumbling { .. } => saturation(bump, &looked_up(bump)).min(EXACT_COUNTS),
        Count::Decaying { .. } | Count::Paced { .. } | Count::Uncounted => 0,
    }
}

/// The threshold of f, computed.
fn exact(bump: &Bump, count: u32) -> u64 {
    Threshold::from_probability(bump.f(f64::from(count))).get()
}

/// A curve without an exact table.
fn looked_up(bump: &Bump) -> Curve {
    // log2(0) is negative infinity; no double is beyond 2^2000.
    let log2 = bump.lambda().log2().clamp(-2000.0, 2000.0);
    Curve {
        exact: Arc::from([]),
        tables: &TABLES,
        lambda_log2: (log2 * LOG_ONE as f64) as i64,
        exponent: (bump.exponent() * LOG_ONE as f64) as i64,
        minimum: Threshold::from_probability(bump.minimum()).get(),
        saturation: COUNT_MAX,
    }
}

fn saturation(bump: &Bump, curve: &Curve) -> u32 {
    let threshold = |count: u32| match count < EXACT_COUNTS {
        true => exact(bump, count),
        false => curve.look_up(count),
    };
    first(1, COUNT_MAX, |count| threshold(count) >= curve.minimum)
}

/// The least of `low..=high` for which `is` holds, by bisection: once `is` holds it must hold for
/// all larger values. `high` if it never holds.
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

    fn curve(bump: &Bump) -> Curve {
        Curves::new([bump].into_iter()).of(bump)
    }

    fn probability(threshold: u64) -> f64 {
        Threshold::new(threshold).unwrap().probability().get()
    }

    /// f falls to m at x = lambda / sqrt(-ln(1 - m)): 99.75 for (10, 0.01), 9040 for (1034, 0.013).
    #[test]
    fn saturates_where_f_falls_to_the_minimum() {
        for (lambda, minimum, saturation) in [
            (10.0, 0.01, 100..=100),
            (1034.0, 0.013, 9038..=9042),
            (1.0, 1.0, 1..=1),
            (1.0, 0.9, 1..=1),
            (0.0, 0.0, 1..=1),
            (0.0, 0.5, 1..=1),
            // The largest count: 2^32 - 2^16 - 1.
            (100.0, 0.0, 4_294_901_759..=4_294_901_759),
            (1e300, 0.5, 4_294_901_759..=4_294_901_759),
        ] {
            let curve = curve(&bump(lambda, minimum));
            assert!(saturation.contains(&curve.saturation()), "lambda {lambda}: {}", curve.saturation());
            let expected = Threshold::from_probability(Probability::new(minimum).unwrap());
            assert_eq!(curve.minimum(), expected.get());
        }
    }

    /// f falls to the minimum at an x just beside a whole number: closer than interpolation could
    /// distinguish.
    #[test]
    fn saturates_at_the_very_count_below_2_to_the_12() {
        for n in 0..200 {
            for beside in [0.01, 0.99] {
                let (lambda, x) = (500.0 + f64::from(n), 3_000.0 + f64::from(n) + beside);
                let curve = curve(&bump(lambda, bump(lambda, 0.0).f(x).get()));
                assert_eq!(curve.saturation(), 3_001 + n, "lambda {lambda}");
            }
        }
    }

    #[test]
    fn is_exact_below_2_to_the_12_and_close_beyond() {
        for (lambda, exponent) in [(1e5, 2.0), (300.0, 2.0), (300.0, 1.0), (20.0, 0.5), (2e4, 3.0)] {
            let bump = bump(lambda, 0.0).with_exponent(exponent).unwrap();
            let curve = curve(&bump);
            for count in (0..1 << 12).step_by(97).chain([1, (1 << 12) - 1]) {
                assert_eq!(curve.threshold(count), exact(&bump, count), "{count}");
            }
            for bits in 12..32 {
                for count in
                    [1u32 << bits, (1 << bits) + 1, (3 << (bits - 1)) - 1, ((1u64 << (bits + 1)) - 1) as u32]
                {
                    let exact = bump.probability(f64::from(count)).get();
                    let error = (probability(curve.threshold(count)) - exact) / exact;
                    // Interpolation is right to 2e-5; below 2^-40 the error is that of rounding to
                    // whole multiples of 2^-56.
                    assert!(
                        error.abs() < 1e-4 || exact < 2f64.powi(-40),
                        "{lambda} {exponent} {count}: {error}"
                    );
                }
            }
        }
    }

    #[test]
    fn sums_and_logarithms_are_those_of_real_arithmetic() {
        let fixed = |log: f64| (log * LOG_ONE as f64).round() as i64;
        for a in [-30.5, -3.0, -0.1, 0.0, 0.7, 5.3, 20.0, 40.0] {
            for b in [-20.0f64, -1.0, 0.0, 0.7, 13.2] {
                let sum = TABLES.sum(fixed(a) as u64, fixed(b) as u64) as i64;
                let error = sum as f64 / LOG_ONE as f64 - (a.exp2() + b.exp2()).log2();
                assert!(error.abs() < 1e-5, "{a} {b}: {error}");
                assert_eq!(sum, TABLES.sum(fixed(b) as u64, fixed(a) as u64) as i64);
            }
        }
        for count in [1, 2, 3, 4097, 65_535, 1 << 31, u32::MAX] {
            let error = TABLES.log2(count) as f64 / LOG_ONE as f64 - f64::from(count).log2();
            assert!(error.abs() < 3e-6, "{count}: {error}");
        }
    }

    #[test]
    fn powers_are_those_of_real_arithmetic() {
        for by in [0.0, 0.3, 0.999, 1.0, 7.7, 40.2, 90.0] {
            let found = TABLES.power(1 << 56, (by * LOG_ONE as f64) as u64) as f64;
            let expected = f64::exp2(56.0 - by);
            assert!((found / expected - 1.0).abs() < 3e-5 || expected < 1e5, "{by}: {found}");
        }
        assert_eq!(TABLES.power(1 << 56, u64::MAX >> 1), 0);
    }

    #[test]
    fn equal_parameters_share_a_table_and_all_are_bounded() {
        let of = |bumps: &[Bump]| {
            let curves = Curves::new(bumps.iter());
            curves.0.values().map(|table| table.len()).sum::<usize>()
        };
        assert_eq!(of(&[bump(10.0, 0.01)]), 100);
        assert_eq!(of(&[bump(100.0, 0.0)]), 4_096);
        // A shared table has the length of the longest; other minima cost nothing.
        let minima: Vec<Bump> = (1..=1000).map(|n| bump(10.0, f64::from(n) / 1000.0)).collect();
        assert_eq!(of(&minima), 317, "10 / sqrt(-ln(1 - 0.001)) = 316.1");
        let many: Vec<Bump> = (1..10_000).map(|n| bump(f64::from(n), 0.0)).collect();
        assert_eq!(of(&many), EXACT_BYTES_MAX / 8);
        // Parameters without a table of their own are looked up, and are right as well.
        let (curves, last) = (Curves::new(many.iter()), &many[9_998]);
        for count in [1, 50, 4_095, 20_000, 1 << 20] {
            let error = probability(curves.of(last).threshold(count))
                / last.probability(f64::from(count)).get()
                - 1.0;
            assert!(error.abs() < 1e-4, "{count}: {error}");
        }
        assert_eq!(curves.of(last).threshold(0), 0);
    }

    proptest! {
        // Each case computes a table.
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn thresholds_rise_with_the_count(
            lambda in 0.0..1e6f64, exponent in 0.5..4.0, minimum in 0.0..=1.0, count in 0..COUNT_MAX,
        ) {
            let curve = curve(&bump(lambda, minimum).with_exponent(exponent).unwrap());
            let at = |count: u32| {
                if count < curve.saturation() { curve.threshold(count) } else { curve.minimum() }
            };
            prop_assert!(at(0) <= at(count) && at(count) <= at(count + 1) && at(count + 1) <= curve.minimum());
        }
    }
}
