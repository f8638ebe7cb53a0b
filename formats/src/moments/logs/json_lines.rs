//! Logs of one JSON object per line, as `tracing_subscriber`, zap, pino, logback's JSON encoders,
//! Docker and others write them.
//!
//! | part | members |
//! |---|---|
//! | time | `timestamp`, `@timestamp`, `time`, `ts`, `datetime`, `asctime`, `eventTime` |
//! | severity | `level`, `severity`, `lvl`, `levelname`, `log.level`, `loglevel` |
//! | message | `message`, `msg`, `body`, `log`, `event` |
//! | logger | `target`, `logger`, `logger_name`, `loggerName`, `log.logger` |
//! | thread | `thread`, `threadName`, `thread_name`, `threadId`, `process.thread.name` |
//! | place | `filename` or `file` with `line_number`, `lineno` or `line`; `caller` as `file:line` |
//! | service | `service`, `service.name`, `service_name`, `dd.service` |
//! | ids | `trace_id`, `span_id` in any spelling, `dd.trace_id` |
//!
//! Members of `fields`, `span` and `attributes` count as those of the record, and so do those of
//! the last of `spans`. The others are attributes. A number is a time since 1970, whose unit
//! follows from its size; pino's and bunyan's levels are tens from 10 to 60.

use std::borrow::Cow;
use std::sync::Arc;

use super::ids::{is_span_id, is_trace_id};
use super::time::{self, Zone};
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
    resources: Reuse<Resource>,
    scope: Arc<Scope>,
    empty: Arc<Resource>,
}

/// True if a line is an object with a time, and with a message or a severity.
pub(super) fn is_record(line: &str) -> bool {
    line.starts_with('{')
        && read(line, 100, Zone::default(), &mut Shared::default()).is_ok_and(|log| {
            log.time.is_some() && (log.body != Value::Empty || !log.severity_text.is_empty())
        })
}

/// Reads the object of one line.
pub(super) fn read<'t>(
    line: &'t str,
    nesting_max: usize,
    zone: Zone,
    shared: &mut Shared,
) -> Result<LogRecord<'t>, &'static str> {
    let mut cursor = Cursor::new(line, 0, nesting_max);
    let mut found = Found {
        zone,
        log: LogRecord::of(Arc::clone(&shared.empty), Arc::clone(&shared.scope)),
        service: None,
    };
    let read = found.members(&mut cursor, true);
    if read.is_err() {
        return Err("no JSON object");
    }
    if cursor.peek().is_some() {
        return Err("text behind a JSON object");
    }
    if let Some(service) = &found.service {
        found.log.resource = shared.resources.get_or_make(&[&**service], || Resource::service(service));
    }
    Ok(found.log)
}

struct Found<'t> {
    zone: Zone,
    log: LogRecord<'t>,
    service: Option<Cow<'t, str>>,
}

impl<'t> Found<'t> {
    fn members(&mut self, cursor: &mut Cursor<'t>, is_outer: bool) -> Result<(), Fault> {
        cursor.object(|cursor, key| {
            match (&*key, cursor.peek()) {
                ("fields" | "span" | "attributes", Some(b'{')) => return self.members(cursor, false),
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

    fn member(&mut self, key: Cow<'t, str>, value: Value<'t>, is_outer: bool) {
        let log = &mut self.log;
        let text = || text_of(&value).into_owned();
        match &*key {
            "timestamp" | "@timestamp" | "time" | "ts" | "datetime" | "asctime" | "eventTime"
                if is_outer && log.time.is_none() =>
            {
                log.time = time::whole(&text_of(&value), self.zone);
                if log.time.is_some() {
                    return;
                }
            }
            "level" | "severity" | "lvl" | "levelname" | "log.level" | "loglevel"
                if is_outer && log.severity_text.is_empty() =>
            {
                log.severity = match &value {
                    // Pino and bunyan: 10 is the finest, 60 is fatal.
                    Value::Int(tens @ 10..=60) => Severity::from_otlp((tens / 10 - 1) * 4 + 1),
                    _ => Severity::from_word(&text_of(&value)).unwrap_or_default(),
                };
                log.severity_text = Cow::Owned(text());
                return;
            }
            "message" | "msg" | "body" | "log" | "event" if log.body == Value::Empty => {
                log.body = match value {
                    Value::String(Cow::Borrowed(text)) => Value::String(Cow::Borrowed(text.trim_end())),
                    Value::String(Cow::Owned(text)) => Value::String(Cow::Owned(text.trim_end().to_owned())),
                    value => value,
                };
                return;
            }
            "target" | "logger" | "logger_name" | "loggerName" | "log.logger"
                if is_outer && log.logger.is_empty() =>
            {
                log.logger = Cow::Owned(text());
                return;
            }
            "thread" | "threadName" | "thread_name" | "threadId" | "process.thread.name"
                if is_outer && log.thread.is_empty() =>
            {
                log.thread = Cow::Owned(text());
                return;
            }
            "filename" | "file" if is_outer && log.code.file.is_empty() => {
                log.code.file = Cow::Owned(text());
                return;
            }
            "line_number" | "lineno" | "line" if is_outer && log.code.line == 0 => {
                if let Value::Int(line) = value {
                    log.code.line = u32::try_from(line).unwrap_or(0);
                    return;
                }
            }
            "caller" if is_outer => {
                let text = text();
                if let Some((file, line)) = text.rsplit_once(':')
                    && let Ok(line) = line.parse()
                {
                    log.code.file = Cow::Owned(file.to_owned());
                    log.code.line = line;
                    return;
                }
            }
            "service" | "service.name" | "service_name" | "dd.service" if self.service.is_none() => {
                if let Value::String(name) = value {
                    self.service = Some(name);
                    return;
                }
            }
            "dd.trace_id" => {
                if let Ok(id) = text_of(&value).parse() {
                    log.trace_id = TraceId(id);
                    return;
                }
            }
            "dd.span_id" => {
                if let Ok(id) = text_of(&value).parse() {
                    log.span_id = SpanId(id);
                    return;
                }
            }
            key if is_trace_id(key) => {
                if let Some(id) = TraceId::from_hex(&text_of(&value)) {
                    log.trace_id = id;
                    return;
                }
            }
            key if is_span_id(key) => {
                if let Some(id) = SpanId::from_hex(&text_of(&value)) {
                    log.span_id = id;
                    return;
                }
            }
            _ => {}
        }
        log.attributes.push(Attribute { key, value });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(line: &str) -> LogRecord<'_> {
        read(line, 100, Zone::default(), &mut Shared::default()).expect("a record")
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
        for other in
            ["{}", r#"{"a":1,"time":5}"#, r#"{"msg":"x"}"#, "[1]", r#"{"msg":"x","time":"5"} y"#, "{"]
        {
            assert!(!is_record(other), "{other}");
        }
    }
}
