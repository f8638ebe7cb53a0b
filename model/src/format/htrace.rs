//! HTrace 3 and 4: span objects that follow each other.
//!
//! `LocalFileSpanReceiver` writes one object a line, but HTrace 4.0.1 leaves out the newline after the first 20 spans of
//! a process: lines of hundreds of megabytes exist. Objects are therefore read one behind the other, whatever stands
//! between them, through a window that holds no more than one object.
//!
//! - `a` is HTrace 4's span id. Its high 64 bits are the trace's, so they become the [`TraceId`], the low 64 bits the
//!   [`SpanId`]. A parent in another trace becomes a [`Link`].
//! - `i` and `s` are HTrace 3's trace and span ids. An `i` of zeros means that the recorder did not know the trace.
//! - `r`, the tracer (HTrace 3: the process), is the resource's `service.name`; `n` are attributes, `t` events.

use std::borrow::Cow;
use std::io::BufRead;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Deserializer, StreamDeserializer};

use super::resources::Resources;
use super::window::Window;
use crate::ids::{SpanId, TraceId};
use crate::problem::{Place, Problem, ProblemKind};
use crate::sink::{Record, Sink};
use crate::source::Limits;
use crate::span::{Event, Link, Parents, Resource, Scope, Span, SpanKind, Status};

mod record;

use record::{Id, OLD_ROOT_PARENT, SpanRecord};

/// How far back reading resumes behind a bad object, and how long a bad object may be to be stepped over as a whole.
/// Without a bound, each line of a hostile file could have the rest of the file looked at.
const LOOKED_AT_AGAIN_BYTES_MAX: usize = 4 << 10;

/// Bytes that are asked for at a time.
const STEP_BYTES: usize = 128 << 10;

/// The longest reason that is passed on; a parser quotes what it did not expect.
const REASON_CHARS_MAX: usize = 160;

/// Reads one file of this format to its end.
pub fn read(input: &mut dyn BufRead, file: &Arc<str>, limits: &Limits, sink: &mut dyn Sink) {
    let mut reader = Reader {
        window: Window::new(input, STEP_BYTES),
        place: Place::start_of(file),
        record_bytes_max: limits.record_bytes_max,
        resources: Resources::default(),
        scope: Arc::default(),
        sink,
    };
    reader.run();
}

struct Reader<'r> {
    window: Window<'r>,
    /// Where the object starts that is being read.
    place: Place,
    record_bytes_max: usize,
    resources: Resources,
    scope: Arc<Scope>,
    sink: &'r mut dyn Sink,
}

impl Reader<'_> {
    fn run(&mut self) {
        self.window.skip_byte_order_mark();
        while self.find_next() && !self.sink.stopped() {
            (self.place.byte, self.place.line) = self.window.place();
            match self.span() {
                Outcome::Read(len) => self.window.advance(len),
                Outcome::Bad { reason, at } => {
                    self.problem(ProblemKind::BadRecord, &reason);
                    self.resume(at);
                }
                Outcome::TooLong => {
                    let detail = format!("an object of more than {} bytes", self.record_bytes_max);
                    self.problem(ProblemKind::Limit, &detail);
                    // Not from its start: that would look at the same bytes again for each of its lines.
                    self.window.advance(self.record_bytes_max);
                    self.resume(0);
                }
                Outcome::Truncated => return self.problem(ProblemKind::Truncated, "inside an object"),
            }
        }
    }

    /// Steps over what stands between objects: blanks, and a list's punctuation. False at the end.
    fn find_next(&mut self) -> bool {
        loop {
            let bytes = self.window.bytes();
            let between = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b'[' | b']');
            let len = bytes.iter().position(|byte| !between(byte)).unwrap_or(bytes.len());
            let found = len < bytes.len();
            self.window.advance(len);
            if found || !self.window.more() {
                return found;
            }
        }
    }

    /// Reads the object at the window's start, and hands it to the sink.
    fn span(&mut self) -> Outcome {
        loop {
            let bytes = self.window.bytes();
            let bytes = &bytes[..bytes.len().min(self.record_bytes_max)];
            let mut values = values::<SpanRecord<'_>>(bytes);
            let error = match values.next() {
                Some(Ok(record)) => {
                    let len = values.byte_offset();
                    return match span(record, &mut self.resources, &self.scope) {
                        Ok(span) => {
                            self.sink.span(span, Record { bytes: &bytes[..len], place: &self.place });
                            Outcome::Read(len)
                        }
                        Err(reason) => Outcome::Bad { reason: reason.to_owned(), at: 0 },
                    };
                }
                Some(Err(error)) => error,
                None => return Outcome::Truncated,
            };
            if !error.is_eof() {
                return Outcome::Bad { at: position(&error, bytes), reason: reason(&error) };
            }
            let len = bytes.len();
            if len == self.record_bytes_max {
                return Outcome::TooLong;
            }
            // Twice as much each time, so that a long object is not begun too often.
            if !self.window.reach(len.saturating_mul(2).min(self.record_bytes_max)) {
                return Outcome::Truncated;
            }
        }
    }

    /// Steps over a bad object. If its brackets match, that is its end; else the next line, or the next object that
    /// does not stand inside another. `at` is where the object went bad.
    fn resume(&mut self, at: usize) {
        self.window.reach(LOOKED_AT_AGAIN_BYTES_MAX);
        let bytes = self.window.bytes();
        let near = &bytes[..bytes.len().min(LOOKED_AT_AGAIN_BYTES_MAX)];
        if near.first() == Some(&b'{') {
            let mut values = values::<IgnoredAny>(near);
            if let Some(Ok(_)) = values.next() {
                let len = values.byte_offset();
                return self.window.advance(len);
            }
        }
        if at > LOOKED_AT_AGAIN_BYTES_MAX {
            self.window.advance(at);
        }
        let mut from = 1;
        loop {
            match next_start(self.window.bytes(), from) {
                Ok(start) => return self.window.advance(start),
                Err(undecided) => {
                    // One byte more is kept, to tell what the next one follows.
                    let keep = undecided.max(1) - 1;
                    self.window.advance(keep);
                    from = undecided - keep;
                    if !self.window.more() {
                        return self.window.advance(self.window.bytes().len());
                    }
                }
            }
        }
    }

    fn problem(&mut self, kind: ProblemKind, detail: &str) {
        self.sink.problem(Problem { kind, place: self.place.clone(), detail: detail.to_owned() });
    }
}

enum Outcome {
    /// A span of this many bytes.
    Read(usize),
    /// No span; at this byte of it the reason was found.
    Bad {
        reason: String,
        at: usize,
    },
    TooLong,
    Truncated,
}

/// The values that the bytes begin with.
fn values<'a, T: Deserialize<'a>>(
    bytes: &'a [u8],
) -> StreamDeserializer<'a, serde_json::de::SliceRead<'a>, T> {
    Deserializer::from_slice(bytes).into_iter()
}

/// Where reading can resume, at `from` or behind; or the first byte for which that can't be told yet.
fn next_start(bytes: &[u8], from: usize) -> Result<usize, usize> {
    let mut at = from.min(bytes.len());
    while let Some(found) = memchr::memchr2(b'\n', b'{', &bytes[at..]) {
        at += found;
        if bytes[at] == b'\n' {
            return Ok(at);
        }
        match bytes.get(at + 1) {
            None => return Err(at),
            Some(b'"') if at == 0 || !matches!(bytes[at - 1], b':' | b',' | b'[' | b' ' | b'\\') => {
                return Ok(at);
            }
            Some(_) => at += 1,
        }
    }
    Err(bytes.len())
}

/// The byte at which a parser gave up, which counts lines and columns.
fn position(error: &serde_json::Error, bytes: &[u8]) -> usize {
    let line = error.line().saturating_sub(1);
    let line_start = match line {
        0 => 0,
        _ => memchr::memchr_iter(b'\n', bytes).nth(line - 1).map_or(0, |end| end + 1),
    };
    (line_start + error.column()).min(bytes.len())
}

/// A parser's reason without its own idea of the place.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let reason = text.strip_suffix(&place).unwrap_or(&text);
    if reason.chars().nth(REASON_CHARS_MAX).is_none() {
        return reason.to_owned();
    }
    let mut cut: String = reason.chars().take(REASON_CHARS_MAX).collect();
    cut.push_str("...");
    cut
}

fn span<'a>(
    record: SpanRecord<'a>,
    resources: &mut Resources,
    scope: &Arc<Scope>,
) -> Result<Span<'a>, &'static str> {
    let (trace, span_id) = match (record.a, record.s) {
        (Some(Id::Wide { high, low }), _) => (high, low),
        (Some(Id::Narrow(_)), _) => return Err("'a' is not an id of 32 hexadecimal digits"),
        (None, Some(Id::Narrow(id))) => match record.i {
            Some(Id::Narrow(trace)) => (trace, id),
            None => (0, id),
            Some(Id::Wide { .. }) => return Err("'i' is longer than 16 hexadecimal digits"),
        },
        (None, Some(Id::Wide { .. })) => return Err("'s' is longer than 16 hexadecimal digits"),
        (None, None) => return Err("no span id: neither 'a' nor 's'"),
    };
    if span_id == 0 {
        return Err("the span id is zero");
    }
    let mut parents = Parents::new();
    let mut links = Vec::new();
    let old_parent = record.parent.filter(|id| !matches!(id, Id::Narrow(OLD_ROOT_PARENT)));
    for id in record.p.0.into_iter().chain(old_parent) {
        match id {
            Id::Narrow(0) | Id::Wide { low: 0, .. } => {}
            Id::Wide { high, low } if high != trace => {
                let trace_id = TraceId(high.into());
                links.push(Link { trace_id, span_id: SpanId(low), ..Link::default() });
            }
            Id::Narrow(low) | Id::Wide { low, .. } => parents.push(SpanId(low)),
        }
    }
    let moments = record.t.0.into_iter();
    let events = moments.map(|moment| Event {
        time: moment.t.0.unwrap_or_default(),
        name: moment.m.0,
        ..Event::default()
    });
    Ok(Span {
        trace_id: TraceId(trace.into()),
        span_id: SpanId(span_id),
        parents,
        name: record.d.0,
        kind: SpanKind::Unspecified,
        start: record.b.0,
        end: record.e.0,
        status: Status::Unset,
        status_message: Cow::Borrowed(""),
        attributes: record.n.0,
        dropped_attributes: 0,
        events: events.collect(),
        dropped_events: 0,
        links,
        dropped_links: 0,
        trace_state: Cow::Borrowed(""),
        flags: 0,
        shared: false,
        resource: resources.of(&record.r.0, Resource::service),
        scope: Arc::clone(scope),
    })
}
