//! Falcon's JSON: one object for each event, one a line or in a list.
//!
//! | member | here |
//! |---|---|
//! | `type` | the kind; `FORK` is `CREATE`. Events of other types are counted |
//! | `timestamp` | the time: s, ms, us or ns since 1970, which differ in size |
//! | `thread`, `child` | threads; behind the last `@` is the host |
//! | `data.host`, `data.process` | host, process |
//! | `src`, `src_port`, `dst`, `dst_port`, `socket_type` | the connection, in the direction of its bytes |
//! | `size` | the bytes of a message |
//! | `message` | the text of a `LOG`, the number of a datagram, the name of a span |
//! | `trace`, `span`, `parents` | the ids of a span event |
//! | `id` | the id; otherwise the number of objects before it |
//!
//! Numbers may be texts, and other members are skipped.

use std::borrow::Cow;
use std::io::BufRead;
use std::sync::Arc;

use crate::Limits;
use crate::decimal::scaled;
use crate::json::{Cursor, Fault, Layout, Out, Scalar, read_units};
use crate::plain_json::{into_text, write_integer, write_string};
use astracer_model::event::{Channel, Event, EventKind};
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::sink::Sink;
use astracer_model::time::UnixNanos;

/// The lines at the start of a file that are tried.
const LINES_TRIED: usize = 16;

/// True if one of the first lines is an object, alone or in a list, with a type, a time and a
/// thread as Falcon names them.
pub(super) fn is_falcon(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"[").map_or(text, <[u8]>::trim_ascii_start);
    text.split(|&byte| byte == b'\n').take(LINES_TRIED).any(|line| {
        let Ok(line) = std::str::from_utf8(line) else { return false };
        line.starts_with('{') && {
            let mut found = Found::default();
            let _ = found.members(&mut Cursor::new(line, 0, 100));
            let is_type = found
                .kind
                .as_ref()
                .is_some_and(|kind| EventKind::from_name(kind).is_some() || OTHER_TYPES.contains(&&**kind));
            is_type && found.time.is_some() && !found.thread.is_empty()
        }
    })
}

/// Types of other tools in this form.
const OTHER_TYPES: &[&str] = &[
    "R",
    "W",
    "LOCK",
    "UNLOCK",
    "WAIT",
    "NOTIFY",
    "NOTIFYALL",
    "CLOSE",
    "SHUTDOWN",
    "HANDLERBEGIN",
    "HANDLEREND",
];

/// Reads one file of this format to its end.
pub fn read(input: &mut dyn BufRead, file: &Arc<str>, limits: &Limits, sink: &mut dyn Sink) {
    let mut count = 0;
    read_units(input, file, limits, sink, Layout::RECORDS, &mut |cursor, out| {
        object(cursor, out, &mut count)
    });
}

fn object(cursor: &mut Cursor<'_>, out: &mut Out<'_>, count: &mut u64) -> Result<(), Fault> {
    let start = cursor.at();
    let mut found = Found::default();
    found.members(cursor)?;
    let number = *count;
    *count += 1;
    let Some(kind) = found.kind.as_deref().and_then(EventKind::from_name) else {
        out.left_out(cursor, start, "a type that orders nothing");
        return Ok(());
    };
    let Some(time) = found.time else {
        return cursor.fault_at(start, "an event without a timestamp from 1970 on");
    };
    if found.thread.is_empty() {
        return cursor.fault_at(start, "an event without a thread");
    }
    let mut event = Event::new(kind, time, found.thread);
    event.id = Some(found.id.unwrap_or(number));
    event.sequence = number;
    event.host = found.host;
    event.process = found.process;
    event.child = found.child;
    event.bytes = found.bytes;
    event.text = found.text;
    if let (Some(trace), Some(span)) = (found.trace, found.span) {
        event.contexts.push((trace, span));
        event.contexts.extend(found.parents.into_iter().map(|parent| (trace, parent)));
    }
    if !found.channel.from.address.is_empty() || !found.channel.to.address.is_empty() {
        event.channel = Some(found.channel);
    }
    out.event(cursor, start, event);
    Ok(())
}

#[derive(Default)]
struct Found<'t> {
    kind: Option<Cow<'t, str>>,
    time: Option<UnixNanos>,
    id: Option<u64>,
    thread: Cow<'t, str>,
    child: Cow<'t, str>,
    host: Cow<'t, str>,
    process: Cow<'t, str>,
    text: Cow<'t, str>,
    bytes: u64,
    channel: Channel<'t>,
    trace: Option<TraceId>,
    span: Option<SpanId>,
    parents: Vec<SpanId>,
}

impl<'t> Found<'t> {
    fn members(&mut self, cursor: &mut Cursor<'t>) -> Result<(), Fault> {
        cursor.object(|cursor, key| {
            match &*key {
                "type" => self.kind = Some(text(cursor)?),
                "timestamp" => self.time = time(&text(cursor)?),
                "id" => self.id = text(cursor)?.parse().ok(),
                "thread" => self.thread = text(cursor)?,
                "child" => self.child = text(cursor)?,
                "src" => self.channel.from.address = text(cursor)?,
                "dst" => self.channel.to.address = text(cursor)?,
                "src_port" => self.channel.from.port = text(cursor)?.parse().unwrap_or(0),
                "dst_port" => self.channel.to.port = text(cursor)?.parse().unwrap_or(0),
                "socket_type" => self.channel.is_datagram = text(cursor)?.eq_ignore_ascii_case("UDP"),
                "size" => self.bytes = text(cursor)?.parse().unwrap_or(0),
                "message" => self.text = text(cursor)?,
                "trace" => self.trace = TraceId::from_hex(&text(cursor)?),
                "span" => self.span = SpanId::from_hex(&text(cursor)?),
                "parents" if cursor.peek() == Some(b'[') => {
                    return cursor.list(|cursor| {
                        self.parents.extend(SpanId::from_hex(&text(cursor)?));
                        Ok(())
                    });
                }
                "data" if cursor.peek() == Some(b'{') => {
                    return cursor.object(|cursor, key| {
                        match &*key {
                            "host" => self.host = text(cursor)?,
                            "process" => self.process = text(cursor)?,
                            _ => drop(cursor.skip()?),
                        }
                        Ok(())
                    });
                }
                _ => drop(cursor.skip()?),
            }
            Ok(())
        })
    }
}

/// A simple value as text; empty for a list or an object.
pub(super) fn text<'t>(cursor: &mut Cursor<'t>) -> Result<Cow<'t, str>, Fault> {
    if let Some(b'{' | b'[') = cursor.peek() {
        return cursor.skip().map(|_| Cow::Borrowed(""));
    }
    Ok(match cursor.scalar()? {
        Scalar::String(text) => text,
        Scalar::Number(digits) => Cow::Borrowed(digits),
        Scalar::Bool(_) | Scalar::Null => Cow::Borrowed(""),
    })
}

/// The units of times by the power of ten that makes nanoseconds of them, and the numbers below
/// which they are.
const UNITS: [(u32, u64); 4] =
    [(9, 100_000_000_000), (6, 100_000_000_000_000), (3, 100_000_000_000_000_000), (0, u64::MAX)];

fn power(number: u64) -> u32 {
    UNITS.iter().find(|&&(_, end)| number < end).map_or(0, |&(power, _)| power)
}

fn time(text: &str) -> Option<UnixNanos> {
    let whole = scaled(text, 0).filter(|found| !found.negative)?.magnitude;
    scaled(text, i64::from(power(whole))).map(|found| UnixNanos(found.magnitude))
}

/// The unit in which all times of a file are written, so that they are read again as what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeUnit(u32);

impl TimeUnit {
    /// The coarsest unit that holds all of these times exactly, and in which each is read again as
    /// that unit; nanoseconds if there is none.
    pub fn of(times: impl Iterator<Item = UnixNanos> + Clone) -> Self {
        let fits = |&(unit, _): &(u32, u64)| {
            let one = 10u64.pow(unit);
            times.clone().all(|time| time.0.is_multiple_of(one) && power(time.0 / one) == unit)
        };
        Self(UNITS.iter().find(|unit| fits(unit)).map_or(0, |&(unit, _)| unit))
    }
}

/// Appends an event as one line. `more` appends further members, each preceded by a comma.
pub fn write_line(out: &mut Vec<u8>, event: &Event<'_>, unit: TimeUnit, more: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"{\"type\":");
    write_string(out, event.kind.name());
    out.extend_from_slice(b",\"timestamp\":");
    write_integer(out, event.time.0 / 10u64.pow(unit.0));
    let text = |out: &mut Vec<u8>, key: &str, value: &str| {
        if !value.is_empty() {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(b"\":");
            write_string(out, value);
        }
    };
    let number = |out: &mut Vec<u8>, key: &str, value: u64| {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(b"\":");
        write_integer(out, value);
    };
    text(out, "thread", &event.thread);
    if !event.host.is_empty() || !event.process.is_empty() {
        let mut data = Vec::new();
        text(&mut data, "host", &event.host);
        text(&mut data, "process", &event.process);
        out.extend_from_slice(b",\"data\":{");
        out.extend_from_slice(&data[1..]);
        out.push(b'}');
    }
    text(out, "child", &event.child);
    if let Some(channel) = &event.channel {
        text(out, "src", &channel.from.address);
        number(out, "src_port", channel.from.port.into());
        text(out, "dst", &channel.to.address);
        number(out, "dst_port", channel.to.port.into());
        text(out, "socket_type", if channel.is_datagram { "UDP" } else { "TCP" });
        // As Falcon names a connection: the same for both directions.
        let (one, other) = (channel.from.to_string(), channel.to.to_string());
        let (first, second) = if one <= other { (one, other) } else { (other, one) };
        text(out, "socket", &format!("{first}-{second}"));
    }
    if matches!(event.kind, EventKind::Send | EventKind::Receive) {
        number(out, "size", event.bytes);
    }
    text(out, "message", &event.text);
    if let (EventKind::SpanStart | EventKind::SpanEnd, Some((trace, span))) =
        (event.kind, event.contexts.first())
    {
        text(out, "trace", &trace.to_string());
        text(out, "span", &span.to_string());
        let parents: Vec<_> = event.contexts[1..].iter().map(|(_, parent)| format!("\"{parent}\"")).collect();
        if !parents.is_empty() {
            out.extend_from_slice(format!(",\"parents\":[{}]", parents.join(",")).as_bytes());
        }
    }
    if let Some(id) = event.id {
        number(out, "id", id);
    }
    more(out);
    out.extend_from_slice(b"}\n");
}

/// One event as a line of text; see [`write_line`].
pub fn line(event: &Event<'_>, unit: TimeUnit) -> String {
    let mut out = Vec::new();
    write_line(&mut out, event, unit, |_| {});
    into_text(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use astracer_model::problem::{Place, Problem};
    use astracer_model::sink::Record;
    use astracer_model::span::Span;

    #[derive(Default)]
    struct Seen {
        lines: Vec<String>,
        ids: Vec<u64>,
        left_out: usize,
        problems: usize,
    }

    impl Sink for Seen {
        fn span(&mut self, _: Span<'_>, _: Record<'_>) {}
        fn event(&mut self, event: Event<'_>, _: Record<'_>) {
            self.ids.extend(event.id);
            self.lines.push(line(&event, TimeUnit::of([event.time].into_iter())));
        }
        fn left_out(&mut self, _: &'static str, _: &Place) {
            self.left_out += 1;
        }
        fn problem(&mut self, _: Problem) {
            self.problems += 1;
        }
        fn skipped(&mut self, _: &Arc<str>, _: &str) {}
    }

    fn seen(text: &str) -> Seen {
        let mut seen = Seen::default();
        read(&mut text.as_bytes(), &"a".into(), &Limits::default(), &mut seen);
        seen
    }

    #[test]
    fn lines_and_lists_are_read_and_written() {
        let snd = r#"{"type":"SND","timestamp":1525880628677,"thread":"5@h","data":{"host":"h"},"src":"h","src_port":5,"dst":"g","dst_port":80,"socket_type":"TCP","socket":"g:80-h:5","size":50,"id":7}"#;
        let start = r#"{"type":"START","timestamp":999640,"thread":"3@h2","id":1}"#;
        let text =
            format!("{snd}\n\tat x.y\n{start}\n{{\"type\":\"W\",\"timestamp\":\"5\",\"thread\":\"3@h2\"}}\n");
        let found = seen(&text);
        assert_eq!(found.lines, [format!("{snd}\n"), format!("{start}\n")]);
        assert_eq!((found.left_out, found.ids), (1, vec![7, 1]));
        let list = format!(
            "[{snd},\n{{\"timestamp\":\"2\",\"thread\":\"T@N\",\"type\":\"FORK\",\"child\":\"U@N\"}},{{\"type\":\"END\"}}]"
        );
        let found = seen(&list);
        assert_eq!((found.ids, found.problems), (vec![7, 1], 1));
        assert!(is_falcon(text.as_bytes()) && is_falcon(list.as_bytes()));
        for other in [
            "{\"type\":\"X\",\"timestamp\":1,\"thread\":\"a\"}",
            "{\"timestamp\":5,\"message\":\"x\"}",
            "{",
            "",
        ] {
            assert!(!is_falcon(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn times_are_read_as_the_unit_that_was_written() {
        for times in
            [vec![0, 1], vec![1_525_880_628_677_000_000, 1_000_000], vec![999_640_000_000_000, 7_000_000_000]]
        {
            let times: Vec<_> = times.into_iter().map(UnixNanos).collect();
            let unit = TimeUnit::of(times.iter().copied());
            let again = times.iter().map(|&at| line(&Event::new(EventKind::End, at, "a"), unit));
            let read: Vec<_> = again.map(|line| time(line.split([':', ',']).nth(3).unwrap())).collect();
            if unit != TimeUnit(0) {
                assert_eq!(read, times.iter().copied().map(Some).collect::<Vec<_>>());
            }
        }
    }
}
