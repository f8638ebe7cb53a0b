//! Trace and span ids, and their hexadecimal form.

use std::fmt;

/// A 128-bit trace id. Zero means that no trace id was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(pub u128);

/// A 64-bit span id. Zero is not a valid id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(pub u64);

impl TraceId {
    /// The zero id: no trace id was recorded.
    pub const ZERO: Self = Self(0);

    /// Parses 1 to 32 hexadecimal digits of either case. Fewer than 32 digits are read as a 64-bit
    /// or unpadded id.
    pub fn from_hex(text: &str) -> Option<Self> {
        parse_hex(text, 32).map(Self)
    }
}

impl SpanId {
    /// The zero id: no span id was recorded.
    pub const ZERO: Self = Self(0);

    /// Parses 1 to 16 hexadecimal digits of either case.
    pub fn from_hex(text: &str) -> Option<Self> {
        parse_hex(text, 16).map(|value| Self(value as u64))
    }
}

fn parse_hex(text: &str, digits_max: usize) -> Option<u128> {
    if text.is_empty() || text.len() > digits_max {
        return None;
    }
    let (high, low) = text.as_bytes().split_at(text.len().saturating_sub(16));
    Some(u128::from(parse_hex_u64(high)?) << 64 | u128::from(parse_hex_u64(low)?))
}

/// Parses up to 16 digits. Invalid digits are detected after the loop, which keeps the loop free of
/// branches.
fn parse_hex_u64(digits: &[u8]) -> Option<u64> {
    let (mut value, mut seen) = (0, 0);
    for &byte in digits {
        let digit = DIGITS[usize::from(byte)];
        seen |= digit;
        value = value << 4 | u64::from(digit);
    }
    (seen <= 0xf).then_some(value)
}

/// The value of each hexadecimal digit; 255 for any other byte.
const DIGITS: [u8; 256] = {
    let mut digits = [255; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value] as usize] = value as u8;
        digits[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_read_in_both_cases_and_any_length_up_to_the_full_one() {
        assert_eq!(
            TraceId::from_hex("5B8EFFF798038103D269B633813FC60C"),
            Some(TraceId(0x5b8efff798038103d269b633813fc60c))
        );
        assert_eq!(TraceId::from_hex("151e8ea44a5cf41c"), Some(TraceId(0x151e8ea44a5cf41c)));
        assert_eq!(SpanId::from_hex("f"), Some(SpanId(15)));
        for bad in ["", "g", "0x1", " 1", "+1", "11112222333344445"] {
            assert_eq!(SpanId::from_hex(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn ids_print_padded_and_lower_case() {
        assert_eq!(TraceId(0xAB).to_string(), "000000000000000000000000000000ab");
        assert_eq!(SpanId(0xAB).to_string(), "00000000000000ab");
    }
}
