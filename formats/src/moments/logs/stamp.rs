//! The scanner of times: finds a time in a line, with its form, its zone and its resolution.
//!
//! A stamp is what a line states, which may lack the year, the date or the zone. `clock.rs` turns
//! stamps into instants with what the file and the user add.

use super::digits::{digit_count, fixed};
use super::zone::zone;

/// Bytes of a line in which its time is looked for.
pub(super) const REACH_BYTES: usize = 200;

pub(super) const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const MONTHS: [&[u8; 3]; 12] =
    [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
const WEEKDAYS: [&[u8; 3]; 7] = [b"mon", b"tue", b"wed", b"thu", b"fri", b"sat", b"sun"];

/// A form of times. Forms are told apart so that a file's own form can be found among the times
/// that its messages mention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Form {
    /// `2026-05-14 09:00:00.123`, with any usual separators.
    YearFirst,
    /// `20260514 090000`, `20260514T09:00:00`.
    Compact,
    /// `260514 09:00:00`, `081109 203615`.
    CompactShort,
    /// `26/05/14 09:00:00`.
    ShortYear,
    /// `14/05/2026 09:00:00`, `05/14/2026 9:00:00 AM`.
    YearLast,
    /// `14 May 2026 09:00:00`, `14/May/2026:09:00:00 +0200`.
    NamedMonth,
    /// `May 14 09:00:00`, `Thu May 14 09:00:00 2026`, `May 14, 2026 9:00:00 AM`.
    MonthFirst,
    /// `05-14 09:00:00.123`.
    MonthDay,
    /// `0514 09:00:00.123456` behind the letter of a severity.
    Klog,
    /// `2026-W20-4T09:00:00`.
    Week,
    /// `2026-134T09:00:00`.
    Ordinal,
    /// `09:00:00.123`.
    TimeOnly,
    /// A number of seconds, milliseconds, microseconds or nanoseconds since 1970.
    Epoch,
    /// `@4000000043322583...`: TAI64N.
    Tai,
    /// `[    5.123456]` or `5.123456789s`: seconds since a start.
    Uptime,
}

impl Form {
    /// True if the form states a date, so that a single line with it makes a log.
    pub(super) fn has_date(self) -> bool {
        !matches!(self, Self::TimeOnly | Self::Epoch | Self::Uptime)
    }
}

/// The day of a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Day {
    /// Days since 1970.
    Full(i64),
    /// Both numbers could be the month; the file decides. The first is written first.
    Either { year: i64, first: u8, second: u8 },
    /// A month and a day without a year.
    NoYear { month: u8, day: u8 },
    /// No date.
    Missing,
    /// The stamp is a duration since 1970, not a civil time.
    Epoch,
    /// The stamp is a duration since an unknown start.
    Uptime,
}

/// A time as a line states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) form: Form,
    pub(super) day: Day,
    /// Nanoseconds of the day, or since the start.
    pub(super) nanos: u64,
    /// The offset from UTC in seconds, if the stamp states one.
    pub(super) offset: Option<i32>,
    /// The stamp's last digit in nanoseconds.
    pub(super) resolution: u64,
    /// Bytes of the text.
    pub(super) len: usize,
}

/// The stamp at the start of a text.
pub(super) fn at(text: &[u8]) -> Option<Stamp> {
    let first = *text.first()?;
    match first {
        b'0'..=b'9' => numeric(text),
        b'A'..=b'Z' | b'a'..=b'z' => worded(text),
        b'@' => tai(text),
        b'[' => uptime(text),
        _ => None,
    }
}

/// Calls `found` with each place of a line where a time may begin, with the number of words before
/// it, until `found` returns true.
pub(super) fn each_place(line: &[u8], mut found: impl FnMut(usize, usize) -> bool) {
    let reach = &line[..line.len().min(REACH_BYTES)];
    let (mut words, mut before) = (0, b' ');
    for (index, &byte) in reach.iter().enumerate() {
        let starts = match byte {
            b'0'..=b'9' => {
                !(before.is_ascii_alphanumeric() || matches!(before, b'.' | b'_' | b'%' | b'$'))
                    || is_klog_letter(reach, index)
            }
            b'A'..=b'Z' | b'a'..=b'z' => {
                !before.is_ascii_alphanumeric() && is_month_or_weekday(&reach[index..])
            }
            b'@' => !before.is_ascii_alphanumeric(),
            b'[' => matches!(reach.get(index + 1), Some(b' ' | b'0'..=b'9')),
            _ => false,
        };
        if starts && found(index, words) {
            return;
        }
        if matches!(byte, b' ' | b'\t') && !matches!(before, b' ' | b'\t') {
            words += 1;
        }
        before = byte;
    }
}

/// True if the digits at an index follow the letter of a severity that begins the line, as klog
/// and glog write it.
fn is_klog_letter(line: &[u8], index: usize) -> bool {
    index >= 1
        && matches!(line[index - 1], b'I' | b'W' | b'E' | b'F' | b'D' | b'V')
        && (index == 1 || !line[index - 2].is_ascii_alphanumeric())
}

fn is_month_or_weekday(text: &[u8]) -> bool {
    month_name(text).is_some() || weekday(text).is_some()
}

/// A number of one or two digits, and its length.
fn short(text: &[u8]) -> Option<(i64, usize)> {
    let len = digit_count(&text[..text.len().min(3)]);
    if len == 0 || len > 2 { None } else { fixed(text, len).map(|number| (number, len)) }
}

fn is_date(month: i64, day: i64) -> bool {
    (1..=12).contains(&month) && (1..=31).contains(&day)
}

fn full(year: i64, month: i64, day: i64) -> Option<Day> {
    const DAYS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let in_month = DAYS.get(usize::try_from(month - 1).ok()?)? + i64::from(is_leap && month == 2);
    // Instants in nanoseconds end in 2554.
    let is_valid = (1970..=2554).contains(&year) && (1..=in_month).contains(&day);
    is_valid.then(|| Day::Full(crate::rfc3339::days(year, month, day)))
}

fn century(year: i64) -> i64 {
    if year < 70 { 2000 + year } else { 1900 + year }
}

fn numeric(text: &[u8]) -> Option<Stamp> {
    let count = digit_count(text);
    let next = text.get(count).copied();
    match (count, next) {
        (4, Some(b'-' | b'/' | b'.')) => {
            let date = if text.get(5) == Some(&b'W') { week(text) } else { year_first(text) };
            date.or_else(|| ordinal(text))
        }
        (4, Some(b' ')) => klog(text),
        (1..=2, Some(b':')) => {
            let time = time_of_day(text, true)?;
            Some(finish(text, Form::TimeOnly, Day::Missing, time, 0))
        }
        (1..=2, Some(b'/' | b'-' | b'.' | b' ')) => short_first(text),
        (8, Some(b'T' | b't' | b' ' | b'-' | b'_' | b'.')) => {
            let (year, month, day) = (fixed(text, 4)?, fixed(&text[4..], 2)?, fixed(&text[6..], 2)?);
            let day = full(year, month, day)?;
            compact_time(text, 9, Form::Compact, day)
        }
        (6, Some(b' ')) => {
            let (year, month, day) = (fixed(text, 2)?, fixed(&text[2..], 2)?, fixed(&text[4..], 2)?);
            let day = full(century(year), month, day)?;
            compact_time(text, 7, Form::CompactShort, day)
        }
        (14, _) => {
            let (year, month, day) = (fixed(text, 4)?, fixed(&text[4..], 2)?, fixed(&text[6..], 2)?);
            let day = full(year, month, day)?;
            compact_time(text, 8, Form::Compact, day)
        }
        _ => None,
    }
    .or_else(|| epoch(text, count))
    .or_else(|| elapsed(text, count))
}

/// A time behind a date without separators: with colons, or six digits.
fn compact_time(text: &[u8], mut at: usize, form: Form, day: Day) -> Option<Stamp> {
    while text.get(at) == Some(&b' ') && at < 10 {
        at += 1;
    }
    let rest = &text[at..];
    if digit_count(rest) == 6 {
        let (hours, minutes, seconds) = (fixed(rest, 2)?, fixed(&rest[2..], 2)?, fixed(&rest[4..], 2)?);
        let time = of_day(rest, hours, minutes, seconds, 6)?;
        return Some(finish(text, form, day, time, at));
    }
    Some(finish(text, form, day, time_of_day(rest, true)?, at))
}

/// `2026-05-14`, a separator and a time.
fn year_first(text: &[u8]) -> Option<Stamp> {
    let separator = text[4];
    let year = fixed(text, 4)?;
    let (month, used) = short(&text[5..])?;
    let mut at = 5 + used;
    if text.get(at) != Some(&separator) {
        return None;
    }
    let (day, used) = short(&text[at + 1..])?;
    at += 1 + used;
    let day = full(year, month, day)?;
    at += between(&text[at..])?;
    let time = time_of_day(&text[at..], false)?;
    Some(finish(text, Form::YearFirst, day, time, at))
}

/// The length of a separator between a date and a time.
fn between(text: &[u8]) -> Option<usize> {
    match text {
        [b'T' | b't' | b'_' | b'-' | b':' | b'.' | b'\t' | b'/', ..] => Some(1),
        [b',' | b' ', b' ', ..] => Some(2),
        [b' ' | b',', ..] => Some(1),
        _ => None,
    }
}

fn week(text: &[u8]) -> Option<Stamp> {
    let (year, number) = (fixed(text, 4)?, fixed(&text[6..], 2)?);
    if text.get(8) != Some(&b'-') || !(1..=53).contains(&number) {
        return None;
    }
    let weekday = fixed(&text[9..], 1).filter(|day| (1..=7).contains(day))?;
    let at = 10 + between(&text[10..])?;
    let Day::Full(fourth) = full(year, 1, 4)? else { return None };
    // ISO 8601: January 4 is in week 1, and weeks begin on Monday. 1970-01-01 was a Thursday.
    let monday = fourth - (fourth + 3).rem_euclid(7);
    let day = Day::Full(monday + (number - 1) * 7 + weekday - 1);
    Some(finish(text, Form::Week, day, time_of_day(&text[at..], false)?, at))
}

fn ordinal(text: &[u8]) -> Option<Stamp> {
    if digit_count(&text[5..]) != 3 {
        return None;
    }
    let number = fixed(&text[5..], 3).filter(|day| (1..=366).contains(day))?;
    let Day::Full(first) = full(fixed(text, 4)?, 1, 1)? else { return None };
    let at = 8 + between(&text[8..])?;
    let day = Day::Full(first + number - 1);
    Some(finish(text, Form::Ordinal, day, time_of_day(&text[at..], false)?, at))
}

/// A date that begins with a number of one or two digits.
fn short_first(text: &[u8]) -> Option<Stamp> {
    let (first, used) = short(text)?;
    let separator = text[used];
    let mut at = used + 1;
    if let Some((month, len)) = month_name(&text[at..]) {
        at += len;
        // `14 May 2026`, `14. May 2026`, `14 May 09:00:00`.
        let separated = text.get(at) == Some(&separator) || text.get(at) == Some(&b' ');
        let year = text.get(at + 1..).filter(|_| separated)?;
        let (day, year_len) = match digit_count(year) {
            4 => (full(fixed(year, 4)?, month, first)?, 5),
            2 if separator != b' ' => (full(century(fixed(year, 2)?), month, first)?, 3),
            _ if is_date(month, first) => (Day::NoYear { month: month as u8, day: first as u8 }, 0),
            _ => return None,
        };
        at += year_len;
        at += between(&text[at..])?;
        return Some(finish(text, Form::NamedMonth, day, time_of_day(&text[at..], false)?, at));
    }
    if separator == b' ' {
        return None;
    }
    let (second, used) = short(&text[at..])?;
    at += used;
    if text.get(at) == Some(&separator) {
        let third = &text[at + 1..];
        let (form, day, len) = match digit_count(third) {
            4 => {
                let year = fixed(third, 4)?;
                let day = match (is_date(second, first), is_date(first, second)) {
                    (true, true) if separator == b'/' && first != second => {
                        full(year, 1, 1)?;
                        Day::Either { year, first: first as u8, second: second as u8 }
                    }
                    (true, _) => full(year, second, first)?,
                    (false, true) => full(year, first, second)?,
                    _ => return None,
                };
                (Form::YearLast, day, 4)
            }
            2 if separator != b'.' => (Form::ShortYear, full(century(first), second, fixed(third, 2)?)?, 2),
            2 => (Form::YearLast, full(century(fixed(third, 2)?), second, first)?, 2),
            _ => return None,
        };
        at += 1 + len;
        at += between(&text[at..])?;
        return Some(finish(text, form, day, time_of_day(&text[at..], false)?, at));
    }
    // `05-14 09:00:00.123`
    if used == 2 && matches!(separator, b'-' | b'/') && is_date(first, second) {
        at += between(&text[at..]).filter(|_| matches!(text[at], b' ' | b'T'))?;
        let day = Day::NoYear { month: first as u8, day: second as u8 };
        return Some(finish(text, Form::MonthDay, day, time_of_day(&text[at..], true)?, at));
    }
    None
}

/// `0514 09:00:00.123456`
fn klog(text: &[u8]) -> Option<Stamp> {
    let (month, day) = (fixed(text, 2)?, fixed(&text[2..], 2)?);
    if !is_date(month, day) {
        return None;
    }
    let time = time_of_day(&text[5..], true).filter(|time| time.resolution < SECOND)?;
    let day = Day::NoYear { month: month as u8, day: day as u8 };
    Some(finish(text, Form::Klog, day, time, 5))
}

/// `[Thu, ]May 14[,] [2026] 09:00:00 [2026]`, `Thu, 14 May 2026 09:00:00`.
fn worded(text: &[u8]) -> Option<Stamp> {
    let mut at = 0;
    if let Some(len) = weekday(text) {
        at = len;
        at += text[at..].iter().take(3).take_while(|byte| matches!(byte, b' ' | b',' | b'.')).count();
        if text.get(at).is_some_and(u8::is_ascii_digit) {
            let mut stamp = numeric(&text[at..]).filter(|stamp| stamp.form.has_date())?;
            stamp.len += at;
            return Some(stamp);
        }
    }
    let (month, len) = month_name(text.get(at..)?)?;
    at += len;
    at += text[at..].iter().take(2).take_while(|&&byte| byte == b' ').count();
    let (day, used) = short(text.get(at..)?)?;
    at += used;
    if !is_date(month, day) {
        return None;
    }
    at += usize::from(text.get(at) == Some(&b','));
    at += text[at..].iter().take(2).take_while(|&&byte| byte == b' ').count();
    let mut stated = Day::NoYear { month: month as u8, day: day as u8 };
    if digit_count(&text[at..]) == 4 {
        stated = full(fixed(&text[at..], 4)?, month, day)?;
        at += 4;
        at += between(&text[at..])?;
    }
    let mut stamp = finish(text, Form::MonthFirst, stated, time_of_day(&text[at..], true)?, at);
    // `date` and ctime write the year last.
    if let (Day::NoYear { .. }, [b' ', year @ ..]) = (stated, &text[stamp.len..])
        && digit_count(year) == 4
        && let Some(stated) = full(fixed(year, 4)?, month, day)
    {
        (stamp.day, stamp.len) = (stated, stamp.len + 5);
    }
    Some(stamp)
}

/// The number of a month's English name, short or long, and its length.
fn month_name(text: &[u8]) -> Option<(i64, usize)> {
    let head: [u8; 3] = text.get(..3)?.try_into().ok()?;
    let head = head.map(|byte| byte.to_ascii_lowercase());
    let month = MONTHS.iter().position(|name| **name == head)?;
    Some((month as i64 + 1, name_len(text)?))
}

fn weekday(text: &[u8]) -> Option<usize> {
    let head: [u8; 3] = text.get(..3)?.try_into().ok()?;
    let head = head.map(|byte| byte.to_ascii_lowercase());
    WEEKDAYS.iter().any(|name| **name == head).then(|| name_len(text)).flatten()
}

/// The length of the letters at the start of a text, if no month or weekday has a longer name.
fn name_len(text: &[u8]) -> Option<usize> {
    let len = text.iter().take(10).take_while(|byte| byte.is_ascii_alphabetic()).count();
    (len <= "september".len()).then_some(len)
}

struct Time {
    nanos: u64,
    resolution: u64,
    len: usize,
}

/// `09:00:00.123`, `9:00:00 AM`, `09.00.00`, and `09:00` unless seconds are needed.
fn time_of_day(text: &[u8], needs_seconds: bool) -> Option<Time> {
    let (hours, used) = short(text)?;
    let separator = *text.get(used)?;
    if separator != b':' && !(separator == b'.' && used == 2) {
        return None;
    }
    let minutes = fixed(&text[used + 1..], 2)?;
    let mut at = used + 3;
    if text.get(at) != Some(&separator) || digit_count(text.get(at + 1..)?) < 2 {
        if needs_seconds || separator == b'.' || text.get(at).is_some_and(u8::is_ascii_digit) {
            return None;
        }
        let mut time = of_day(&text[..at], hours, minutes, 0, at)?;
        time.resolution = MINUTE;
        return half_of_day(text, hours, time);
    }
    let seconds = fixed(&text[at + 1..], 2)?;
    at += 3;
    if text.get(at).is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let time = of_day(text, hours, minutes, seconds, at)?;
    half_of_day(text, hours, time)
}

/// Adds a fraction of a second at `at`, if one is there.
fn of_day(text: &[u8], hours: i64, minutes: i64, seconds: i64, at: usize) -> Option<Time> {
    // A leap second is written as 60.
    if hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    let whole = (hours * 3600 + minutes * 60 + seconds) as u64 * SECOND;
    let mut time = Time { nanos: whole, resolution: SECOND, len: at };
    let mark = text.get(at).copied();
    if matches!(mark, Some(b'.' | b',' | b':')) {
        let digits = &text[at + 1..];
        let count = digit_count(digits);
        let is_fraction = match mark {
            Some(b':') => count == 3 || count == 6,
            // A separator of fields may be a comma: `09:00:00,12,x` has no fraction of 12.
            Some(b',') => matches!(count, 1 | 3 | 6 | 9),
            _ => (1..=18).contains(&count),
        };
        if is_fraction {
            let (nanos, resolution) = fraction(&digits[..count]);
            time.nanos += nanos;
            time.resolution = resolution;
            time.len = at + 1 + count;
        }
    }
    Some(time)
}

/// The nanoseconds of the digits behind a decimal point, and their resolution.
fn fraction(digits: &[u8]) -> (u64, u64) {
    let (mut nanos, mut resolution) = (0, SECOND);
    for &digit in digits.iter().take(9) {
        resolution /= 10;
        nanos += u64::from(digit - b'0') * resolution;
    }
    (nanos, resolution)
}

/// Takes `AM`, `p.m.` and the like behind a time.
fn half_of_day(text: &[u8], hours: i64, mut time: Time) -> Option<Time> {
    let rest = &text[time.len..];
    let blank = usize::from(rest.first() == Some(&b' '));
    let word = &rest[blank..];
    let letter = word.first().map(u8::to_ascii_lowercase);
    if !matches!(letter, Some(b'a' | b'p')) {
        return Some(time);
    }
    let dotted = matches!(word, [_, b'.', b'm' | b'M', b'.', ..]);
    let plain = matches!(word, [_, b'm' | b'M', ..]);
    let len = if dotted { 4 } else { 2 };
    if !(dotted || plain) || word.get(len).is_some_and(u8::is_ascii_alphanumeric) {
        return Some(time);
    }
    let twelve = 12 * 3600 * SECOND;
    match (letter, hours) {
        (_, 0 | 13..) => return None,
        (Some(b'a'), 12) => time.nanos -= twelve,
        (Some(b'p'), 1..=11) => time.nanos += twelve,
        _ => {}
    }
    time.len += blank + len;
    Some(time)
}

/// A stamp of a time of day that begins at `at`, with the zone behind it.
fn finish(text: &[u8], form: Form, day: Day, time: Time, at: usize) -> Stamp {
    let end = at + time.len;
    let date = match day {
        Day::Full(day) => Some(day),
        _ => None,
    };
    let (offset, used) = zone(&text[end..], date, time.nanos);
    Stamp { form, day, nanos: time.nanos, offset, resolution: time.resolution, len: end + used }
}

/// A number since 1970: its unit follows from its size. Only years from 2001 on are recognised,
/// whose seconds have ten digits.
fn epoch(text: &[u8], count: usize) -> Option<Stamp> {
    if !matches!(count, 10 | 13 | 16 | 19) {
        return None;
    }
    let whole = u64::try_from(fixed(text, count)?).ok()?;
    let unit = 10u64.pow(19 - count as u32);
    let mut nanos = whole.checked_mul(unit)?;
    let (mut resolution, mut len) = (unit, count);
    if text.get(count) == Some(&b'.') {
        let digits = &text[count + 1..];
        let digits = &digits[..digit_count(digits)];
        if digits.is_empty() {
            return None;
        }
        let (part, part_resolution) = fraction(digits);
        (nanos, resolution) = (nanos + part / (SECOND / unit), (part_resolution / (SECOND / unit)).max(1));
        len += 1 + digits.len();
    }
    let behind = text.get(len).copied();
    let is_apart = behind.is_none_or(|next| next.is_ascii_whitespace() || b":]|,;)}\"'".contains(&next));
    // From 2001-09-09 to 2065-01-24: other numbers of ten digits are seldom times.
    let is_time = (1_000_000_000 * SECOND..3_000_000_000 * SECOND).contains(&nanos);
    (is_apart && is_time).then_some(Stamp {
        form: Form::Epoch,
        day: Day::Epoch,
        nanos,
        offset: Some(0),
        resolution,
        len,
    })
}

/// TAI64N in hexadecimal, as multilog writes it: seconds from 2^62 on, and nanoseconds.
fn tai(text: &[u8]) -> Option<Stamp> {
    let digits = std::str::from_utf8(text.get(1..25)?).ok()?;
    if text.get(25).is_some_and(u8::is_ascii_alphanumeric) {
        return None;
    }
    let seconds = u64::from_str_radix(digits.get(..16)?, 16).ok()?.checked_sub(1 << 62)?;
    let nanos = u64::from_str_radix(digits.get(16..)?, 16).ok().filter(|&nanos| nanos < SECOND)?;
    // Daemontools count from 1970 TAI, 10 seconds ahead of UTC, without leap seconds.
    let nanos = seconds.checked_sub(10)?.checked_mul(SECOND)?.checked_add(nanos)?;
    Some(Stamp { form: Form::Tai, day: Day::Epoch, nanos, offset: Some(0), resolution: 1, len: 25 })
}

/// `[    5.123456]`, as the kernel's ring buffer shows it. The stamp includes the brackets.
fn uptime(text: &[u8]) -> Option<Stamp> {
    let padding = text[1..].iter().take_while(|&&byte| byte == b' ').count();
    let start = 1 + padding;
    let count = digit_count(&text[start..]);
    let digits = text.get(start + count + 1..)?;
    let parts = digit_count(digits);
    let is_uptime = (1..=9).contains(&count)
        && text[start + count] == b'.'
        && parts == 6
        // Newer kernels add the thread or the processor: `[    5.123456][    T1] `.
        && digits.get(parts) == Some(&b']');
    if !is_uptime {
        return None;
    }
    let seconds = fixed(&text[start..], count)? as u64;
    let (part, resolution) = fraction(&digits[..parts]);
    Some(Stamp {
        form: Form::Uptime,
        day: Day::Uptime,
        nanos: seconds * SECOND + part,
        offset: Some(0),
        resolution,
        len: start + count + 1 + parts + 1,
    })
}

/// `5.123456789s`, as `tracing_subscriber`'s uptime writes it.
fn elapsed(text: &[u8], count: usize) -> Option<Stamp> {
    if count > 9 || text.get(count) != Some(&b'.') {
        return None;
    }
    let digits = &text[count + 1..];
    let parts = digit_count(digits);
    if parts != 9 || digits.get(9) != Some(&b's') || digits.get(10) != Some(&b' ') {
        return None;
    }
    let nanos = fixed(text, count)? as u64 * SECOND + fraction(&digits[..9]).0;
    Some(Stamp {
        form: Form::Uptime,
        day: Day::Uptime,
        nanos,
        offset: Some(0),
        resolution: 1,
        len: count + 1 + 10,
    })
}
