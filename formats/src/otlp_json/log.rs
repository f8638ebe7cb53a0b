//! Log records.

use std::borrow::Cow;
use std::sync::Arc;

use super::value::{any_value, attributes};
use crate::json::{Cursor, Fault};
use crate::otlp;
use astracer_model::log::{LogRecord, Severity};
use astracer_model::span::{Resource, Scope};

/// Reads a log record.
pub(super) fn log<'a>(
    cursor: &mut Cursor<'a>,
    resource: &Arc<Resource>,
    scope: &Arc<Scope>,
) -> Result<LogRecord<'a>, Fault> {
    let mut log = LogRecord::of(Arc::clone(resource), Arc::clone(scope));
    cursor.object(|cursor, key| {
        match &*key {
            "timeUnixNano" | "time_unix_nano" => log.time = cursor.nanos()?,
            "observedTimeUnixNano" | "observed_time_unix_nano" => log.observed = cursor.nanos()?,
            "severityNumber" | "severity_number" => log.severity = severity(cursor)?,
            "severityText" | "severity_text" => log.severity_text = cursor.text_or_null()?,
            "body" => log.body = any_value(cursor)?,
            "attributes" => log.attributes = attributes(cursor)?,
            "droppedAttributesCount" | "dropped_attributes_count" => {
                log.dropped_attributes = cursor.count()?
            }
            "flags" => log.flags = cursor.count()?,
            "traceId" | "trace_id" => log.trace_id = cursor.trace_id()?,
            "spanId" | "span_id" => log.span_id = cursor.span_id()?,
            "eventName" | "event_name" => log.event_name = cursor.text_or_null()?,
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    log.logger = Cow::Owned(scope.name.clone());
    otlp::describe(&mut log);
    Ok(log)
}

/// A number, or a name such as `SEVERITY_NUMBER_INFO2`.
fn severity(cursor: &mut Cursor<'_>) -> Result<Severity, Fault> {
    cursor.number_or_name(otlp::known_severity, |name| {
        let word = name.strip_prefix("SEVERITY_NUMBER_").unwrap_or(name);
        let (word, step) = match word.strip_suffix(['2', '3', '4']) {
            Some(base) => (base, i64::from(word.as_bytes()[word.len() - 1] - b'1')),
            None => (word, 0),
        };
        match word {
            "UNSPECIFIED" => Some(Severity::UNSPECIFIED),
            word => {
                Severity::from_word(word).map(|first| Severity::from_otlp(i64::from(first.number()) + step))
            }
        }
    })
}
