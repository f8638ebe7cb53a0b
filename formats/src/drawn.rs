//! Test support: reads a file and renders the result as text.

use std::fmt::Write as _;
use std::io::BufRead;
use std::sync::Arc;

use crate::Limits;
use astracer_model::problem::Problem;
use astracer_model::sink::{Record, Sink};
use astracer_model::span::{Span, SpanKind, Status};
use astracer_model::value::{Attribute, Value};

/// The `read` function of a format.
pub(super) type Read = fn(&mut dyn BufRead, &Arc<str>, &Limits, &mut dyn Sink);

/// Everything read from one file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Collected {
    pub(super) spans: Vec<Span<'static>>,
    pub(super) problems: Vec<String>,
    /// Spans with their lines and bytes, and problems, in input order.
    pub(super) drawing: String,
    /// The record of each span.
    pub(super) records: Vec<Vec<u8>>,
}

impl Sink for Collected {
    fn span(&mut self, span: Span<'_>, record: Record<'_>) {
        let place = record.place;
        let _ = writeln!(self.drawing, "{}:{} {}", place.line, place.byte, draw(&span));
        self.records.push(record.bytes.to_vec());
        self.spans.push(span.into_owned());
    }

    fn problem(&mut self, problem: Problem) {
        let _ = writeln!(self.drawing, "{problem}");
        self.problems.push(problem.to_string());
    }

    fn skipped(&mut self, _file: &Arc<str>, reason: &str) {
        let _ = writeln!(self.drawing, "skipped: {reason}");
    }
}

/// Reads a text as a file named `f`.
pub(super) fn collect(read: Read, input: &[u8]) -> Collected {
    let mut collected = Collected::default();
    read(&mut &*input, &"f".into(), &Limits::default(), &mut collected);
    collected
}

/// Reads a text and compares the rendering, ignoring indentation.
#[track_caller]
pub(super) fn check(read: Read, input: &[u8], expected: &str) {
    let drawing = collect(read, input).drawing;
    let lines: Vec<_> = drawing.lines().collect();
    let expected: Vec<_> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(lines, expected);
}

/// Renders a span in one line. Fields that are empty, zero or unset are omitted, and so is the
/// trace id of a link into the span's own trace.
pub(super) fn draw(span: &Span<'_>) -> String {
    let mut text = format!("{:x}/{:x}", span.trace_id.0, span.span_id.0);
    for parent in span.parents.iter() {
        let _ = write!(text, " <{:x}", parent.0);
    }
    let _ = write!(text, " {:?}", span.name);
    if span.kind != SpanKind::Unspecified {
        let _ = write!(text, " {:?}", span.kind);
    }
    match (span.start, span.end) {
        (None, None) => {}
        (start, end) => {
            let side = |time: Option<astracer_model::UnixNanos>| {
                time.map_or("?".to_owned(), |time| time.0.to_string())
            };
            let _ = write!(text, " {}..{}", side(start), side(end));
        }
    }
    if span.status != Status::Unset || !span.status_message.is_empty() {
        let _ = write!(text, " {:?}({})", span.status, span.status_message);
    }
    attributes(&mut text, &span.attributes, span.dropped_attributes);
    for event in &span.events {
        let _ = write!(text, " @{} {:?}", event.time.0, event.name);
        attributes(&mut text, &event.attributes, event.dropped_attributes);
    }
    for link in &span.links {
        let trace =
            if link.trace_id == span.trace_id { String::new() } else { format!("{:x}", link.trace_id.0) };
        let _ = write!(text, " ->{trace}/{:x}", link.span_id.0);
        if !link.trace_state.is_empty() {
            let _ = write!(text, " state={}", link.trace_state);
        }
        attributes(&mut text, &link.attributes, link.dropped_attributes);
    }
    for (count, what) in [(span.dropped_events, "events"), (span.dropped_links, "links")] {
        if count > 0 {
            let _ = write!(text, " -{count} {what}");
        }
    }
    if !span.trace_state.is_empty() {
        let _ = write!(text, " state={}", span.trace_state);
    }
    if span.flags != 0 {
        let _ = write!(text, " flags={:x}", span.flags);
    }
    if span.shared {
        text.push_str(" shared");
    }
    if !span.resource.attributes.is_empty() {
        text.push_str(" of");
        attributes(&mut text, &span.resource.attributes, span.resource.dropped_attributes);
    }
    if !span.scope.name.is_empty() || !span.scope.version.is_empty() {
        let _ = write!(text, " by {}@{}", span.scope.name, span.scope.version);
    }
    text
}

fn attributes(text: &mut String, attributes: &[Attribute<'_>], dropped: u32) {
    if attributes.is_empty() && dropped == 0 {
        return;
    }
    text.push_str(" {");
    for (index, Attribute { key, value }) in attributes.iter().enumerate() {
        let _ = write!(text, "{}{key}=", if index > 0 { " " } else { "" });
        draw_value(text, value);
    }
    if dropped > 0 {
        let _ = write!(text, " -{dropped}");
    }
    text.push('}');
}

fn draw_value(text: &mut String, value: &Value<'_>) {
    let _ = match value {
        Value::Empty => write!(text, "-"),
        Value::String(value) => write!(text, "{value:?}"),
        Value::Bool(value) => write!(text, "{value}"),
        Value::Int(value) => write!(text, "{value}"),
        Value::Double(value) => write!(text, "{value:?}"),
        Value::Bytes(bytes) => write!(text, "bytes{bytes:?}"),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index > 0 { " " } else { "" });
                draw_value(text, item);
            }
            write!(text, "]")
        }
        Value::Map(members) => {
            attributes(text, members, 0);
            Ok(())
        }
    };
}
