//! Reading recordings, beside the least that any reader of the same bytes has to do.
//!
//! `serde_json` puts the bytes into plain structs that borrow from them: ids and times stay text, nothing is checked
//! beyond JSON, nobody is told where a span stands. Our reader gives whole spans, each with its record and place, to a
//! sink that only counts. Both read from memory, the same bytes in one process.

mod htrace;
mod otlp_json;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use astracer_formats::Limits;
use astracer_model::problem::Problem;
use astracer_model::sink::{Record, Sink};
use astracer_model::{Format, Span};
use criterion::Criterion;

criterion::criterion_main!(otlp_json::benches, htrace::benches);

/// About how much text each benchmark reads.
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
