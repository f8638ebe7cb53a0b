//! Times that the user describes in letters of strftime.

use jiff::fmt::strtime::BrokenDownTime;

use super::stamp::{Day, Form, SECOND, Stamp};
use crate::rfc3339::days;

/// The letters of strftime for the letters of Java's `DateTimeFormatter` in `%d{dd.MM.yy HHmmss}`.
/// `None` for the names of forms, such as `ISO8601`, and for letters that have no equal: the scanner
/// of times reads these by itself.
pub(super) fn letters(pattern: &str) -> Option<String> {
    if pattern.contains('%') {
        return Some(pattern.to_owned());
    }
    if pattern.is_empty() || pattern.starts_with("ISO") || pattern == "UNIX" || pattern.ends_with("_MILLIS") {
        return None;
    }
    let (mut found, mut rest) = (String::new(), pattern);
    while let Some(first) = rest.chars().next() {
        if first == '\'' {
            let (quoted, behind) = rest[1..].split_once('\'')?;
            found.push_str(if quoted.is_empty() { "'" } else { quoted });
            rest = behind;
            continue;
        }
        if !first.is_ascii_alphabetic() {
            found.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let behind = rest.trim_start_matches(first);
        let letter = match (first, rest.len() - behind.len()) {
            ('y' | 'u', 2) => "%y",
            ('y' | 'u', _) => "%Y",
            ('M' | 'L', 1 | 2) => "%m",
            ('M' | 'L', 3) => "%b",
            ('M' | 'L', 4) => "%B",
            ('d', 1 | 2) => "%d",
            ('D', _) => "%j",
            ('E', 1..=3) => "%a",
            ('E', 4) => "%A",
            ('a', 1) => "%p",
            ('H', 1 | 2) => "%H",
            ('h', 1 | 2) => "%I",
            ('m', 1 | 2) => "%M",
            ('s', 1 | 2) => "%S",
            ('S' | 'n', _) => "%f",
            ('Z', 1..=3) | ('X' | 'x', 2) => "%z",
            ('X' | 'x', 3) => "%:z",
            _ => return None,
        };
        found.push_str(letter);
        rest = behind;
    }
    Some(found)
}

/// The stamp at the start of a text that follows a pattern.
pub(super) fn stamp(pattern: &str, text: &str) -> Option<Stamp> {
    // Other libraries' letters for fractions.
    let pattern = pattern.replace("%N", "%f");
    let (time, len) = BrokenDownTime::parse_prefix(&pattern, text).ok()?;
    let resolution = match text[..len].rsplit_once(['.', ',']) {
        Some((_, digits)) if pattern.contains('f') => {
            let count = digits.bytes().take_while(u8::is_ascii_digit).count().min(9);
            SECOND / 10u64.pow(count as u32)
        }
        _ if ["%S", "%T", "%s"].iter().any(|letter| pattern.contains(letter)) => SECOND,
        _ => 60 * SECOND,
    };
    let mut stamp = Stamp {
        form: Form::YearFirst,
        day: Day::Missing,
        nanos: 0,
        offset: time.offset().map(|offset| offset.seconds()),
        resolution,
        len,
    };
    if let Some(instant) = time.timestamp() {
        (stamp.day, stamp.nanos) = (Day::Epoch, u64::try_from(instant.as_nanosecond()).ok()?);
        return Some(stamp);
    }
    let civil = time.to_time().ok()?;
    let (hour, minute) = (u64::try_from(civil.hour()).ok()?, u64::try_from(civil.minute()).ok()?);
    let second = u64::try_from(civil.second()).ok()?;
    let nanos = u64::try_from(civil.subsec_nanosecond()).ok()?;
    stamp.nanos = (hour * 3_600 + minute * 60 + second) * SECOND + nanos;
    if pattern.ends_with('Z') && !pattern.ends_with("%Z") {
        stamp.offset = Some(0);
    }
    stamp.day = match (time.to_date(), time.month(), time.day()) {
        (Ok(date), ..) => {
            Day::Full(days(i64::from(date.year()), i64::from(date.month()), i64::from(date.day())))
        }
        (_, Some(month), Some(day)) => {
            Day::NoYear { month: u8::try_from(month).ok()?, day: u8::try_from(day).ok()? }
        }
        _ => Day::Missing,
    };
    Some(stamp)
}
