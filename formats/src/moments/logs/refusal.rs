//! The message about a text that is no log: its first line, and a layout to begin with.

use super::levels;
use super::options::Options;
use super::shape::plain;

/// Characters of the first line that a message shows.
const SHOWN_CHARS: usize = 80;
/// The longest separator inside a time.
const SEPARATOR_BYTES: usize = 2;

/// Says why the first bytes of a text are no log: the first line, the times that were looked for,
/// and a layout to begin with, unless the options state one for this file.
pub fn refusal(prefix: &[u8], file: &str, options: &Options) -> String {
    let lines = prefix.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let lines: Vec<_> = lines.take(super::shape::LINES_LOOKED_AT).map(plain).collect();
    let first = lines.first().map_or("", |line| line.trim());
    let shown: String = first.chars().take(SHOWN_CHARS).collect();
    let cut = if shown.len() < first.len() { "..." } else { "" };
    if options.layouts.iter().any(|given| given.is_for(Some(file))) {
        return format!(
            "no line of its first {} follows the layout stated; its first line is '{shown}{cut}'",
            super::shape::LINES_LOOKED_AT
        );
    }
    // The line of a banner says nothing about the times.
    let line = lines.iter().find(|line| line.bytes().filter(u8::is_ascii_digit).count() >= 6);
    let layout = suggested(line.map_or(first, |line| line.trim()));
    format!(
        "no log either: no time in the first 200 characters of its lines, such as 2026-05-14 09:00:00, \
         14/May/2026:09:00:00, May 14 09:00:00, 09:00:00.123 or 1778749200.123; its first line is \
         '{shown}{cut}'; a layout to begin with: '{layout}'"
    )
}

/// A layout of the line in letters of strftime, as far as the groups of its digits show.
fn suggested(line: &str) -> String {
    let Some((start, civil, len)) = time(line) else {
        return "%Y-%m-%d %H:%M:%S %p %m".to_owned();
    };
    let before = &line[..start];
    let mut layout = match before.bytes().any(|byte| byte.is_ascii_alphanumeric()) {
        true => {
            let literal = before.len() - before.trim_end_matches(|next: char| !next.is_alphanumeric()).len();
            format!("%X{{before}}{}", &before[before.len() - literal..])
        }
        false => before.to_owned(),
    };
    layout.push_str(&civil);
    let rest = &line[start + len..];
    let word = rest.trim_start_matches(|next: char| !next.is_alphanumeric());
    let word_len = word.find(|next: char| !next.is_alphanumeric()).unwrap_or(word.len());
    let separator = &rest[..rest.len() - word.len()];
    if separator.is_empty() {
        return layout + " %m";
    }
    layout.push_str(separator);
    if levels::of_word(&word[..word_len]).is_some() {
        let behind = &word[word_len..];
        let text = behind.trim_start_matches(|next: char| !next.is_alphanumeric());
        layout.push_str("%p");
        layout.push_str(match &behind[..behind.len() - text.len()] {
            "" => " ",
            separator => separator,
        });
    }
    layout + "%m"
}

/// The place of the time in a line, its form and its length.
fn time(line: &str) -> Option<(usize, String, usize)> {
    let bytes = line.as_bytes();
    let digits = |at: usize| bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let start = (0..bytes.len()).find(|&at| {
        (at == 0 || !bytes[at - 1].is_ascii_alphanumeric()) && matches!(digits(at), 2 | 4 | 8 | 12 | 14)
    })?;
    let (mut form, mut at) = (String::new(), start);
    let mut left: &[(usize, &str)] = match digits(start) {
        14 => {
            form.push_str("%Y%m%d%H%M%S");
            &[]
        }
        12 => {
            form.push_str("%Y%m%d%H%M");
            &[]
        }
        8 => {
            form.push_str("%Y%m%d");
            &[(2, "%H"), (2, "%M"), (2, "%S")]
        }
        4 => {
            form.push_str("%Y");
            &[(2, "%m"), (2, "%d"), (2, "%H"), (2, "%M"), (2, "%S")]
        }
        _ => {
            form.push_str("%d");
            &[(2, "%m"), (4, "%Y"), (2, "%H"), (2, "%M"), (2, "%S")]
        }
    };
    at += digits(start);
    while !left.is_empty() {
        let separator = bytes[at..].iter().take_while(|byte| !byte.is_ascii_digit()).count();
        let next = at + separator;
        let is_usual = bytes[at..next].iter().all(|byte| b"-/:., T_".contains(byte));
        if separator > SEPARATOR_BYTES || !is_usual || next == bytes.len() {
            break;
        }
        let count = digits(next);
        let (letters, taken) = match (count, left) {
            (3, [(2, "%m"), ..]) => ("%j", 2),
            (6, [(2, "%H"), ..]) => ("%H%M%S", 3),
            (2, [(4, _), ..]) => ("%y", 1),
            (count, [(len, letters), ..]) if count == *len => (*letters, 1),
            _ => break,
        };
        form.push_str(&line[at..next]);
        form.push_str(letters);
        (at, left) = (next + count, &left[taken..]);
    }
    if matches!(bytes.get(at), Some(b'.' | b',')) && form.ends_with("%S") && digits(at + 1) > 0 {
        form.push(char::from(bytes[at]));
        form.push_str("%f");
        at += 1 + digits(at + 1);
    }
    form.contains("%H").then_some((start, form, at - start))
}

#[cfg(test)]
mod tests {
    use super::super::Given;
    use super::*;

    #[test]
    fn a_layout_to_begin_with_follows_the_digits() {
        for (line, layout) in [
            ("2026/133 09:00:00 up", "%Y/%j %H:%M:%S %m"),
            ("[20260514090000] ERROR: up", "[%Y%m%d%H%M%S] %p: %m"),
            ("srv1 14-05-26 09-00-00,5|warn|up", "%X{before} %d-%m-%y %H-%M-%S,%f|%p|%m"),
            ("nothing", "%Y-%m-%d %H:%M:%S %p %m"),
            ("", "%Y-%m-%d %H:%M:%S %p %m"),
        ] {
            assert_eq!(suggested(line), layout, "{line}");
            assert!(layout.parse::<Given>().is_ok(), "{layout}");
        }
    }
}
