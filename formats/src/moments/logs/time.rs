//! Times outside of lines of a log.

use super::stamp::{self, Day, Form, SECOND, Stamp};
use super::zone::{Zone, offset_at};
use crate::decimal::scaled;
use astracer_model::time::UnixNanos;

/// The instant at the start of a text, and the bytes that it takes. A time of day without a date is
/// one of 1970-01-01. `None` if no time is there, or if it lies outside the years 1970 to 2554.
pub(crate) fn leading(text: &str, zone: &Zone) -> Option<(UnixNanos, usize)> {
    let stamp = stamp::at(text.as_bytes())?;
    let days = match stamp.day {
        Day::Full(days) => days,
        Day::Missing => 0,
        Day::Either { .. } | Day::NoYear { .. } => return None,
        Day::Epoch | Day::Uptime => return Some((UnixNanos(stamp.nanos), stamp.len)),
    };
    let offset = stamp.offset.or_else(|| Some(offset_at(zone, days, stamp.nanos)?.0))?;
    Some((instant(days, stamp.nanos, offset)?, stamp.len))
}

/// The instant of a day, a time of that day and an offset in seconds.
pub(super) fn instant(days: i64, nanos: u64, offset: i32) -> Option<UnixNanos> {
    let seconds = days.checked_mul(86_400)?.checked_sub(i64::from(offset))?;
    let nanos = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    u64::try_from(nanos).ok().map(UnixNanos)
}

/// The stamp that fills a whole text, or a number since 1970 whose unit follows from its size.
pub(super) fn whole(text: &str) -> Option<Stamp> {
    let text = text.trim();
    stamp::at(text.as_bytes()).filter(|stamp| stamp.len == text.len()).or_else(|| whole_number(text))
}

/// A decimal number since 1970 that fills a text, as JSON and logfmt write it.
fn whole_number(text: &str) -> Option<Stamp> {
    let nanos = number(text)?.0;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let unit = match whole.trim_start_matches('-').len() {
        0..=11 => SECOND,
        12..=14 => 1_000_000,
        15..=17 => 1_000,
        _ => 1,
    };
    let digits = u32::try_from(part.len().min(9)).unwrap_or(9);
    let resolution = (unit / 10u64.pow(digits)).max(1);
    let len = text.len();
    Some(Stamp { form: Form::Epoch, day: Day::Epoch, nanos, offset: Some(0), resolution, len })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The instants are those of `date --date=... +%s`.
    #[test]
    fn times_are_read_as_loggers_write_them() {
        let utc = Zone::default();
        let east: Zone = "+08:00".parse().expect("a zone");
        for (text, zone, expected) in [
            ("2026-11-21 00:56:59,259 WARN", &utc, Some((1_795_222_619_259_000_000, 23))),
            ("2026-11-21 08:56:59,259 WARN", &east, Some((1_795_222_619_259_000_000, 23))),
            ("2026-11-21T00:56:59.259Z WARN", &east, Some((1_795_222_619_259_000_000, 24))),
            ("2026-11-21T01:56:59.259+0100]", &east, Some((1_795_222_619_259_000_000, 28))),
            ("21 Nov 2026 00:56:59,259 x", &utc, Some((1_795_222_619_259_000_000, 24))),
            ("26/11/21 00:56:59 INFO", &utc, Some((1_795_222_619_000_000_000, 17))),
            ("2018-05-09 16:43:48 INFO", &utc, Some((1_525_884_228_000_000_000, 19))),
            ("18:05:28.579 INFO", &utc, Some((65_128_579_000_000, 12))),
            ("0:00:00 x", &east, None),
            ("99:00:00", &utc, None),
            ("2026-13-21 00:56:59", &utc, None),
            ("9999-11-21 00:56:59", &utc, None),
            ("12 é", &utc, None),
            ("", &utc, None),
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
        assert!("Europe/Berlin".parse::<Zone>().is_ok());
    }
}
