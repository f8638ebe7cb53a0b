//! Turns the stamps of one file into instants: adds the year, the date and the zone that they lack.
//!
//! The year and the date follow from the file's own date (its name's, or else the time of its last
//! change), and from the stamps before: a time of day that falls back by more than half a day
//! belongs to the next day, and a month that falls back by more than half a year to the next year.

use super::stamp::{Day, Form, Stamp};
use super::time::instant;
use super::zone::{Zone, offset_at};
use crate::rfc3339::days;
use astracer_model::time::UnixNanos;

const DAY_NANOS: i128 = 86_400_000_000_000;
const HOUR_NANOS: u64 = 3_600_000_000_000;

/// Parts of times that a file does not state and that were assumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assumed {
    /// The zone is the one of the options.
    pub zone: bool,
    /// The year is the file's.
    pub year: bool,
    /// The date is the file's.
    pub date: bool,
    /// Times count from an unknown start; the last of them is taken for the file's last change.
    pub start: bool,
    /// The order of day and month is that of the file's other dates, or month first.
    pub day_or_month: bool,
}

/// The state of one file.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    zone: Zone,
    /// The time of the file's last record, as far as it is known.
    reference: Option<UnixNanos>,
    /// True if the first number of `05/06/2026` is the month.
    pub(super) month_first: bool,
    year: Option<i64>,
    day: Option<i64>,
    start: Option<i128>,
    /// The local time before, without a date or a year where these are missing.
    last: Option<i128>,
    is_second_fold: bool,
    /// The hour and its offset that were looked up last.
    hour: Option<(i64, u64, i32)>,
    pub(super) assumed: Assumed,
}

impl Clock {
    pub(super) fn new(zone: &Zone, reference: Option<UnixNanos>) -> Self {
        Self {
            zone: zone.clone(),
            reference,
            month_first: true,
            year: None,
            day: None,
            start: None,
            last: None,
            is_second_fold: false,
            hour: None,
            assumed: Assumed::default(),
        }
    }

    /// Looks at the first stamps of the file, or at all of them, before any is read.
    pub(super) fn look_ahead(&mut self, stamps: &[Stamp], is_whole: bool) {
        let (Some(reference), Some(first), Some(last)) = (self.reference, stamps.first(), stamps.last())
        else {
            return;
        };
        // A file that is still being written may be ahead of its last change by an open buffer.
        let anchor = if is_whole { last } else { first };
        let back = if is_whole { turns(stamps) } else { 0 };
        match anchor.day {
            Day::Uptime => {
                self.start = Some(i128::from(reference.0) - i128::from(last.nanos));
            }
            Day::Missing => {
                let offset = self.offset(anchor, i64::try_from(reference.0 / DAY_NANOS as u64).unwrap_or(0));
                let local = i128::from(reference.0) + i128::from(offset) * 1_000_000_000;
                let day = local.div_euclid(DAY_NANOS) as i64;
                // A minute, because the last change may be rounded.
                let is_later = i128::from(anchor.nanos) > local.rem_euclid(DAY_NANOS) + 60_000_000_000;
                self.day = Some(day - i64::from(is_later) - back);
            }
            Day::NoYear { month, day } => {
                let offset = self.offset(anchor, i64::try_from(reference.0 / DAY_NANOS as u64).unwrap_or(0));
                let local = i128::from(reference.0) + i128::from(offset) * 1_000_000_000;
                let today = local.div_euclid(DAY_NANOS) as i64;
                let year = year_of(today);
                // A day, because zones differ.
                let is_later = days(year, i64::from(month), i64::from(day)) > today + 1;
                self.year = Some((year - i64::from(is_later) - back).max(1970));
            }
            _ => {}
        }
        self.hour = None;
    }

    /// The instant of the next stamp of the file; `None` if its date is not known.
    pub(super) fn instant(&mut self, stamp: &Stamp) -> Option<UnixNanos> {
        let day = match stamp.day {
            Day::Epoch => return Some(UnixNanos(stamp.nanos)),
            Day::Uptime => {
                self.assumed.start = true;
                return u64::try_from(self.start? + i128::from(stamp.nanos)).ok().map(UnixNanos);
            }
            Day::Full(day) => day,
            Day::Either { year, first, second } => {
                self.assumed.day_or_month = true;
                let (month, day) = if self.month_first { (first, second) } else { (second, first) };
                days(year, i64::from(month), i64::from(day))
            }
            Day::NoYear { month, day } => {
                self.assumed.year = true;
                let year = self.year?;
                // In a year of its own, so that only the month and the day are compared.
                let of_year = i128::from(days(1972, i64::from(month), i64::from(day))) * DAY_NANOS
                    + i128::from(stamp.nanos);
                let turn = self.turn(of_year, 366 * DAY_NANOS);
                self.year = Some(year + turn);
                days(year + turn, i64::from(month), i64::from(day))
            }
            Day::Missing => {
                self.assumed.date = true;
                let turn = self.turn(i128::from(stamp.nanos), DAY_NANOS);
                let day = self.day? + turn;
                self.day = Some(day);
                day
            }
        };
        instant(day, stamp.nanos, self.offset(stamp, day))
    }

    /// 1 if a time without its higher parts has begun again, -1 if it fell back behind that, and
    /// else 0.
    fn turn(&mut self, time: i128, cycle: i128) -> i64 {
        let step = self.last.map_or(0, |last| time - last);
        self.last = Some(time);
        turn_of(step, cycle)
    }

    /// The offset from UTC of a stamp of a day.
    fn offset(&mut self, stamp: &Stamp, day: i64) -> i32 {
        if let Some(offset) = stamp.offset {
            return offset;
        }
        self.assumed.zone = true;
        let hour = stamp.nanos / HOUR_NANOS;
        if let Some((known_day, known_hour, offset)) = self.hour
            && (known_day, known_hour) == (day, hour)
        {
            return offset;
        }
        let Some((offset, later)) = offset_at(&self.zone, day, stamp.nanos) else { return 0 };
        let local = i128::from(day) * DAY_NANOS + i128::from(stamp.nanos);
        let Some(later) = later else {
            // Zones change at full hours or halves; an hour with a change is not remembered.
            let is_even = offset_at(&self.zone, day, hour * HOUR_NANOS) == Some((offset, None))
                && offset_at(&self.zone, day, (hour + 1) * HOUR_NANOS - 1) == Some((offset, None));
            self.hour = is_even.then_some((day, hour, offset));
            if !matches!(stamp.form, Form::TimeOnly) {
                (self.is_second_fold, self.last) = (false, self.last.filter(|_| is_partial(stamp)));
            }
            return offset;
        };
        // The hour occurs twice: the second begins where the times fall back.
        if !is_partial(stamp) {
            let is_back = self.last.is_some_and(|last| local + 600_000_000_000 < last);
            self.is_second_fold |= is_back;
            self.last = Some(local);
        }
        if self.is_second_fold { later } else { offset }
    }
}

/// True if [`Clock::last`] is needed to find the year or the date.
fn is_partial(stamp: &Stamp) -> bool {
    matches!(stamp.day, Day::Missing | Day::NoYear { .. })
}

fn turn_of(step: i128, cycle: i128) -> i64 {
    if step < -cycle / 2 {
        1
    } else if step > cycle - cycle / 24 {
        -1
    } else {
        0
    }
}

/// Counts the new days or years that the stamps begin.
fn turns(stamps: &[Stamp]) -> i64 {
    let mut last = None;
    let mut sum = 0;
    for stamp in stamps {
        let (time, cycle) = match stamp.day {
            Day::Missing => (i128::from(stamp.nanos), DAY_NANOS),
            Day::NoYear { month, day } => (
                i128::from(days(1972, i64::from(month), i64::from(day))) * DAY_NANOS
                    + i128::from(stamp.nanos),
                366 * DAY_NANOS,
            ),
            _ => continue,
        };
        sum += last.map_or(0, |last| turn_of(time - last, cycle));
        last = Some(time);
    }
    sum
}

/// The year of a day since 1970.
fn year_of(day: i64) -> i64 {
    let guess = 1970 + day * 400 / 146_097;
    [guess + 1, guess, guess - 1].into_iter().find(|&year| days(year, 1, 1) <= day).unwrap_or(guess)
}

/// The end of the day that a file's name states, such as `app-2026-05-14.log` or
/// `messages-20260514.gz`.
pub(super) fn of_name(file: &str) -> Option<UnixNanos> {
    let name = file.rsplit('/').next().unwrap_or(file);
    let bytes = name.as_bytes();
    let starts = (0..bytes.len()).filter(|&at| at == 0 || !bytes[at - 1].is_ascii_digit());
    let mut found = starts.filter_map(|at| {
        let digits: Vec<u8> = bytes[at..]
            .iter()
            .take(10)
            .copied()
            .take_while(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.'))
            .collect();
        let text: String = match digits.len() {
            8.. if digits[..8].iter().all(u8::is_ascii_digit)
                && !digits.get(8).is_some_and(u8::is_ascii_digit) =>
            {
                let text = std::str::from_utf8(&digits[..8]).ok()?;
                format!("{}-{}-{}", &text[..4], &text[4..6], &text[6..])
            }
            10 => std::str::from_utf8(&digits).ok()?.replace(['_', '.'], "-"),
            _ => return None,
        };
        let (time, _) = super::time::leading(&format!("{text} 23:59:59"), &Zone::default())?;
        Some(time)
    });
    // The last one, behind the application's name and its version.
    found.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moments::logs::stamp;

    /// Instants of lines whose file was changed last at the given second of 1970.
    fn instants(zone: &str, reference: u64, lines: &[&str]) -> Vec<u64> {
        let stamps: Vec<Stamp> =
            lines.iter().map(|line| stamp::at(line.as_bytes()).expect("a stamp")).collect();
        let mut clock =
            Clock::new(&zone.parse().expect("a zone"), Some(UnixNanos(reference * 1_000_000_000)));
        clock.look_ahead(&stamps, true);
        stamps.iter().map(|stamp| clock.instant(stamp).expect("a time").0 / 1_000_000_000).collect()
    }

    /// The instants are those of `date --date=... +%s`.
    #[test]
    fn a_missing_year_or_date_is_that_of_the_file() {
        // 2027-01-01 00:10:00 UTC.
        let january = 1_798_762_200;
        let over = ["Dec 31 23:59:58 a", "Dec 31 23:59:59 b", "Jan  1 00:00:01 c"];
        assert_eq!(instants("UTC", january, &over), [1_798_761_598, 1_798_761_599, 1_798_761_601]);
        // In a file that was changed on 2026-12-29, December 31 is that of the year before.
        assert_eq!(
            instants("UTC", january - 3 * 86_400, &["Dec 31 23:59:59 b"]),
            [1_798_761_599 - 365 * 86_400]
        );
        let midnight = ["23:59:59 a", "00:00:01 b", "23:59:58 late", "00:00:02 c"];
        let expected = [1_798_761_599, 1_798_761_601, 1_798_761_598, 1_798_761_602];
        assert_eq!(instants("UTC", january, &midnight), expected);
        assert_eq!(instants("UTC", 1000, &["[  100.000000] a", "[  150.000000] b"]), [950, 1000]);
    }

    /// Berlin's clocks go back from 03:00 to 02:00 on 2026-10-25, at 01:00 UTC.
    #[test]
    fn the_repeated_hour_is_read_twice() {
        let lines = [
            "2026-10-25 01:59:00 a",
            "2026-10-25 02:30:00 b",
            "2026-10-25 02:59:00 c",
            "2026-10-25 02:01:00 d",
            "2026-10-25 02:59:30 e",
            "2026-10-25 03:00:00 f",
        ];
        // 2026-10-25 00:00:00 UTC.
        let day = 1_792_886_400;
        let minutes = |minutes: i64| (day - 3600 * 2 + 60 * minutes) as u64;
        let expected = [119, 150, 179, 181].map(minutes);
        let found = instants("Europe/Berlin", 1_800_000_000, &lines);
        assert_eq!(found[..4], expected);
        assert_eq!((found[4], found[5]), (minutes(239) + 30, minutes(240)));
    }

    #[test]
    fn names_of_files_may_state_a_date() {
        let of = |name| of_name(name).map(|time| time.0 / 86_400_000_000_000);
        let day = Some(20_587); // 2026-05-14, by `date --date=2026-05-14 +%s` / 86400.
        assert_eq!(
            (of("a/app-2026-05-14.log"), of("messages-20260514.gz"), of("x.2026_05_14")),
            (day, day, day)
        );
        assert_eq!((of("2026-05-14/app.log"), of("app-123456789.log"), of("app.log")), (None, None, None));
    }
}
