//! The names under which records hold the ids of their trace and span.

use astracer_model::ids::{SpanId, TraceId};
use astracer_model::log::LogRecord;

/// Mentions of a trace that are looked at in one record.
const NAMES_MAX: usize = 16;

/// `trace_id`, `traceId`, `TraceID`, `trace.id`, `otelTraceID` and the like, and Serilog's `@tr`.
pub(super) fn is_trace_id(key: &str) -> bool {
    key == "@tr" || is(key, "traceid")
}

/// `span_id` and the like.
pub(super) fn is_span_id(key: &str) -> bool {
    key == "@sp" || is(key, "spanid")
}

fn is(key: &str, plain: &str) -> bool {
    let plain = plain.bytes();
    let key = key.strip_prefix("otel").unwrap_or(key);
    let letters = key.bytes().filter(|byte| !matches!(byte, b'_' | b'.' | b'-'));
    key.len() <= 16 && letters.map(|byte| byte.to_ascii_lowercase()).eq(plain)
}

/// Finds an id of a trace, and of a span, that a text names: `trace_id=0af7...`, `"traceId":
/// "..."`.
pub(super) fn find(text: &str, log: &mut LogRecord<'_>) {
    let bytes = text.as_bytes();
    for at in memchr::memmem::find_iter(bytes, b"race").take(NAMES_MAX) {
        if let Some(id) = value_of(bytes, at + 4).and_then(TraceId::from_hex)
            && at > 0
            && matches!(bytes[at - 1], b't' | b'T')
        {
            log.trace_id = id;
            break;
        }
    }
    if log.trace_id == TraceId::ZERO {
        if let Some((trace, span)) = pair(bytes) {
            (log.trace_id, log.span_id) = (trace, span);
        }
        return;
    }
    for at in memchr::memmem::find_iter(bytes, b"pan").take(NAMES_MAX) {
        if let Some(id) = value_of(bytes, at + 3).and_then(SpanId::from_hex)
            && at > 0
            && matches!(bytes[at - 1], b's' | b'S')
        {
            log.span_id = id;
            break;
        }
    }
}

/// The 32 and 16 hexadecimal digits of a trace and a span that stand together, as Spring's
/// correlation and `traceparent` have them: `[shop,0af7...,b7ad...]`.
fn pair(text: &[u8]) -> Option<(TraceId, SpanId)> {
    const TRACE: usize = 32;
    const SPAN: usize = 16;
    let hex = |from: usize, len: usize| -> Option<&str> {
        let digits = text.get(from..from + len).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        let is_apart = !text.get(from + len).is_some_and(u8::is_ascii_alphanumeric);
        std::str::from_utf8(digits).ok().filter(|_| is_apart)
    };
    // Each run of 32 digits covers one of these places.
    let mut from = 0;
    for probe in (TRACE - 1..text.len()).step_by(TRACE) {
        if probe < from || !text[probe].is_ascii_hexdigit() {
            continue;
        }
        let is_digit = |&at: &usize| text[at].is_ascii_hexdigit();
        let start = (from..probe).rev().take(TRACE).take_while(is_digit).last().unwrap_or(probe);
        from = probe;
        let is_start = start == 0 || !text[start - 1].is_ascii_alphanumeric();
        if is_start
            && let Some(trace) = hex(start, TRACE)
            && matches!(text.get(start + TRACE), Some(b',' | b'-' | b'/' | b':' | b' '))
            && let Some(span) = hex(start + TRACE + 1, SPAN)
        {
            return Some((TraceId::from_hex(trace)?, SpanId::from_hex(span)?));
        }
    }
    None
}

/// The 16 or 32 hexadecimal digits behind `_id=`, `Id": "` and the like.
fn value_of(text: &[u8], at: usize) -> Option<&str> {
    let mut rest = text.get(at..)?;
    if let Some((b'_' | b'-' | b'.', behind)) = rest.split_first().map(|(first, behind)| (*first, behind)) {
        rest = behind;
    }
    rest =
        rest.strip_prefix(b"id").or_else(|| rest.strip_prefix(b"Id")).or_else(|| rest.strip_prefix(b"ID"))?;
    let signs = rest.iter().take(4).take_while(|byte| matches!(byte, b'=' | b':' | b' ' | b'"')).count();
    if signs == 0 {
        return None;
    }
    let value = &rest[signs..];
    let len = value.iter().take(33).take_while(|byte| byte.is_ascii_hexdigit()).count();
    if len != 16 && len != 32 || value.get(len).is_some_and(u8::is_ascii_alphanumeric) {
        return None;
    }
    std::str::from_utf8(&value[..len]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_in_texts_are_found_by_name_and_shape() {
        for (text, trace, span) in [
            ("a trace_id=0af7651916cd43dd8448eb211c80319c span_id=b7ad6b7169203331 b", true, true),
            ("traceId: \"0af7651916cd43dd8448eb211c80319c\"", true, false),
            ("trace-id 0AF7651916CD43DD8448EB211C80319C", true, false),
            ("a trace of 0af7651916cd43dd8448eb211c80319c", false, false),
            ("trace_id=0af765 race_id=0af7651916cd43dd", false, false),
            ("[shop,0af7651916cd43dd8448eb211c80319c,b7ad6b7169203331] up", true, true),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true, true),
            ("é 0af7651916cd43dd8448eb211c80319c b7ad6b7169203331", true, true),
            ("0af7651916cd43dd8448eb211c80319c,b7ad6b716920333", false, false),
            ("0af7651916cd43dd8448eb211c80319cb,b7ad6b7169203331", false, false),
            ("a0af7651916cd43dd8448eb211c80319c,b7ad6b7169203331", false, false),
        ] {
            let mut log = LogRecord::default();
            find(text, &mut log);
            let expected = TraceId(if trace { 0x0af7651916cd43dd8448eb211c80319c } else { 0 });
            let span = SpanId(if span { 0xb7ad6b7169203331 } else { 0 });
            assert_eq!((log.trace_id, log.span_id), (expected, span), "{text}");
        }
    }
}
