//! Prints everything: reports, JSON and notes.
//!
//! Nothing else in this crate prints, so no character that controls a terminal is printed
//! unescaped. Text from recordings, paths and servers also goes through [`escaped`] when it is put
//! into a line, so that it stays on that line.

use std::borrow::Cow;
use std::io;
#[cfg(not(test))]
use std::io::Write;
use std::path::Path;

pub(crate) use astracer_model::text::escaped;
use astracer_model::text::is_shown;
pub(crate) use astracer_report::names::named;
pub(crate) use astracer_report::numbers::{count, measure, span, whole};
use serde::Serialize;

use crate::failure::Failure;
use crate::json_text::json_escaped;
pub(crate) use crate::layout::{brief, prose, shortened, table, width};
#[cfg(not(test))]
use crate::stdout;

/// A path as one line of text.
pub(crate) fn shown(path: &Path) -> String {
    escaped(&path.to_string_lossy()).into_owned()
}

/// Writes a report for people to standard output, in lines that fit the screen.
pub(crate) fn report(text: &str) -> Result<(), Failure> {
    print(&prose(text))
}

/// Writes text to standard output as it is.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    to_stdout(&lines_escaped(text)).map_err(|error| Failure::output(&error))
}

#[cfg(not(test))]
fn to_stdout(text: &str) -> io::Result<()> {
    stdout::open()?.write_all(text.as_bytes())
}

/// Unit tests run commands in their own process. The test runner captures what this macro prints,
/// but not what is written to the stream.
#[cfg(test)]
#[allow(clippy::print_stdout, clippy::unnecessary_wraps)]
fn to_stdout(text: &str) -> io::Result<()> {
    print!("{text}");
    Ok(())
}

/// Writes lines to standard error. Errors are ignored, because they do not affect the result.
pub(crate) fn note(text: &str) {
    let text = lines_escaped(text);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    to_stderr(&text, end);
}

/// Does not use `eprint!`, which panics if the reader of standard error is gone.
#[cfg(not(test))]
fn to_stderr(text: &str, end: &str) {
    let _ = write!(io::stderr().lock(), "{text}{end}");
}

/// See `to_stdout`.
#[cfg(test)]
#[allow(clippy::print_stderr)]
fn to_stderr(text: &str, end: &str) {
    eprint!("{text}{end}");
}

/// True if a text contains no control or invisible characters except line ends.
pub(crate) fn is_safe(text: &str) -> bool {
    // Most text is ASCII, of which only letters, digits and signs are shown.
    let is_plain = text.bytes().all(|byte| matches!(byte, b'\n' | b' '..=b'~'));
    is_plain || text.chars().all(|char| char == '\n' || is_shown(char))
}

/// Escapes all lines but keeps the line ends, which are ours.
pub(crate) fn lines_escaped(text: &str) -> Cow<'_, str> {
    if is_safe(text) {
        return Cow::Borrowed(text);
    }
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n").into()
}

/// Writes one JSON object to standard output.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(&json(value)?)
}

/// One JSON object and a line end. Control and invisible characters are written as `\u` and four
/// digits, which means the same to a parser.
pub(crate) fn json(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value);
    let mut text = text.map_err(|error| Failure::Job(format!("cannot write JSON: {error}")))?;
    text.push('\n');
    Ok(match json_escaped(&text) {
        Cow::Owned(safe) => safe,
        Cow::Borrowed(_) => text,
    })
}

/// Bytes with a decimal unit: "11.6 MB".
pub(crate) fn bytes(number: u64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let unit = units.into_iter().find(|&(size, _)| number as f64 >= size);
    unit.map_or_else(|| format!("{number} B"), |(size, unit)| format!("{:.1} {unit}", number as f64 / size))
}

/// A share of 0 to 1 as percents: "9.98%", "24.1%", "100%".
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if !percent.is_finite() => "-".to_owned(),
        percent if percent < 9.995 => format!("{percent:.2}%"),
        percent if percent < 99.95 => format!("{percent:.1}%"),
        percent => format!("{}%", whole(percent)),
    }
}

/// A mean number of things: "0.4", "58.9", "1,362".
pub(crate) fn rounded(number: f64) -> String {
    if number.fract() == 0.0 || number.abs() >= 999.95 { whole(number) } else { format!("{number:.1}") }
}

/// "1 trace", "2 traces".
pub(crate) fn plural(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_plurals_are_for_people() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(11_631_171), "11.6 MB");
        assert_eq!(plural(1, "trace"), "1 trace");
        assert_eq!(plural(0, "trace"), "0 traces");
    }

    #[test]
    fn shares_and_means_are_for_people() {
        assert_eq!(
            [0.0, 0.0998, 0.099_96, 0.2405, 1.0].map(percent),
            ["0.00%", "9.98%", "10.0%", "24.1%", "100%"]
        );
        assert_eq!([0.44, 58.93, 75.0, 1_362.4].map(rounded), ["0.4", "58.9", "75", "1,362"]);
    }

    #[test]
    fn nothing_that_is_printed_acts_on_a_terminal() {
        assert_eq!(lines_escaped("a\nb\u{1b}[2J\u{9b}\rc\n"), "a\nb\\u{1b}[2J\\u{9b}\\rc\n");
        let names = ["a\u{7f}\u{202e}\n", "\u{e0041}"];
        let text = json(&names).expect("JSON");
        assert!(text.is_ascii(), "{text:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).expect("JSON"), names);
    }
}
