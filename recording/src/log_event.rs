//! The event of a log record: the name under which records of one statement are counted, and the
//! numbers that the statement states.
//!
//! | record | its event |
//! |---|---|
//! | with a line of code | `log logger#line` as written, or `log file#line` without a logger |
//! | with OTLP's event name | `log logger name` |
//! | otherwise | `log logger message`, the message's first line with its numbers and ids as `#` |
//!
//! A number stands alone in the message (`size=4096,` or `took 1.5ms`) or is an attribute's value.
//! Digits inside words, dates, addresses and ids are no numbers.

use std::fmt::Write as _;

use astracer_model::log::LogRecord;
use astracer_model::value::{Attribute, Value};

/// The longest message in an event, in bytes. The rest does not count.
pub const MESSAGE_BYTES_MAX: usize = 200;

/// The most numbers that one message states.
const NUMBERS_MAX: usize = 16;

/// Attributes that are no measurements, although their values are numbers.
const NOT_MEASURED: &[&str] = &[
    "code.lineno",
    "code.line.number",
    "code.column",
    "code.column.number",
    "thread.id",
    "process.pid",
    "process.parent_pid",
];

/// The name of a number of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberName<'n> {
    /// The position among the message's numbers, from 1.
    Position(usize),
    /// The attribute's key.
    Key(&'n str),
}

impl NumberName<'_> {
    /// Appends the name to that of its event: `event [1]`, or `event key`.
    pub fn write(self, out: &mut String) {
        // Writing to a string does not fail.
        let _ = match self {
            Self::Position(position) => write!(out, " [{position}]"),
            Self::Key(key) => write!(out, " {key}"),
        };
    }
}

/// True if this is the name of a number that the message does not name: `event [1]`.
pub fn is_position(name: &str) -> bool {
    let number = name.strip_suffix(']').and_then(|name| name.rsplit_once(" ["));
    number.is_some_and(|(_, digits)| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Appends the name of a record's event to `name`, without the service, and calls `number` with
/// each number that the record states. Returns the place in `name` of the folded message, if that
/// names the event.
pub fn event(
    log: &LogRecord<'_>,
    name: &mut String,
    mut number: impl FnMut(NumberName<'_>, f64),
) -> Option<usize> {
    name.push_str("log ");
    let has_place = log.code.line > 0;
    let logger = match &*log.logger {
        "" if has_place => &log.code.file,
        logger => logger,
    };
    name.push_str(logger);
    let mut folded = String::new();
    let mut position = 0;
    fold(message(log), &mut folded, |value| {
        position += 1;
        if position <= NUMBERS_MAX {
            number(NumberName::Position(position), value);
        }
    });
    let mut message_at = None;
    if has_place {
        let _ = write!(name, "#{}", log.code.line);
    } else {
        if !logger.is_empty() {
            name.push(' ');
        }
        if log.event_name.is_empty() {
            message_at = Some(name.len());
            name.push_str(&folded);
        } else {
            name.push_str(&log.event_name);
        }
    }
    let members = if let Value::Map(members) = &log.body { &members[..] } else { &[] };
    for Attribute { key, value } in members.iter().chain(&log.attributes) {
        let value = match value {
            Value::Int(value) => *value as f64,
            Value::Double(value) if value.is_finite() => *value,
            _ => continue,
        };
        if !NOT_MEASURED.contains(&&**key) {
            number(NumberName::Key(key), value);
        }
    }
    message_at
}

/// The first line of a record's message.
pub fn message<'l>(log: &'l LogRecord<'_>) -> &'l str {
    let text = match &log.body {
        Value::Map(members) => {
            let told = members.iter().find(|member| matches!(&*member.key, "message" | "msg"));
            told.and_then(|member| member.value.as_str()).unwrap_or("")
        }
        body => body.as_str().unwrap_or(""),
    };
    let line = text.trim().lines().next().unwrap_or("").trim_end();
    let end = (0..=MESSAGE_BYTES_MAX.min(line.len())).rev().find(|&end| line.is_char_boundary(end));
    &line[..end.unwrap_or(0)]
}

/// A text with `#` for its numbers and ids.
pub fn folded(text: &str) -> String {
    let mut out = String::new();
    fold(text, &mut out, |_| {});
    out
}

/// Appends a text with `#` for its numbers and ids, and calls `number` with each number that stands
/// alone.
fn fold(text: &str, out: &mut String, mut number: impl FnMut(f64)) {
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if !first.is_alphanumeric() {
            out.push(first);
            at += first.len_utf8();
            continue;
        }
        let end = run_end(text, at);
        let run = &text[at..end];
        if !run.bytes().any(|byte| byte.is_ascii_digit()) {
            out.push_str(run);
            at = end;
        } else if is_uuid(&text.as_bytes()[at..]) {
            out.push('#');
            at += UUID_BYTES;
        } else if is_hex_id(run) {
            out.push('#');
            at = end;
        } else if let Some((value, unit, end)) = measured(text, at) {
            if text[..at].ends_with('-') {
                out.pop();
            }
            out.push('#');
            out.push_str(unit);
            number(value);
            at = end;
        } else {
            fold_digits(run, out);
            at = end;
        }
    }
}

fn run_end(text: &str, start: usize) -> usize {
    let rest = &text[start..];
    start + rest.find(|next: char| !next.is_alphanumeric()).unwrap_or(rest.len())
}

fn fold_digits(run: &str, out: &mut String) {
    let mut in_digits = false;
    for next in run.chars() {
        match (next.is_ascii_digit(), in_digits) {
            (true, false) => out.push('#'),
            (true, true) => {}
            (false, _) => out.push(next),
        }
        in_digits = next.is_ascii_digit();
    }
}

const UUID_BYTES: usize = 36;

/// 8-4-4-4-12 hexadecimal digits, with no letter or digit behind them.
fn is_uuid(bytes: &[u8]) -> bool {
    let has_form = bytes.get(..UUID_BYTES).is_some_and(|bytes| {
        bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    });
    has_form && bytes.get(UUID_BYTES).is_none_or(|next| next.is_ascii() && !next.is_ascii_alphanumeric())
}

fn is_hex_id(run: &str) -> bool {
    let hex = run.strip_prefix("0x").unwrap_or(run);
    let has_letter = hex.len() < run.len() || hex.bytes().any(|byte| byte.is_ascii_alphabetic());
    has_letter
        && (hex.len() >= 8 || hex.len() < run.len())
        && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The number at `at` that stands alone, its unit, and the end of both.
fn measured(text: &str, at: usize) -> Option<(f64, &str, usize)> {
    let digits = |from: usize| {
        let rest = &text[from..];
        from + rest.find(|next: char| !next.is_ascii_digit()).unwrap_or(rest.len())
    };
    let whole = digits(at);
    if whole == at {
        return None;
    }
    let mut end = whole;
    if text[end..].starts_with('.') && digits(end + 1) > end + 1 {
        end = digits(end + 1);
    }
    let (unit, unit_end) = (&text[end..run_end(text, end)], run_end(text, end));
    if unit.chars().count() > 3 || unit.chars().any(|next| !next.is_alphabetic()) {
        return None;
    }
    let mut before = text[..at].chars().rev();
    let mut last = before.next();
    let negative = last == Some('-');
    if negative {
        last = before.next();
    }
    let is_apart = match last {
        None => true,
        Some(':') => !before.next().is_some_and(|next| next.is_ascii_digit()),
        Some(last) => last.is_whitespace() || "=([{,;\"'<>|$~".contains(last),
    };
    let mut after = text[unit_end..].chars();
    let ends = match after.next() {
        None => true,
        Some('.' | ':' | '!' | '?') => !after.next().is_some_and(char::is_alphanumeric),
        Some(next) => next.is_whitespace() || ",;)]}\"'%<>|".contains(next),
    };
    if !is_apart || !ends {
        return None;
    }
    let value: f64 = text[at..end].parse().ok().filter(|value: &f64| value.is_finite())?;
    Some((if negative { -value } else { value }, unit, unit_end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use astracer_model::log::Code;

    #[test]
    fn numbers_without_a_name_are_told_from_others() {
        assert!(is_position("shop log Cart#4 [12]"));
        for other in ["shop log Cart#4", "shop log Cart#4 size", "a [b]", "a []", "a[1]", "[1"] {
            assert!(!is_position(other), "{other}");
        }
    }

    fn folded_with_numbers(text: &str) -> (String, Vec<f64>) {
        let (mut out, mut numbers) = (String::new(), Vec::new());
        fold(text, &mut out, |value| numbers.push(value));
        (out, numbers)
    }

    #[test]
    fn numbers_that_stand_alone_are_values_and_every_digit_is_folded() {
        for (text, name, numbers) in [
            ("took 1.5ms, 3 rows", "took #ms, # rows", &[1.5, 3.0][..]),
            ("size=4096, free=-12%", "size=#, free=#%", &[4096.0, -12.0]),
            (
                "Received block blk_1073741825 of size 67108864 from /10.250.19.102",
                "Received block blk_# of size # from /#.#.#.#",
                &[67108864.0],
            ),
            ("at 2026-11-21 01:05:00,123", "at #-#-# #:#:#,#", &[123.0]),
            ("id f3d4d4ef-693b-4456-8eed-59c0d717dd08 done", "id # done", &[]),
            ("trace 8609fbd1b13573b2, at 0x7f", "trace #, at #", &[]),
            ("v1.2.3 on dn1:50010", "v#.#.# on dn#:#", &[]),
            ("time：175 s", "time：# s", &[]),
            ("retry: 3. status:200", "retry: #. status:#", &[3.0, 200.0]),
            ("(5)", "(#)", &[5.0]),
            ("", "", &[]),
        ] {
            assert_eq!(folded_with_numbers(text), (name.to_owned(), numbers.to_vec()), "{text}");
        }
    }

    fn event_of(log: &LogRecord<'_>) -> (String, Vec<String>) {
        let (mut name, mut numbers) = (String::new(), Vec::new());
        event(log, &mut name, |number, value| {
            let mut text = String::new();
            number.write(&mut text);
            numbers.push(format!("{text}={value}"));
        });
        (name, numbers)
    }

    #[test]
    fn a_place_names_the_event_and_else_the_message_does() {
        let body = Value::String("got 5 of 7 seats\nat x".into());
        let seat = LogRecord { logger: "s.SeatImpl".into(), body, ..LogRecord::default() };
        assert_eq!(event_of(&seat).0, "log s.SeatImpl got # of # seats");
        let placed = LogRecord { code: Code { line: 12, ..Code::default() }, ..seat.clone() };
        assert_eq!(event_of(&placed), ("log s.SeatImpl#12".into(), vec![" [1]=5".into(), " [2]=7".into()]));
        let named = LogRecord { event_name: "seat.got".into(), ..seat.clone() };
        assert_eq!(event_of(&named).0, "log s.SeatImpl seat.got");
        let bare = LogRecord { logger: "".into(), ..seat };
        assert_eq!(event_of(&bare).0, "log got # of # seats");
    }

    #[test]
    fn attributes_are_numbers_by_their_keys() {
        let attributes =
            [("rows", Value::Int(3)), ("ratio", Value::Double(f64::NAN)), ("thread.id", Value::Int(9))];
        let attributes =
            attributes.into_iter().map(|(key, value)| Attribute { key: key.into(), value }).collect();
        let log =
            LogRecord { attributes, body: Value::String("x".repeat(500).into()), ..LogRecord::default() };
        assert_eq!(event_of(&log), (format!("log {}", "x".repeat(200)), vec![" rows=3".into()]));
    }
}
