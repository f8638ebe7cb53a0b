//! Logs of one JSON object per line, and of `key=value` pairs.
//!
//! | part | members |
//! |---|---|
//! | time | `timestamp`, `@timestamp`, `time`, `ts`, `t`, `@t`, `datetime`, `asctime`, `eventTime`, `__REALTIME_TIMESTAMP`, log4j's `instant`, and names that end in `time` or `timestamp` |
//! | severity | `level`, `severity`, `lvl`, `levelname`, `level_name`, `log.level`, `@l`, `PRIORITY` |
//! | message | `message`, `msg`, `body`, `log`, `event`, `@m`, `@mt`, `line`, `textPayload` |
//! | logger | `target`, `logger`, `logger_name`, `log.logger`, `Category`, `SourceContext`, `channel`, `name` |
//! | thread | `thread`, `threadName`, `threadId`, `process.thread.name`, `ctx`, `tid` |
//! | place | `filename` or `file` with `line_number`, `lineno` or `line`; `caller` as `file:line` |
//! | process | `hostname`, `pid`, `service`, `SYSLOG_IDENTIFIER`, `kubernetes.pod_name`, `container_name` |
//! | ids | `trace_id`, `span_id` in any spelling, `dd.trace_id` |
//!
//! Case does not matter. Members of `fields`, `span`, `attributes` and `jsonPayload` count as those
//! of the record, and so do those of the last of `spans`. Other objects are attributes, and their
//! members are looked at under the path to them: `process.thread.name`. A number is a time since
//! 1970, whose unit follows from its size; pino's and bunyan's levels are tens from 10 to 60.

use std::borrow::Cow;
use std::sync::Arc;

use super::clock::Clock;
use super::ids::{is_span_id, is_trace_id};
use super::levels;
use super::stamp::Stamp;
use super::time;
use super::writer::Writer;
use crate::json::{Cursor, Fault};
use crate::plain_json::{read_value, text_of};
use crate::reuse::Reuse;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::log::{LogRecord, Severity};
use astracer_model::span::{Resource, Scope};
use astracer_model::value::{Attribute, Value};

/// The parts that records share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) resources: Reuse<Resource>,
    scope: Arc<Scope>,
    empty: Arc<Resource>,
}

impl Shared {
    /// A record without any content.
    pub(super) fn record<'t>(&self) -> LogRecord<'t> {
        LogRecord::of(Arc::clone(&self.empty), Arc::clone(&self.scope))
    }
}

/// A record of named members, while it is read.
pub(super) struct Found<'t> {
    pub(super) log: LogRecord<'t>,
    pub(super) writer: Writer<'t>,
    /// The time and the rank of its name: lower is surer.
    time: Option<(u8, Stamp)>,
    time_key: String,
    /// A name, which is the logger if nothing else is.
    name: Option<Cow<'t, str>>,
}

/// Reads the object of one line. Its time is not set in the record.
pub(super) fn read<'t>(
    line: &'t str,
    nesting_max: usize,
    shared: &Shared,
) -> Result<Found<'t>, &'static str> {
    let mut cursor = Cursor::new(line, 0, nesting_max);
    let mut found = Found::new(shared);
    if found.members(&mut cursor, true).is_err() {
        return Err("no JSON object");
    }
    if cursor.peek().is_some() {
        return Err("text behind a JSON object");
    }
    Ok(found)
}

/// Reads the pairs of a line such as `time=2026-05-14T09:00:00Z level=info msg="a b"`.
pub(super) fn read_pairs<'t>(line: &'t str, shared: &Shared) -> Found<'t> {
    let mut found = Found::new(shared);
    let mut rest = line.trim();
    while !rest.is_empty() {
        let end = rest.find(['=', ' ']).unwrap_or(rest.len());
        let (key, behind) = rest.split_at(end);
        let Some(value) = behind.strip_prefix('=') else {
            rest = behind.trim_start();
            continue;
        };
        let (value, behind) = pair_value(value);
        found.member(Cow::Borrowed(key), Value::String(value), true);
        rest = behind.trim_start();
    }
    found
}

/// The value at the start of a text, which may be in quotes, and the text behind it.
fn pair_value(text: &str) -> (Cow<'_, str>, &str) {
    if let Some(inside) = text.strip_prefix('"') {
        let mut escaped = false;
        let end = inside.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let end = end.unwrap_or(inside.len());
        let behind = inside.get(end + 1..).unwrap_or("");
        let quoted = &text[..end + 2.min(text.len() - end)];
        let value = match serde_json::from_str::<String>(quoted) {
            Ok(value) if inside[..end].contains('\\') => Cow::Owned(value),
            _ => Cow::Borrowed(&inside[..end]),
        };
        return (value, behind);
    }
    let end = text.find(' ').unwrap_or(text.len());
    (Cow::Borrowed(&text[..end]), &text[end..])
}

impl<'t> Found<'t> {
    pub(super) fn new(shared: &Shared) -> Self {
        Self {
            log: shared.record(),
            writer: Writer::default(),
            time: None,
            time_key: String::new(),
            name: None,
        }
    }

    /// The time of the record.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        self.time.map(|(_, stamp)| stamp)
    }

    /// The name under which the time stands, without the path to it.
    pub(super) fn time_key(&self) -> Option<&str> {
        (!self.time_key.is_empty()).then_some(&*self.time_key)
    }

    /// True if the record has a message or a severity, or several members: other objects with a
    /// time are no log records.
    pub(super) fn is_told(&self) -> bool {
        self.log.body != Value::Empty || !self.log.severity_text.is_empty() || self.log.attributes.len() > 2
    }

    /// The finished record. `outer` is the writer that a prefix of the line states, and `prefix`
    /// the time there.
    pub(super) fn finish(
        mut self,
        outer: Writer<'t>,
        prefix: Option<&Stamp>,
        clock: &mut Clock,
        shared: &mut Shared,
    ) -> LogRecord<'t> {
        if let Some(name) = self.name
            && self.log.logger.is_empty()
        {
            self.log.logger = name;
        }
        if let Some(stamp) = self.time.as_ref().map(|(_, stamp)| stamp).or(prefix) {
            (self.log.time, self.log.resolution) = (clock.instant(stamp), stamp.resolution);
        }
        self.writer.or(outer);
        if self.writer != Writer::default() {
            self.log.resource = self.writer.resource(&mut shared.resources);
        }
        self.log
    }

    pub(super) fn members(&mut self, cursor: &mut Cursor<'t>, is_outer: bool) -> Result<(), Fault> {
        cursor.object(|cursor, key| {
            match (&*key, cursor.peek()) {
                ("fields" | "span" | "attributes" | "jsonPayload" | "@fields", Some(b'{')) => {
                    return self
                        .members(cursor, is_outer && !matches!(&*key, "span" | "attributes" | "fields"));
                }
                ("spans", Some(b'[')) => {
                    return cursor.list(|cursor| match cursor.peek() {
                        Some(b'{') => self.members(cursor, false),
                        _ => cursor.skip().map(drop),
                    });
                }
                _ => {}
            }
            let value = read_value(cursor)?;
            self.member(key, value, is_outer);
            Ok(())
        })
    }

    /// Takes the parts that the members of an inner object state, under the path to them. What is
    /// left are attributes.
    fn inner(&mut self, path: &str, members: &mut Vec<Attribute<'t>>, depth: usize) {
        if depth > 4 || path.len() > 100 {
            return;
        }
        members.retain_mut(|Attribute { key, value }| {
            let path = format!("{path}.{key}");
            match value {
                Value::Map(members) => {
                    if path.ends_with("time") && self.instant_of(members) {
                        return false;
                    }
                    let was_empty = members.is_empty();
                    self.inner(&path, members, depth + 1);
                    was_empty || !members.is_empty()
                }
                value => !self.known(&path, value, true),
            }
        });
    }

    /// Takes the time of log4j's `instant`, MongoDB's `t` or loguru's `time`; false without one.
    fn instant_of(&mut self, members: &[Attribute<'t>]) -> bool {
        let of = |name: &str| members.iter().find(|member| member.key == name).map(|member| &member.value);
        if let (Some(Value::Int(seconds)), Some(Value::Int(nanos))) = (of("epochSecond"), of("nanoOfSecond"))
        {
            return self.time_at(0, "epochSecond", time::whole(&format!("{seconds}.{nanos:09}")));
        }
        ["$date", "repr", "$numberLong"]
            .into_iter()
            .any(|key| of(key).is_some_and(|value| self.time_at(0, key, time::whole(&text_of(value)))))
    }

    fn time_at(&mut self, rank: u8, key: &str, stamp: Option<Stamp>) -> bool {
        let Some(stamp) = stamp else { return false };
        let is_first = self.time.is_none_or(|(known, _)| rank < known);
        if is_first {
            self.time = Some((rank, stamp));
            self.time_key.clear();
            self.time_key.push_str(key.rsplit('.').next().unwrap_or(key));
        }
        is_first
    }

    pub(super) fn member(&mut self, key: Cow<'t, str>, mut value: Value<'t>, is_outer: bool) {
        if let Value::Map(members) = &mut value {
            let may_be_time = matches!(&*key, "t" | "instant" | "time" | "timestamp");
            if may_be_time && self.instant_of(members) {
                return;
            }
            let was_empty = members.is_empty();
            self.inner(&key, members, 0);
            if members.is_empty() && !was_empty {
                return;
            }
        } else if self.known(&key, &value, is_outer) {
            return;
        }
        self.log.attributes.push(Attribute { key, value });
    }

    /// Takes a label of the stream that a record is in.
    pub(super) fn label(&mut self, key: Cow<'t, str>, value: Value<'t>) {
        if !self.known(&format!("labels.{key}"), &value, true) {
            self.member(key, value, true);
        }
    }

    /// Takes a member whose name is known. Returns false if it is to be kept as an attribute.
    fn known(&mut self, key: &str, value: &Value<'t>, is_outer: bool) -> bool {
        let log = &mut self.log;
        let text = || match value {
            Value::String(text) => text.clone(),
            value => Cow::Owned(text_of(value).into_owned()),
        };
        // Keys are compared in lower case.
        let mut lower = [0u8; 48];
        let Some(lower) = lower.get_mut(..key.len()) else { return false };
        lower.copy_from_slice(key.as_bytes());
        lower.make_ascii_lowercase();
        let Ok(lower) = std::str::from_utf8(lower) else { return false };
        match lower {
            "timestamp"
            | "@timestamp"
            | "time"
            | "ts"
            | "t"
            | "@t"
            | "datetime"
            | "asctime"
            | "eventtime"
            | "timemillis"
            | "jsonpayload.timestamp"
            | "timeunixnano"
                if is_outer =>
            {
                return self.time_at(1, key, time::whole(&text_of(value)));
            }
            "__realtime_timestamp" | "_source_realtime_timestamp" if is_outer => {
                // Journald counts microseconds.
                return self.time_at(1, key, time::whole(&text_of(value)));
            }
            "level" | "severity" | "lvl" | "levelname" | "level_name" | "log.level" | "loglevel" | "@l"
            | "severitytext" | "severity_text" | "log_level" | "record.level.name" | "level.name"
                if is_outer && log.severity_text.is_empty() =>
            {
                log.severity = match value {
                    // Pino and bunyan: 10 is the finest, 60 is fatal.
                    Value::Int(tens @ 10..=60) => Severity::from_otlp((tens / 10 - 1) * 4 + 1),
                    _ => levels::of_word(text_of(value).trim()).unwrap_or_default(),
                };
                log.severity_text = text();
            }
            "s" if log.severity_text.is_empty() && levels::of_letter(&text_of(value)).is_some() => {
                log.severity = levels::of_letter(&text_of(value)).unwrap_or_default();
                log.severity_text = text();
            }
            "priority" if is_outer && log.severity_text.is_empty() => {
                let Some(number) = text_of(value).parse().ok().filter(|number| *number < 8) else {
                    return false;
                };
                log.severity = levels::of_syslog(number);
                log.severity_text = text();
            }
            "message"
            | "msg"
            | "body"
            | "log"
            | "event"
            | "@m"
            | "@mt"
            | "line"
            | "textpayload"
            | "record.message"
            | "jsonpayload.message"
            | "short_message"
            | "renderedmessage"
                if log.body == Value::Empty
                    && !(lower == "line" && matches!(value, Value::Int(_)))
                    && *value != Value::Empty =>
            {
                log.body = match value {
                    Value::String(Cow::Borrowed(text)) => Value::String(Cow::Borrowed(text.trim_end())),
                    Value::String(Cow::Owned(text)) => Value::String(Cow::Owned(text.trim_end().to_owned())),
                    value => value.clone(),
                };
            }
            "target"
            | "logger"
            | "logger_name"
            | "loggername"
            | "log.logger"
            | "category"
            | "sourcecontext"
            | "channel"
            | "properties.sourcecontext"
            | "c"
            | "record.name"
                if is_outer && log.logger.is_empty() =>
            {
                log.logger = text();
            }
            "name" if is_outer && self.name.is_none() => {
                self.name = Some(text());
            }
            "thread"
            | "threadname"
            | "thread_name"
            | "threadid"
            | "thread_id"
            | "process.thread.name"
            | "ctx"
            | "tid"
            | "record.thread.name"
            | "thread.name"
                if is_outer && log.thread.is_empty() =>
            {
                log.thread = text();
            }
            "filename" | "file" if is_outer && log.code.file.is_empty() => {
                log.code.file = text();
            }
            "line_number" | "lineno" | "line" if is_outer && log.code.line == 0 => {
                let Value::Int(line) = value else { return false };
                log.code.line = u32::try_from(*line).unwrap_or(0);
            }
            "caller" if is_outer => {
                let text = text();
                let Some((file, Ok(line))) = text.rsplit_once(':').map(|(file, line)| (file, line.parse()))
                else {
                    return false;
                };
                log.code.file = Cow::Owned(file.to_owned());
                log.code.line = line;
            }
            "service" | "service.name" | "service_name" | "dd.service" | "syslog_identifier"
            | "servicename" | "application" | "app_name" | "labels.app"
                if self.writer.service.is_empty() =>
            {
                let Value::String(name) = value else { return false };
                self.writer.service = name.clone();
            }
            "hostname" | "host" | "host.name" | "host.hostname" | "_hostname" | "machinename"
                if self.writer.host.is_empty() =>
            {
                let Value::String(name) = value else { return false };
                self.writer.host = name.clone();
            }
            "pid" | "process.pid" | "_pid" | "processid" | "process_id" | "process.id"
            | "record.process.id"
                if self.writer.process.is_empty() =>
            {
                self.writer.process = text();
            }
            "kubernetes.pod_name"
            | "kubernetes.pod.name"
            | "k8s.pod.name"
            | "pod"
            | "pod_name"
            | "labels.pod"
            | "resource.labels.pod_name"
                if self.writer.pod.is_empty() =>
            {
                self.writer.pod = text();
            }
            "container"
            | "container_name"
            | "container.name"
            | "kubernetes.container_name"
            | "kubernetes.container.name"
            | "labels.container"
            | "resource.labels.container_name"
                if self.writer.container.is_empty() =>
            {
                self.writer.container = text();
            }
            "dd.trace_id" => {
                let Ok(id) = text_of(value).parse() else { return false };
                log.trace_id = TraceId(id);
            }
            "dd.span_id" => {
                let Ok(id) = text_of(value).parse() else { return false };
                log.span_id = SpanId(id);
            }
            key if is_trace_id(key) => {
                let Some(id) = TraceId::from_hex(&text_of(value)) else { return false };
                log.trace_id = id;
            }
            key if is_span_id(key) => {
                let Some(id) = SpanId::from_hex(&text_of(value)) else { return false };
                log.span_id = id;
            }
            lower
                if is_outer
                    && self.time.is_none()
                    && (lower.ends_with("time") || lower.ends_with("timestamp")) =>
            {
                // The name does not say which time it is, so it is kept too.
                self.time_at(2, key, time::whole(&text_of(value)));
                return false;
            }
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moments::logs::zone::Zone;

    fn record(line: &str) -> LogRecord<'_> {
        let mut shared = Shared::default();
        let mut clock = Clock::new(&Zone::default(), None);
        read(line, 100, &shared).expect("a record").finish(Writer::default(), None, &mut clock, &mut shared)
    }

    /// As `tracing_subscriber` 0.3 writes it, with the ids of the current span.
    #[test]
    fn tracing_lines_are_read() {
        let log = record(
            r#"{"timestamp":"2026-11-21T00:56:59.259000Z","level":"WARN","fields":{"message":"sold 3","rows":7},"target":"shop::orders","filename":"src/orders.rs","line_number":12,"span":{"trace_id":"0af7651916cd43dd8448eb211c80319c","span_id":"b7ad6b7169203331","name":"buy"},"threadName":"tokio-1"}"#,
        );
        assert_eq!(log.time.map(|time| time.0), Some(1_795_222_619_259_000_000));
        assert_eq!((log.severity, log.text(), &*log.logger), (Severity::WARN, "sold 3", "shop::orders"));
        assert_eq!((&*log.code.file, log.code.line, &*log.thread), ("src/orders.rs", 12, "tokio-1"));
        assert_eq!(log.span_id, SpanId(0xb7ad6b7169203331));
        assert_eq!(log.trace_id, TraceId(0x0af7651916cd43dd8448eb211c80319c));
        assert_eq!(log.attribute("rows"), Some(&Value::Int(7)));
    }

    #[test]
    fn the_usual_names_are_known() {
        let pino =
            record(r#"{"level":40,"time":1525884228647,"pid":3,"traceId":"0a","msg":"x\n","service":"pay"}"#);
        assert_eq!((pino.severity, pino.text(), pino.trace_id), (Severity::WARN, "x", TraceId(10)));
        assert_eq!((pino.resource.service_name(), pino.time.unwrap().0), ("pay", 1_525_884_228_647_000_000));
        let zap = record(
            r#"{"level":"info","ts":1525884228.5,"caller":"srv/main.go:42","msg":"y","dd.trace_id":"12"}"#,
        );
        assert_eq!((&*zap.code.file, zap.code.line, zap.trace_id), ("srv/main.go", 42, TraceId(12)));
        let docker = record(r#"{"log":"hello\n","stream":"stdout","time":"2023-01-29T10:05:28.5Z"}"#);
        assert_eq!((docker.text(), docker.attributes.len()), ("hello", 1));
        let mongo = record(
            r#"{"t":{"$date":"2018-05-09T16:43:48Z"},"s":"W","c":"NET","ctx":"conn1","msg":"z","attr":{"n":1}}"#,
        );
        assert_eq!((mongo.time.unwrap().0, &*mongo.logger), (1_525_884_228_000_000_000, "NET"));
        let keys = |log: &LogRecord<'_>| -> Vec<_> {
            log.attributes.iter().map(|attribute| attribute.key.to_string()).collect()
        };
        assert_eq!(keys(&mongo), ["attr"]);
        let ecs = record(
            r#"{"@timestamp":"2018-05-09T16:43:48Z","log":{"level":"WARN"},"process":{"pid":7,"title":"x"},"host":{"name":"h"},"message":"z"}"#,
        );
        // A part of the record is no attribute besides.
        assert_eq!(keys(&ecs), ["process"]);
        let title = Attribute { key: "title".into(), value: Value::String("x".into()) };
        assert_eq!(ecs.attribute("process"), Some(&Value::Map(vec![title])));
        for other in ["{}", r#"{"msg":"x"}"#, "[1]", r#"{"msg":"x","time":"5"} y"#, "{"] {
            let found = read(other, 100, &Shared::default());
            assert!(!found.is_ok_and(|found| found.stamp().is_some() && found.is_told()), "{other}");
        }
    }
}
