//! The times that loggers write.

use crate::decimal::scaled;
use astracer_model::time::UnixNanos;

/// The zone of times that state none, as an offset from UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    minutes: i64,
}

impl std::str::FromStr for Zone {
    type Err = String;

    /// `UTC`, `Z`, or an offset such as `+08:00`.
    fn from_str(text: &str) -> Result<Self, String> {
        let minutes = match text {
            "UTC" | "utc" | "Z" => Some(0),
            _ => offset(text).filter(|&(_, len)| len == text.len()).map(|(minutes, _)| minutes),
        };
        let wrong = || format!("invalid zone '{text}': use UTC or an offset such as +08:00");
        minutes.map(|minutes| Self { minutes }).ok_or_else(wrong)
    }
}

const DAY_SECONDS: i64 = 86_400;
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// The instant at the start of a text, and the bytes that it takes. A time of day without a date is
/// one of 1970-01-01. `None` if no time is there, or if it lies outside the years 1970 to 2554.
pub(crate) fn leading(text: &str, zone: Zone) -> Option<(UnixNanos, usize)> {
    let (days, mut at) = match date(text) {
        Some((days, len)) => {
            (days, len + usize::from(matches!(text.as_bytes().get(len), Some(b'T' | b't' | b' '))))
        }
        None => (0, 0),
    };
    let (hours, used) = digits(&text[at..], 1..=2)?;
    at += used + 1;
    let (minutes, used) = digits(after(text, at, b':')?, 2..=2)?;
    at += used + 1;
    let (seconds, used) = digits(after(text, at, b':')?, 2..=2)?;
    at += used;
    if hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    let mut nanos = 0;
    if matches!(text.as_bytes().get(at), Some(b'.' | b',')) {
        let rest = &text[at + 1..];
        let len = rest.bytes().take_while(u8::is_ascii_digit).count();
        if (1..=18).contains(&len) {
            nanos = scaled(&format!("0.{}", &rest[..len]), 9)?.magnitude;
            at += 1 + len;
        }
    }
    let rest = &text[at..];
    let (shift, used) = match rest.as_bytes().first() {
        Some(b'Z' | b'z') => (0, 1),
        _ => offset(rest).unwrap_or((zone.minutes, 0)),
    };
    let total = days * DAY_SECONDS + hours * 3600 + (minutes - shift) * 60 + seconds;
    let nanos = u64::try_from(total).ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    Some((UnixNanos(nanos), at + used))
}

/// The instant that fills a whole text, or a number since 1970 whose unit follows from its size.
pub(super) fn whole(text: &str, zone: Zone) -> Option<UnixNanos> {
    let text = text.trim();
    match leading(text, zone) {
        Some((time, len)) if len == text.len() => Some(time),
        _ => number(text),
    }
}

/// A number of seconds, milliseconds, microseconds or nanoseconds since 1970: they differ in size
/// for all years from 1973 to 5138.
pub(super) fn number(text: &str) -> Option<UnixNanos> {
    let seconds = scaled(text, 0).filter(|found| !found.negative)?.magnitude;
    let power = match seconds {
        0..100_000_000_000 => 9,
        100_000_000_000..100_000_000_000_000 => 6,
        100_000_000_000_000..100_000_000_000_000_000 => 3,
        _ => 0,
    };
    scaled(text, power).map(|found| UnixNanos(found.magnitude)).filter(|time| time.0 != 0)
}

/// The text from `at`, if this byte precedes it.
fn after(text: &str, at: usize, byte: u8) -> Option<&str> {
    (text.as_bytes().get(at.checked_sub(1)?) == Some(&byte)).then(|| text.get(at..)).flatten()
}

fn digits(text: &str, len: std::ops::RangeInclusive<usize>) -> Option<(i64, usize)> {
    let found = text.bytes().take(*len.end()).take_while(u8::is_ascii_digit).count();
    len.contains(&found).then(|| text[..found].parse().ok()).flatten().map(|number| (number, found))
}

/// The days since 1970 of `2026-11-21`, `2026/11/21`, `26/11/21` or `21 Nov 2026`, and their
/// length.
fn date(text: &str) -> Option<(i64, usize)> {
    let (first, used) = digits(text, 1..=4)?;
    let separator = *text.as_bytes().get(used)?;
    let (year, month, day, end) = match separator {
        b'-' | b'/' if used == 4 || used == 2 && separator == b'/' => {
            let (month, len) = digits(&text[used + 1..], 2..=2)?;
            let at = used + 1 + len + 1;
            let (day, len) = digits(after(text, at, separator)?, 2..=2)?;
            (if used == 2 { 2000 + first } else { first }, month, day, at + len)
        }
        b' ' | b'-' | b'/' if used <= 2 => {
            let name = text.get(used + 1..used + 4)?.to_ascii_lowercase();
            let month = MONTHS.iter().position(|month| *month == name)? as i64 + 1;
            let at = used + 5;
            let (year, len) = digits(after(text, at, separator)?, 4..=4)?;
            (year, month, first, at + len)
        }
        _ => return None,
    };
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
    is_date.then(|| (crate::rfc3339::days(year, month, day), end))
}

/// The minutes of `+08:00`, `+0800` or `+08`, and their length.
fn offset(text: &str) -> Option<(i64, usize)> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, used) = digits(&text[1..], 2..=2)?;
    let mut at = 1 + used;
    let colon = usize::from(text.as_bytes().get(at) == Some(&b':'));
    let mut minutes = 0;
    if let Some((found, used)) = text.get(at + colon..).and_then(|rest| digits(rest, 2..=2)) {
        minutes = found;
        at += colon + used;
    }
    (hours < 24 && minutes < 60).then_some((sign * (hours * 60 + minutes), at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The instants are those of `date --date=... +%s`.
    #[test]
    fn times_are_read_as_loggers_write_them() {
        let east: Zone = "+08:00".parse().expect("a zone");
        for (text, zone, expected) in [
            ("2026-11-21 00:56:59,259 WARN", Zone::default(), Some((1_795_222_619_259_000_000, 23))),
            ("2026-11-21 08:56:59,259 WARN", east, Some((1_795_222_619_259_000_000, 23))),
            ("2026-11-21T00:56:59.259Z WARN", east, Some((1_795_222_619_259_000_000, 24))),
            ("2026-11-21T01:56:59.259+0100]", east, Some((1_795_222_619_259_000_000, 28))),
            ("21 Nov 2026 00:56:59,259 x", Zone::default(), Some((1_795_222_619_259_000_000, 24))),
            ("26/11/21 00:56:59 INFO", Zone::default(), Some((1_795_222_619_000_000_000, 17))),
            ("2018-05-09 16:43:48 INFO", Zone::default(), Some((1_525_884_228_000_000_000, 19))),
            ("18:05:28.579 INFO", Zone::default(), Some((65_128_579_000_000, 12))),
            ("0:00:00 x", east, None),
            ("99:00:00", Zone::default(), None),
            ("2026-13-21 00:56:59", Zone::default(), None),
            ("9999-11-21 00:56:59", Zone::default(), None),
            ("12 é", Zone::default(), None),
            ("", Zone::default(), None),
        ] {
            let expected = expected.map(|(nanos, len)| (UnixNanos(nanos), len));
            assert_eq!(leading(text, zone), expected, "{text}");
        }
    }

    #[test]
    fn numbers_are_instants_by_their_size() {
        for (text, nanos) in [
            ("1525884228", Some(1_525_884_228_000_000_000)),
            ("1525884228.5", Some(1_525_884_228_500_000_000)),
            ("1525884228647", Some(1_525_884_228_647_000_000)),
            ("1525884228647000", Some(1_525_884_228_647_000_000)),
            ("1525884228647000001", Some(1_525_884_228_647_000_001)),
            ("-5", None),
            ("0", None),
            ("1e99", None),
            ("x", None),
        ] {
            assert_eq!(number(text).map(|time| time.0), nanos, "{text}");
        }
        assert!("+99:00".parse::<Zone>().is_err() && "Berlin".parse::<Zone>().is_err());
    }
}
