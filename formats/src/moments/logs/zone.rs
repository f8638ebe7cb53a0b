//! Zones: those that lines state, and the one of times that state none.

use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZone;

use super::abbreviations;
use super::digits::{digit_count, fixed};

/// The longest name of a zone, such as `America/Argentina/ComodRivadavia`.
const ZONE_NAME_MAX: usize = 40;

/// The zone of times that state none: an offset from UTC, or a zone of the IANA database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Default for Zone {
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.iana_name(), self.0.to_fixed_offset()) {
            (Some(name), _) => f.write_str(name),
            (None, Ok(offset)) => write!(f, "UTC{offset}"),
            (None, Err(_)) => f.write_str("another zone"),
        }
    }
}

impl FromStr for Zone {
    type Err = String;

    /// `UTC`, `Z`, an offset such as `+08:00`, or a name such as `Europe/Berlin`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "invalid zone '{text}': use UTC, an offset such as +08:00 or a name such as Europe/Berlin"
            )
        };
        if matches!(text, "UTC" | "utc" | "Z") {
            return Ok(Self::default());
        }
        if text.starts_with(['+', '-']) {
            let (offset, len) = numeric_zone(text.as_bytes(), false).ok_or_else(wrong)?;
            let offset = jiff::tz::Offset::from_seconds(offset).ok().filter(|_| len == text.len());
            return offset.map(|offset| Self(offset.to_time_zone())).ok_or_else(wrong);
        }
        TimeZone::get(text).map(Self).map_err(|_| wrong())
    }
}

/// The offset of a civil time in a zone; and the later one, if the hour occurs twice.
pub(super) fn offset_at(zone: &Zone, days: i64, nanos: u64) -> Option<(i32, Option<i32>)> {
    use jiff::tz::AmbiguousOffset;
    let seconds = days.checked_mul(86_400)?.checked_add((nanos / 1_000_000_000) as i64)?;
    let civil = jiff::tz::Offset::UTC.to_datetime(jiff::Timestamp::from_second(seconds).ok()?);
    Some(match zone.0.to_ambiguous_timestamp(civil).offset() {
        AmbiguousOffset::Unambiguous { offset } => (offset.seconds(), None),
        // A clock that was not set forward yet.
        AmbiguousOffset::Gap { before, .. } => (before.seconds(), None),
        AmbiguousOffset::Fold { before, after } => (before.seconds(), Some(after.seconds())),
    })
}

/// The offset in seconds of a zone of the IANA database at the start of a text, in brackets or not,
/// at a time, and its length: ` Europe/Berlin`.
fn named_zone(text: &[u8], day: i64, nanos: u64) -> Option<(i32, usize)> {
    let blank = usize::from(text.first() == Some(&b' '));
    let bracket = usize::from(text.get(blank) == Some(&b'['));
    let word = text.get(blank + bracket..).filter(|word| word.first().is_some_and(u8::is_ascii_uppercase))?;
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"/_-+".contains(byte);
    let len = word.iter().take(ZONE_NAME_MAX).take_while(|byte| is_part(byte)).count();
    let name = std::str::from_utf8(&word[..len]).ok().filter(|name| name.contains('/'))?;
    if bracket == 1 && word.get(len) != Some(&b']') {
        return None;
    }
    let (offset, _) = offset_at(&name.parse().ok()?, day, nanos)?;
    Some((offset, blank + len + 2 * bracket))
}

/// The offset in seconds of the zone at the start of a text, and its length. The name of a place
/// gives one if the day is known, in days since 1970, and the time of the day in nanoseconds.
pub(super) fn zone(text: &[u8], day: Option<i64>, nanos: u64) -> (Option<i32>, usize) {
    let named = || named_zone(text, day?, nanos);
    match stated_zone(text) {
        (None, _) => named().map_or((None, 0), |(offset, len)| (Some(offset), len)),
        stated => stated,
    }
}

/// An offset, or an abbreviation.
fn stated_zone(text: &[u8]) -> (Option<i32>, usize) {
    let blank = usize::from(text.first() == Some(&b' '));
    let word = &text[blank..];
    let found = match word.first() {
        Some(b'Z' | b'z') if blank == 0 && !word.get(1).is_some_and(u8::is_ascii_alphanumeric) => {
            Some((0, 1))
        }
        Some(b'+' | b'-') => numeric_zone(word, blank > 0),
        Some(b'A'..=b'Z') => {
            let len = word.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
            let is_word = !word.get(len).is_some_and(|&next| next.is_ascii_alphanumeric() || next == b'_');
            let sign = matches!(word.get(len), Some(b'+' | b'-'));
            match abbreviations::offset(&word[..len]).filter(|_| is_word) {
                // `UTC+02:00`
                Some(0) if sign => numeric_zone(&word[len..], false)
                    .map(|(offset, used)| (offset, len + used))
                    .or(Some((0, len))),
                Some(offset) => Some((offset, len)),
                None => None,
            }
        }
        _ => None,
    };
    let Some((offset, mut len)) = found else { return (None, 0) };
    // `+02:00[Europe/Paris]`, as java.time and Temporal write it.
    let behind = &word[len..];
    if behind.first() == Some(&b'[')
        && let Some(end) = memchr::memchr(b']', &behind[..behind.len().min(40)])
        && behind[..end].contains(&b'/')
        && behind[1..end].iter().all(|byte| byte.is_ascii_alphanumeric() || b"/_-+".contains(byte))
    {
        len += end + 1;
    }
    (Some(offset), blank + len)
}

/// `+02:00`, `+0200` or `+02`. Behind a blank, four digits are needed, and minutes of a zone: `-
/// 12` may be text.
fn numeric_zone(text: &[u8], is_apart: bool) -> Option<(i32, usize)> {
    let sign = if text[0] == b'-' { -1 } else { 1 };
    let hours = fixed(text.get(1..)?, 2)?;
    let colon = usize::from(text.get(3) == Some(&b':'));
    let digits = text.get(3 + colon..).unwrap_or_default();
    let (minutes, len) = match digit_count(&digits[..digits.len().min(5)]) {
        2 => (fixed(digits, 2)?, 5 + colon),
        0 if colon == 0 && !is_apart => (0, 3),
        _ => return None,
    };
    let is_zone = hours <= 15 && minutes % 15 == 0 && minutes < 60;
    let next_is_word = text.get(len).is_some_and(u8::is_ascii_alphanumeric);
    (is_zone && !next_is_word).then_some((sign * (hours * 3600 + minutes * 60) as i32, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offsets are those of `TZ=Europe/Berlin date --date=@... +%z`.
    #[test]
    fn names_of_zones_give_the_offset_of_their_day() {
        const JULY: i64 = 20_640;
        for (text, day, expected) in [
            (" Europe/Berlin INFO", JULY, Some((7200, 14))),
            ("[Europe/Berlin] x", JULY, Some((7200, 15))),
            (" Europe/Berlin INFO", JULY - 180, Some((3600, 14))),
            (" America/Argentina/Buenos_Aires", JULY, Some((-10_800, 31))),
            (" Europe/Nowhere x", JULY, None),
            (" GET/POST x", JULY, None),
            (" [Europe/Berlin", JULY, None),
        ] {
            let found = zone(text.as_bytes(), Some(day), 0);
            assert_eq!(found.0.map(|offset| (offset, found.1)), expected, "{text}");
        }
        assert_eq!(zone(b" Europe/Berlin", None, 0), (None, 0));
    }
}
