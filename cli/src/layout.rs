//! Lays out tables and sentences within the width of the screen.
//!
//! A line has at most 80 columns, also in a pipe, so that output looks the same in a bug report and
//! in a terminal. On a wider terminal, lines use its full width. Long names are broken at their own
//! separators; very long ones lose their middle.

use std::borrow::Cow;
use std::io::{self, IsTerminal};

use astracer_model::text::escaped;
use console::measure_text_width;

/// The width of a pipe, and of a terminal that does not report its size.
const WIDTH_DEFAULT: usize = 80;
/// Lines are laid out for at least this width, because narrower tables would have space for names
/// only. A narrower terminal wraps them.
const WIDTH_LEAST: usize = 40;
/// The least width of the first column, which holds names.
const NAME_LEAST: usize = 16;
/// Columns are two spaces apart if that leaves broken names this width.
const NAME_COMFORTABLE: usize = 28;
/// The greatest number of lines of a name in a table.
const NAME_LINES_MAX: usize = 6;
/// Stands for what is left out of a name.
const MARK: &str = "...";
/// Columns of a name within a sentence.
const BRIEF: usize = 60;
/// Continuation lines are indented by this much.
const INDENT: usize = 2;

/// The number of columns that a line may have.
pub(crate) fn width() -> usize {
    let terminal = io::stdout().is_terminal().then(console::Term::stdout);
    let columns = terminal.and_then(|terminal| terminal.size_checked()).map(|(_, columns)| columns);
    columns.map_or(WIDTH_DEFAULT, |columns| usize::from(columns).max(WIDTH_LEAST))
}

/// A table: names on the left, numbers aligned right. Headings may have several lines.
///
/// Ends with an empty line. Columns that do not fit beside the names follow in a second table.
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let escape = |row: Vec<String>| row.iter().map(|cell| escaped(cell).into_owned()).collect();
    table_within(width(), header, &rows.into_iter().map(escape).collect::<Vec<_>>())
}

fn table_within(width: usize, header: &[&str], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = header
        .iter()
        .enumerate()
        .map(|(column, heading)| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| measure_text_width(cell));
            heading.lines().map(measure_text_width).chain(cells).max().unwrap_or(0)
        })
        .collect();
    let Some((&names, numbers)) = widths.split_first() else { return String::new() };
    let taken = |numbers: &[usize], gap: usize| numbers.iter().map(|number| number + gap).sum::<usize>();
    let mut text = String::new();
    let mut first = 0;
    loop {
        // As many columns as fit while the names keep their least width, but at least one.
        let mut end = numbers.len();
        while end > first + 1 && NAME_LEAST.min(names) + taken(&numbers[first..end], 1) > width {
            end -= 1;
        }
        let part = &numbers[first..end];
        let fits = |gap: usize, names: usize| names + taken(part, gap) <= width;
        let gap = if fits(2, names) || !fits(1, names) && fits(2, NAME_COMFORTABLE) { 2 } else { 1 };
        let names = names.min(width.saturating_sub(taken(part, gap)).max(NAME_LEAST));
        // Broken names may need less than the width available to them.
        let broken = rows.iter().filter_map(|row| row.first()).flat_map(|name| folded(name, names));
        let heading = header.first().into_iter().flat_map(|cell| cell.lines()).map(measure_text_width);
        let names = broken.map(|line| measure_text_width(&line)).chain(heading).max().unwrap_or(names);
        let gap = if fits(2, names) { 2 } else { gap };
        let columns = Columns { names, numbers: part, gap };
        let picked = |cells: &[&str]| -> Vec<String> {
            let of_part = cells.iter().skip(1 + first).take(part.len());
            cells.iter().take(1).chain(of_part).map(|&cell| cell.to_owned()).collect()
        };
        columns.heading(&picked(header), &mut text);
        for row in rows {
            columns.row(&picked(&row.iter().map(String::as_str).collect::<Vec<_>>()), &mut text);
        }
        text.push('\n');
        first = end;
        if first >= numbers.len() {
            return text;
        }
    }
}

/// The widths of a table's columns, and the spaces between them.
struct Columns<'t> {
    names: usize,
    numbers: &'t [usize],
    gap: usize,
}

impl Columns<'_> {
    /// A heading, aligned at the bottom: its last line is directly above the numbers.
    fn heading(&self, cells: &[String], text: &mut String) {
        let height = cells.iter().map(|cell| cell.lines().count()).max().unwrap_or(0);
        for line in 0..height {
            let of_line = |cell: &String| {
                let above = height - cell.lines().count();
                let line = line.checked_sub(above).and_then(|line| cell.lines().nth(line));
                line.unwrap_or_default().to_owned()
            };
            self.line(&cells.iter().map(of_line).collect::<Vec<_>>(), text);
        }
    }

    fn row(&self, cells: &[String], text: &mut String) {
        let mut lines = folded(cells.first().map_or("", String::as_str), self.names).into_iter();
        let mut first = cells.to_vec();
        if let (Some(cell), Some(line)) = (first.first_mut(), lines.next()) {
            *cell = line;
        }
        self.line(&first, text);
        for line in lines {
            text.push_str(&line);
            text.push('\n');
        }
    }

    fn line(&self, cells: &[String], text: &mut String) {
        let start = text.len();
        for (column, cell) in cells.iter().enumerate() {
            let pad = |columns: usize| " ".repeat(columns.saturating_sub(measure_text_width(cell)));
            match column.checked_sub(1).and_then(|number| self.numbers.get(number)) {
                None => {
                    text.push_str(cell);
                    text.push_str(&pad(self.names));
                }
                Some(&columns) => {
                    text.push_str(&" ".repeat(self.gap));
                    text.push_str(&pad(columns));
                    text.push_str(cell);
                }
            }
        }
        text.truncate(start + text[start..].trim_end().len());
        text.push('\n');
    }
}

/// A name in lines of at most `width` columns, broken after separators where there are any. Lines
/// in the middle of a very long name are left out.
fn folded(name: &str, width: usize) -> Vec<String> {
    let inner = width.saturating_sub(INDENT).max(1);
    // Names of megabytes are not broken to their end.
    let name = shortened(name, 4 * NAME_LINES_MAX * inner);
    let (mut lines, mut rest) = (Vec::new(), &*name);
    while !rest.is_empty() || lines.is_empty() {
        let (indent, room) = if lines.is_empty() { (0, width) } else { (INDENT, inner) };
        let end = if measure_text_width(rest) <= room { rest.len() } else { break_at(rest, room) };
        lines.push(" ".repeat(indent) + rest[..end].trim_end());
        rest = rest[end..].trim_start();
    }
    if lines.len() > NAME_LINES_MAX {
        let last = lines.len() - 1;
        lines.splice(NAME_LINES_MAX - 2..last, [" ".repeat(INDENT) + MARK]);
    }
    lines
}

/// The number of bytes that fit into a line. The line ends after its last comma or semicolon, so
/// that the parts of a list stay whole. Without one, it ends after the last space of its second
/// half, or else after another separator there, or after a colon or an equals sign.
fn break_at(text: &str, columns: usize) -> usize {
    let (mut used, mut end) = (0, 0);
    let [mut listed, mut spaced, mut separated, mut named, mut assigned] = [None; 5];
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        used += measure_text_width(char.encode_utf8(&mut [0; 4]));
        if used > columns {
            break;
        }
        end = at + char.len_utf8();
        // A decimal point is no separator.
        let is_number = char == '.' && chars.peek().is_some_and(|(_, next)| next.is_ascii_digit());
        let is_late = used * 2 > columns && !is_number;
        match char {
            ',' | ';' => listed = Some(end),
            ' ' if is_late => spaced = Some(end),
            '/' | '.' | '#' | ':' | '_' | '-' | '?' | '&' if is_late => separated = Some(end),
            ':' => named = Some(end),
            '=' => assigned = Some(end),
            _ => {}
        }
    }
    let separator = listed.or(spaced).or(separated).or(named).or(assigned);
    // At least one character, however narrow the column.
    separator.unwrap_or(end).max(text.chars().next().map_or(0, char::len_utf8))
}

/// A text whose middle is replaced by `...` if it has more than this number of columns.
pub(crate) fn shortened(text: &str, columns: usize) -> Cow<'_, str> {
    // Texts of megabytes are not measured to their end.
    let is_short = text.len() <= 8 * columns;
    if is_short && measure_text_width(text) <= columns {
        return text.into();
    }
    let left = columns.saturating_sub(MARK.len());
    let take = |chars: &mut dyn Iterator<Item = char>, columns: usize| {
        let mut used = 0;
        let mut bytes = 0;
        for char in chars {
            used += measure_text_width(char.encode_utf8(&mut [0; 4]));
            if used > columns {
                break;
            }
            bytes += char.len_utf8();
        }
        bytes
    };
    let head = take(&mut text.chars(), left.div_ceil(2));
    let tail = take(&mut text.chars().rev(), left / 2);
    if head + tail >= text.len() {
        return text.into();
    }
    format!("{}{MARK}{}", &text[..head], &text[text.len() - tail..]).into()
}

/// A name within a sentence.
pub(crate) fn brief(name: &str) -> Cow<'_, str> {
    // An escape sequence is not cut in half.
    match escaped(name) {
        Cow::Borrowed(name) => shortened(name, BRIEF),
        Cow::Owned(name) => shortened(&name, BRIEF).into_owned().into(),
    }
}

/// Breaks lines that are too wide between words.
pub(crate) fn prose(text: &str) -> String {
    broken(text, width())
}

/// Breaks lines at spaces so that they have at most `width` columns, unless a word is longer.
/// Continuation lines are indented by two more columns.
fn broken(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        if measure_text_width(line) <= width {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let words = line.trim_start_matches(' ');
        let indent = line.len() - words.len();
        out.push_str(&line[..indent]);
        let mut column = indent;
        for (number, word) in words.split(' ').enumerate() {
            let columns = measure_text_width(word);
            if number > 0 && column + 1 + columns > width {
                column = indent + INDENT;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(rows: &[&[&str]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|&cell| cell.to_owned()).collect()).collect()
    }

    #[test]
    fn tables_have_no_trailing_blanks_and_align_numbers_right() {
        let rows = cells(&[&["a", "1"], &["bcd", "1,000"]]);
        assert_eq!(table(&["name", "count"], rows), "name  count\na         1\nbcd   1,000\n\n");
        let rows = cells(&[&["a", "1", "22"]]);
        assert_eq!(table(&["", "of\ncounts", "ms"], rows), "       of\n   counts  ms\na       1  22\n\n");
        let rows = cells(&[&["a\nb", "1"]]);
        assert_eq!(table(&["name", "count"], rows), "name  count\na\\nb      1\n\n");
    }

    #[test]
    fn columns_move_together_before_names_are_broken() {
        for (name, number, gap) in [(35, 35, 2), (43, 35, 2), (44, 35, 1)] {
            let row = vec!["n".repeat(name), "1".repeat(number)];
            let expected = format!("{}{}{}", row[0], " ".repeat(gap), row[1]);
            let text = table_within(80, &["a", "b"], &[row]);
            assert_eq!(text.lines().nth(1), Some(&*expected));
        }
    }

    #[test]
    fn long_names_are_broken_at_separators() {
        let name = "org.apache.hadoop.hdfs.protocol.ClientProtocol.getBlockLocations";
        let rows = cells(&[&[name, "1"]]);
        let text = table_within(42, &["name", "count"], &rows);
        let expected = format!(
            "name{}count\n{}{}1\n  ClientProtocol.getBlockLocations\n\n",
            " ".repeat(32),
            "org.apache.hadoop.hdfs.protocol.",
            " ".repeat(8)
        );
        assert_eq!(text, expected);
        assert_eq!(folded("ab", 4), ["ab"]);
        let baseline = "best baseline: jaeger-adaptive";
        assert_eq!(folded(baseline, 23), ["best baseline:", "  jaeger-adaptive"]);
        assert_eq!(folded(baseline, 15), ["best baseline:", "  jaeger-", "  adaptive"]);
        assert_eq!(folded("abcdefgh", 4), ["abcd", "  ef", "  gh"]);
        let lines = ["abcde", "  fgh", "  ijk", "  lmn", "  ...", "  uv"];
        assert_eq!(folded("abcdefghijklmnopqrstuv", 5), lines);
    }

    /// The texts are those of real tables of `evaluate`.
    #[test]
    fn lists_are_broken_between_their_parts() {
        for (text, width, lines) in [
            (
                "strata:size=0.000001,record=all;9 strata",
                20,
                &["strata:", "  size=0.000001,", "  record=all;", "  9 strata"][..],
            ),
            (
                "grafana-diversity:p=0.1,interval=900s",
                20,
                &["grafana-diversity:", "  p=0.1,", "  interval=900s"],
            ),
            ("bytes=75800,bytes_burst=4550000", 20, &["bytes=75800,", "  bytes_burst=", "  4550000"]),
            ("xray:rate=0.00000152,reservoir=1", 20, &["xray:", "  rate=0.00000152,", "  reservoir=1"]),
            (
                "+ cap traces=198,burst=11900,bytes=75800",
                19,
                &["+ cap traces=198,", "  burst=11900,", "  bytes=75800"],
            ),
            (
                "bump:lambda=1;4 keys with own parameters",
                24,
                &["bump:lambda=1;", "  4 keys with own", "  parameters"],
            ),
        ] {
            assert_eq!(folded(text, width), lines);
        }
    }

    #[test]
    fn columns_that_do_not_fit_follow_below() {
        let long = "1".repeat(12);
        let rows = cells(&[&["a name of twenty two...", &long, &long, &long]]);
        let text = table_within(50, &["name", "b", "c", "d"], &rows);
        assert!(text.lines().all(|line| measure_text_width(line) <= 50), "{text}");
        assert_eq!(text.matches(&long).count(), 3, "{text}");
        assert_eq!(text.matches("\n\n").count(), 2, "{text}");
    }

    /// Laying out a name of 2 MB once took seconds.
    #[test]
    fn a_name_of_megabytes_loses_its_middle() {
        let long = "é".repeat(3_000_000);
        let text = table(&["name", "count"], cells(&[&[&long, "1"], &["short", "1"]]));
        assert!(text.lines().count() <= NAME_LINES_MAX + 3, "{text}");
        assert!(text.lines().all(|line| measure_text_width(line) <= 80), "{text}");
        assert_eq!(brief("a\nb"), "a\\nb");
        assert_eq!(measure_text_width(&brief(&long)), BRIEF);
        assert_eq!(shortened("abcdefgh", 7), "ab...gh");
    }

    #[test]
    fn sentences_are_broken_between_words() {
        let text = "one two three\n\n  four five six seven\na-word-that-is-wider b\n\u{540d}\u{524d} a  b\n";
        let expected = "one two\n  three\n\n  four five\n    six\n    seven\na-word-that-is-wider\n  b\n\u{540d}\u{524d} a  b\n";
        assert_eq!(broken(text, 11), expected);
        assert_eq!(broken(text, 80), text);
    }
}
