//! Names of tracepoints: patterns, source lines, and definitions that give people their own words.

use std::collections::BTreeMap;
use std::fmt;

use crate::point::Edge;

/// The edges that a tracepoint in a query matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Without `@`: a span's start, or an event.
    Default,
    /// `@start`.
    Start,
    /// `@end`.
    End,
}

impl Moment {
    pub(crate) fn matches(self, edge: Edge) -> bool {
        match self {
            Moment::Default => matches!(edge, Edge::Start | Edge::Event),
            Moment::Start => edge == Edge::Start,
            Moment::End => edge == Edge::End,
        }
    }
}

/// A tracepoint as a query names it: a pattern in which `*` stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tracepoint {
    pub(crate) pattern: Box<str>,
    pub(crate) moment: Moment,
}

impl Tracepoint {
    /// Reads `name`, `name@start` or `name@end`.
    fn parse(text: &str) -> Result<Tracepoint, String> {
        let (pattern, moment) = match text.rsplit_once('@') {
            Some((pattern, word)) if word.eq_ignore_ascii_case("start") => (pattern, Moment::Start),
            Some((pattern, word)) if word.eq_ignore_ascii_case("end") => (pattern, Moment::End),
            _ => (text, Moment::Default),
        };
        if pattern.is_empty() {
            return Err(format!("'{text}' names no tracepoint: write a name, such as disk.read@end"));
        }
        Ok(Tracepoint { pattern: pattern.into(), moment })
    }

    /// Whether the pattern matches a tracepoint's name, or its source line as `file:line`.
    pub(crate) fn names(&self, name: &str, line: Option<(&str, u32)>) -> bool {
        glob(&self.pattern, name) || line.is_some_and(|(file, line)| self.is_line(file, line))
    }

    /// Whether the pattern may be a source line.
    pub(crate) fn may_be_line(&self) -> bool {
        self.pattern.rsplit_once(':').is_some_and(|(_, number)| number.parse::<u32>().is_ok())
    }

    fn is_line(&self, file: &str, line: u32) -> bool {
        let Some((path, number)) = self.pattern.rsplit_once(':') else { return false };
        let Some(before) = file.strip_suffix(path) else { return false };
        number.parse() == Ok(line) && (before.is_empty() || before.ends_with(['/', '\\']))
    }
}

impl fmt::Display for Tracepoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |character: char| character.is_ascii_alphanumeric() || "_.:*".contains(character);
        if self.pattern.chars().all(plain) {
            f.write_str(&self.pattern)?;
        } else {
            write!(f, "\"{}\"", self.pattern.replace('\\', "\\\\").replace('"', "\\\""))?;
        }
        match self.moment {
            Moment::Default => Ok(()),
            Moment::Start => f.write_str("@start"),
            Moment::End => f.write_str("@end"),
        }
    }
}

/// Whether a pattern, in which `*` stands for any text, matches the whole text.
pub fn glob(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    // Each piece between two `*` is searched once.
    let (pieces, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut text) = text.strip_prefix(first).and_then(|text| text.strip_suffix(last)) else {
        return false;
    };
    for piece in pieces.split('*') {
        let Some(at) = text.find(piece) else { return false };
        text = &text[at + piece.len()..];
    }
    true
}

/// Names that people give to tracepoints, each with its patterns.
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    names: BTreeMap<String, Vec<Tracepoint>>,
}

impl Definitions {
    /// Defines a name that queries may write in place of these patterns, such as `disk.*@end`.
    pub fn define<'a>(
        &mut self,
        name: &str,
        patterns: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), String> {
        let patterns: Vec<_> = patterns.into_iter().map(Tracepoint::parse).collect::<Result<_, _>>()?;
        if patterns.is_empty() {
            return Err(format!("'{name}' has no pattern: give it one, such as [\"disk.*\"]"));
        }
        self.names.insert(name.to_owned(), patterns);
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&[Tracepoint]> {
        self.names.get(name).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, text, expected) in [
            ("a.b", "a.b", true),
            ("a.b", "a.bc", false),
            ("*", "", true),
            ("*.FileIO", "org.x.FileIO", true),
            ("a*b*c", "a--b--c", true),
            ("a*b*c", "a--c--b", false),
            ("a*a", "a", false),
            ("*ab*ab*", "abab", true),
            ("*ab*ab*", "aab", false),
            ("Protocol#*", "Protocol#read", true),
            ("ä*", "äö", true),
        ] {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
        let stars = "*a".repeat(5000);
        assert!(!glob(&stars, &"a".repeat(4999)));
    }

    #[test]
    fn a_line_is_found_by_the_end_of_its_path() {
        let line = Tracepoint::parse("src/cart.rs:42").unwrap();
        assert!(line.names("x", Some(("shop/src/cart.rs", 42))));
        assert!(line.names("x", Some(("src/cart.rs", 42))));
        assert!(!line.names("x", Some(("shop/othersrc/cart.rs", 42))));
        assert!(!line.names("x", Some(("shop/src/cart.rs", 43))));
        assert_eq!(Tracepoint::parse("a@End").unwrap().moment, Moment::End);
        assert_eq!(&*Tracepoint::parse("user@host").unwrap().pattern, "user@host");
        assert!(Tracepoint::parse("@end").is_err());
    }
}
