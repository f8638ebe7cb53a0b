//! The encoding of a message: Protocol Buffers, version 2, with the messages of "General Baggage
//! Model for End-to-End Tracing and Its Application on Critical Path Analysis" (Brown, 2016):
//!
//! ```text
//! message BaggageMessage { repeated NamespaceData namespace = 1; }
//! message NamespaceData { required bytes key = 1; repeated BagData bag = 2; }
//! message BagData { required bytes key = 1; repeated bytes value = 2; }
//! ```
//!
//! All fields that the messages define hold bytes after their length.

use std::fmt;

/// The tag of field 1 of each message: a namespace, or a key.
pub(crate) const FIRST: u8 = 1 << 3 | DELIMITED;
/// The tag of field 2: a bag, or a value.
pub(crate) const SECOND: u8 = 2 << 3 | DELIMITED;

/// The wire type of bytes after their length.
const DELIMITED: u8 = 2;
/// The depth of groups up to which the reference implementation skips an unknown one.
const GROUPS_MAX: usize = 100;

/// The bytes that a field takes: its tag, its length and its content.
pub(crate) fn field_bytes(content: usize) -> usize {
    1 + length_bytes(content) + content
}

fn length_bytes(length: usize) -> usize {
    let bits = usize::BITS - (length | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Appends a field's tag and length. Its content follows.
pub(crate) fn put_head(out: &mut Vec<u8>, tag: u8, mut length: usize) {
    out.push(tag);
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

pub(crate) fn put_field(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    put_head(out, tag, content.len());
    out.extend_from_slice(content);
}

/// A field of a message.
pub(crate) struct Field<'a> {
    /// [`FIRST`] or [`SECOND`]; 0 for a field that is unknown.
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    /// Whether its bytes are those that this crate writes.
    pub(crate) is_canonical: bool,
}

/// Reads the fields of untrusted bytes.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next field; `None` at the end of the message.
    pub(crate) fn next(&mut self) -> Result<Option<Field<'a>>, WireError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let before = self.0;
        // As the reference does, bits above the 32nd of tags and lengths are ignored.
        let tag = self.number()? as u32;
        if matches!(tag, 0x0a | 0x12) {
            let content = self.delimited()?;
            let head = before.len() - self.0.len() - content.len();
            let is_canonical = head == 1 + length_bytes(content.len());
            return Ok(Some(Field { tag: tag as u8, content, is_canonical }));
        }
        self.skip(tag, 0)?;
        Ok(Some(Field { tag: 0, content: &[], is_canonical: false }))
    }

    fn skip(&mut self, tag: u32, depth: usize) -> Result<(), WireError> {
        let number = tag >> 3;
        if number == 0 {
            return Err(WireError(Reason::Malformed));
        }
        match tag & 7 {
            0 => drop(self.number()?),
            1 => drop(self.take(8)?),
            2 => drop(self.delimited()?),
            3 if depth < GROUPS_MAX => loop {
                let inner = self.number()? as u32;
                if inner & 7 == 4 {
                    if inner >> 3 == number {
                        break;
                    }
                    return Err(WireError(Reason::Malformed));
                }
                self.skip(inner, depth + 1)?;
            },
            5 => drop(self.take(4)?),
            _ => return Err(WireError(Reason::Malformed)),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<u64, WireError> {
        let mut number = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(WireError(Reason::Malformed))
    }

    fn delimited(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.number()? as u32;
        if length > i32::MAX as u32 {
            return Err(WireError(Reason::Malformed));
        }
        self.take(length as usize)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(WireError(Reason::CutShort))?;
        self.0 = rest;
        Ok(taken)
    }
}

/// Bytes that are not baggage. None of them is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireError(pub(crate) Reason);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    CutShort,
    Malformed,
    NoKey,
}

impl WireError {
    /// Whether the message ends early, as one does that was cut on its way.
    pub fn is_cut_short(&self) -> bool {
        self.0 == Reason::CutShort
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Reason::CutShort => "the baggage ends early",
            Reason::Malformed => "the bytes are not baggage: a field has an unknown type or length",
            Reason::NoKey => "the baggage has a namespace or a slot without its key",
        })
    }
}

impl std::error::Error for WireError {}
