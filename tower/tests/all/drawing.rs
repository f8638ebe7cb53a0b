//! Exported spans as text, so that a test shows the trace that it expects.

use std::time::SystemTime;

use astracer_testing::attribute;
use opentelemetry::SpanId;
use opentelemetry::trace::Status;
use opentelemetry_sdk::trace::SpanData;

/// Each trace as an indented tree in the order of the spans' starts: name, duration, HTTP and gRPC
/// status, and `error` with its type and description if the span failed.
pub(crate) fn drawn(spans: &[SpanData]) -> String {
    let mut spans: Vec<&SpanData> = spans.iter().collect();
    spans.sort_by_key(|span| span.start_time);
    let mut text = String::new();
    let is_here = |id| spans.iter().any(|span| span.span_context.span_id() == id);
    for root in spans.iter().filter(|span| !is_here(span.parent_span_id)) {
        draw(root, &spans, 0, &mut text);
    }
    text
}

fn draw(span: &SpanData, spans: &[&SpanData], depth: usize, text: &mut String) {
    text.push_str(&"  ".repeat(depth));
    text.push_str(&line(span));
    text.push('\n');
    let id: SpanId = span.span_context.span_id();
    for child in spans.iter().filter(|child| child.parent_span_id == id) {
        assert_eq!(child.span_context.trace_id(), span.span_context.trace_id());
        draw(child, spans, depth + 1, text);
    }
}

fn line(span: &SpanData) -> String {
    let mut line = span.name.to_string();
    let since = |time: SystemTime| time.duration_since(span.start_time).unwrap_or_default().as_millis();
    if since(span.end_time) > 0 {
        line += &format!(" {} ms", since(span.end_time));
    }
    for (label, name) in [("http", "http.response.status_code"), ("grpc", "rpc.grpc.status_code")] {
        if let Some(status) = attribute(span, name) {
            line += &format!(" {label}={status}");
        }
    }
    if let Status::Error { description } = &span.status {
        line += " error";
        if let Some(kind) = attribute(span, "error.type") {
            line += &format!(" {kind}");
        }
        if !description.is_empty() {
            line += &format!(" '{description}'");
        }
    } else {
        assert_eq!(span.status, Status::Unset);
        assert_eq!(attribute(span, "error.type"), None);
    }
    line
}
