//! Everything printed: tables that fit the terminal, numbers with separators, JSON, and notes
//! beside them.
//!
//! Nothing else in this crate prints. Text of recordings, paths and servers is shown through
//! [`escaped`] where it is put into a line, so that it stays within its line; and whatever is
//! printed passes through here, where no character that acts on a terminal gets out.

use std::borrow::Cow;
#[cfg(not(test))]
use std::io::Write;
use std::io::{self, IsTerminal};
use std::path::Path;

pub(crate) use astracer_model::text::escaped;
use astracer_model::text::is_shown;
pub(crate) use astracer_report::names::named;
pub(crate) use astracer_report::numbers::{count, measure, whole};
use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
use serde::Serialize;

use crate::failure::Failure;
use crate::json_text::json_escaped;
#[cfg(not(test))]
use crate::stdout;

/// Columns of a terminal that doesn't tell.
const WIDTH_DEFAULT: u16 = 80;
/// The longest text of a table's cell, in characters: every row is as wide as the widest one, and
/// the time to lay out a text grows with the square of its length.
const CELL_CHARS_MAX: usize = 500;
/// From here on, columns stand two blanks apart.
const WIDTH_COMFORTABLE: u16 = 100;

/// A path as one line of text.
pub(crate) fn shown(path: &Path) -> String {
    escaped(&path.to_string_lossy()).into_owned()
}

/// Writes text to standard output.
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
    let mut text = text.map_err(|error| Failure::Job(format!("can't make JSON: {error}")))?;
    text.push('\n');
    Ok(match json_escaped(&text) {
        Cow::Owned(safe) => safe,
        Cow::Borrowed(_) => text,
    })
}

/// A table: the first column to the left, numbers to the right. On a terminal long names are
/// wrapped to make it fit. Through a pipe each row keeps its lines whole: columns stand two blanks
/// apart, one if that makes a row wider than 80 columns, and a row that is wider yet is so because
/// of its name.
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let width = terminal_width();
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_header(header.to_vec());
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| cut(escaped(cell))));
    }
    let gap = if width.is_some_and(|width| width < WIDTH_COMFORTABLE) { 1 } else { 2 };
    align(&mut table, 1, gap);
    let fits = |line: String| console::measure_text_width(&line) <= usize::from(WIDTH_DEFAULT);
    if width.is_none() && !lines(&table).all(fits) {
        align(&mut table, 1, 1);
    }
    lines(&table).map(|line| line + "\n").collect::<String>() + "\n"
}

/// Columns of the terminal that standard output is, if it is one.
fn terminal_width() -> Option<u16> {
    let terminal = io::stdout().is_terminal().then(console::Term::stdout)?;
    Some(terminal.size_checked().map_or(WIDTH_DEFAULT, |(_, columns)| columns))
}

/// Sentences: on a terminal they are broken between words. Through a pipe each stays a line.
pub(crate) fn prose(text: &str) -> Cow<'_, str> {
    terminal_width().map_or(text.into(), |width| broken(text, width.into()).into())
}

/// Lines of at most `width` columns, as far as words allow it. What continues a line stands two
/// columns further in.
fn broken(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let words = line.trim_start_matches(' ');
        let indent = line.len() - words.len();
        out.push_str(&line[..indent]);
        let mut column = indent;
        for (number, word) in words.split(' ').enumerate() {
            let columns = console::measure_text_width(word);
            if number > 0 && column + 1 + columns > width {
                column = indent + 2;
                out.push('\n');
                out.push_str(&" ".repeat(column));
            } else if number > 0 {
                column += 1;
                out.push(' ');
            }
            column += columns;
            out.push_str(word);
        }
        out.push('\n');
    }
    out
}

/// A name in a line of its own or within a sentence: cut as in a table, for those of samplers with
/// parameters for many keys.
pub(crate) fn brief(name: &str) -> Cow<'_, str> {
    cut(escaped(name))
}

/// The beginning of a text that is too long for a table's cell, with a mark.
fn cut(text: Cow<'_, str>) -> Cow<'_, str> {
    match text.char_indices().nth(CELL_CHARS_MAX) {
        Some((end, _)) => {
            let more = text.chars().count() - CELL_CHARS_MAX;
            format!("{}... and {} more", &text[..end], plural(more as u64, "character")).into()
        }
        None => text,
    }
}

/// A table whose rows stand below their names, so that long names leave room for many numbers.
pub(crate) fn sections(header: &[&str], rows: &[(String, Vec<String>)]) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_header(header.to_vec());
    for (_, cells) in rows {
        table.add_row(cells.clone());
    }
    align(&mut table, 0, 1);
    let mut lines = lines(&table);
    let mut text = lines.next().unwrap_or_default() + "\n";
    for (name, cells) in rows {
        let height = cells.iter().map(|cell| cell.lines().count()).max().unwrap_or(0);
        text.push_str(&brief(name));
        text.push('\n');
        text.extend(lines.by_ref().take(height).map(|line| line + "\n"));
    }
    text + "\n"
}

/// Aligns all columns behind the first `left` ones to the right, `gap` blanks apart.
fn align(table: &mut Table, left: usize, gap: u16) {
    for (index, column) in table.column_iter_mut().enumerate() {
        if index < left {
            column.set_padding((0, 0));
        } else {
            column.set_cell_alignment(CellAlignment::Right);
            column.set_padding((gap, 0));
        }
    }
}

fn lines(table: &Table) -> impl Iterator<Item = String> {
    table.lines().map(|line| line.trim_end().to_owned())
}

/// Bytes with a decimal unit: "11.6 MB".
pub(crate) fn bytes(number: u64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let unit = units.into_iter().find(|&(size, _)| number as f64 >= size);
    unit.map_or_else(|| format!("{number} B"), |(size, unit)| format!("{:.1} {unit}", number as f64 / size))
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
    fn nothing_that_is_printed_acts_on_a_terminal() {
        assert_eq!(lines_escaped("a\nb\u{1b}[2J\u{9b}\rc\n"), "a\nb\\u{1b}[2J\\u{9b}\\rc\n");
        let names = ["a\u{7f}\u{202e}\n", "\u{e0041}"];
        let text = json(&names).expect("JSON");
        assert!(text.is_ascii(), "{text:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).expect("JSON"), names);
        let rows = [vec!["a\nb".to_owned(), "1".to_owned()]];
        assert_eq!(table(&["name", "count"], rows), "name  count\na\\nb      1\n\n");
        assert_eq!(sections(&["n"], &[("a\r".to_owned(), vec!["1".to_owned()])]), " n\na\\r\n 1\n\n");
    }

    #[test]
    fn sentences_are_broken_between_words_where_they_are_too_wide() {
        let text = "one two three\n\n  four five six seven\na-word-that-is-wider b\n\u{540d}\u{524d} a  b\n";
        let expected = "one two\n  three\n\n  four five\n    six\n    seven\na-word-that-is-wider\n  b\n\u{540d}\u{524d} a  b\n";
        assert_eq!(broken(text, 11), expected);
        assert_eq!(broken(text, 80), text);
        // Tests have no terminal.
        assert_eq!(prose(text), text);
    }

    #[test]
    fn tables_have_no_trailing_blanks_and_align_numbers_right() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["bcd".to_owned(), "1,000".to_owned()]];
        assert_eq!(table(&["name", "count"], rows), "name  count\na         1\nbcd   1,000\n\n");
        let rows = [("a".to_owned(), vec!["1".to_owned()]), ("b".to_owned(), vec!["10\n±2".to_owned()])];
        assert_eq!(sections(&["count"], &rows), " count\na\n     1\nb\n    10\n    ±2\n\n");
    }

    /// Layout once took seconds for a name of 2 MB, and each other row had as many blanks.
    #[test]
    fn a_name_of_megabytes_is_cut_in_tables() {
        let [fits, long] = [0, 3_000_000].map(|more| "é".repeat(CELL_CHARS_MAX + more));
        let rows = [fits.clone(), long, "short".to_owned()].map(|name| vec![name, "1".to_owned()]);
        let text = table(&["name", "count"], rows);
        let names: Vec<_> = text.lines().map(|line| line.trim_end_matches([' ', '1'])).collect();
        let cut = format!("{fits}... and 3,000,000 characters more");
        assert_eq!(names[1..], [&fits, &cut, "short", ""]);
        assert!(text.chars().count() < 4 * (CELL_CHARS_MAX + 100), "{}", text.len());
        let rows = [("é".repeat(3_000_000), vec!["1".to_owned()])];
        assert!(
            sections(&["n"], &rows).starts_with(&format!(" n\n{}... and 2,999,500 characters more\n", fits))
        );
    }

    #[test]
    fn tables_through_a_pipe_are_at_most_80_columns_wide_unless_a_name_is_long() {
        for (name, number, gap) in [(35, 35, 2), (43, 35, 2), (44, 35, 1), (60, 35, 1)] {
            let row = vec!["n".repeat(name), "1".repeat(number)];
            let expected = format!("{}{}{}", row[0], " ".repeat(gap), row[1]);
            let text = table(&["a", "b"], [row]);
            assert_eq!(text.lines().nth(1), Some(&*expected));
        }
    }
}
