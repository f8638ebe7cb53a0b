//! Jaeger's ids: hexadecimal of any length, base64, or any other text found in the field.

use std::borrow::Cow;

use super::super::json::{Cursor, Fault, decode_base64};
use astracer_model::ids::{SpanId, TraceId};

/// An id as read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Id<T> {
    pub(super) id: T,
    /// True if the text was not a hexadecimal number of the right size, and the id is a hash of it.
    pub(super) foreign: bool,
}

/// Reads a trace id; `null` and the empty string mean no id.
pub(super) fn trace_id(cursor: &mut Cursor<'_>) -> Result<Option<Id<TraceId>>, Fault> {
    let from_bytes = |bytes: &[u8]| match bytes.len() {
        16 => bytes.try_into().ok().map(u128::from_be_bytes).map(TraceId),
        _ => bytes.try_into().ok().map(u64::from_be_bytes).map(|id| TraceId(id.into())),
    };
    read(cursor, TraceId::from_hex, from_bytes, TraceId)
}

/// Reads a span id; `null`, the empty string and zero mean no id.
pub(super) fn span_id(cursor: &mut Cursor<'_>) -> Result<Option<Id<SpanId>>, Fault> {
    let from_bytes = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_be_bytes).map(SpanId);
    let id = read(cursor, SpanId::from_hex, from_bytes, |hash| SpanId((hash ^ hash >> 64) as u64))?;
    Ok(id.filter(|id| id.id != SpanId::ZERO))
}

fn read<T>(
    cursor: &mut Cursor<'_>,
    hex: impl FnOnce(&str) -> Option<T>,
    from_bytes: impl FnOnce(&[u8]) -> Option<T>,
    from_hash: impl FnOnce(u128) -> T,
) -> Result<Option<Id<T>>, Fault> {
    let text: Cow<'_, str> = cursor.text_or_null()?;
    if text.is_empty() {
        return Ok(None);
    }
    // Protobuf's JSON has ids of 8 or 16 bytes in base64, which are padded.
    let in_base64 = || decode_base64(&text).and_then(|bytes| from_bytes(&bytes));
    let id = hex(&text).or_else(|| if text.ends_with('=') { in_base64() } else { None });
    Ok(Some(match id {
        Some(id) => Id { id, foreign: false },
        None => Id { id: from_hash(fnv1a(&text)), foreign: true },
    }))
}

/// FNV-1a with 128 bits, which gives the same id for the same text in every run and file.
fn fnv1a(text: &str) -> u128 {
    const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0100_0000_0000_0000_0000_013b;
    text.bytes().fold(OFFSET_BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}
