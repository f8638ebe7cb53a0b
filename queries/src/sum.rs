//! Sums that do not depend on the order of their terms: whole numbers exactly, others correctly
//! rounded once at the end.

use crate::value::{Number, Value};
use crate::wire::{Reader, Writer};

/// An exact sum of floating-point numbers, as partial sums that do not overlap: Shewchuk,
/// "Adaptive Precision Floating-Point Arithmetic and Fast Robust Geometric Predicates", 1997.
#[derive(Clone, Debug, Default)]
pub(crate) struct FloatSum {
    parts: Vec<f64>,
    /// The partial sums of terms from [`LARGE`] on, multiplied by [`SCALE`]: no number of terms
    /// makes them or the others overflow.
    large: Vec<f64>,
    /// The sum of infinite terms.
    infinite: f64,
}

/// 2^900.
const LARGE: f64 = f64::from_bits((1023 + 900) << 52);
/// 2^964: a sum of 2^64 terms.
const PART_MAX: f64 = f64::from_bits((1023 + 964) << 52);
/// 2^-200.
const SCALE: f64 = f64::from_bits((1023 - 200) << 52);

impl FloatSum {
    pub(crate) fn add(&mut self, term: f64) {
        if !term.is_finite() {
            self.infinite += term;
        } else if term.abs() < LARGE {
            add_part(&mut self.parts, term);
        } else {
            add_part(&mut self.large, term * SCALE);
        }
    }

    /// Adds `left * right` without rounding the product.
    fn add_product(&mut self, left: f64, right: f64) {
        let product = left * right;
        if product.is_infinite() && left.is_finite() && right.is_finite() {
            let product = left * SCALE * right;
            add_part(&mut self.large, product);
            return;
        }
        self.add(product);
        if product.is_finite() {
            self.add(left.mul_add(right, -product));
        }
    }

    /// Adds a whole number without rounding it.
    fn add_whole(&mut self, number: i128) {
        let mut rest = number;
        while rest != 0 {
            let rounded = rest as f64;
            self.add(rounded);
            rest = rest.saturating_sub(rounded as i128);
        }
    }

    pub(crate) fn merge(&mut self, other: &FloatSum, times: f64) {
        for &part in &other.parts {
            self.add_product(part, times);
        }
        for &part in &other.large {
            let product = part * times;
            add_part(&mut self.large, product);
            add_part(&mut self.large, part.mul_add(times, -product));
        }
        self.infinite += other.infinite;
    }

    /// The sum, rounded to the nearest.
    pub(crate) fn total(&self) -> f64 {
        if self.infinite != 0.0 {
            return self.infinite;
        }
        if !self.large.is_empty() {
            let mut all = self.large.clone();
            self.parts.iter().for_each(|part| add_part(&mut all, part * SCALE));
            return rounded(&all) / SCALE;
        }
        rounded(&self.parts)
    }

    fn is_zero(&self) -> bool {
        self.parts.is_empty() && self.large.is_empty() && self.infinite == 0.0
    }
}

/// Adds a finite term to partial sums that do not overlap.
fn add_part(parts: &mut Vec<f64>, mut term: f64) {
    let mut kept = 0;
    for index in 0..parts.len() {
        let mut part = parts[index];
        if term.abs() < part.abs() {
            std::mem::swap(&mut term, &mut part);
        }
        let high = term + part;
        let low = part - (high - term);
        if low != 0.0 {
            parts[kept] = low;
            kept += 1;
        }
        term = high;
    }
    parts.truncate(kept);
    if term != 0.0 {
        parts.push(term);
    }
}

/// The sum of parts, rounded to the nearest.
fn rounded(parts: &[f64]) -> f64 {
    let mut parts = parts.iter().rev();
    let Some(&first) = parts.next() else { return 0.0 };
    let (mut high, mut low) = (first, 0.0);
    for &part in parts.by_ref() {
        let sum = high + part;
        low = part - (sum - high);
        high = sum;
        if low != 0.0 {
            break;
        }
    }
    // A tie is decided by the sign of the parts below it.
    if let Some(&next) = parts.next()
        && ((low < 0.0 && next < 0.0) || (low > 0.0 && next > 0.0))
    {
        let doubled = low * 2.0;
        let moved = high + doubled;
        if moved - high == doubled {
            high = moved;
        }
    }
    high
}

/// A sum of numbers of both kinds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    whole: i128,
    rest: FloatSum,
    /// Whether any term was a float, so that the total is one too.
    float: bool,
}

impl Sum {
    /// Adds a number as often as `times` says.
    pub(crate) fn add(&mut self, number: Number, times: i128) {
        match number {
            Number::Int(number) => match number.checked_mul(times) {
                Some(product) => self.add_whole(product),
                None => self.add_float(number as f64, times as f64),
            },
            Number::Float(number) => self.add_float(number, times as f64),
        }
    }

    fn add_whole(&mut self, number: i128) {
        match self.whole.checked_add(number) {
            Some(total) => self.whole = total,
            None => {
                self.float = true;
                self.rest.add_whole(number);
            }
        }
    }

    fn add_float(&mut self, number: f64, times: f64) {
        self.float = true;
        self.rest.add_product(number, times);
    }

    /// Adds another sum as often as `times` says.
    pub(crate) fn merge(&mut self, other: &Sum, times: i128) {
        if other.whole != 0 {
            self.add(Number::Int(other.whole), times);
        }
        self.float |= other.float;
        self.rest.merge(&other.rest, times as f64);
    }

    /// Adds another sum, multiplied by a weight.
    pub(crate) fn merge_weighted(&mut self, other: &Sum, weight: f64) {
        if weight == 1.0 {
            self.merge(other, 1);
        } else {
            self.float = true;
            self.rest.add(other.to_f64() * weight);
        }
    }

    pub(crate) fn to_f64(&self) -> f64 {
        if self.rest.is_zero() {
            return self.whole as f64;
        }
        let mut all = self.rest.clone();
        all.add_whole(self.whole);
        all.total()
    }

    pub(crate) fn total(&self) -> Value {
        if self.float { Value::float(self.to_f64()) } else { Value::Int(self.whole) }
    }

    /// The bytes it takes in a bag, about.
    pub(crate) fn size(&self) -> usize {
        Value::Int(self.whole).size() + 2 + 8 * (self.rest.parts.len() + self.rest.large.len())
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.signed(self.whole);
        out.byte(u8::from(self.float));
        if self.float {
            for parts in [&self.rest.parts, &self.rest.large] {
                out.number(parts.len() as u64);
                parts.iter().for_each(|&part| out.float(part));
            }
            out.float(self.rest.infinite);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Option<Sum> {
        let mut sum = Sum { whole: from.signed()?, ..Sum::default() };
        sum.float = from.flag()?;
        if sum.float {
            for parts in [&mut sum.rest.parts, &mut sum.rest.large] {
                // 2^1024 / 2^-1074 in parts of 53 bits.
                for _ in 0..from.count(64)? {
                    add_part(parts, from.float().filter(|part| part.abs() <= PART_MAX)?);
                }
            }
            sum.rest.infinite += from.float()?;
        }
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float_sums_do_not_depend_on_the_order() {
        // The exact sum is 2.0: added from the left, doubles give 0.0.
        let terms = [1e100, 1.0, -1e100, 1.0];
        for start in 0..4 {
            let mut sum = FloatSum::default();
            for index in 0..4 {
                sum.add(terms[(start + index) % 4]);
            }
            assert_eq!(sum.total(), 2.0);
        }
        // Ten times the double nearest to 0.1 rounds to 1; adding it ten times gives 0.999...9.
        let mut sum = Sum::default();
        sum.add(Number::Float(0.1), 10);
        assert_eq!(sum.total(), Value::Float(1.0));
        let mut single = Sum::default();
        single.add(Number::Float(0.1), 1);
        let mut ten = Sum::default();
        (0..10).for_each(|_| ten.merge(&single, 1));
        assert_eq!(ten.total(), Value::Float(1.0));
    }

    fn of(terms: &[f64]) -> FloatSum {
        let mut sum = FloatSum::default();
        terms.iter().for_each(|&term| sum.add(term));
        sum
    }

    /// Above 2^53 doubles are even, so each sum lies halfway between two of them, up to a part far
    /// below the half. A tie goes to the one whose last bit is 0: 2^53 and 2^53 + 4.
    #[test]
    fn a_tie_is_decided_by_the_part_below_it() {
        const HALF: f64 = (1_u64 << 53) as f64;
        const LEAST: f64 = 1e-20;
        for (terms, total) in [
            ([HALF, 1.0, 0.0], HALF),
            ([HALF, 1.0, LEAST], HALF + 2.0),
            ([HALF, 1.0, -LEAST], HALF),
            ([HALF + 2.0, 1.0, 0.0], HALF + 4.0),
            ([HALF + 2.0, 1.0, LEAST], HALF + 4.0),
            ([HALF + 2.0, 1.0, -LEAST], HALF + 2.0),
            // Not a tie: the nearest is certain without the lowest part.
            ([HALF, 0.5, LEAST], HALF),
            ([HALF, 1.5, -LEAST], HALF + 2.0),
        ] {
            assert_eq!(of(&terms).total(), total, "{terms:?}");
            assert_eq!(of(&terms.map(|term| -term)).total(), -total, "-{terms:?}");
        }
    }

    /// 0.1 is a little above a tenth, and 3 times it rounds to more than 3 times its value.
    #[test]
    fn a_product_is_added_with_what_it_rounds_away() {
        let mut sum = Sum::default();
        sum.add(Number::Float(0.1), 3);
        (0..3).for_each(|_| sum.add(Number::Float(-0.1), 1));
        assert_eq!(sum.total(), Value::Float(0.0));
        let mut tenth = Sum::default();
        tenth.add(Number::Float(0.1), 1);
        sum.merge(&tenth, 3);
        sum.add(Number::Float(0.1), -3);
        assert_eq!(sum.total(), Value::Float(0.0));
    }

    #[test]
    fn a_sum_that_travels_is_the_same_sum() {
        let mut sum = Sum::default();
        sum.add(Number::Int(7), 1);
        for number in [1e100, 1.0, 1e-100] {
            sum.add(Number::Float(number), 1);
        }
        let mut out = Writer::default();
        sum.encode(&mut out);
        let bytes = out.into_bytes();
        let mut read = Sum::decode(&mut Reader::new(&bytes)).unwrap();
        read.add(Number::Float(-1e100), 1);
        assert_eq!(read.total(), Value::Float(8.0));
        let overflowed = of(&[f64::MAX, f64::MAX]);
        let mut merged = FloatSum::default();
        merged.merge(&overflowed, 1.0);
        assert_eq!(merged.total(), f64::INFINITY);
        // A sum that overflows in between is finite in the end, whatever the order.
        for terms in [[f64::MAX, f64::MAX, -f64::MAX, 1.0], [f64::MAX, -f64::MAX, 1.0, f64::MAX]] {
            assert_eq!(of(&terms).total(), f64::MAX);
            let mut merged = of(&[-f64::MAX]);
            merged.merge(&of(&terms), 1.0);
            assert_eq!(merged.total(), 1.0);
        }
    }

    #[test]
    fn whole_sums_never_wrap() {
        let mut sum = Sum::default();
        sum.add(Number::Int(i128::from(i64::MAX)), 4);
        assert_eq!(sum.total(), Value::Int(4 * i128::from(i64::MAX)));
        sum.add(Number::Int(i128::MAX), 3);
        assert!(matches!(sum.total(), Value::Float(total) if total > 5e38), "{:?}", sum.total());
        sum.add(Number::Float(f64::INFINITY), 1);
        sum.add(Number::Float(f64::NEG_INFINITY), 1);
        assert_eq!(sum.total(), Value::Null);
    }
}
