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
    fn a_path_is_one_line() {
        assert_eq!(path(&["a\nb".to_owned(), String::new()]), "a\\nb > (unnamed)");
    }
}
