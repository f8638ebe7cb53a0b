//! The parts of log records that people read: severity, message, trace, and the recorded time.

use std::borrow::Cow;

use astracer_causality::points::{NONE, Point};
use astracer_model::ids::TraceId;
use astracer_model::log::Severity;
use astracer_recording::Recording;

use super::Order;

/// Members of JSON that hold the message, from the most usual.
const MESSAGES: [&str; 7] = ["message", "msg", "body", "log", "event", "@m", "MESSAGE"];

/// The parts of one log record.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LogFacts {
    /// The severity, if the record states one.
    pub severity: Severity,
    /// The trace that the record states; zero for none.
    pub trace: TraceId,
    /// Where the message begins in the record's text, and its length; the whole text if
    /// it has escapes there.
    pub message: (u32, u32),
    /// The time that the record states, in nanoseconds since 1970; `None` without one.
    pub time: Option<u64>,
}

/// The facts of all log records of a recording, by their numbers.
pub(super) fn of(recording: &Recording) -> Vec<LogFacts> {
    let facts = recording.logs().map(|log| LogFacts {
        severity: log.severity(),
        trace: log.ids().0,
        message: log.message_place(),
        time: log.time().map(|time| time.0),
    });
    facts.collect()
}

impl Order {
    /// The facts of a log record; `None` for other events, and for records of event files.
    pub fn log(&self, row: &Point) -> Option<&LogFacts> {
        self.logs.get(row.log as usize)
    }

    /// The time that an event states, which may be out of its log's order or contradict a cause.
    pub fn stated(&self, event: u32) -> u64 {
        let row = &self.events.rows()[event as usize];
        // A record that a traced call wrote has the time of the call.
        let log = self.log(row).filter(|_| row.log_file == NONE);
        log.and_then(|log| log.time).unwrap_or(row.time)
    }

    /// The stated time by the corrected clock, if the event has its place by other evidence.
    pub fn misplaced(&self, event: u32) -> Option<u64> {
        let (row, stated) = (&self.events.rows()[event as usize], self.stated(event));
        let is_misplaced = stated != row.time || self.shift(event).is_some();
        let ahead = i128::from(row.time) - i128::from(self.aligned_times[event as usize]);
        is_misplaced.then(|| u64::try_from(i128::from(stated) - ahead).unwrap_or(stated))
    }

    /// The severity of an event; unspecified if it states none.
    pub fn severity(&self, row: &Point) -> Severity {
        self.log(row).map_or(Severity::UNSPECIFIED, |log| log.severity)
    }

    /// A log record as people read it. A line of JSON is reduced to severity and message; other
    /// lines are complete.
    pub fn record(&self, row: &Point) -> Cow<'_, str> {
        let text = self.events.text(row).trim_end();
        let Some(log) = self.log(row).filter(|_| text.starts_with('{')) else { return text.into() };
        let (start, len) = (log.message.0 as usize, log.message.1 as usize);
        let message = text.get(start..start.saturating_add(len)).filter(|message| !message.is_empty());
        let message = match message {
            Some(message) if start > 0 => Some(message.to_owned()),
            _ => escaped_message(text),
        };
        let Some(message) = message else { return text.into() };
        let word = log.severity.word().to_ascii_uppercase();
        let gap = if word.is_empty() { "" } else { " " };
        format!("{word}{gap}{message}").into()
    }
}

/// The message of a line of JSON in which it has escapes, so that its place is unknown.
fn escaped_message(text: &str) -> Option<String> {
    let members: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).ok()?;
    let named = MESSAGES.iter().find_map(|&name| members.get(name)?.as_str());
    named.map(str::to_owned)
}
