//! The text of `tracing_subscriber`: its full, its compact and its pretty form.
//!
//! A record is `time LEVEL thread ThreadId(1) span{field=1}:inner: target: file.rs:12: message`,
//! where everything between level and message can be missing. Fields stay in the message; ids among
//! the fields of spans or of the record are taken.
//!
//! A record of the pretty form has several lines, and the first begins with two blanks. Lines that
//! begin with `at`, `on` and `in` state the place in the code, the thread and the spans, the
//! innermost first:
//!
//! ```text
//!   2022-02-15T18:44:24.535403Z  INFO fmt_pretty::yak_shave: shaving yaks, number_of_yaks: 3
//!     at examples/examples/fmt/yak_shave.rs:41 on main
//!     in fmt_pretty::yak_shave::shaving_yaks with yaks: 3
//! ```

use std::borrow::Cow;

use super::ids::{is_span_id, is_trace_id};
use super::stamp::{self, Form};
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::log::{LogRecord, Severity};
use astracer_model::value::Value;

/// True if a line begins a record: a time in UTC with a fraction, or the seconds since the program
/// started, and a level.
pub(super) fn is_head(line: &str) -> bool {
    // A thread in brackets and a process's number are of log4j's layouts.
    head(line).is_some_and(|(_, rest)| {
        !rest.trim_start().starts_with(|next: char| next == '[' || next.is_ascii_digit())
    })
}

/// The level and the text behind it.
fn head(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start_matches(' ');
    let stamp = stamp::at(line.as_bytes())?;
    let text = &line[..stamp.len];
    let is_utc =
        stamp.form == Form::YearFirst && text.contains('T') && text.contains('.') && text.ends_with('Z');
    let is_uptime = stamp.form == Form::Uptime && text.ends_with('s');
    if !is_utc && !is_uptime {
        return None;
    }
    let rest = line[stamp.len..].strip_prefix(' ')?.trim_start_matches(' ');
    let (level, rest) = rest.split_once(' ')?;
    matches!(level, "TRACE" | "DEBUG" | "INFO" | "WARN" | "ERROR").then_some((level, rest))
}

/// The record of a text without colours, whose first line begins it. `None` if it does not. The
/// record's time is not set.
pub(super) fn read(text: &str) -> Option<LogRecord<'_>> {
    let (level, rest) = head(text)?;
    let mut log = LogRecord {
        severity: Severity::from_word(level).unwrap_or_default(),
        severity_text: Cow::Borrowed(level),
        ..LogRecord::default()
    };
    if text.starts_with("  ") {
        pretty(&mut log, rest);
        return Some(log);
    }
    take_ids(&mut log, rest, "=");
    let mut rest = thread(&mut log, rest.trim_start_matches(' '));
    // The spans, and then the target: each ends with a colon and a blank.
    let mut found: Vec<(&str, bool)> = Vec::new();
    while found.len() < 2
        && let Some((part, is_span, behind)) = path(rest)
    {
        // A word of the message can look like a target, unless a span precedes it.
        if let Some((first, was_span)) = found.last()
            && (!was_span && (first.contains("::") || !part.contains("::")))
        {
            break;
        }
        found.push((part, is_span));
        rest = behind;
    }
    if let Some(&(target, false)) = found.last() {
        log.logger = Cow::Borrowed(target);
    }
    if let Some((file, line, behind)) = place(rest) {
        (log.code.file, log.code.line, rest) = (Cow::Borrowed(file), line, behind);
    }
    log.body = Value::String(Cow::Borrowed(rest.trim_end()));
    Some(log)
}

/// Reads the text behind the level of a record in the pretty form.
fn pretty<'t>(log: &mut LogRecord<'t>, text: &'t str) {
    let mut body = text.trim_end();
    let mut spans = Vec::new();
    let mut details = None;
    // From the end, because a message may have lines of its own.
    while details.is_none()
        && let Some((before, line)) = body.rsplit_once('\n')
        && let Some(line) = line.trim_end().strip_prefix("    ")
    {
        match line.split_once(' ') {
            Some(("in", span)) => spans.push(span),
            Some(("at" | "on", _)) => details = Some(line),
            _ => break,
        }
        body = before.trim_end();
    }
    if let Some(place) = details.and_then(|details| details.strip_prefix("at ")) {
        let place = place.split(" on ").next().unwrap_or(place);
        (log.code.file, log.code.line) = match place.rsplit_once(':').map(|(file, line)| (file, line.parse()))
        {
            Some((file, Ok(line))) => (Cow::Borrowed(file), line),
            _ => (Cow::Borrowed(place), 0),
        };
    }
    let thread = details.and_then(|details| match details.strip_prefix("on ") {
        None => details.split_once(" on ").map(|(_, thread)| thread),
        thread => thread,
    });
    if let Some(thread) = thread {
        let name = thread.split("ThreadId(").next().unwrap_or(thread).trim_end();
        log.thread = Cow::Borrowed(if name.is_empty() { thread } else { name });
    }
    // Read from the end, the outermost is the first; ids of inner spans replace its own.
    spans.iter().for_each(|span| take_ids(log, span, ": "));
    if let Some((target, message)) = body.split_once(": ")
        && !target.contains(char::is_whitespace)
    {
        let place = target.rsplit_once(':').and_then(|(target, line)| Some((target, line.parse().ok()?)));
        let (target, line) = place.unwrap_or((target, log.code.line));
        (log.logger, log.code.line, body) = (Cow::Borrowed(target), line, message);
    }
    take_ids(log, body, ": ");
    log.body = Value::String(Cow::Borrowed(body.trim()));
}

/// Takes a thread's name and id off the text.
fn thread<'t>(log: &mut LogRecord<'t>, text: &'t str) -> &'t str {
    let Some(start) = text.find("ThreadId(") else { return text };
    let Some(end) = text[start..].find(") ").map(|end| start + end + 1) else { return text };
    let name = text[..start].trim_end();
    // A message may mention a thread, behind a target.
    if name.contains([':', '{']) {
        return text;
    }
    log.thread = Cow::Borrowed(if name.is_empty() { &text[start..end] } else { name });
    text[end..].trim_start_matches(' ')
}

/// The names up to a colon and a blank, true if one of them has fields or several stand there, and
/// the text behind them.
fn path(text: &str) -> Option<(&str, bool, &str)> {
    let bytes = text.as_bytes();
    let (mut at, mut is_span) = (0, false);
    loop {
        match bytes.get(at)? {
            b'{' => {
                at = fields_end(text, at)?;
                is_span = true;
                if bytes.get(at) != Some(&b':') {
                    return None;
                }
            }
            b':' if at == 0 => return None,
            b':' => match bytes.get(at + 1)? {
                b' ' => return Some((&text[..at], is_span, &text[at + 2..])),
                b':' => at += 2,
                _ => {
                    is_span = true;
                    at += 1;
                }
            },
            byte if byte.is_ascii_alphanumeric() || b"_-./".contains(byte) => at += 1,
            _ => return None,
        }
    }
}

/// The end of the fields in braces at `at`. Braces in quotes don't count.
fn fields_end(text: &str, at: usize) -> Option<usize> {
    let line = text.split('\n').next()?;
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for (index, byte) in line.bytes().enumerate().skip(at) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' if !quoted => depth += 1,
            b'}' if !quoted => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(index + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// `src/main.rs:12: ` at the start of a text.
fn place(text: &str) -> Option<(&str, u32, &str)> {
    let (place, rest) = text.split_once(": ")?;
    let (file, line) = place.rsplit_once(':')?;
    let is_file = file.ends_with(".rs") && !file.contains(' ');
    line.parse().ok().filter(|_| is_file).map(|line| (file, line, rest))
}

/// Takes the ids among the fields of a record's first line, whose keys end with a separator; those
/// of the innermost span count.
fn take_ids(log: &mut LogRecord<'_>, text: &str, separator: &str) {
    let line = text.lines().next().unwrap_or("");
    for at in memchr::memmem::find_iter(line.as_bytes(), separator) {
        let is_apart = |next: char| !next.is_alphanumeric() && !"_.".contains(next);
        let key = line[..at].rsplit(is_apart).next().unwrap_or("");
        let value = line[at + separator.len()..].trim_start_matches('"');
        let value = &value[..value.bytes().take_while(u8::is_ascii_hexdigit).count()];
        if is_trace_id(key) {
            log.trace_id = TraceId::from_hex(value).unwrap_or(log.trace_id);
        } else if is_span_id(key) {
            log.span_id = SpanId::from_hex(value).unwrap_or(log.span_id);
        }
    }
}

/// Removes ANSI's sequences for colours.
pub(super) fn without_colours(text: &str) -> Cow<'_, str> {
    if memchr::memchr(0x1b, text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut parts = text.split('\u{1b}');
    plain.push_str(parts.next().unwrap_or(""));
    for part in parts {
        let end = part.strip_prefix('[').and_then(|codes| {
            let end = codes.find(|next: char| !next.is_ascii_digit() && next != ';')?;
            codes[end..].starts_with(|last: char| last.is_ascii_alphabetic()).then_some(end + 2)
        });
        plain.push_str(end.map_or(part, |end| &part[end..]));
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_the_subscriber_are_read() {
        for (line, logger, body) in [
            (
                "2022-02-15T18:40:14.289898Z  INFO fmt: preparing to shave yaks number_of_yaks=3",
                "fmt",
                "preparing to shave yaks number_of_yaks=3",
            ),
            (
                "2022-02-15T18:40:14.289974Z  INFO shaving_yaks{yaks=3}: fmt::yak_shave: shaving yaks",
                "fmt::yak_shave",
                "shaving yaks",
            ),
            (
                "2022-02-15T18:40:14.290011Z TRACE shaving_yaks{yaks=3}:shave{yak=1 name=\"a } b\"}: fmt::yak_shave: hello! excitement: x",
                "fmt::yak_shave",
                "hello! excitement: x",
            ),
            (
                "2022-02-15T18:40:14.290011Z TRACE shaving_yaks:shave: fmt::yak_shave: hello! yaks=3 yak=1",
                "fmt::yak_shave",
                "hello! yaks=3 yak=1",
            ),
            ("2022-02-15T18:40:14.290011Z ERROR hello there", "", "hello there"),
            ("2022-02-15T18:40:14.290011Z  WARN a::b: c: d", "a::b", "c: d"),
        ] {
            let log = read(line).expect("a record");
            assert_eq!((&*log.logger, log.text()), (logger, body), "{line}");
        }
        let full = "2022-02-15T18:40:14.290011Z  WARN tokio-runtime-worker ThreadId(02) buy{trace_id=0a span_id=\"0b\"}: shop: src/a.rs:12: late\n  more";
        let log = read(full).expect("a record");
        assert_eq!((&*log.thread, &*log.code.file, log.code.line), ("tokio-runtime-worker", "src/a.rs", 12));
        assert_eq!((log.trace_id, log.span_id, log.text()), (TraceId(10), SpanId(11), "late\n  more"));
        for other in [
            "",
            "INFO x: y",
            "2022-02-15 18:40:14.290011 INFO x: y",
            "2022-02-15T18:40:14.290011Z [main] INFO x",
        ] {
            assert!(!is_head(other), "{other}");
        }
    }

    /// The records of the subscriber's documentation of `Pretty`, and its further settings.
    #[test]
    fn the_pretty_form_is_read() {
        let text = "  2022-02-15T18:44:24.535403Z  INFO fmt_pretty::yak_shave: shaving yaks, number_of_yaks: 3\n    at examples/examples/fmt/yak_shave.rs:41 on main\n    in fmt_pretty::yak_shave::shave with trace_id: \"0c\", yak: 1\n    in fmt_pretty::yak_shave::shaving_yaks with trace_id: 0a, span_id: 0b\n\n";
        let log = read(text).expect("a record");
        assert_eq!((&*log.logger, log.text()), ("fmt_pretty::yak_shave", "shaving yaks, number_of_yaks: 3"));
        assert_eq!((&*log.code.file, log.code.line), ("examples/examples/fmt/yak_shave.rs", 41));
        assert_eq!((&*log.thread, log.severity), ("main", Severity::INFO));
        assert_eq!((log.trace_id, log.span_id), (TraceId(0xc), SpanId(0xb)));
        for (text, logger, body, file, line, thread) in [
            (
                "  2022-02-15T18:44:24.535324Z ERROR a:12: late, n: 1\n    on ThreadId(7)\n",
                "a",
                "late, n: 1",
                "",
                12,
                "ThreadId(7)",
            ),
            (
                "  2022-02-15T18:44:24.535324Z ERROR a: x\n    at y\n  z\n    at b.rs:3 on w 1 ThreadId(7)\n",
                "a",
                "x\n    at y\n  z",
                "b.rs",
                3,
                "w 1",
            ),
            (
                "  2022-02-15T18:44:24.535324Z  WARN  no target: here\n    in\n    at",
                "",
                "no target: here\n    in\n    at",
                "",
                0,
                "",
            ),
            ("  2022-02-15T18:44:24.535324Z  WARN ", "", "", "", 0, ""),
        ] {
            let log = read(text).expect("a record");
            assert_eq!((&*log.logger, log.text()), (logger, body), "{text}");
            assert_eq!((&*log.code.file, log.code.line, &*log.thread), (file, line, thread), "{text}");
        }
    }

    #[test]
    fn colours_are_removed() {
        let coloured = "\u{1b}[2m2022-02-15T18:40:14.289898Z\u{1b}[0m \u{1b}[32m INFO\u{1b}[0m \u{1b}[2mfmt\u{1b}[0m\u{1b}[2m:\u{1b}[0m hi \u{1b}[3mn\u{1b}[0m\u{1b}[2m=\u{1b}[0m3";
        let plain = without_colours(coloured);
        assert_eq!(plain, "2022-02-15T18:40:14.289898Z  INFO fmt: hi n=3");
        assert_eq!(read(&plain).unwrap().text(), "hi n=3");
        assert_eq!(without_colours("a\u{1b}b\u{1b}[é\u{1b}"), "ab[é");
    }
}
