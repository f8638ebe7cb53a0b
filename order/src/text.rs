//! Events as text: times, names, and one line for each.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use astracer_model::event::EventKind;
use astracer_model::text::escaped;

use super::Order;
use astracer_causality::points::Point;

/// The time at which an event is shown: the one that contradicts no constraint.
pub fn time(order: &Order, event: u32) -> u64 {
    order.times.get(event as usize).copied().unwrap_or(order.events.rows()[event as usize].time)
}

/// Writes times with as many digits as all recorded times need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    digits: usize,
}

impl Default for Stamps {
    /// Milliseconds.
    fn default() -> Self {
        Self { digits: 3 }
    }
}

impl Stamps {
    /// For the events of an order.
    pub fn of(order: &Order) -> Self {
        let fits = |unit: u64| order.events.rows().iter().all(|row| row.time.is_multiple_of(unit));
        let digits = if fits(1_000_000) {
            3
        } else if fits(1_000) {
            6
        } else {
            9
        };
        Self { digits }
    }

    /// With more digits, if this time needs them.
    #[must_use]
    pub fn finer(self, time: u64) -> Self {
        let needs = if time.is_multiple_of(1_000_000) {
            3
        } else if time.is_multiple_of(1_000) {
            6
        } else {
            9
        };
        Self { digits: self.digits.max(needs) }
    }

    /// In UTC: `2018-05-09T15:43:59.247Z`.
    pub fn show(self, time: u64) -> String {
        let all = humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::from_nanos(time)).to_string();
        let end = all.len().saturating_sub(1 + 9 - self.digits);
        format!("{}Z", all.get(..end).unwrap_or_default())
    }

    /// The time of day: `15:43:59.247`.
    pub fn clock(self, time: u64) -> String {
        let all = self.show(time);
        all.split_once('T').map_or("", |(_, clock)| clock.trim_end_matches('Z')).to_owned()
    }
}

/// Writes times of a log, most of which have the second of the one before.
#[derive(Debug, Default)]
pub struct LastStamp {
    second: Option<u64>,
    /// Up to the second, and what was last behind it.
    text: String,
}

impl LastStamp {
    /// As [`Stamps::show`] writes a time.
    pub fn show(&mut self, stamps: Stamps, time: u64) -> &str {
        const SECOND: u64 = 1_000_000_000;
        const PREFIX: usize = "2018-05-09T15:43:59".len();
        if self.second != Some(time / SECOND) {
            self.second = Some(time / SECOND);
            self.text = stamps.show(time);
        }
        self.text.truncate(PREFIX);
        let part = time % SECOND / 10u64.pow(9 - stamps.digits as u32);
        // Writing to a string does not fail.
        let _ = write!(self.text, ".{part:0digits$}Z", digits = stamps.digits);
        &self.text
    }
}

/// The kind of an event and its details in one line: the log record, the bytes and the connection,
/// the other thread, or the span.
pub fn describe(order: &Order, row: &Point) -> String {
    let details = details(order, row);
    if row.kind == EventKind::Log || details.is_empty() {
        return if details.is_empty() { row.kind.name().to_owned() } else { details };
    }
    format!("{} {details}", row.kind.name())
}

/// A log record without the time at its start, where the time is shown beside it.
pub fn untimed(kind: EventKind, text: &str) -> &str {
    if kind != EventKind::Log {
        return text;
    }
    let rest = text.trim_start_matches(|char: char| char.is_ascii_digit() || "-:,.TZ[] ".contains(char));
    if rest.is_empty() { text } else { rest }
}

/// The details alone.
pub fn details(order: &Order, row: &Point) -> String {
    let events = &order.events;
    match row.kind {
        EventKind::Send | EventKind::Receive | EventKind::Connect | EventKind::Accept => {
            let channel = events.channels().get(row.channel as usize);
            let channel = channel.map_or_else(String::new, |channel| escaped(&channel.to_string()).into());
            match row.kind {
                EventKind::Send | EventKind::Receive => format!("{} B {channel}", row.bytes),
                _ => channel,
            }
        }
        EventKind::Fork | EventKind::Join => {
            let child = events.threads().get(row.child as usize);
            child.map_or_else(String::new, |child| escaped(&child.name).into())
        }
        EventKind::Log => escaped(&order.record(row)).into(),
        _ => escaped(events.text(row).trim_end()).into(),
    }
}

/// `file:line` of a log record in its log; of other events where they were read.
pub fn place(order: &Order, row: &Point) -> String {
    match order.events.files().get(row.log_file as usize) {
        Some(file) => format!("{file}:{}", row.log_line),
        None => order.events.place(row),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_after_another_is_written_as_alone() {
        let mut last = LastStamp::default();
        let begin = 1_525_880_639_247_000_000;
        for (stamps, time) in [
            (Stamps { digits: 3 }, begin),
            (Stamps { digits: 3 }, begin + 1_000_000),
            (Stamps { digits: 9 }, begin + 5),
            (Stamps { digits: 3 }, begin),
            (Stamps { digits: 6 }, begin + 1_000_000_000),
            (Stamps { digits: 6 }, 0),
            // Years of five digits do not occur: this is the last time.
            (Stamps { digits: 9 }, u64::MAX),
            (Stamps { digits: 9 }, u64::MAX - 1),
        ] {
            assert_eq!(last.show(stamps, time), stamps.show(time));
        }
        assert_eq!(last.show(Stamps { digits: 3 }, begin), "2018-05-09T15:43:59.247Z");
    }
}
