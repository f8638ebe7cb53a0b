//! The words of a program's text.

use std::ops::Range;

use crate::fault::Source;

/// The kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Letters, digits and `_`, not beginning with a digit.
    Word,
    /// Digits, with a unit or an exponent perhaps.
    Number,
    /// Text in quotes, without them.
    Text(String),
    /// A sign.
    Mark(&'static str),
    /// The end of the program.
    End,
}

/// A token and its place.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Range<usize>,
}

/// Signs, the longer ones first.
const MARKS: [&str; 22] = [
    "->", "<=", ">=", "!=", "<>", "==", "=", "<", ">", "+", "-", "*", "/", "(", ")", ",", ".", ":", "@", "$",
    "[", "]",
];

/// Splits a program into tokens. Comments begin with `#` or `//` and end with the line.
pub(crate) fn tokens(source: &mut Source<'_>) -> Vec<Token> {
    let text = source.text;
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        if first == '#' || rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        let (kind, length) = if first.is_ascii_digit() {
            (Kind::Number, number(rest))
        } else if is_letter(first) {
            (Kind::Word, rest.find(|next| !is_letter(next)).unwrap_or(rest.len()))
        } else if first == '"' || first == '\'' {
            let (content, length, closed) = quoted(rest, first);
            if !closed {
                let message = format!("this text has no closing {first}");
                source.fault(at..at + length, message, Some(format!("end it with {first} in the same line")));
            }
            (Kind::Text(content), length)
        } else if let Some(mark) = MARKS.into_iter().find(|mark| rest.starts_with(mark)) {
            (Kind::Mark(mark), mark.len())
        } else {
            // A run of such characters is one fault.
            let known = |next: char| {
                next.is_whitespace()
                    || is_letter(next)
                    || "\"'#".contains(next)
                    || MARKS.iter().any(|mark| mark.starts_with(next))
            };
            let length = rest.find(known).unwrap_or(rest.len());
            let help = match first {
                '&' => "write And",
                '|' => "write Or",
                '!' => "write Not, or != between two values",
                '~' => "write Contains \"text\" or StartsWith \"text\"; the name behind In may have *",
                ';' => "remove it: a query ends with its text",
                '\u{201c}' | '\u{201d}' | '\u{2018}' | '\u{2019}' => "write straight quotes: \"text\"",
                '`' => "write double quotes: e.\"odd name\"",
                '%' => "write * for any text behind In, and StartsWith in a condition",
                _ => "put names with other characters in quotes, such as \"a b\"",
            };
            let help = help.to_owned();
            source.fault(at..at + length, format!("`{first}` has no meaning here"), Some(help));
            at += length.max(1);
            continue;
        };
        tokens.push(Token { kind, span: at..at + length });
        at += length;
    }
    tokens.push(Token { kind: Kind::End, span: text.len()..text.len() });
    tokens
}

fn is_letter(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The length of a number: digits, letters (of a unit), fractions and signed exponents.
fn number(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        let fraction = next == '.' && digit(at + 1);
        let sign = (next == '-' || next == '+')
            && at > 1
            && matches!(bytes[at - 1], b'e' | b'E')
            && (digit(at - 2) || bytes[at - 2] == b'.')
            && digit(at + 1);
        if !is_letter(next) && !fraction && !sign {
            break;
        }
        at += next.len_utf8();
    }
    at
}

/// The text between quotes, the bytes it takes with them, and whether the second one is there.
fn quoted(text: &str, quote: char) -> (String, usize, bool) {
    let mut content = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '\n' | '\r' => return (content, at, false),
            '\\' => match characters.next() {
                Some((_, 'n')) => content.push('\n'),
                Some((_, 't')) => content.push('\t'),
                Some((_, escaped)) if escaped == '\\' || escaped == quote => content.push(escaped),
                // Otherwise a backslash stands for itself, as in paths.
                Some((_, other)) => content.extend(['\\', other]),
                None => content.push('\\'),
            },
            end if end == quote => return (content, at + end.len_utf8(), true),
            other => content.push(other),
        }
    }
    (content, text.len(), false)
}
