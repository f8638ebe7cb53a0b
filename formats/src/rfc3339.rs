//! Times and durations as protobuf's JSON mapping writes them.

use super::decimal::scaled;
use astracer_model::time::UnixNanos;

/// The instant of an RFC 3339 text such as `2026-11-26T10:00:00.123Z`; `None` if the text is not
/// one, or the instant is outside the years 1970 to 2554.
pub(super) fn instant(text: &str) -> Option<UnixNanos> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let zone = rest.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = rest.split_at(zone);
    let [year, month, day] = numbers(date, '-')?;
    let (clock, fraction) = time.split_once('.').map_or((time, ""), |(clock, fraction)| (clock, fraction));
    let [hours, minutes, seconds] = numbers(clock, ':')?;
    let is_valid = (1..=12).contains(&month) && (1..=31).contains(&day) && hours < 24 && minutes < 60;
    if !is_valid || seconds > 60 {
        return None;
    }
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let (hours, minutes) = zone[1..].split_once(':')?;
            let minutes = number(hours)? * 60 + number(minutes)?;
            if zone.starts_with('-') { -minutes } else { minutes }
        }
    };
    let nanos = if fraction.is_empty() { 0 } else { scaled(&format!("0.{fraction}"), 9)?.magnitude };
    let seconds = days(year, month, day) * 86_400 + (hours * 60 + minutes - offset) * 60 + seconds;
    u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(nanos).map(UnixNanos)
}

/// The nanoseconds of a duration such as `0.100s`.
pub(super) fn duration(text: &str) -> Option<i128> {
    scaled(text.strip_suffix('s')?, 9).map(|nanos| nanos.signed())
}

/// Days since 1970 in the Gregorian calendar: each year begins in March, so that the leap day is
/// its last (Hinnant, "chrono-Compatible Low-Level Date Algorithms").
pub(super) fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut parts = text.split(separator).map(number);
    let all = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(all)
}

fn number(text: &str) -> Option<i64> {
    let is_short = (1..=4).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_digit());
    if is_short { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_those_of_the_calendar() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T12:00:00.5Z", Some(951_825_600_500_000_000)),
            ("2023-11-14T22:13:20.000000001Z", Some(1_700_000_000_000_000_001)),
            ("2023-11-15T00:13:20+02:00", Some(1_700_000_000_000_000_000)),
            ("2023-11-14T17:13:20-05:00", Some(1_700_000_000_000_000_000)),
            ("1969-12-31T23:59:59Z", None),
            ("2023-13-14T22:13:20Z", None),
            ("2023-11-14", None),
            ("2023-11-14T22:13:20", None),
            ("", None),
        ] {
            assert_eq!(instant(text).map(|time| time.0), expected, "{text}");
        }
        assert_eq!(duration("0.100s"), Some(100_000_000));
        assert_eq!(duration("-1s"), Some(-1_000_000_000));
        assert_eq!(duration("5"), None);
    }
}
