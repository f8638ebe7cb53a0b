//! Events as the user names them: by id, place or text.

use astracer_causality::points::Points;
use astracer_order::Order;
use regex::Regex;

use crate::failure::Failure;
use crate::output::escaped;

/// An event as the user names it.
#[derive(Clone, Debug)]
pub(in super::super) enum EventName {
    Id(u64),
    Place(String, u64),
    Text(Regex),
}

pub(in super::super) fn event(text: &str) -> Result<EventName, String> {
    let wrong = || {
        format!(
            "invalid event '{}': use its id, a place as in zk.log:565, or a /regular expression/",
            escaped(text)
        )
    };
    if let Some(pattern) = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
        let short = |error: regex::Error| {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            format!("invalid regular expression '{}': {last}", escaped(pattern))
        };
        return Regex::new(pattern).map(EventName::Text).map_err(short);
    }
    if let Ok(id) = text.parse() {
        return Ok(EventName::Id(id));
    }
    let (file, line) = text.rsplit_once(':').filter(|(file, _)| !file.is_empty()).ok_or_else(wrong)?;
    line.parse().map(|line| EventName::Place(file.to_owned(), line)).map_err(|_| wrong())
}

/// An event, and the number of events that fit its name.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Found {
    pub(in super::super) event: u32,
    pub(in super::super) of: u64,
}

/// The first event, in order, that fits a name.
pub(in super::super) fn find(order: &Order, name: &EventName) -> Result<Found, Failure> {
    first(&order.events, &order.sequence, name)
}

/// The first event by recorded times that fits a name.
pub(in super::super) fn find_by_time(events: &Points, name: &EventName) -> Result<Found, Failure> {
    let mut sequence: Vec<u32> = (0..events.len() as u32).collect();
    sequence.sort_by_key(|&event| events.rows()[event as usize].time);
    first(events, &sequence, name)
}

/// The first event of a sequence that fits a name.
fn first(events: &Points, sequence: &[u32], name: &EventName) -> Result<Found, Failure> {
    let is_file = |index: u32, name: &str| {
        let file = events.files().get(index as usize);
        file.and_then(|file| file.strip_suffix(name))
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    };
    let fits = |event: u32| {
        let row = &events.rows()[event as usize];
        match name {
            EventName::Id(id) => row.id == *id,
            EventName::Place(file, line) => {
                u64::from(row.line) == *line && is_file(row.file, file)
                    || u64::from(row.log_line) == *line && is_file(row.log_file, file)
            }
            EventName::Text(pattern) => pattern.is_match(events.text(row)),
        }
    };
    let mut found = sequence.iter().copied().filter(|&event| fits(event));
    let first = found.next();
    let of = 1 + found.count() as u64;
    first.map(|event| Found { event, of }).ok_or_else(|| {
        let text = match name {
            EventName::Id(id) => format!("no event has the id {id}; --out writes all with their ids"),
            EventName::Place(file, line) => {
                format!("no event is from {file}:{line}; --out writes all with file and line")
            }
            EventName::Text(pattern) => {
                format!("no event's text matches /{pattern}/; --merged prints all log records")
            }
        };
        Failure::Job(escaped(&text).into())
    })
}
