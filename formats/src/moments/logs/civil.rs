//! Times that the user describes in letters of strftime.

use jiff::fmt::strtime::BrokenDownTime;

use super::stamp::{Day, Form, SECOND, Stamp};
use crate::rfc3339::days;

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
