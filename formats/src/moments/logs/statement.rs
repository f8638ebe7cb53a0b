//! The text of one logged line, as Nezha's services write it:
//! `18:05:28.579 INFO  t.s.TravelServiceImpl#532 TraceID: 86.. SpanID: dc.. [message]`.

use astracer_model::ids::{SpanId, TraceId};
use astracer_model::log::Severity;

/// The parts of a line. Parts that the line lacks are empty, 0 or `None`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Statement<'t> {
    pub(super) severity: Severity,
    pub(super) word: &'t str,
    pub(super) logger: &'t str,
    pub(super) line: u32,
    pub(super) trace_id: Option<TraceId>,
    pub(super) span_id: Option<SpanId>,
    pub(super) message: &'t str,
}

/// Splits a line. A line of another form is all message.
pub(super) fn split(text: &str) -> Statement<'_> {
    let text = text.trim_end();
    let whole = Statement { message: text, ..Statement::default() };
    let (time, rest) = word(text);
    if !time.starts_with(|first: char| first.is_ascii_digit()) || !time.contains(':') {
        return whole;
    }
    let (level, rest) = word(rest);
    let Some(severity) = Severity::from_word(level) else { return whole };
    let mut parts = Statement { severity, word: level, message: rest, ..whole };
    let (place, rest) = word(rest);
    let Some((logger, line)) = place.rsplit_once('#') else { return parts };
    let Ok(line) = line.parse() else { return parts };
    (parts.logger, parts.line, parts.message) = (logger, line, rest);
    if let Some((id, rest)) = labelled(parts.message, "TraceID:") {
        (parts.trace_id, parts.message) = (TraceId::from_hex(id), rest);
    }
    if let Some((id, rest)) = labelled(parts.message, "SpanID:") {
        (parts.span_id, parts.message) = (SpanId::from_hex(id), rest);
    }
    parts
}

/// The first word and the text behind it.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

fn labelled<'t>(text: &'t str, label: &str) -> Option<(&'t str, &'t str)> {
    text.strip_prefix(label).map(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_as_far_as_it_goes() {
        let parts = split("18:05:28.579 INFO  t.s.TravelServiceImpl#532 TraceID: 0a SpanID: dc [a][b: 1]\n");
        assert_eq!((parts.logger, parts.line, parts.word), ("t.s.TravelServiceImpl", 532, "INFO"));
        assert_eq!((parts.trace_id, parts.span_id), (Some(TraceId(10)), Some(SpanId(0xdc))));
        assert_eq!(parts.message, "[a][b: 1]");

        let servlet = split("18:05:28.579 ERROR o.a.c.c.C.[.[.[.[dispatcherServlet]#175 TraceID:  x");
        assert_eq!((servlet.logger, servlet.line), ("o.a.c.c.C.[.[.[.[dispatcherServlet]", 175));
        assert_eq!(split("18:05:28.579 WARN no place here").message, "no place here");
        for text in ["", "hello", "18:05", "18:05:28.579", "at x.y(Z.java:12)", "18:05:28 LOUD a#1 b"] {
            assert_eq!(split(text), Statement { message: text, ..Statement::default() }, "{text:?}");
        }
    }
}
