//! Checks the structure of a whole export request without reading it.

use std::cell::Cell;

use super::wire::{Bytes, Fault, Fields, Why};

/// A message of OTLP's traces and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request,
    OfResource,
    OfScope,
    Span,
    Log,
    Resource,
    Scope,
    Event,
    Link,
    Status,
    KeyValue,
    AnyValue,
    Values,
    Map,
}

impl Kind {
    /// The message in a field of this one; `None` for other fields. Requests of spans and of logs
    /// differ only in their `records`.
    fn below(self, field: u64, records: Self) -> Option<Self> {
        Some(match (self, field) {
            (Self::Request, 1) => Self::OfResource,
            (Self::OfResource, 1) => Self::Resource,
            (Self::OfResource, 2 | 1000) => Self::OfScope,
            (Self::OfScope, 1) => Self::Scope,
            (Self::OfScope, 2) => records,
            (Self::Span, 11) => Self::Event,
            (Self::Span, 13) => Self::Link,
            (Self::Span, 15) => Self::Status,
            (Self::Resource, 1)
            | (Self::Scope, 3)
            | (Self::Span, 9)
            | (Self::Log, 6)
            | (Self::Event, 3)
            | (Self::Link, 4)
            | (Self::Map, 1) => Self::KeyValue,
            (Self::KeyValue, 2) | (Self::Values, 1) | (Self::Log, 5) => Self::AnyValue,
            (Self::AnyValue, 5) => Self::Values,
            (Self::AnyValue, 6) => Self::Map,
            _ => return None,
        })
    }
}

/// Messages nested deeper than this are refused, because the check recurses.
const DEPTH_MAX: usize = 256;

/// The number of spans in an export request, whether or not their content is valid.
///
/// # Errors
///
/// If the bytes are not a protobuf message to their end: a message that they contain is cut off or
/// has an invalid field.
pub fn count_spans(request: &[u8]) -> Result<u64, &'static str> {
    count(request, Kind::Span)
}

/// The number of log records in an export request. As [`count_spans`], for logs.
///
/// # Errors
///
/// As [`count_spans`].
pub fn count_logs(request: &[u8]) -> Result<u64, &'static str> {
    count(request, Kind::Log)
}

fn count(request: &[u8], records: Kind) -> Result<u64, &'static str> {
    let notes = Cell::default();
    let mut count = 0;
    let message = Bytes { bytes: request, at: 0, cut: false, notes: &notes };
    let checked = check(message, Kind::Request, records, DEPTH_MAX, &mut count);
    checked.map(|()| count).map_err(|fault| match fault.why {
        Why::Bad(reason) => reason,
        Why::TooDeep => "nested too deeply",
        Why::Cut | Why::Stopped => "incomplete protobuf message",
    })
}

fn check(message: Bytes<'_>, kind: Kind, records: Kind, depth: usize, count: &mut u64) -> Result<(), Fault> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(Fault { at: message.at, why: Why::TooDeep });
    };
    *count += u64::from(kind == records);
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next()? {
        if let Some(below) = kind.below(field.number, records) {
            check(field.whole()?, below, records, depth, count)?;
        }
    }
    Ok(())
}
