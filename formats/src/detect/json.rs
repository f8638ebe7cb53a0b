//! Distinguishes the JSON formats by the keys of their records.
//!
//! The tokenizer here is separate from [`Cursor`](crate::json::Cursor) because it must never fail:
//! a prefix may begin or end in the middle of a record, and mismatched brackets must not hide the
//! keys around them.

use super::others::Marks;
use super::{Detection, other_or_open};
use astracer_model::Format;

/// Scans consecutive JSON values. Truncated or damaged JSON only yields fewer matching keys.
pub(super) fn scan(text: &[u8], complete: bool) -> Detection {
    let mut scan = Scan::default();
    let found = scan.run(text);
    if let Some(format) = found {
        return Detection::Format(format);
    }
    if let Some(reason) = scan.others.reason() {
        return Detection::Unusable(reason.to_owned());
    }
    if let Some(message) = &scan.error {
        return Detection::Unusable(format!("Jaeger's answer is an error: {message}"));
    }
    if let Some(format) = scan.empty.filter(|_| complete && !scan.has_other_key) {
        return Detection::Format(format);
    }
    if scan.seen.any(Keys::OTHER_SIGNAL) {
        return other_or_open(super::OTHER_SIGNALS, complete);
    }
    let reason = match scan.first_keys.as_slice() {
        [] => "text or JSON without spans".to_owned(),
        keys => format!("JSON without traces (first keys: {})", keys.join(", ")),
    };
    other_or_open(reason, complete || scan.a_record_ended)
}

/// The outermost keys of answers to queries of Jaeger, Tempo and Zipkin.
const ANSWER_KEYS: &[&[u8]] = &[
    b"data", b"total", b"limit", b"offset", b"errors", b"error", b"batches", b"trace", b"result", b"metrics",
    b"status", b"message",
];

/// A set of distinguishing keys found in one object. A key counts only if its value has the
/// expected form.
#[derive(Clone, Copy, Default)]
struct Keys(u32);

impl Keys {
    const RESOURCE_SPANS: Self = Self(1 << 0);
    const OTHER_SIGNAL: Self = Self(1 << 1);
    /// The trace id's key as spelled by Jaeger, HTrace 2 and Zipkin.
    const TRACE_ID: [Self; 3] = [Self(1 << 2), Self(1 << 3), Self(1 << 4)];
    const JAEGER_TRACE: Self = Self(1 << 5);
    const ZIPKIN_ID: Self = Self(1 << 6);
    const ZIPKIN_DETAIL: Self = Self(1 << 7);
    const HTRACE_ID: Self = Self(1 << 8);
    const HTRACE_BEGIN: Self = Self(1 << 9);
    const HTRACE_DETAIL: Self = Self(1 << 10);
    const XTRACE_ID: Self = Self(1 << 11);
    const XTRACE_REPORTS: Self = Self(1 << 12);
    const SCOPE_SPANS: Self = Self(1 << 13);
    const JAEGER_SPAN_ID: Self = Self(1 << 14);
    const JAEGER_DETAIL: Self = Self(1 << 15);
    const SERVICE_NAME: Self = Self(1 << 16);

    fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn all(self, others: &[Self]) -> bool {
        others.iter().all(|&other| self.any(other))
    }

    fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    fn of(key: &[u8], value: &Value<'_>) -> Self {
        match (key, value) {
            (b"resourceSpans" | b"resource_spans", Value::Open) => Self::RESOURCE_SPANS,
            (b"resourceLogs" | b"resourceMetrics" | b"resource_logs" | b"resource_metrics", _) => {
                Self::OTHER_SIGNAL
            }
            (
                b"scopeSpans"
                | b"scope_spans"
                | b"instrumentationLibrarySpans"
                | b"instrumentation_library_spans",
                Value::Open,
            ) => Self::SCOPE_SPANS,
            (b"traceID", Value::Text(_)) => Self::TRACE_ID[0],
            (b"spans" | b"processes", Value::Open) => Self::JAEGER_TRACE,
            (b"spanID" | b"spanId", Value::Text(_)) => Self::JAEGER_SPAN_ID,
            (b"operationName" | b"processID", Value::Text(_)) => Self::JAEGER_DETAIL,
            (b"references", Value::Open) => Self::JAEGER_DETAIL,
            (b"serviceName", Value::Text(_)) => Self::SERVICE_NAME,
            (b"TraceID", Value::Number) => Self::TRACE_ID[1],
            (b"SpanID", Value::Number) => Self::HTRACE_ID,
            (b"Start", Value::Number) => Self::HTRACE_BEGIN,
            (b"traceId", Value::Text(_)) => Self::TRACE_ID[2],
            (b"id", Value::Text(text)) if is_hex(text, 1..=16) => Self(Self::ZIPKIN_ID.0 | Self::XTRACE_ID.0),
            (b"id", Value::Text(_)) => Self::XTRACE_ID,
            (b"reports", Value::Open) => Self::XTRACE_REPORTS,
            (b"localEndpoint" | b"annotations" | b"binaryAnnotations", Value::Open) => Self::ZIPKIN_DETAIL,
            (b"timestamp" | b"duration", Value::Number) => Self::ZIPKIN_DETAIL,
            (b"a", Value::Text(text)) if is_hex(text, 32..=32) => Self::HTRACE_ID,
            (b"s", Value::Text(text)) if is_hex(text, 1..=16) => Self::HTRACE_ID,
            (b"s", Value::Number) => Self::HTRACE_ID,
            (b"b", Value::Number) => Self::HTRACE_BEGIN,
            (b"e", Value::Number) | (b"d" | b"r", Value::Text(_)) | (b"p", Value::Open) => {
                Self::HTRACE_DETAIL
            }
            _ => Self::default(),
        }
    }

    fn otlp(self, key: Self) -> Option<Format> {
        self.any(key).then_some(Format::OtlpJson)
    }

    fn is_jaeger_span(self) -> bool {
        self.all(&[Self::JAEGER_SPAN_ID, Self::JAEGER_DETAIL])
    }

    /// The format whose records have these keys. `is_item` is true if the object is an element of a
    /// list.
    fn format(self, is_item: bool, ended: bool) -> Option<Format> {
        let [jaeger_trace_id, htrace_trace_id, zipkin_trace_id] = Self::TRACE_ID;
        if self.any(Self::RESOURCE_SPANS) || self.any(Self::SCOPE_SPANS) {
            Some(Format::OtlpJson)
        } else if self.all(&[jaeger_trace_id, Self::JAEGER_TRACE]) || self.is_jaeger_span() {
            Some(Format::JaegerJson)
        } else if self.all(&[zipkin_trace_id, Self::ZIPKIN_ID])
            && (self.any(Self::ZIPKIN_DETAIL) || is_item && ended)
        {
            // Structured logs have `traceId` and `id` too, while a Zipkin span may have nothing
            // else.
            Some(Format::ZipkinJson)
        } else if self.all(&[Self::HTRACE_ID, Self::HTRACE_BEGIN, Self::HTRACE_DETAIL])
            || self.all(&[Self::HTRACE_ID, Self::HTRACE_BEGIN, htrace_trace_id])
        {
            Some(Format::HTrace)
        } else if self.all(&[Self::XTRACE_ID, Self::XTRACE_REPORTS]) {
            Some(Format::XTraceJson)
        } else {
            None
        }
    }
}

fn is_hex(text: &[u8], digits: std::ops::RangeInclusive<usize>) -> bool {
    digits.contains(&text.len()) && text.iter().all(u8::is_ascii_hexdigit)
}

/// A value, reduced to the properties that distinguish formats.
enum Value<'t> {
    Text(&'t [u8]),
    Number,
    /// An object or a list; its content follows.
    Open,
    Word,
}

/// The role of an open object or list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// An object that may be a record, alone or in a list.
    Record { is_item: bool },
    /// A list of such objects.
    Records,
    /// The object in a response of Jaeger's or Tempo's query API, if it is an OTLP request.
    Answer,
    /// The list in a response of Tempo's query API, if it contains OTLP's resource spans.
    Batches,
    /// An element of that list.
    Batch,
    /// The list of a Jaeger trace's spans, or the object of its processes.
    JaegerParts,
    /// An element of those.
    JaegerPart,
    /// The list in Jaeger's answer to a query that failed.
    Errors,
    /// An element of that list.
    Error,
    /// A value inside a record.
    Inner,
}

struct Frame {
    role: Role,
    is_object: bool,
    keys: Keys,
    has_content: bool,
}

#[derive(Default)]
struct Scan {
    open: Vec<Frame>,
    seen: Keys,
    first_keys: Vec<String>,
    a_record_ended: bool,
    /// The format of an answer without traces.
    empty: Option<Format>,
    /// True if the outermost object has a key that no answer has.
    has_other_key: bool,
    /// The message of Jaeger's error answer.
    error: Option<String>,
    others: Marks,
}

impl Scan {
    fn run(&mut self, text: &[u8]) -> Option<Format> {
        // A string followed by a colon is the key of the next value.
        let mut key: Option<&[u8]> = None;
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            at += 1;
            match byte {
                b'{' | b'[' => {
                    if let Some(format) = self.value(key, Value::Open) {
                        return Some(format);
                    }
                    self.enter(byte == b'{', key.take());
                }
                b'}' | b']' => {
                    key = None;
                    if let Some(format) = self.leave() {
                        return Some(format);
                    }
                }
                b'"' => {
                    let len = string_len(&text[at..])?;
                    let string = &text[at..at + len];
                    at += len + 1;
                    let in_object = self.open.last().is_some_and(|frame| frame.is_object);
                    if key.is_none() && in_object {
                        key = Some(string);
                    } else if let Some(format) = self.value(key.take(), Value::Text(string)) {
                        return Some(format);
                    }
                }
                b',' => key = None,
                b':' | b' ' | b'\t' | b'\r' | b'\n' => {}
                _ => {
                    let value =
                        if byte == b'-' || byte.is_ascii_digit() { Value::Number } else { Value::Word };
                    let rest = &text[at..];
                    at +=
                        rest.iter().position(|byte| b"{}[]\",: \t\r\n".contains(byte)).unwrap_or(rest.len());
                    if let Some(format) = self.value(key.take(), value) {
                        return Some(format);
                    }
                }
            }
        }
        None
    }

    fn value(&mut self, key: Option<&[u8]>, value: Value<'_>) -> Option<Format> {
        let depth = self.open.len();
        let frame = self.open.last_mut()?;
        frame.has_content = true;
        let key = key?;
        self.others.saw(key);
        if depth == 1 {
            self.has_other_key |= !ANSWER_KEYS.contains(&key);
            // Jaeger answers so if nothing was found.
            if let (b"data", Value::Word) = (key, &value) {
                self.empty = Some(Format::JaegerJson);
            }
        }
        let is_item = match frame.role {
            Role::Record { is_item } => is_item,
            Role::Answer => return Keys::of(key, &value).otlp(Keys::RESOURCE_SPANS),
            Role::Batch => return Keys::of(key, &value).otlp(Keys::SCOPE_SPANS),
            Role::JaegerPart => {
                frame.keys.add(Keys::of(key, &value));
                let is_jaeger = frame.keys.is_jaeger_span() || frame.keys.any(Keys::SERVICE_NAME);
                return is_jaeger.then_some(Format::JaegerJson);
            }
            Role::Error => {
                if let (b"msg", Value::Text(text)) = (key, &value) {
                    let text = &text[..text.len().min(200)];
                    self.error = Some(String::from_utf8_lossy(text).replace(char::is_control, " "));
                }
                return None;
            }
            Role::Records | Role::Batches | Role::JaegerParts | Role::Errors | Role::Inner => return None,
        };
        if self.first_keys.len() < 3 {
            let shown = &key[..key.len().min(40)];
            self.first_keys.push(String::from_utf8_lossy(shown).replace(char::is_control, " "));
        }
        let telling = Keys::of(key, &value);
        frame.keys.add(telling);
        self.seen.add(telling);
        frame.keys.format(is_item, false)
    }

    fn enter(&mut self, is_object: bool, key: Option<&[u8]>) {
        let role = match self.open.last().map(|frame| frame.role) {
            None if is_object => Role::Record { is_item: false },
            Some(Role::Records) if is_object => Role::Record { is_item: true },
            None | Some(Role::Records) => Role::Records,
            // The list in a response of Jaeger's query API.
            Some(Role::Record { is_item: false }) if !is_object && key == Some(b"data") => Role::Records,
            Some(Role::Record { is_item: false } | Role::Answer) if !is_object && key == Some(b"batches") => {
                Role::Batches
            }
            Some(Role::Record { is_item: false })
                if is_object && matches!(key, Some(b"result" | b"trace")) =>
            {
                Role::Answer
            }
            Some(Role::Record { is_item: false }) if !is_object && key == Some(b"errors") => Role::Errors,
            Some(Role::Errors) if is_object => Role::Error,
            Some(Role::Record { .. } | Role::Answer)
                if (!is_object && key == Some(b"spans")) || (is_object && key == Some(b"processes")) =>
            {
                Role::JaegerParts
            }
            Some(Role::JaegerParts) if is_object => Role::JaegerPart,
            Some(Role::Batches) if is_object => Role::Batch,
            Some(_) => Role::Inner,
        };
        self.open.push(Frame { role, is_object, keys: Keys::default(), has_content: false });
    }

    fn leave(&mut self) -> Option<Format> {
        let frame = self.open.pop()?;
        if !frame.has_content && self.open.len() <= 2 {
            self.empty = self.empty.or(match (frame.role, self.open.last().map(|above| above.role)) {
                (Role::Records, None | Some(Role::Records)) => Some(Format::ZipkinJson),
                (Role::Records, Some(Role::Record { .. })) => Some(Format::JaegerJson),
                (Role::Batches | Role::Answer, _) => Some(Format::OtlpJson),
                _ => None,
            });
        }
        let Role::Record { is_item } = frame.role else { return None };
        self.a_record_ended = true;
        frame.keys.format(is_item, true)
    }
}

/// The length of a string's content, excluding the closing quote.
fn string_len(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}
