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
        // The debug form is the shortest one that reads back the same, with an exponent when that is shorter.
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

/// Writes the commas between the elements of a list or the members of an object.
#[derive(Debug, Default)]
pub(crate) struct Commas(bool);

impl Commas {
    /// Writes a comma but before the first.
    pub(crate) fn next(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.0, true) {
            out.push(b',');
        }
    }
}
