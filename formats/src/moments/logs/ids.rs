//! The names under which records hold the ids of their trace and span.

/// `trace_id`, `traceId`, `TraceID`, `trace.id`, `otelTraceID` and the like.
pub(super) fn is_trace_id(key: &str) -> bool {
    is(key, "traceid")
}

/// `span_id` and the like.
pub(super) fn is_span_id(key: &str) -> bool {
    is(key, "spanid")
}

fn is(key: &str, plain: &str) -> bool {
    let plain = plain.bytes();
    let key = key.strip_prefix("otel").unwrap_or(key);
    let letters = key.bytes().filter(|byte| !matches!(byte, b'_' | b'.' | b'-'));
    key.len() <= 16 && letters.map(|byte| byte.to_ascii_lowercase()).eq(plain)
}
