//! X-Trace reports as JSON, as Brown University's X-Trace server stores and serves executions
//! (Fonseca et al., "X-Trace: A Pervasive Network Tracing Framework", NSDI 2007).
//!
//! The reader accepts a list of executions (`{"id": ..., "reports": [...]}`), and consecutive
//! executions. A report is an event. Here it becomes a span without duration, whose parents are all
//! the events that it followed.
//!
//! # Mapping
//!
//! | X-Trace | here |
//! |---|---|
//! | `X-Trace`: a version byte, the task's id, the event's id, as hexadecimal digits | trace id, span id |
//! | `Edge`, except `0000000000000000`, which means no event | parents |
//! | `Timestamp`: milliseconds if it is at least 100,000,000,000, otherwise seconds | start and end |
//! | `Label`, else `Operation`, else the last part of `Class` | name |
//! | `Agent`, else the last part of `Class` | resource: `service.name` |
//! | `Host`, `ProcessID` | resource: `host.name`, `xtrace.process` |
//! | `ThreadID`, `ThreadName` | attributes `thread.id`, `thread.name` |
//! | everything else | attributes of the same names; a list of one element becomes that element |

use std::borrow::Cow;
use std::io::BufRead;
use std::sync::Arc;

use super::json::{Cursor, Fault, Layout, Out, Scalar, read_units};
use super::plain_json;
use super::reuse::Reuse;
use crate::Limits;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::sink::Sink;
use astracer_model::span::{Parents, Resource, Scope, Span};
use astracer_model::time::UnixNanos;
use astracer_model::value::{Attribute, Value};

/// Executions are units, in lists or on their own.
const LAYOUT: Layout = Layout {
    lists: &[],
    wrappers: &[],
    unit_keys: &[],
    bare_list: true,
    unit_is_record: false,
    behind_text: false,
    others: &[],
};

/// Timestamps from here on are milliseconds. As seconds they would be in the year 5138.
const MILLISECONDS_FROM: u64 = 100_000_000_000;

/// Reads one file of this format to its end.
pub fn read(input: &mut dyn BufRead, file: &Arc<str>, limits: &Limits, sink: &mut dyn Sink) {
    let mut shared = Shared::default();
    read_units(input, file, limits, sink, LAYOUT, &mut |cursor, out| execution(cursor, out, &mut shared));
}

#[derive(Default)]
struct Shared {
    resources: Reuse<Resource>,
    scope: Arc<Scope>,
}

fn execution(cursor: &mut Cursor<'_>, out: &mut Out<'_>, shared: &mut Shared) -> Result<(), Fault> {
    cursor.object(|cursor, key| match &*key {
        "reports" => out.records(cursor, |cursor, out| report(cursor, out, shared)),
        _ => cursor.skip().map(drop),
    })
}

fn report(cursor: &mut Cursor<'_>, out: &mut Out<'_>, shared: &mut Shared) -> Result<(), Fault> {
    let begin = cursor.at();
    let (mut ids, mut parents, mut time) = (None, Parents::new(), None);
    let (mut label, mut operation, mut class) = (Cow::Borrowed(""), Cow::Borrowed(""), Cow::Borrowed(""));
    let (mut agent, mut host, mut process) = (Cow::Borrowed(""), Cow::Borrowed(""), Cow::Borrowed(""));
    let mut attributes = Vec::new();
    cursor.object(|cursor, key| {
        match &*key {
            "X-Trace" => {
                let at = cursor.at();
                let text = first(cursor)?;
                ids = metadata(&text);
                if ids.is_none() {
                    return cursor.fault_at(at, "invalid X-Trace: expected the hexadecimal digits of a version, a task id and an event id");
                }
            }
            "Edge" => each(cursor, |cursor, text| match SpanId::from_hex(&text) {
                Some(id) if id != SpanId::ZERO => {
                    parents.push(id);
                    Ok(())
                }
                Some(_) => Ok(()),
                None => cursor.fault_at(cursor.at(), "invalid Edge: expected a hexadecimal event id"),
            })?,
            "Timestamp" => {
                let at = cursor.at();
                let text = first(cursor)?;
                time = timestamp(&text);
                if time.is_none() && !text.is_empty() {
                    return cursor
                        .fault_at(at, "invalid Timestamp: expected seconds or milliseconds since 1970");
                }
            }
            "Label" => label = first(cursor)?,
            "Agent" => agent = first(cursor)?,
            "Host" => host = first(cursor)?,
            "ProcessID" => process = first(cursor)?,
            "ThreadID" => attributes.push(attribute("thread.id", first(cursor)?)),
            "ThreadName" => attributes.push(attribute("thread.name", first(cursor)?)),
            "version" => drop(cursor.skip()?),
            _ => {
                let value = value(cursor)?;
                match (&*key, value.as_str()) {
                    ("Operation", Some(text)) => operation = Cow::Owned(text.to_owned()),
                    ("Class", Some(text)) => class = Cow::Owned(text.to_owned()),
                    _ => {}
                }
                attributes.push(Attribute { key, value });
            }
        }
        Ok(())
    })?;
    let Some((trace_id, span_id)) = ids else {
        return cursor.fault_at(begin, "report without an X-Trace id");
    };
    let class = class.rsplit('.').next().unwrap_or_default();
    let service = if agent.is_empty() { class } else { &agent };
    let resource = shared.resources.get_or_make(&[service, &host, &process], || {
        let named = [("service.name", service), ("host.name", &host), ("xtrace.process", &process)];
        let known = named.into_iter().filter(|(_, value)| !value.is_empty());
        let attributes = known.map(|(key, value)| Attribute::new(key, value).into_owned()).collect();
        Resource { attributes, ..Resource::default() }
    });
    let mut span = Span::of(resource, Arc::clone(&shared.scope));
    (span.trace_id, span.span_id, span.parents) = (trace_id, span_id, parents);
    (span.start, span.end) = (time, time);
    span.attributes = attributes;
    span.wording.derived_service = agent.is_empty();
    span.wording.derived_name = label.is_empty();
    span.name = match (label.is_empty(), operation.is_empty()) {
        (false, _) => label,
        (true, false) => operation,
        (true, true) => Cow::Borrowed(class),
    };
    out.span(cursor, begin, span);
    Ok(())
}

fn attribute<'a>(key: &'static str, text: Cow<'a, str>) -> Attribute<'a> {
    Attribute { key: Cow::Borrowed(key), value: Value::String(text) }
}

/// Calls `take` with each text of a list; a single text counts as a list of one.
fn each<'a>(
    cursor: &mut Cursor<'a>,
    mut take: impl FnMut(&mut Cursor<'a>, Cow<'a, str>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    if cursor.peek() == Some(b'[') {
        return cursor.list(|cursor| {
            let text = text(cursor)?;
            take(cursor, text)
        });
    }
    let text = text(cursor)?;
    take(cursor, text)
}

/// Reads a text, or a number as its digits; `null` is empty.
fn text<'a>(cursor: &mut Cursor<'a>) -> Result<Cow<'a, str>, Fault> {
    Ok(match cursor.scalar()? {
        Scalar::String(text) => text,
        Scalar::Number(digits) => Cow::Borrowed(digits),
        Scalar::Bool(_) | Scalar::Null => Cow::Borrowed(""),
    })
}

/// Reads the first text of a list; empty if the list is empty.
fn first<'a>(cursor: &mut Cursor<'a>) -> Result<Cow<'a, str>, Fault> {
    let mut found = None;
    each(cursor, |_, text| {
        found.get_or_insert(text);
        Ok(())
    })?;
    Ok(found.unwrap_or_default())
}

/// Reads any value. A list of one element is read as that element, and an empty list as an empty
/// value.
fn value<'a>(cursor: &mut Cursor<'a>) -> Result<Value<'a>, Fault> {
    Ok(match plain_json::read_value(cursor)? {
        Value::Array(mut items) if items.len() < 2 => items.pop().unwrap_or_default(),
        value => value,
    })
}

/// The ids of X-Trace metadata. The low two bits of the first byte give the length of the task's id
/// (4, 8, 12 or 20 bytes), and bit 3 gives that of the event's id (4 bytes, or 8 if set); options
/// may follow. Of a task id longer than 16 bytes, only the last 16 are kept.
fn metadata(text: &str) -> Option<(TraceId, SpanId)> {
    let version = u8::from_str_radix(text.get(..2)?, 16).ok()?;
    let task_digits = 2 * [4, 8, 12, 20][usize::from(version & 3)];
    let event_digits = if version & 8 == 0 { 8 } else { 16 };
    let task = text.get(2..2 + task_digits)?;
    let event = text.get(2 + task_digits..2 + task_digits + event_digits)?;
    let trace_id = TraceId::from_hex(task.get(task.len().saturating_sub(32)..)?)?;
    let span_id = SpanId::from_hex(event).filter(|&id| id != SpanId::ZERO)?;
    Some((trace_id, span_id))
}

/// Reads a decimal number of seconds or milliseconds without rounding, with nanosecond precision.
fn timestamp(text: &str) -> Option<UnixNanos> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let unit: u64 = if whole < MILLISECONDS_FROM { 1_000_000_000 } else { 1_000_000 };
    let (mut nanos, mut place) = (whole.checked_mul(unit)?, unit);
    for digit in fraction.bytes() {
        place /= 10;
        nanos = nanos.checked_add(u64::from(digit - b'0') * place)?;
    }
    Some(UnixNanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_seconds_or_milliseconds() {
        for (text, expected) in [
            ("1364280059.495", Some(1_364_280_059_495_000_000)),
            ("1364280059", Some(1_364_280_059_000_000_000)),
            ("1384989800278", Some(1_384_989_800_278_000_000)),
            ("1384989800278.25", Some(1_384_989_800_278_250_000)),
            ("0", Some(0)),
            ("1.0000000019", Some(1_000_000_001)),
            ("18446744073709", Some(18_446_744_073_709_000_000)),
            ("18446744073710", None),
            ("99999999999999999999", None),
            ("-1", None),
            ("1e9", None),
            ("1.5.5", None),
            (".5", None),
            ("", None),
        ] {
            assert_eq!(timestamp(text), expected.map(UnixNanos), "{text}");
        }
    }

    #[test]
    fn ids_have_the_lengths_of_the_version() {
        let ids = |text| metadata(text).map(|(trace, span)| (trace.0, span.0));
        assert_eq!(ids("1957C1C4A67A6A88FD47B4E72042F9B7FF"), Some((0x57c1c4a67a6a88fd, 0x47b4e72042f9b7ff)));
        assert_eq!(ids("10000000070000000a"), Some((7, 10)));
        assert_eq!(ids("1957C1C4A67A6A88FD0000000000000000"), None, "an event's id is not 0");
        for cut in
            ["", "1", "19", "1957C1C4A67A6A88FD47B4E72042F9B7", "zz", "1957C1C4A67A6A88Fé47B4E72042F9B7F"]
        {
            assert_eq!(ids(cut), None, "{cut}");
        }
    }
}
