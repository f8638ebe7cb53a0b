//! Writing JSON values.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::scan::string_stop;

/// Writes a string with its quotes.
pub(crate) fn string<W: Write + ?Sized>(out: &mut W, text: &str) -> io::Result<()> {
    let bytes = text.as_bytes();
    let mut from = 0;
    out.write_all(b"\"")?;
    loop {
        let stop = string_stop(bytes, from);
        out.write_all(&bytes[from..stop])?;
        match bytes.get(stop) {
            None => break,
            Some(b'"') => out.write_all(b"\\\"")?,
            Some(b'\\') => out.write_all(b"\\\\")?,
            Some(b'\n') => out.write_all(b"\\n")?,
            Some(b'\r') => out.write_all(b"\\r")?,
            Some(b'\t') => out.write_all(b"\\t")?,
            Some(control) => write!(out, "\\u{control:04x}")?,
        }
        from = stop + 1;
    }
    out.write_all(b"\"")
}

/// Writes a number, or `"NaN"`, `"Infinity"` or `"-Infinity"` as protobuf's JSON mapping does.
pub(crate) fn double(out: &mut dyn Write, value: f64) -> io::Result<()> {
    if value.is_finite() {
        // The debug form is the shortest text that parses back to the same value. It has an
        // exponent if that is shorter.
        write!(out, "{value:?}")
    } else if value.is_nan() {
        out.write_all(b"\"NaN\"")
    } else {
        write!(out, "\"{}Infinity\"", if value < 0.0 { "-" } else { "" })
    }
}

/// Writes bytes as a base64 string.
pub(crate) fn base64(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    write!(out, "\"{}\"", STANDARD.encode(bytes))
}

/// Appends the 16 digits of an id.
#[inline]
pub(crate) fn hex(out: &mut Vec<u8>, id: u64) {
    let digits = [hex_digits((id >> 32) as u32), hex_digits(id as u32)];
    out.extend_from_slice(digits.as_flattened());
}

/// Computes eight hexadecimal digits at once: one per byte, the first in the highest byte.
fn hex_digits(number: u32) -> [u8; 8] {
    let spread = u64::from(number);
    let spread = (spread | spread << 16) & 0x0000_ffff_0000_ffff;
    let spread = (spread | spread << 8) & 0x00ff_00ff_00ff_00ff;
    let spread = (spread | spread << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // Adding six carries digits above nine into the next bit.
    let letters = (spread + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    let from_nine_to_a = u64::from(b'a' - b'9' - 1);
    (spread + 0x3030_3030_3030_3030 + letters * from_nine_to_a).to_be_bytes()
}

/// Writes the commas between the elements of a list or the members of an object.
#[derive(Debug, Default)]
pub(crate) struct Commas(bool);

impl Commas {
    /// Writes a comma before every element except the first.
    pub(crate) fn next(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.0, true) {
            out.push(b',');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_sixteen_digits() {
        let mut ids = vec![0, 1, u64::MAX, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];
        ids.extend((0..64).map(|bit| 1 << bit));
        for id in ids {
            let mut out = Vec::new();
            hex(&mut out, id);
            assert_eq!(String::from_utf8(out), Ok(format!("{id:016x}")));
        }
    }
}
