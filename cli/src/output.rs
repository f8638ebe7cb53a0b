//! Everything printed: tables that fit the terminal, numbers with separators, JSON, and notes
//! beside them.
//!
//! Nothing else in this crate prints. Text of recordings, paths and servers is shown through
//! [`escaped`] where it is put into a line, so that it stays within its line; and whatever is
//! printed passes through here, where no character that acts on a terminal gets out.

use std::borrow::Cow;
use std::io;
#[cfg(not(test))]
use std::io::Write;
use std::path::Path;

pub(crate) use astracer_model::text::escaped;
use astracer_model::text::is_shown;
pub(crate) use astracer_report::names::named;
pub(crate) use astracer_report::numbers::{count, measure, whole};
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

/// Writes a result for people to standard output, in lines that fit the screen.
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

/// Tests run commands in their own process: a test's runner holds back what this macro prints until
/// the test fails, and nothing that is written to the stream.
#[cfg(test)]
#[allow(clippy::print_stdout, clippy::unnecessary_wraps)]
fn to_stdout(text: &str) -> io::Result<()> {
    print!("{text}");
    Ok(())
}

/// Writes a line or several to standard error. An error of that is not an error of the job.
pub(crate) fn note(text: &str) {
    let text = lines_escaped(text);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    to_stderr(&text, end);
}

/// Not by `eprint!`, which panics if the reader of standard error is gone.
#[cfg(not(test))]
fn to_stderr(text: &str, end: &str) {
    let _ = write!(io::stderr().lock(), "{text}{end}");
}

/// As for standard output.
#[cfg(test)]
#[allow(clippy::print_stderr)]
fn to_stderr(text: &str, end: &str) {
    eprint!("{text}{end}");
}

/// True if nothing of a text acts on a terminal but the ends of its lines.
pub(crate) fn is_safe(text: &str) -> bool {
    text.chars().all(|char| char == '\n' || is_shown(char))
}

/// Leaves the ends of lines, which are ours.
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

/// One JSON object with a line's end behind it. What must not reach a terminal is written as `\u`
/// and four digits, which means the same.
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
        percent if percent.is_nan() => "-".to_owned(),
        percent if percent < 9.995 => format!("{percent:.2}%"),
        percent if percent < 99.95 => format!("{percent:.1}%"),
        percent => format!("{}%", whole(percent)),
    }
}

/// A mean number of things: "0.4", "58.9", "1,362".
pub(crate) fn rounded(number: f64) -> String {
    if number.fract() == 0.0 || number.abs() >= 999.95 { whole(number) } else { format!("{number:.1}") }
}

/// A length of time for people: "0.8 s", "41 s", "4 min 12 s", "2 h 51 min", "3 days 4 h".
pub(crate) fn span(seconds: f64) -> String {
    // Half a unit of the smaller part is what is rounded.
    let parts = |large: u64, small: u64, names: (&str, &str)| {
        let whole = (seconds / small as f64).round() as u64;
        let (large, small) = (whole / (large / small), whole % (large / small));
        let large = if names.0 == "day" { plural(large, "day") } else { format!("{large} {}", names.0) };
        if small == 0 { large } else { format!("{large} {small} {}", names.1) }
    };
    match seconds {
        seconds if !seconds.is_finite() => "-".to_owned(),
        0.0 => "0 s".to_owned(),
        seconds if seconds < 0.9995 => format!("{} ms", measure(seconds * 1e3)),
        seconds if seconds < 9.95 => format!("{seconds:.1} s"),
        seconds if seconds < 119.5 => format!("{seconds:.0} s"),
        seconds if seconds < 3_599.5 => parts(60, 1, ("min", "s")),
        seconds if seconds < 86_370.0 => parts(3_600, 60, ("h", "min")),
        _ => parts(86_400, 3_600, ("day", "h")),
    }
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
    fn lengths_of_time_are_for_people() {
        for (seconds, expected) in [
            (0.0, "0 s"),
            (0.000_25, "0.250 ms"),
            (0.8, "800.0 ms"),
            (0.999_9, "1.0 s"),
            (4.21, "4.2 s"),
            (26.1, "26 s"),
            (119.6, "2 min"),
            (252.0, "4 min 12 s"),
            (3_599.9, "1 h"),
            (10_260.0, "2 h 51 min"),
            (86_399.0, "1 day"),
            (273_600.0, "3 days 4 h"),
            (254_920_229.1, "2,950 days 11 h"),
            (f64::INFINITY, "-"),
        ] {
            assert_eq!(span(seconds), expected, "{seconds}");
        }
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
