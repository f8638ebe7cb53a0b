//! Distinguishes an OTLP export request of spans from other protobuf and other binary data.

use crate::varint;

/// The levels of messages: request, spans of a resource, spans of a scope, span.
const LEVELS: usize = 4;

/// Returns true if the bytes begin with an export request that contains a span. The request may be
/// bare or preceded by its length (as a varint, or as four bytes as the Collector's file exporter
/// writes it).
pub(super) fn is_request(prefix: &[u8]) -> bool {
    if holds(Signal::Spans, prefix, 0) || is_answer(prefix) {
        return true;
    }
    is_framed(Signal::Spans, prefix)
}

/// Returns true if the bytes begin with an export request that contains a log record, bare or
/// preceded by its length.
pub(crate) fn is_log_request(prefix: &[u8]) -> bool {
    holds(Signal::Logs, prefix, 0) || is_framed(Signal::Logs, prefix)
}

/// The kind of records in a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Signal {
    Spans,
    Logs,
}

fn is_framed(signal: Signal, prefix: &[u8]) -> bool {
    let behind_varint = varint(prefix);
    let behind_word =
        prefix.split_first_chunk::<4>().map(|(word, rest)| (u64::from(u32::from_be_bytes(*word)), rest));
    [behind_varint, behind_word].into_iter().flatten().any(|(len, rest)| {
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(rest.len());
        holds(signal, &rest[..len], 0)
    })
}

/// Returns true if the bytes begin with Tempo's answer: a trace, which holds what a request holds,
/// in its first field.
pub(crate) fn is_answer(prefix: &[u8]) -> bool {
    let Some(rest) = prefix.strip_prefix(&[1 << 3 | 2]) else { return false };
    varint(rest).is_some_and(|(len, rest)| {
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(rest.len());
        holds(Signal::Spans, &rest[..len], 0)
    })
}

/// Returns true if a message, possibly truncated, has only the fields of its level and contains a
/// record of this signal.
///
/// Spans, logs and metrics have the same structure down to the level of a record. There, the sizes
/// of the two ids identify a span, and a time in one of two fields identifies a log record.
fn holds(signal: Signal, mut message: &[u8], level: usize) -> bool {
    let fields = [1..=1, 1..=3, 1..=3, if signal == Signal::Spans { 1..=16 } else { 1..=12 }];
    let (mut has_trace_id, mut has_span_id) = (false, false);
    while !message.is_empty() {
        let Some((tag, rest)) = varint(message) else { return false };
        let (number, wire_type) = (tag >> 3, tag & 7);
        if !fields[level].contains(&number) {
            return false;
        }
        let (len, rest) = match wire_type {
            0 => match varint(rest) {
                Some((_, rest)) => (0, rest),
                None => return false,
            },
            1 => (8, rest),
            2 => match varint(rest) {
                Some((len, rest)) => (usize::try_from(len).unwrap_or(usize::MAX), rest),
                None => return false,
            },
            5 => (4, rest),
            _ => return false,
        };
        let (content, rest) = rest.split_at(len.min(rest.len()));
        if level == LEVELS - 1 && signal == Signal::Logs {
            if matches!((number, wire_type), (1 | 11, 1)) {
                return true;
            }
        } else if level == LEVELS - 1 {
            has_trace_id |= (number, wire_type, len) == (1, 2, 16);
            has_span_id |= (number, wire_type, len) == (2, 2, 8);
            if has_trace_id && has_span_id {
                return true;
            }
        } else {
            let below = if level == 0 { 1 } else { 2 };
            if number == below && wire_type == 2 && holds(signal, content, level + 1) {
                return true;
            }
        }
        message = rest;
    }
    false
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    varint::read(bytes).map(|(value, used)| (value, &bytes[used..]))
}
