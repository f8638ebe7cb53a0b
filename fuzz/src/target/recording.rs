//! The guarantees of joining for spans with any ids, parents and times, and a limit on its work.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use astracer_model::problem::Place;
use astracer_model::sink::Record;
use astracer_model::span::{Span, SpanKind};
use astracer_model::{ProblemKind, Sink, SpanId, TraceId, UnixNanos};
use astracer_recording::recording::{Intake, Keep, Recording};
use astracer_recording::shape::{Scratch, Shapes};
use astracer_recording::stop::Pulse;

/// The number of bytes that describe a span.
const SPAN_BYTES: usize = 6;
/// The minimum number of spans in a recording. Work is polled at every 4,096th unit, so less work
/// would not be visible.
const SPANS: usize = 4_500;
/// Units of work per span: its parents, the search for cycles, the search for a start, and the
/// tables by id.
const WORK: usize = 12;

/// Checks that every span is in one trace, below a parent of that trace, without cycles; that equal
/// traces have equal shapes; and that the work is linear in the spans.
///
/// The spans that the input describes are repeated with ascending ids, so that a few bytes make
/// long chains, wide trees and cycles of thousands of spans.
pub(super) fn check(data: &[u8]) {
    let pattern: Vec<&[u8]> = data.chunks_exact(SPAN_BYTES).take(256).collect();
    if pattern.is_empty() {
        return;
    }
    let polls = Cell::new(0);
    let mut intake = Intake::new(Keep::default()).stop_when(|| {
        polls.set(polls.get() + 1);
        false
    });
    let file: Arc<str> = "fuzz".into();
    let spans = SPANS.next_multiple_of(pattern.len());
    for number in 0..spans {
        let (tile, bytes) = (number / pattern.len(), pattern[number % pattern.len()]);
        let record = [&number.to_le_bytes(), bytes].concat();
        // Without its number, a record may equal an earlier one.
        let record = if bytes[5] & 8 == 0 { &record[..] } else { bytes };
        let place = Place { file: Arc::clone(&file), line: number as u64, byte: 10 * number as u64 };
        intake.span(span(bytes, tile * pattern.len()), Record { bytes: record, place: &place });
    }
    let recording = intake.finish();
    let work = polls.get() * 4096;
    assert!(work <= WORK * spans, "{work} units of work for {spans} spans");
    let copies = recording.problems().count(ProblemKind::DuplicateSpan);
    assert_eq!(recording.span_count() as u64 + copies, spans as u64);
    check_traces(&recording);
}

/// A span from six bytes: trace, id, parent, start, end and flags.
fn span(bytes: &[u8], offset: usize) -> Span<'static> {
    let id = |byte: u8| SpanId(offset as u64 + u64::from(byte));
    let time = |byte: u8| Some(UnixNanos(u64::from(byte))).filter(|_| byte != 255);
    let flags = bytes[5];
    let parents = [(bytes[2], 1), (bytes[2].wrapping_add(flags), 2)];
    Span {
        trace_id: TraceId(u128::from(bytes[0] % 4)),
        span_id: SpanId(id(bytes[1]).0.max(1)),
        parents: parents
            .into_iter()
            .filter(|&(_, flag)| flags & flag != 0)
            .map(|(byte, _)| id(byte))
            .collect(),
        name: ["a", "b", "c"][usize::from(flags) % 3].into(),
        start: time(bytes[3]),
        end: time(bytes[4]),
        kind: [SpanKind::Client, SpanKind::Server][usize::from(flags & 4) / 4],
        shared: flags & 16 != 0,
        ..Span::default()
    }
}

fn check_traces(recording: &Recording) {
    let (mut shapes, mut scratch) = (Shapes::default(), Scratch::default());
    for trace in recording.traces() {
        let parents: HashMap<u32, Option<u32>> =
            trace.spans().map(|span| (span.index(), span.parent().map(|parent| parent.index()))).collect();
        assert_eq!(parents.len(), trace.span_count(), "each span once");
        // A span is done when the walk up from it has ended, so nothing is walked twice.
        let mut done: HashMap<u32, u32> = HashMap::new();
        for &index in parents.keys() {
            let mut at = Some(index);
            while let Some(here) = at.filter(|here| !done.contains_key(here)) {
                done.insert(here, index);
                at = *parents.get(&here).expect("a parent of the same trace");
            }
            // The walk met itself, not a walk that had ended before.
            assert!(
                at.is_none_or(|met| done[&met] != index || met == index && parents[&index].is_none()),
                "a cycle"
            );
        }
        let mut shape = || shapes.of_trace(trace, &mut scratch, &mut Pulse::never());
        let first = shape();
        assert!(first.is_some());
        assert_eq!(shape(), first, "the same trace has the same shape");
    }
}
