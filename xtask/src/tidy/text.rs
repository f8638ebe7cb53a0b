//! Text for the rules about language: lines of comments and of documents, and the words in them.

use crate::repo::File;

/// A line of prose.
#[derive(Debug, PartialEq)]
pub(super) struct Line<'a> {
    /// From 1.
    pub(super) number: usize,
    pub(super) text: &'a str,
    /// Whether it begins a comment, or a paragraph of one.
    pub(super) opens: bool,
}

/// The comment lines of a source file, or all lines of a Markdown document.
///
/// A comment after code on the same line is ignored: without a parser it cannot be distinguished
/// from a string.
pub(super) fn prose<'a>(file: &File, text: &'a str) -> Vec<Line<'a>> {
    let markers: &[&str] = match file.path.rsplit('.').next() {
        Some("rs") => &["//!", "///", "//"],
        Some("toml" | "yml" | "yaml" | "sh") => &["#"],
        Some("md") => &[""],
        _ => return Vec::new(),
    };
    let mut lines = Vec::new();
    let mut before: Option<(&&str, bool)> = None;
    for (index, line) in text.lines().enumerate() {
        let marker = markers.iter().find(|marker| line.trim_start().starts_with(**marker));
        let content = marker.map(|marker| line.trim_start()[marker.len()..].trim());
        let inside = before.is_some_and(|(other, blank)| Some(other) == marker && !blank);
        if let Some(text) = content.filter(|text| !text.is_empty()) {
            lines.push(Line { number: index + 1, text, opens: !inside });
        }
        before = marker.zip(content.map(str::is_empty));
    }
    lines
}

/// The offsets at which `word` is not part of a longer word.
pub(super) fn find_word<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(word).map(|(start, _)| start).filter(move |&start| {
        !text[..start].ends_with(is_word) && !text[start + word.len()..].starts_with(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[(usize, &str, bool)]) {
        let file = File { path: path.to_owned(), bytes: Vec::new() };
        let found: Vec<_> =
            prose(&file, text).iter().map(|line| (line.number, line.text, line.opens)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn comments_open_at_their_first_line_and_at_paragraphs() {
        let text = "//! A\n//! b.\n//!\n//! C\nfn f() { // not seen\n    /// D\n    // E\n    // f\n}";
        check(
            "a.rs",
            text,
            &[
                (1, "A", true),
                (2, "b.", false),
                (4, "C", true),
                (6, "D", true),
                (7, "E", true),
                (8, "f", false),
            ],
        );
        check("a.toml", "# A\nb = 1\n# C", &[(1, "A", true), (3, "C", true)]);
        check("a.md", "A\nb\n\nC", &[(1, "A", true), (2, "b", false), (4, "C", true)]);
        check("a.json", "// A", &[]);
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(find_word("law lawful outlaw (law) laws", "law").collect::<Vec<_>>(), [0, 19]);
    }
}
