//! The guarantees of every reader on any input: it does not panic; its result does not depend on
//! the sizes of the reads; each span's record is at the place that the span states; and the spans
//! can be joined.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use astracer_formats::Limits;
use astracer_model::Format;
use astracer_model::problem::{Place, Problem};
use astracer_model::sink::{Record, Sink};
use astracer_model::span::Span;
use astracer_recording::recording::{Intake, Keep, KeepPoints};

/// Small enough for mutated seeds to exceed them.
const LIMITS: Limits = Limits { record_bytes_max: 16 << 10, nesting_max: 40 };

/// The sizes of the pieces in which the second run reads the input.
const PIECES: [usize; 6] = [1, 2, 3, 7, 64, 1000];

pub(super) fn check(format: Format, data: &[u8]) {
    let whole = read(format, data, data.len().max(1));
    let piece = PIECES[data.len() % PIECES.len()];
    let cut = read(format, data, piece);
    assert_same(&whole, &cut, piece);
    for place in whole.problems.iter().map(|problem| &problem.place) {
        assert!(place.byte <= data.len() as u64, "a problem lies behind the end: {place}");
    }
    for item in &whole.spans {
        let start = usize::try_from(item.place.byte).expect("an offset into the input");
        let found = data.get(start..).and_then(|rest| rest.get(..item.record.len()));
        assert!(found.is_some_and(|found| is_record(found, &item.record)), "the record at {}", item.place);
        if item.place.line > 0 {
            let line = 1 + data[..start].iter().filter(|&&byte| byte == b'\n').count();
            assert_eq!(item.place.line, line as u64, "the line of {}", item.place);
        }
    }
    join(&whole);
}

/// Returns true if `record` equals the bytes `found` at its place. The JSON readers skip unknown
/// members without checking their UTF-8. Each invalid byte there may be a substitute in the record.
pub(super) fn is_record(found: &[u8], record: &[u8]) -> bool {
    const SUBSTITUTE: u8 = 0x1a;
    let same = |(&found, &record): (&u8, &u8)| found == record || (record == SUBSTITUTE && !found.is_ascii());
    found.len() == record.len() && found.iter().zip(record).all(same)
}

/// A span with its record and place.
struct Item {
    span: Span<'static>,
    record: Vec<u8>,
    place: Place,
}

#[derive(Default)]
struct Collected {
    spans: Vec<Item>,
    problems: Vec<Problem>,
}

impl Sink for Collected {
    fn span(&mut self, span: Span<'_>, record: Record<'_>) {
        let record_bytes = record.bytes.to_vec();
        self.spans.push(Item { span: span.into_owned(), record: record_bytes, place: record.place.clone() });
    }

    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    fn skipped(&mut self, _file: &Arc<str>, _reason: &str) {}
}

fn read(format: Format, data: &[u8], piece: usize) -> Collected {
    let mut collected = Collected::default();
    let mut input = Pieces { rest: data, piece };
    astracer_formats::read(format, &mut input, &Arc::from("input"), &LIMITS, &mut collected);
    collected
}

fn assert_same(whole: &Collected, cut: &Collected, piece: usize) {
    assert_eq!(whole.spans.len(), cut.spans.len(), "spans, read in pieces of {piece}");
    for (a, b) in whole.spans.iter().zip(&cut.spans) {
        assert_eq!(a.place, b.place, "places, read in pieces of {piece}");
        assert_eq!(a.record, b.record, "records, read in pieces of {piece}");
        // Spans that differ are compared as text, because NaN does not equal itself.
        if a.span != b.span {
            assert_eq!(format!("{:?}", a.span), format!("{:?}", b.span), "spans, read in pieces of {piece}");
        }
    }
    assert_eq!(whole.problems, cut.problems, "problems, read in pieces of {piece}");
}

fn join(collected: &Collected) {
    let label = || vec!["http.method".to_owned()];
    let keep = Keep {
        full: true,
        contents: true,
        log_groups: None,
        labels: label(),
        own_labels: label(),
        trace_states: true,
        logs: true,
        records: true,
        origins: true,
        points: Some(points()),
        x_trace: false,
    };
    let finish = |keep: Keep| {
        let mut intake = Intake::new(keep);
        for item in &collected.spans {
            intake.span(item.span.clone(), Record { bytes: &item.record, place: &item.place });
        }
        intake.finish()
    };
    // Then events take the place of spans.
    finish(Keep { x_trace: true, ..keep.clone() });
    let recording = finish(keep);
    assert!(recording.span_count() <= collected.spans.len());
    let in_traces: usize = recording.traces().map(|trace| trace.spans().len()).sum();
    assert_eq!(in_traces, recording.span_count(), "spans of all traces");
}

/// An input that arrives in pieces of one size.
struct Pieces<'a> {
    rest: &'a [u8],
    piece: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.len().min(buffer.len());
        buffer[..length].copy_from_slice(&self.rest[..length]);
        self.consume(length);
        Ok(length)
    }
}

impl BufRead for Pieces<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(&self.rest[..self.rest.len().min(self.piece)])
    }

    fn consume(&mut self, amount: usize) {
        self.rest = &self.rest[amount..];
    }
}

/// Everything that a query may ask of spans.
fn points() -> KeepPoints {
    let fields = vec!["Class".to_owned(), "Label".to_owned(), "n".to_owned()];
    KeepPoints { fields, own_fields: vec!["name".to_owned()], wants: Arc::new(|_, _| true), lines: true }
}
