//! Names from recordings, which can be any text.

use std::borrow::Cow;

use astracer_model::text::escaped;

/// The name, or "(unnamed)" if it is empty.
pub fn named(name: &str) -> &str {
    if name.is_empty() { "(unnamed)" } else { name }
}

/// The name as one line. Characters that control a terminal, reorder text or are invisible are
/// escaped.
pub fn line(name: &str) -> Cow<'_, str> {
    escaped(named(name))
}

/// Longer names are shortened on pages.
const LETTERS_MAX: usize = 160;

/// As [`line()`], with at most 160 letters, so that a name of megabytes does not fill a page.
pub fn short(name: &str) -> String {
    shortened(&line(name), LETTERS_MAX)
}

/// A text of at most this many letters, without its middle if it is longer.
pub fn shortened(text: &str, most: usize) -> String {
    // Each letter has at least a byte.
    if text.len() <= most || text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    let kept = most.saturating_sub(1);
    let end = |letters: usize| text.char_indices().nth(letters).map_or(text.len(), |(at, _)| at);
    let tail = text.char_indices().rev().take(kept / 2).last().map_or(text.len(), |(at, _)| at);
    format!("{}…{}", &text[..end(kept.div_ceil(2))], &text[tail..])
}

/// The names of a call path, separated by `>`.
pub fn path(names: &[String]) -> String {
    names.iter().map(|name| line(name)).collect::<Vec<_>>().join(" > ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_empty_can_be_seen() {
        assert_eq!(["", " ", "GET /"].map(named), ["(unnamed)", " ", "GET /"]);
    }

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(shortened("abcdefgh", 8), "abcdefgh");
        assert_eq!(shortened("abcdefgh", 5), "ab…gh");
        assert_eq!(shortened("äbcdefgü", 4), "äb…ü");
        assert_eq!(shortened("abc", 0), "…");
        assert_eq!(short(&"x".repeat(5_000)).chars().count(), LETTERS_MAX);
    }

    #[test]
    fn a_path_is_one_line() {
        assert_eq!(path(&["a\nb".to_owned(), String::new()]), "a\\nb > (unnamed)");
    }
}
