//! Times and durations in microseconds, as Jaeger and Zipkin write them.

use std::borrow::Cow;

use super::decimal;
use super::json::{Cursor, Fault, Scalar};
use astracer_model::time::UnixNanos;

/// Reads an instant; `null` means no instant.
pub(super) fn instant(cursor: &mut Cursor<'_>) -> Result<Option<UnixNanos>, Fault> {
    cursor.peek();
    let at = cursor.at();
    match nanos(cursor)? {
        None => Ok(None),
        Some(nanos) => match u64::try_from(nanos) {
            Ok(nanos) => Ok(Some(UnixNanos(nanos))),
            Err(_) => cursor.fault_at(at, "expected microseconds since 1970"),
        },
    }
}

/// Reads a duration in nanoseconds; `null` means no duration. It is negative if the clock stepped
/// back.
pub(super) fn duration(cursor: &mut Cursor<'_>) -> Result<Option<i128>, Fault> {
    nanos(cursor)
}

/// Reads microseconds, as a number or in a string, with or without a fraction. Returns nanoseconds.
fn nanos(cursor: &mut Cursor<'_>) -> Result<Option<i128>, Fault> {
    if let Some(micros) = cursor.plain_number() {
        return Ok(Some(i128::from(micros) * 1_000));
    }
    let at = cursor.at();
    let text = match cursor.scalar()? {
        Scalar::Null => return Ok(None),
        Scalar::Number(digits) => Cow::Borrowed(digits),
        Scalar::String(text) => text,
        Scalar::Bool(_) => Cow::Borrowed(""),
    };
    match decimal::scaled(&text, 3) {
        Some(nanos) => Ok(Some(nanos.signed())),
        None => match text.parse::<f64>() {
            // No time has more than 64 bits, so this one is outside every range.
            Ok(micros) if micros.is_finite() => Ok(Some((micros * 1_000.0) as i128)),
            _ => cursor.fault_at(at, "expected a number of microseconds"),
        },
    }
}

/// A duration without a start; 0 and negative ones mean that there is none, as for Zipkin.
pub(super) fn lone(nanos: i128) -> Option<u64> {
    u64::try_from(nanos).ok().filter(|&nanos| nanos != 0)
}

/// The end of a span from its start and duration; `None` before 1970 and after 2554.
pub(super) fn end(start: UnixNanos, nanos: i128) -> Option<UnixNanos> {
    u64::try_from(i128::from(start.0).saturating_add(nanos)).ok().map(UnixNanos)
}
