//! Faults of a program's text: where, and how to mend it.

use std::fmt;
use std::ops::Range;

/// The faults that one answer lists; the text behind them is not worth reading before a correction.
pub(crate) const FAULTS: usize = 20;
/// The characters of a line that a fault shows.
const SHOWN: usize = 76;

/// A fault in the text of a program. `Display` prints it with its line, a caret and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// A sentence about the fault.
    pub message: String,
    /// A sentence about the remedy.
    pub help: Option<String>,
    excerpt: String,
    caret: Range<usize>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "line {}, column {}: {}", self.line, self.column, self.message)?;
        writeln!(f, "  {}", self.excerpt)?;
        write!(f, "  {}{}", " ".repeat(self.caret.start), "^".repeat(self.caret.len().max(1)))?;
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

/// The text of a program, with the faults found in it.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    pub(crate) text: &'a str,
    faults: Vec<(usize, Fault)>,
    hints: Vec<Fault>,
    pub(crate) aborted: bool,
}

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Source { text, faults: Vec::new(), hints: Vec::new(), aborted: false }
    }

    /// Whether so much is wrong that reading on is of no use.
    pub(crate) fn is_full(&self) -> bool {
        self.aborted || self.faults.len() >= FAULTS
    }

    pub(crate) fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    /// The faults in the order of the text.
    pub(crate) fn into_faults(mut self) -> Vec<Fault> {
        self.faults.sort_by_key(|(start, _)| *start);
        self.faults.into_iter().map(|(_, fault)| fault).collect()
    }

    /// Records a fault at a place in the text.
    pub(crate) fn fault(&mut self, span: Range<usize>, message: impl Into<String>, help: Option<String>) {
        if self.is_full() {
            return;
        }
        let fault = self.at(span, message.into(), help);
        self.faults.push(fault);
    }

    /// Records a doubt about a text that is valid.
    pub(crate) fn hint(&mut self, span: Range<usize>, message: String, help: String) {
        let (_, hint) = self.at(span, message, Some(help));
        if self.hints.len() < FAULTS && !self.hints.contains(&hint) {
            self.hints.push(hint);
        }
    }

    pub(crate) fn take_hints(&mut self) -> Vec<Fault> {
        std::mem::take(&mut self.hints)
    }

    /// A part of the text in one line.
    pub(crate) fn written(&self, span: &Range<usize>) -> String {
        let text = self.text.get(span.clone()).unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Whether a number of the text has a unit.
    pub(crate) fn has_unit(&self, span: &Range<usize>) -> bool {
        self.text.get(span.clone()).is_some_and(|text| text.ends_with(char::is_alphabetic))
    }

    fn at(&self, span: Range<usize>, message: String, help: Option<String>) -> (usize, Fault) {
        let start = floor(self.text, span.start);
        let before = &self.text[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = &self.text[line_start..];
        let line = rest.split(['\n', '\r']).next().unwrap_or(rest);
        let end = floor(self.text, span.end).clamp(start, line_start + line.len().max(start - line_start));
        let column = self.text[line_start..start].chars().count();
        let width = self.text[start..end].chars().count();
        let skipped = column.saturating_sub(SHOWN / 2);
        // Without its tabs, the line stays aligned with the caret.
        let shown = line.chars().map(|character| if character.is_control() { ' ' } else { character });
        let excerpt: String = shown.skip(skipped).take(SHOWN).collect();
        let caret = column - skipped..(column - skipped + width).min(SHOWN);
        let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
        (start, Fault { line, column: column + 1, message, help, excerpt, caret })
    }
}

fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Names in a message, quoted, at most six of them.
pub(crate) fn list<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let mut names = names.into_iter();
    let mut text = String::new();
    for name in names.by_ref().take(6) {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&format!("`{}`", cut(name)));
    }
    if names.next().is_some() {
        text.push_str(", ...");
    }
    text
}

/// A word of the program for a message: not longer than a message may be.
pub(crate) fn cut(word: &str) -> String {
    if word.chars().count() <= 40 {
        word.to_owned()
    } else {
        word.chars().take(37).collect::<String>() + "..."
    }
}

/// The known name that is nearest to a misspelt one.
pub(crate) fn nearest<'n>(word: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let word: Vec<char> = word.to_lowercase().chars().take(64).collect();
    let near = known.into_iter().take(1000).filter_map(|name| {
        let letters: Vec<char> = name.to_lowercase().chars().take(64).collect();
        let distance = distance(&word, &letters);
        (distance <= word.len().max(letters.len()) / 3).then_some((distance, name))
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// The insertions, deletions, replacements and swaps of neighbours that lead from one to the other.
fn distance(one: &[char], two: &[char]) -> usize {
    let (mut before, mut last) = (Vec::new(), (0..=two.len()).collect::<Vec<usize>>());
    for i in 0..one.len() {
        let mut row = vec![i + 1];
        for j in 0..two.len() {
            let replaced = last[j] + usize::from(one[i] != two[j]);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && one[i] == two[j - 1] && one[i - 1] == two[j] {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[two.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits_and_swaps() {
        let distance = |one: &str, two: &str| {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            super::distance(&letters(one), &letters(two))
        };
        for (one, two, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("slect", "select", 1),
            ("form", "from", 1),
            ("abcdef", "abcdef", 0),
        ] {
            assert_eq!(distance(one, two), expected, "{one} {two}");
        }
    }

    #[test]
    fn a_fault_in_a_long_line_shows_its_part() {
        let text = format!("a\n{}ÄX\tY", "ü".repeat(100_000));
        let at = text.find('X').unwrap();
        let mut source = Source::new(&text);
        source.fault(at..at + 1, "wrong", None);
        source.fault(text.len()..text.len() + 5, "early end", Some("write more".to_owned()));
        let faults = source.into_faults();
        assert_eq!((faults[0].line, faults[0].column), (2, 100_002));
        let shown = faults[0].to_string();
        let lines: Vec<&str> = shown.lines().collect();
        let caret = lines[2].chars().position(|character| character == '^').unwrap();
        assert_eq!(lines[1].chars().nth(caret), Some('X'));
        assert!(lines.iter().all(|line| line.chars().count() <= 80));
        assert!(faults[1].to_string().ends_with("^\n  help: write more"));
    }
}
