//! Streams that are not UTF-8 with line feeds: UTF-16 with a byte order mark, and lines that end
//! with a carriage return only.

use std::io::{self, BufRead, Read};

/// A form that is converted while it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf16Little,
    Utf16Big,
    /// UTF-8, whose lines end with a carriage return.
    ReturnOnly,
}

impl Encoding {
    /// The form of a stream by its first bytes; `None` for one that is read as it is.
    pub(super) fn of(prefix: &[u8]) -> Option<Self> {
        match prefix {
            [0xff, 0xfe, ..] => Some(Self::Utf16Little),
            [0xfe, 0xff, ..] => Some(Self::Utf16Big),
            _ if memchr::memchr(b'\n', prefix).is_none() => {
                let at = memchr::memchr(b'\r', prefix)?;
                // A file of one line may end between its carriage return and its line feed.
                (at + 1 < prefix.len()).then_some(Self::ReturnOnly)
            }
            _ => None,
        }
    }

    /// Converts the whole of a prefix.
    pub(super) fn converted(self, prefix: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        // Reading from memory does not fail.
        let _ = Converted::new(&mut &*prefix, self).read_to_end(&mut out);
        out
    }
}

/// A stream that is converted to UTF-8 with line feeds.
pub(super) struct Converted<'r> {
    input: &'r mut dyn BufRead,
    encoding: Encoding,
    out: Vec<u8>,
    start: usize,
    /// A byte whose second half is not read yet, and the first of two surrogates.
    half: Option<u8>,
    surrogate: Option<u16>,
}

impl<'r> Converted<'r> {
    pub(super) fn new(input: &'r mut dyn BufRead, encoding: Encoding) -> Self {
        Self { input, encoding, out: Vec::new(), start: 0, half: None, surrogate: None }
    }

    fn push(&mut self, unit: u16) {
        let lone = |out: &mut Vec<u8>| out.extend_from_slice("\u{fffd}".as_bytes());
        let first = self.surrogate.take();
        let next = match (first, unit) {
            (Some(first), 0xdc00..=0xdfff) => {
                char::from_u32(0x10000 + ((u32::from(first) - 0xd800) << 10) + (u32::from(unit) - 0xdc00))
            }
            (Some(_), _) => {
                lone(&mut self.out);
                char::from_u32(u32::from(unit))
            }
            (None, _) => char::from_u32(u32::from(unit)),
        };
        if let 0xd800..=0xdbff = unit {
            self.surrogate = Some(unit);
            return;
        }
        match next {
            Some(next) => self.out.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes()),
            None => lone(&mut self.out),
        }
    }

    fn refill(&mut self) -> io::Result<()> {
        self.out.clear();
        self.start = 0;
        while self.out.is_empty() {
            let bytes = self.input.fill_buf()?;
            let len = bytes.len();
            if len == 0 {
                if self.half.take().is_some() || self.surrogate.take().is_some() {
                    self.out.extend_from_slice("\u{fffd}".as_bytes());
                }
                return Ok(());
            }
            if self.encoding == Encoding::ReturnOnly {
                self.out.extend(bytes.iter().map(|&byte| if byte == b'\r' { b'\n' } else { byte }));
            } else {
                let bytes = bytes.to_vec();
                for byte in bytes {
                    let Some(half) = self.half.take() else {
                        self.half = Some(byte);
                        continue;
                    };
                    self.push(match self.encoding {
                        Encoding::Utf16Big => u16::from_be_bytes([half, byte]),
                        _ => u16::from_le_bytes([half, byte]),
                    });
                }
            }
            self.input.consume(len);
        }
        Ok(())
    }
}

impl Read for Converted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let len = bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&bytes[..len]);
        self.consume(len);
        Ok(len)
    }
}

impl BufRead for Converted<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.start == self.out.len() {
            self.refill()?;
        }
        Ok(&self.out[self.start..])
    }

    fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.out.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf_16_and_carriage_returns_are_converted() {
        let text = "a\n\u{e9}\u{1f600}b\n";
        for (encoding, bytes) in [
            (
                Encoding::Utf16Little,
                [0xff, 0xfe]
                    .into_iter()
                    .chain(text.encode_utf16().flat_map(u16::to_le_bytes))
                    .collect::<Vec<_>>(),
            ),
            (
                Encoding::Utf16Big,
                [0xfe, 0xff].into_iter().chain(text.encode_utf16().flat_map(u16::to_be_bytes)).collect(),
            ),
        ] {
            assert_eq!(Encoding::of(&bytes), Some(encoding));
            assert_eq!(encoding.converted(&bytes), format!("\u{feff}{text}").as_bytes());
            // A lost byte and half of a pair.
            assert_eq!(encoding.converted(&bytes[..9]).len(), "\u{feff}a\n\u{fffd}".len() + 2);
        }
        assert_eq!(Encoding::of(b"a\rb\r"), Some(Encoding::ReturnOnly));
        assert_eq!(Encoding::ReturnOnly.converted(b"a\rb\r"), b"a\nb\n");
        assert_eq!((Encoding::of(b"a\r\nb\r"), Encoding::of(b"a\r"), Encoding::of(b"")), (None, None, None));
    }
}
