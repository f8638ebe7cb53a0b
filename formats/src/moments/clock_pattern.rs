//! The regular expression of a log with vector clocks.

use regex::Regex;

/// Lines that one match may span; further ones if the expression names more line ends.
const LINES_MAX: usize = 16;
const FIELDS: [&str; 3] = ["event", "host", "clock"];

/// The expression of a log with vector clocks.
#[derive(Clone, Debug)]
pub struct ClockPattern {
    pub(crate) regex: Regex,
    /// Lines that a match may span.
    pub(crate) lines: usize,
}

impl PartialEq for ClockPattern {
    fn eq(&self, other: &Self) -> bool {
        self.regex.as_str() == other.regex.as_str()
    }
}

impl Eq for ClockPattern {}

impl std::str::FromStr for ClockPattern {
    type Err = String;

    /// Reads an expression as JavaScript writes it: braces that count nothing stand for themselves.
    fn from_str(text: &str) -> Result<Self, String> {
        let regex = Regex::new(&format!("(?m){}", braces_escaped(text))).map_err(|error| {
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!(
                "invalid expression '{text}': {reason}; look-around and back references are not supported"
            )
        })?;
        let has = |name: &&str| regex.capture_names().flatten().any(|own| own == *name);
        if let Some(missing) = FIELDS.iter().find(|name| !has(name)) {
            return Err(format!("the expression '{text}' lacks the group (?<{missing}>...)"));
        }
        let lines = 1 + text.matches("\\n").count() + text.matches('\n').count();
        Ok(Self { regex, lines: lines.max(LINES_MAX) })
    }
}

/// Escapes each `{` that begins no count.
fn braces_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    let mut is_escaped = false;
    while let Some(next) = rest.chars().next() {
        rest = &rest[next.len_utf8()..];
        if next == '{' && !is_escaped {
            let inside = rest.split('}').next().unwrap_or_default();
            let is_count = inside.starts_with(|first: char| first.is_ascii_digit())
                && inside.chars().all(|next| next.is_ascii_digit() || next == ',');
            let is_name = ["p", "P", "x", "u"].iter().any(|class| out.ends_with(&format!("\\{class}")));
            if !is_count && !is_name {
                out.push('\\');
            }
        }
        is_escaped = next == '\\' && !is_escaped;
        out.push(next);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_those_of_javascript() {
        let pattern: ClockPattern = r"(?<host>\w{1,3}) (?<clock>{.*})\n(?<event>\p{L}+)".parse().unwrap();
        assert!(pattern.regex.is_match("ab {\"ab\":1}\nx"));
        for (wrong, reason) in [("(?<host>a)", "event"), ("(", "unclosed"), (r"(?<event>(?=a))", "look")] {
            assert!(wrong.parse::<ClockPattern>().unwrap_err().contains(reason), "{wrong}");
        }
    }
}
