//! Reading recordings: our readers and `serde_json` on the same bytes in memory, in one process.
//!
//! `serde_json, borrowed` fills plain structs that borrow from the text: ids and times stay text,
//! and spans have no record and no byte position. It is a lower bound for any reader built on
//! `serde_json`.
//!
//! `serde_json, same sink` delivers what our readers deliver, to the same sink: complete spans,
//! each with its record and the byte where the record starts. `serde_json` gives a record's text
//! only through `RawValue`, so a span is scanned once for its extent and parsed once. It still
//! accepts fewer variants of the formats, does not count lines and stops at the first error.

mod htrace;
mod otlp_json;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use astracer_formats::Limits;
use astracer_model::problem::{Place, Problem};
use astracer_model::sink::{Record, Sink};
use astracer_model::{Format, Span};
use criterion::Criterion;

criterion::criterion_main!(otlp_json::benches, htrace::benches);

/// Approximate size of each benchmark's text.
const BYTES: usize = 20 << 20;

fn settings() -> Criterion {
    Criterion::default().sample_size(15).measurement_time(Duration::from_secs(4))
}

/// Reads a text with our reader, and counts its spans.
fn ours(format: Format, text: &str) -> u64 {
    let mut count = Count::default();
    astracer_formats::read(format, &mut text.as_bytes(), &Arc::from("f"), &Limits::default(), &mut count);
    count.spans
}

/// Delivers a span that `serde_json` parsed from `record`, a part of `text`.
fn deliver(sink: &mut dyn Sink, place: &mut Place, text: &str, record: &str, span: Span<'_>) {
    place.byte = (record.as_ptr().addr() - text.as_ptr().addr()) as u64;
    sink.span(span, Record { bytes: record.as_bytes(), place });
}

#[derive(Default)]
struct Count {
    spans: u64,
}

impl Sink for Count {
    fn span(&mut self, span: Span<'_>, record: Record<'_>) {
        black_box((&span, &record));
        self.spans += 1;
    }

    fn problem(&mut self, problem: Problem) {
        panic!("{problem}");
    }

    fn skipped(&mut self, file: &Arc<str>, reason: &str) {
        panic!("{file}: {reason}");
    }
}
