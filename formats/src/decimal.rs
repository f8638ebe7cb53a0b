//! Decimal numbers as text, scaled to whole numbers without rounding through binary fractions.

use std::borrow::Cow;

use astracer_model::value::Value;

/// A whole number, and whether it is exactly the text's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scaled {
    pub(super) negative: bool,
    pub(super) magnitude: u64,
    pub(super) exact: bool,
}

impl Scaled {
    /// The number with its sign.
    pub(super) fn signed(self) -> i128 {
        let magnitude = i128::from(self.magnitude);
        if self.negative { -magnitude } else { magnitude }
    }
}

/// Multiplies a JSON number by a power of ten and rounds to the nearest whole number, halves away
/// from zero. `None` if the text is not a number, or the result has more than 64 bits.
pub(super) fn scaled(number: &str, power: i64) -> Option<Scaled> {
    let negative = number.starts_with('-');
    let unsigned = number.strip_prefix('-').unwrap_or(number);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, saturating(exponent)?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes());
    if whole.is_empty() && fraction.is_empty() || !digits().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // The number of digits before the decimal point after scaling.
    let point = (whole.len() as i64).saturating_add(exponent).saturating_add(power);
    let (mut magnitude, mut exact, mut at) = (0u64, true, 0i64);
    for digit in digits().map(|digit| u64::from(digit - b'0')) {
        if at < point {
            magnitude = magnitude.checked_mul(10)?.checked_add(digit)?;
        } else {
            exact &= digit == 0;
            if at == point && digit >= 5 {
                magnitude = magnitude.checked_add(1)?;
            }
        }
        at += 1;
    }
    while magnitude != 0 && at < point {
        magnitude = magnitude.checked_mul(10)?;
        at += 1;
    }
    Some(Scaled { negative, magnitude, exact })
}

/// An exponent; those beyond 64 bits saturate.
fn saturating(exponent: &str) -> Option<i64> {
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // Far enough from the limits of `i64` for sums with lengths.
    let size = digits.parse::<i64>().unwrap_or(i64::MAX).min(i64::MAX / 4);
    Some(if exponent.starts_with('-') { -size } else { size })
}

/// The value of a JSON number, or of `NaN`, `Infinity` or `-Infinity`; other text stays text.
pub(crate) fn read_number(digits: &str) -> Value<'_> {
    if let Ok(value) = digits.parse() {
        return Value::Int(value);
    }
    match digits.parse::<f64>() {
        // Python writes these words, while digits that are too large for a double stay text.
        Ok(value) if value.is_finite() || matches!(digits, "NaN" | "Infinity" | "-Infinity") => {
            Value::Double(value)
        }
        _ => Value::String(Cow::Borrowed(digits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_scaled_exactly() {
        let exact = |text: &str, power| scaled(text, power).map(|found| (found.signed(), found.exact));
        for (text, power, expected) in [
            ("1.7e18", 0, Some((1_700_000_000_000_000_000, true))),
            ("1.700000000001e+18", 0, Some((1_700_000_000_001_000_000, true))),
            ("1700000000000000.123456", 3, Some((1_700_000_000_000_000_123, false))),
            ("1700000000000000.1235", 3, Some((1_700_000_000_000_000_124, false))),
            ("-1.5", 3, Some((-1500, true))),
            ("-0.5", 0, Some((-1, false))),
            ("18446744073709551615", 0, Some((18_446_744_073_709_551_615, true))),
            ("18446744073709551616", 0, None),
            ("0e999999999999999999999", 0, Some((0, true))),
            ("1e999999999999999999999", 0, None),
            ("1e-999999999999999999999", 0, Some((0, false))),
            ("5e-1", 0, Some((1, false))),
            ("0.05e1", 0, Some((1, false))),
            ("NaN", 0, None),
            ("", 0, None),
            ("1e", 0, None),
        ] {
            assert_eq!(exact(text, power), expected, "{text} {power}");
        }
    }
}
