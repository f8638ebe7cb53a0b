//! The JSON of a merged log's records.

use std::borrow::Cow;

use astracer_model::ids::TraceId;
use astracer_model::log::LogRecord;
use astracer_model::value::Value;
use astracer_recording::recording::write_value;
use serde::Serialize;
use serde_json::json;

/// The members of a record's JSON that the printer writes.
#[derive(Serialize)]
pub(super) struct Known<'l> {
    pub(super) host: &'l str,
    pub(super) order: &'static str,
    pub(super) process: &'l str,
    pub(super) severity: &'static str,
    pub(super) time: Option<&'l str>,
}

/// The members behind these.
#[derive(Serialize)]
struct Members<'l> {
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    attributes: serde_json::Map<String, serde_json::Value>,
    file: &'l str,
    line: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    logger: &'l str,
    message: &'l str,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    thread: &'l str,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
}

/// The message of a record, as JSON if it is not text.
pub(super) fn message<'l>(log: &'l LogRecord<'_>) -> Cow<'l, str> {
    match log.body.as_str() {
        Some(message) => Cow::Borrowed(message),
        None => {
            let mut written = String::new();
            write_value(&mut written, &log.body);
            Cow::Owned(written)
        }
    }
}

/// The members of a record's JSON, behind those that the printer writes.
pub(super) fn members(log: &LogRecord<'_>, file: &str, line: u64) -> String {
    let message = message(log);
    let value = |value: &Value<'_>| match value {
        Value::Int(number) => json!(number),
        Value::Double(number) => json!(number),
        Value::Bool(value) => json!(value),
        Value::Empty => json!(null),
        value => {
            let mut text = String::new();
            write_value(&mut text, value);
            json!(text)
        }
    };
    let attributes = log.attributes.iter().map(|own| (own.key.to_string(), value(&own.value)));
    let members = Members {
        attributes: attributes.collect(),
        file,
        line,
        logger: &log.logger,
        message: &message,
        span_id: (log.span_id.0 != 0).then(|| log.span_id.to_string()),
        thread: &log.thread,
        trace_id: (log.trace_id != TraceId::ZERO).then(|| log.trace_id.to_string()),
    };
    json_text(&members).trim_start_matches('{').to_owned()
}

/// JSON of members whose keys are texts, which does not fail.
pub(super) fn json_text(members: &impl Serialize) -> String {
    serde_json::to_string(members).unwrap_or_default()
}
