//! Decimal digits in bytes.

/// A number of exactly `len` digits at the start of a text.
pub(super) fn fixed(text: &[u8], len: usize) -> Option<i64> {
    let digits = text.get(..len)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    digits.iter().try_fold(0i64, |sum, &digit| sum.checked_mul(10)?.checked_add(i64::from(digit - b'0')))
}

/// The number of digits at the start of a text.
pub(super) fn digit_count(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}
