//! Escapes JSON so that it cannot control a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use astracer_model::text::is_shown;

/// Escapes control and invisible characters in JSON as `\u` and four digits. Only strings contain
/// such characters, apart from line ends and tabs between tokens, so the JSON means the same.
pub(crate) fn json_escaped(text: &str) -> Cow<'_, str> {
    let is_safe = |char: char| matches!(char, '\n' | '\t') || is_shown(char);
    let is_plain = text.bytes().all(|byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~'));
    if is_plain || text.chars().all(is_safe) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_safe(char) {
            safe.push(char);
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        }
    }
    safe.into()
}

/// A writer that passes JSON on to a terminal with dangerous characters escaped; see
/// [`json_escaped`].
pub(crate) struct Harmless<W> {
    inner: W,
    /// The first bytes of a character whose last bytes were not written yet.
    begun: Vec<u8>,
}

impl<W: Write> Harmless<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, begun: Vec::new() }
    }
}

impl<W: Write> Write for Harmless<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.begun.len());
        let mut end = 0;
        for chunk in self.begun.utf8_chunks() {
            text.push_str(&json_escaped(chunk.valid()));
            end += chunk.valid().len();
            // An invalid end may be an incomplete character, so it is kept. Text formats have no
            // other invalid bytes.
            if end + chunk.invalid().len() < self.begun.len() {
                end += chunk.invalid().len();
            }
        }
        self.begun.drain(..end);
        self.inner.write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_for_a_terminal_is_the_same_json_wherever_it_is_cut() {
        let name = "é\u{9b}2J\u{202e}x\u{e0041}\u{7f}\u{1f600}";
        let json = format!("{{\"name\": \"{name}\"}}\n");
        for cut in 0..=json.len() {
            let mut shown = Harmless::new(Vec::new());
            for part in [&json.as_bytes()[..cut], &json.as_bytes()[cut..]] {
                shown.write_all(part).expect("into memory");
            }
            let text = String::from_utf8(shown.inner).expect("UTF-8");
            assert!(text.chars().all(|char| is_shown(char) || char == '\n'), "{text:?}");
            let parsed: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(parsed["name"], name, "{cut}");
        }
    }
}
