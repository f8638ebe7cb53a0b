//! Checks the structure of a whole export request without reading it.

use std::cell::Cell;

use super::wire::{Bytes, Fault, Fields, Why};

/// A message of OTLP's traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request,
    ResourceSpans,
    ScopeSpans,
    Span,
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
    /// The message in a field of this one; `None` for other fields.
    fn below(self, field: u64) -> Option<Self> {
        Some(match (self, field) {
            (Self::Request, 1) => Self::ResourceSpans,
            (Self::ResourceSpans, 1) => Self::Resource,
            (Self::ResourceSpans, 2 | 1000) => Self::ScopeSpans,
            (Self::ScopeSpans, 1) => Self::Scope,
            (Self::ScopeSpans, 2) => Self::Span,
            (Self::Span, 11) => Self::Event,
            (Self::Span, 13) => Self::Link,
            (Self::Span, 15) => Self::Status,
            (Self::Resource, 1)
            | (Self::Scope, 3)
            | (Self::Span, 9)
            | (Self::Event, 3)
            | (Self::Link, 4)
            | (Self::Map, 1) => Self::KeyValue,
            (Self::KeyValue, 2) | (Self::Values, 1) => Self::AnyValue,
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
    let notes = Cell::default();
    let mut spans = 0;
    let message = Bytes { bytes: request, at: 0, cut: false, notes: &notes };
    check(message, Kind::Request, DEPTH_MAX, &mut spans).map(|()| spans).map_err(|fault| match fault.why {
        Why::Bad(reason) => reason,
        Why::TooDeep => "nested too deeply",
        Why::Cut | Why::Stopped => "incomplete protobuf message",
    })
}

fn check(message: Bytes<'_>, kind: Kind, depth: usize, spans: &mut u64) -> Result<(), Fault> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(Fault { at: message.at, why: Why::TooDeep });
    };
    *spans += u64::from(kind == Kind::Span);
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next()? {
        if let Some(below) = kind.below(field.number) {
            check(field.whole()?, below, depth, spans)?;
        }
    }
    Ok(())
}
