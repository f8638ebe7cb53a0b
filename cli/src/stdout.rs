//! Standard output that tells whether it takes what is written.
//!
//! Rust's own handle takes everything that is written to an output that is open for reading only, and says that all is well. A
//! command that says that it printed its result has printed it, so that is an error here. One that was closed when the process
//! began (`>&-`) can't be told from `/dev/null`, which Rust opens in its place before `main`.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};

use crate::output::json_escaped;

/// True if a person reads along.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// JSON on its way to a terminal, which gets what would act on it as `\u` and four digits: the same to a parser.
pub(crate) struct Harmless<W> {
    inner: W,
    /// The beginning of a character whose end was not written yet.
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
            // At the end it may be the beginning of a character. Formats of text have no others.
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

/// Standard output for writing, without a buffer.
///
/// # Errors
///
/// If nothing can be written there.
#[cfg(unix)]
pub(crate) fn open() -> io::Result<File> {
    use std::os::fd::AsFd as _;

    let mut file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    // This tells whether the file is open for writing.
    let _ = file.write(&[])?;
    Ok(file)
}

/// Standard output for writing.
#[cfg(windows)]
pub(crate) fn open() -> io::Result<File> {
    use std::os::windows::io::AsHandle as _;

    io::stdout().as_handle().try_clone_to_owned().map(File::from)
}

#[cfg(test)]
mod tests {
    use astracer_model::text::is_shown;

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
