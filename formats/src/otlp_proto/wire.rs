//! Protobuf's wire format: iterates over the fields of a message.

use std::borrow::Cow;
use std::cell::Cell;

use crate::json::Notes;
use crate::varint;
use astracer_model::text::lossy;

/// The wire type of fields with a length: messages, text, bytes.
pub(super) const LEN: u8 = 2;

/// A parse error and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The byte offset in the unit.
    pub(super) at: usize,
    pub(super) why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The bytes do not follow the format.
    Bad(&'static str),
    /// Messages are nested beyond the limit.
    TooDeep,
    /// The unit is truncated, which is reported elsewhere.
    Cut,
    /// The sink asked to stop; the bytes are valid so far.
    Stopped,
}

/// The content of a message or field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a> {
    pub(super) bytes: &'a [u8],
    /// The offset of the first byte in the unit.
    pub(super) at: usize,
    /// True if the input ended before the content did.
    pub(super) cut: bool,
    /// Gets what was found in the unit since the last span.
    pub(super) notes: &'a Cell<Notes>,
}

impl Bytes<'_> {
    pub(super) fn note(&self, notes: Notes) {
        self.notes.set(self.notes.get().with(notes));
    }
}

/// A field and its content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub(super) number: u64,
    /// The offset of the tag in the unit.
    at: usize,
    content: Content<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Content<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Len(Bytes<'a>),
}

/// The fields of a message.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    message: Bytes<'a>,
    at: usize,
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: Bytes<'a>) -> Self {
        Self { message, at: 0 }
    }

    /// The next field; `None` after the last. After a fault there is no next field.
    ///
    /// Only the last field of a truncated message can itself be truncated.
    pub(super) fn next(&mut self) -> Result<Option<Field<'a>>, Fault> {
        let bytes = self.message.bytes;
        if self.at == bytes.len() {
            return Ok(None);
        }
        let at = self.message.at + self.at;
        let tag = self.varint()?;
        let content = match tag & 7 {
            0 => Content::Varint(self.varint()?),
            1 => Content::Fixed64(u64::from_le_bytes(self.fixed()?)),
            2 => {
                let len = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                let start = self.at;
                let cut = len > bytes.len() - start;
                if cut && !self.message.cut {
                    return Err(Fault { at, why: Why::Bad("field longer than its message") });
                }
                self.at = if cut { bytes.len() } else { start + len };
                Content::Len(Bytes {
                    bytes: &bytes[start..self.at],
                    at: self.message.at + start,
                    cut,
                    notes: self.message.notes,
                })
            }
            5 => Content::Fixed32(u32::from_le_bytes(self.fixed()?)),
            _ => return Err(Fault { at, why: Why::Bad("invalid field") }),
        };
        if tag >> 3 == 0 {
            return Err(Fault { at, why: Why::Bad("invalid field") });
        }
        Ok(Some(Field { number: tag >> 3, at, content }))
    }

    fn varint(&mut self) -> Result<u64, Fault> {
        let rest = &self.message.bytes[self.at..];
        match varint::read(rest) {
            Some((value, used)) => {
                self.at += used;
                Ok(value)
            }
            None if rest.len() < 10 => Err(self.ends()),
            None => Err(Fault { at: self.message.at + self.at, why: Why::Bad("invalid varint") }),
        }
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let Some(bytes) = self.message.bytes[self.at..].first_chunk() else { return Err(self.ends()) };
        self.at += N;
        Ok(*bytes)
    }

    fn ends(&self) -> Fault {
        let why = if self.message.cut { Why::Cut } else { Why::Bad("the message ends inside a field") };
        Fault { at: self.message.at + self.message.bytes.len(), why }
    }
}

impl<'a> Field<'a> {
    pub(super) fn varint(&self) -> Result<u64, Fault> {
        match self.content {
            Content::Varint(value) => Ok(value),
            _ => self.wrong_type(),
        }
    }

    pub(super) fn fixed64(&self) -> Result<u64, Fault> {
        match self.content {
            Content::Fixed64(value) => Ok(value),
            _ => self.wrong_type(),
        }
    }

    pub(super) fn fixed32(&self) -> Result<u32, Fault> {
        match self.content {
            Content::Fixed32(value) => Ok(value),
            _ => self.wrong_type(),
        }
    }

    /// The content as a message, which may be truncated.
    pub(super) fn message(&self) -> Result<Bytes<'a>, Fault> {
        match self.content {
            Content::Len(bytes) => Ok(bytes),
            _ => self.wrong_type(),
        }
    }

    /// The content, which must be complete.
    pub(super) fn whole(&self) -> Result<Bytes<'a>, Fault> {
        let bytes = self.message()?;
        if bytes.cut { Err(Fault { at: self.at, why: Why::Cut }) } else { Ok(bytes) }
    }

    /// The content as text. U+FFFD replaces invalid UTF-8, as in the Collector.
    pub(super) fn text(&self) -> Result<Cow<'a, str>, Fault> {
        let content = self.whole()?;
        let text = lossy(content.bytes);
        if let Cow::Owned(_) = text {
            content.note(Notes::TEXT);
        }
        Ok(text)
    }

    fn wrong_type<T>(&self) -> Result<T, Fault> {
        Err(Fault { at: self.at, why: Why::Bad("field of an unexpected type") })
    }
}
