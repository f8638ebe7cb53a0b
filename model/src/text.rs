//! Text from recordings: of bytes, and safe to show.
//!
//! Names, attribute values, file names inside archives and responses of servers come from untrusted
//! sources. Printed unchanged, they can move a terminal's cursor, set its title, or reorder or
//! forge a line. [`escaped`] replaces such characters by escapes: `\n`, `\u{1b}`, `\u{202e}`.

use std::borrow::Cow;

/// The text of bytes in UTF-8, with U+FFFD for what is not.
///
/// Valid text is borrowed after one quick pass. [`String::from_utf8_lossy`] alone takes 20
/// instructions a byte for it.
pub fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

/// Returns the text with every character for which [`is_shown`] is false replaced by an escape, as
/// in a Rust string literal. The result is one line.
///
/// Backslashes are not escaped: the result is for people, not for a parser.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_shown) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        if is_shown(char) {
            shown.push(char);
        } else {
            shown.extend(char.escape_default());
        }
    }
    Cow::Owned(shown)
}

/// Returns a URL with its user info and the values of its query, which may be secrets, replaced by
/// `***`. In a malformed URL, user info is everything before the last `@`, except a scheme.
pub fn without_secrets(url: &str) -> Cow<'_, str> {
    let url = match url.rfind('@') {
        None => Cow::Borrowed(url),
        Some(end) => {
            let begin = url[..end].find("://").map_or(0, |scheme| scheme + 3);
            Cow::Owned(format!("{}***{}", &url[..begin], &url[end..]))
        }
    };
    let Some((path, query)) = url.split_once('?') else { return url };
    let masked = query.split('&').map(|part| match part.split_once('=') {
        Some((name, _)) => format!("{name}=***"),
        // A token alone is a value without a name.
        None if part.is_empty() => String::new(),
        None => "***".to_owned(),
    });
    Cow::Owned(format!("{path}?{}", masked.collect::<Vec<_>>().join("&")))
}

/// Returns true if a character can be shown as itself. False for characters that control a terminal
/// (C0, DEL and C1, which include line ends and escape sequences), that reorder the text around
/// them (bidirectional overrides and isolates), or that have no width, so that two different texts
/// could look alike.
///
/// These are the general categories Cc, Zl and Zp of Unicode 16, Cf without the Arabic and Kaithi
/// signs that have a shape, and the other characters with the property `DefaultIgnorableCodePoint`.
pub fn is_shown(char: char) -> bool {
    // Fast path: nearly every character of a recording.
    if matches!(char, ' '..='~') {
        return true;
    }
    !matches!(
        char,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
            | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_info_is_not_shown() {
        for (url, expected) in [
            ("http://host:4318/v1/traces", "http://host:4318/v1/traces"),
            ("https://me:secret@host/a?b", "https://***@host/a?***"),
            ("https://host/a?token=s3cret&b=&c", "https://host/a?token=***&b=***&***"),
            ("otlp://me:sec/r@et@host", "otlp://***@host"),
            ("me:secret@host", "***@host"),
            ("otlp+http://user:s3cret@..", "otlp+http://***@.."),
            ("@://", "***@://"),
        ] {
            assert_eq!(without_secrets(url), expected);
        }
    }

    #[test]
    fn text_that_is_safe_is_not_copied() {
        for text in ["", "GET /orders/{id}", "Größe", "名前 ", "a\\n", "\u{2026}", "\u{645}"] {
            assert!(matches!(escaped(text), Cow::Borrowed(same) if same == text), "{text:?}");
        }
    }

    #[test]
    fn characters_that_act_on_a_terminal_are_escaped() {
        for (text, expected) in [
            ("a\nb\rc\td", "a\\nb\\rc\\td"),
            ("\0", "\\u{0}"),
            // ECMA-48: a colour in its 7-bit and 8-bit forms, and the window's title.
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("\u{9b}31mred", "\\u{9b}31mred"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("\u{7f}", "\\u{7f}"),
            // UAX 9: an override and an isolate.
            ("user\u{202e}nimda", "user\\u{202e}nimda"),
            ("\u{2066}x\u{2069}", "\\u{2066}x\\u{2069}"),
            ("a\u{200b}b\u{feff}", "a\\u{200b}b\\u{feff}"),
            ("a\u{2028}b", "a\\u{2028}b"),
            ("\u{e0041}", "\\u{e0041}"),
        ] {
            assert_eq!(escaped(text), expected);
        }
    }

    #[test]
    fn every_control_character_is_escaped() {
        for char in (0..=0x10_ffff).filter_map(char::from_u32).filter(|char| char.is_control()) {
            assert!(!is_shown(char), "{char:?}");
        }
    }
}
