//! Converting, beside reading alone and writing alone.
//!
//! The same bytes in one process, from memory to memory, the three one after the other in each round; processor time of
//! the one thread. Reading alone hands each span to a sink that only counts. Writing alone writes the spans, which were
//! read before, in the requests that a conversion makes.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]

use std::sync::Arc;

use astracer_model::convert::Converter;
use astracer_model::problem::Problem;
use astracer_model::sink::{Record, Sink};
use astracer_model::source::Limits;
use astracer_model::{Format, Span, source};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 21;
/// As many spans as a conversion puts into one request.
const REQUEST_SPANS: usize = 1 << 12;
/// A recording of the repository.
const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/hdfs_raw_roots.tar.xz");
const FORMATS: [Format; 4] = [Format::OtlpJson, Format::OtlpProto, Format::ZipkinJson, Format::HTrace];

#[derive(Default)]
struct Spans(Vec<Span<'static>>);

impl Sink for Spans {
    fn span(&mut self, span: Span<'_>, _: Record<'_>) {
        self.0.push(span.into_owned());
    }

    fn problem(&mut self, _: Problem) {}

    fn skipped(&mut self, _: &Arc<str>, _: &str) {}
}

#[derive(Default)]
struct Count(u64);

impl Sink for Count {
    fn span(&mut self, span: Span<'_>, record: Record<'_>) {
        std::hint::black_box((&span, &record));
        self.0 += 1;
    }

    fn problem(&mut self, _: Problem) {}

    fn skipped(&mut self, _: &Arc<str>, _: &str) {}
}

fn main() {
    let mut spans = Spans::default();
    source::read(RECORDING.as_ref(), &source::Options::default(), &mut spans).expect("a recording");
    // HTrace 3 knows parents, but not traces; of itself each span is a trace of its own.
    for span in &mut spans.0 {
        span.trace_id.0 = span.trace_id.0.max(u128::from(span.span_id.0)).max(1);
    }
    println!(
        "{} spans; ns a span, median of {ROUNDS} rounds; and convert by the sum of the other two",
        spans.0.len()
    );
    println!("{:<12} {:<12} {:>8} {:>8} {:>8} {:>8}", "from", "to", "read", "write", "convert", "ratio");
    for from in FORMATS {
        let text = write(from, &spans.0);
        let mut known = Spans::default();
        from.read(&mut &*text, &"f".into(), &Limits::default(), &mut known);
        for to in FORMATS.into_iter().filter(|to| *to != from) {
            let mut rounds: Vec<[f64; 4]> = (0..ROUNDS).map(|_| round(from, to, &text, &known.0)).collect();
            let mut median = |column: usize| {
                rounds.sort_by(|a, b| a[column].total_cmp(&b[column]));
                rounds[ROUNDS / 2][column]
            };
            let [read, written, converted, ratio] = [0, 1, 2, 3].map(&mut median);
            println!(
                "{:<12} {:<12} {read:>8.0} {written:>8.0} {converted:>8.0} {ratio:>8.2}",
                from.name(),
                to.name()
            );
        }
    }
}

/// Reading, writing and converting, ns a span; and the ratio of the last to the sum of the others.
fn round(from: Format, to: Format, text: &[u8], spans: &[Span<'_>]) -> [f64; 4] {
    let count = spans.len() as f64;
    let read = timed(|| {
        let mut sink = Count::default();
        from.read(&mut &*text, &"f".into(), &Limits::default(), &mut sink);
        assert_eq!(sink.0, spans.len() as u64);
    });
    let written = timed(|| drop(write(to, spans)));
    let converted = timed(|| {
        let mut out = Vec::new();
        let mut converter = Converter::new(to, Box::new(&mut out)).expect("a format that is written");
        from.read(&mut &*text, &"f".into(), &Limits::default(), &mut converter);
        assert_eq!(converter.finish().expect("memory takes everything").spans, spans.len() as u64);
    });
    [read / count, written / count, converted / count, converted / (read + written)]
}

fn write(to: Format, spans: &[Span<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = to.writer(Box::new(&mut out)).expect("a format that is written");
    for request in spans.chunks(REQUEST_SPANS) {
        writer.trace(request).expect("memory takes everything");
    }
    writer.finish().expect("memory takes everything");
    drop(writer);
    out
}

fn timed(work: impl FnOnce()) -> f64 {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
    };
    let began = now();
    work();
    now() - began
}
