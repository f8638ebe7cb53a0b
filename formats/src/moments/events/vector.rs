//! Logs with vector clocks, as ShiViz reads them: a regular expression with the named groups
//! `event`, `host` and `clock` is matched repeatedly. The clock is a JSON object with the number of
//! events that are known of each host.
//!
//! The expression is the first line of the file, or the user states it. Without one, lines of a
//! host and its clock are recognised whose text stands in the line before or behind.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::BufRead;
use std::sync::Arc;

use crate::Limits;
use crate::json::Cursor;
use crate::lines::each_row;
use crate::moments::clock_pattern::ClockPattern;
use crate::moments::logs::{Zone, leading_time};
use astracer_model::event::{Event, EventKind};
use astracer_model::problem::Place;
use astracer_model::sink::{Record, Sink};
use astracer_model::text::lossy;
use astracer_model::time::UnixNanos;

/// Lines that are matched at once.
const BLOCK_LINES: usize = 512;
const BLOCK_BYTES: usize = 1 << 20;

const TEXT_FIRST: &str = r"(?<event>.*)\n(?<host>.+?) (?<clock>\{.*\})";
const TEXT_LAST: &str = r"(?<host>.+?) (?<clock>\{.*\})\n(?<event>.*)";
/// The expression of a file by its first bytes: of the first line, the one that the user states, or
/// one of the usual forms; and whether it is the file's first line.
pub(super) fn pattern_of(prefix: &[u8], given: Option<&ClockPattern>) -> Option<(ClockPattern, bool)> {
    let text = String::from_utf8_lossy(prefix);
    let first = text.lines().next().unwrap_or_default();
    if first.len() < 2000 && first.contains("(?<clock>") && first.contains("(?<host>") {
        return first.parse().ok().map(|pattern| (pattern, true));
    }
    let mut whole: &str = &text;
    // The last line may be cut.
    if let Some(end) = text.rfind('\n') {
        whole = &text[..end];
    }
    if let Some(given) = given {
        return given
            .regex
            .captures(whole)
            .is_some_and(|found| clock(&found).is_some())
            .then(|| (given.clone(), false));
    }
    let is_clock = |line: &str| {
        let at = line.find(" {")?;
        let host = &line[..at];
        let parts = parse_clock(&line[at + 1..line.trim_end().len()])?;
        (!host.is_empty() && parts.iter().any(|(name, _)| name == host)).then_some(())
    };
    let mut lines = whole.lines();
    let pattern = match (lines.next().map(is_clock), lines.next().map(is_clock)) {
        (Some(Some(())), _) => TEXT_LAST,
        (Some(None), Some(Some(()))) => TEXT_FIRST,
        _ => return None,
    };
    pattern.parse().ok().map(|pattern| (pattern, false))
}

/// Reads one file of this format to its end.
pub(super) fn read(
    input: &mut dyn BufRead,
    file: &Arc<str>,
    limits: &Limits,
    pattern: Option<&ClockPattern>,
    zone: &Zone,
    sink: &mut dyn Sink,
) {
    let mut reader = Reader {
        pattern: None,
        given: pattern,
        zone,
        text: String::new(),
        lines: VecDeque::new(),
        place: Place::start_of(file),
        count: 0,
    };
    each_row(input, file, limits, sink, |record, sink| {
        reader.line(record, sink);
        Ok(())
    });
    reader.matches(true, sink);
}

struct Reader<'r> {
    pattern: Option<ClockPattern>,
    given: Option<&'r ClockPattern>,
    zone: &'r Zone,
    /// The lines that are not matched yet.
    text: String,
    /// The line number, the byte in the file and the start in `text` of each.
    lines: VecDeque<(u64, u64, usize)>,
    place: Place,
    count: u64,
}

impl Reader<'_> {
    fn line(&mut self, record: Record<'_>, sink: &mut dyn Sink) {
        self.lines.push_back((record.place.line, record.place.byte, self.text.len()));
        self.text.push_str(&lossy(record.bytes));
        self.text.push('\n');
        if self.lines.len() >= BLOCK_LINES || self.text.len() >= BLOCK_BYTES {
            self.matches(false, sink);
        }
    }

    /// Matches the lines so far. Those at the end wait for more lines.
    fn matches(&mut self, is_end: bool, sink: &mut dyn Sink) {
        if self.pattern.is_none() {
            let Some((pattern, is_line)) = pattern_of(self.text.as_bytes(), self.given) else {
                sink.left_out("text without vector clocks", &self.place);
                self.text.clear();
                self.lines.clear();
                return;
            };
            self.pattern = Some(pattern);
            if is_line {
                let end = self.text.find('\n').map_or(self.text.len(), |end| end + 1);
                self.drop_until(end);
            }
        }
        let Some(pattern) = self.pattern.clone() else { return };
        let text = std::mem::take(&mut self.text);
        let keep = if is_end { 0 } else { pattern.lines };
        let bound = match self.lines.len().checked_sub(keep) {
            _ if is_end => text.len(),
            Some(at) => self.lines.get(at).map_or(text.len(), |line| line.2),
            None => 0,
        };
        let mut from = 0;
        let mut unmatched = 0;
        for found in pattern.regex.captures_iter(&text) {
            let whole = found.get(0).map_or(0..0, |whole| whole.range());
            if whole.end > bound {
                break;
            }
            unmatched += u64::from(!text[from..whole.start].trim().is_empty());
            from = whole.end.max(from);
            self.event(&found, whole.start, sink);
        }
        let done = if is_end {
            text.len()
        } else if from == 0 {
            bound
        } else {
            from
        };
        if is_end {
            unmatched += u64::from(!text[from..].trim().is_empty());
        }
        for _ in 0..unmatched {
            sink.left_out("text that the expression does not match", &self.place);
        }
        self.text = text;
        self.drop_until(done);
    }

    fn drop_until(&mut self, end: usize) {
        self.text.drain(..end);
        // The line that a match ends in is part of what follows.
        while self.lines.len() > 1 && self.lines[1].2 <= end {
            self.lines.pop_front();
        }
        if self.text.is_empty() {
            self.lines.clear();
        }
        for line in &mut self.lines {
            line.2 = line.2.saturating_sub(end);
        }
    }

    fn event(&mut self, found: &regex::Captures<'_>, start: usize, sink: &mut dyn Sink) {
        let at = self.lines.partition_point(|line| line.2 <= start).saturating_sub(1);
        if let Some(&(line, byte, _)) = self.lines.get(at) {
            (self.place.line, self.place.byte) = (line, byte);
        }
        let host = found.name("host").map_or("", |host| host.as_str().trim());
        let Some(clock) = clock(found).filter(|_| !host.is_empty()) else {
            return sink.left_out("a vector clock that is not a JSON object of numbers", &self.place);
        };
        let named = |names: &[&str]| names.iter().find_map(|name| Some(found.name(name)?.as_str().trim()));
        let time = named(&["timestamp", "date", "time"])
            .and_then(|text| leading_time(&text.replace('/', "-"), self.zone))
            .map_or(UnixNanos(0), |(time, _)| time);
        let mut event = Event::new(EventKind::Log, time, host);
        event.process = host.into();
        event.text = named(&["event"]).unwrap_or_default().into();
        event.clock = clock.into_iter().map(|(name, count)| (Cow::Owned(name), count)).collect();
        event.sequence = self.count;
        self.count += 1;
        sink.event(event, Record { bytes: b"", place: &self.place });
    }
}

fn clock(found: &regex::Captures<'_>) -> Option<Vec<(String, u64)>> {
    parse_clock(found.name("clock")?.as_str())
}

/// A JSON object of whole numbers.
fn parse_clock(text: &str) -> Option<Vec<(String, u64)>> {
    let mut parts = Vec::new();
    let mut cursor = Cursor::new(text, 0, 4);
    cursor
        .object(|cursor, key| {
            let value = super::falcon::text(cursor)?;
            // Some writers state a host that is not known yet as 0 or null.
            parts.push((key.into_owned(), value.parse().unwrap_or(0)));
            Ok(())
        })
        .ok()?;
    (!parts.is_empty()).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use astracer_model::problem::Problem;
    use astracer_model::span::Span;

    #[derive(Default)]
    struct Seen(Vec<(String, String, String, u64)>, usize);

    impl Sink for Seen {
        fn span(&mut self, _: Span<'_>, _: Record<'_>) {}
        fn event(&mut self, event: Event<'_>, record: Record<'_>) {
            let clock: Vec<_> = event.clock.iter().map(|(name, count)| format!("{name}{count}")).collect();
            self.0.push((
                event.thread.to_string(),
                event.text.to_string(),
                clock.join(" "),
                record.place.line,
            ));
        }
        fn left_out(&mut self, _: &'static str, _: &Place) {
            self.1 += 1;
        }
        fn problem(&mut self, _: Problem) {}
        fn skipped(&mut self, _: &Arc<str>, _: &str) {}
    }

    fn seen(text: &str, pattern: Option<&str>) -> Seen {
        let mut seen = Seen::default();
        let pattern = pattern.map(|text| text.parse().expect("an expression"));
        read(
            &mut text.as_bytes(),
            &"a".into(),
            &Limits::default(),
            pattern.as_ref(),
            &Zone::default(),
            &mut seen,
        );
        seen
    }

    #[test]
    fn the_forms_of_shiviz_are_read() {
        let row = |host: &str, text: &str, clock: &str, line| {
            (host.to_owned(), text.to_owned(), clock.to_owned(), line)
        };
        let expected = [row("a", "one", "a1", 1), row("b b", "two", "a1 b b1", 3)];
        let before = "one\na {\"a\":1}\ntwo\nb b {\"a\":1, \"b b\":1}\n";
        assert_eq!(seen(before, None).0, expected);
        let behind = "a {\"a\":1}\none\nb b {\"a\":1, \"b b\":1}\ntwo\n";
        assert_eq!(seen(behind, None).0, expected);
        let first = "(?<host>.*?) (?<clock>{.*})\\n(?<event>.*)\na {\"a\":1}\none\n";
        assert_eq!(seen(first, None).0, [row("a", "one", "a1", 2)]);
        let inline = "[INFO] [x/a] {\"a\" : 1} one\nnoise\n[INFO] [x/c] {\"c\" : {}} y\n";
        let found = seen(inline, Some(r"^\[\w{4}\] \[x/(?<host>\w+)\] (?<clock>{.*}) (?<event>.*)$"));
        assert_eq!(found.0[..1], [row("a", "one", "a1", 1)]);
        assert!(pattern_of(b"2026-01-01 INFO {\"a\":1}\nx\n", None).is_none());
    }

    #[test]
    fn long_files_are_matched_in_blocks() {
        let text: String = (1..=5000).map(|at| format!("e{at}\nh {{\"h\":{at}}}\n")).collect();
        let found = seen(&text, None);
        assert_eq!((found.0.len(), found.1), (5000, 0));
        assert!((1..).zip(&found.0).all(|(at, row)| row.1 == format!("e{at}") && row.3 == 2 * at - 1));
    }
}
