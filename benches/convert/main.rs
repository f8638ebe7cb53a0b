//! Converting a recording, compared with reading alone plus writing alone.
//!
//! All three process the same bytes from memory to memory in one process, in turn in each round;
//! the figures are processor time of the one thread. Reading alone delivers each span to a sink
//! that only counts. Writing alone writes spans read beforehand, in requests as large as the
//! converter's (for Jaeger's JSON: one per trace). The output buffer is allocated beforehand for
//! all three.
//!
//! With arguments `FROM TO [ROUNDS]`, only that pair runs. To count instructions, run the program
//! under callgrind with `--collect-atstart=no --toggle-collect=*::round`, and compare the three
//! functions' inclusive costs.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]

use std::sync::Arc;

use astracer_formats::Limits;
use astracer_model::problem::Problem;
use astracer_model::sink::{Record, Sink};
use astracer_model::{Format, Span};
use astracer_recording::convert::Converter;
use astracer_recording::source;
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 21;
/// Spans per request of a conversion.
const REQUEST_SPANS: usize = 1 << 12;
/// A recording in the repository.
const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/hdfs_raw_roots.tar.xz");
const FORMATS: [Format; 5] =
    [Format::OtlpJson, Format::OtlpProto, Format::ZipkinJson, Format::HTrace, Format::JaegerJson];

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
    // Cargo passes `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let (pair, rounds) = match &arguments[..] {
        [from, to, rest @ ..] => (
            Some((from.parse().expect("a format"), to.parse().expect("a format"))),
            rest.first().map_or(ROUNDS, |rounds| rounds.parse().expect("a number of rounds")),
        ),
        _ => (None, ROUNDS),
    };
    let mut spans = Spans::default();
    source::read(RECORDING.as_ref(), &source::Options::default(), &mut spans).expect("a recording");
    // HTrace 3 records parents but not traces; here each span becomes its own trace.
    for span in &mut spans.0 {
        span.trace_id.0 = span.trace_id.0.max(u128::from(span.span_id.0)).max(1);
    }
    println!(
        "{} spans; ns per span, median of {rounds} rounds; ratio = convert / (read + write)",
        spans.0.len()
    );
    println!("{:<12} {:<12} {:>8} {:>8} {:>8} {:>8}", "from", "to", "read", "write", "convert", "ratio");
    for from in FORMATS.into_iter().filter(|from| pair.is_none_or(|pair: (Format, Format)| pair.0 == *from)) {
        let mut text = Vec::new();
        write_alone(from, &spans.0, &mut text);
        let mut known = Spans::default();
        astracer_formats::read(from, &mut &*text, &"f".into(), &Limits::default(), &mut known);
        for to in FORMATS.into_iter().filter(|to| *to != from && pair.is_none_or(|pair| pair.1 == *to)) {
            let mut out = Vec::new();
            write_alone(to, &known.0, &mut out);
            let mut results: Vec<_> =
                (0..rounds).map(|_| round(from, to, &text, &known.0, &mut out)).collect();
            let mut median = |column: usize| {
                results.sort_by(|a, b| a[column].total_cmp(&b[column]));
                results[rounds / 2][column]
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

/// Runs each once. Returns ns per span of reading, writing and converting, and the ratio of
/// converting to the sum of the other two.
#[inline(never)]
fn round(from: Format, to: Format, text: &[u8], spans: &[Span<'_>], out: &mut Vec<u8>) -> [f64; 4] {
    let count = spans.len() as f64;
    let read = timed(|| assert_eq!(read_alone(from, text), spans.len() as u64));
    let written = timed(|| write_alone(to, spans, out));
    let converted = timed(|| assert_eq!(convert_all(from, to, text, out), spans.len() as u64));
    [read / count, written / count, converted / count, converted / (read + written)]
}

#[inline(never)]
fn read_alone(from: Format, text: &[u8]) -> u64 {
    let mut sink = Count::default();
    astracer_formats::read(from, &mut &*text, &"f".into(), &Limits::default(), &mut sink);
    sink.0
}

#[inline(never)]
fn write_alone(to: Format, spans: &[Span<'_>], out: &mut Vec<u8>) {
    out.clear();
    let mut writer = astracer_formats::writer(to, Box::new(out)).expect("a format that is written");
    let in_pieces = |a: &Span<'_>, b: &Span<'_>| to != Format::JaegerJson || a.trace_id == b.trace_id;
    for trace in spans.chunk_by(in_pieces) {
        for request in trace.chunks(REQUEST_SPANS) {
            writer.trace(request).expect("writes to memory succeed");
        }
    }
    writer.finish().expect("writes to memory succeed");
}

#[inline(never)]
fn convert_all(from: Format, to: Format, text: &[u8], out: &mut Vec<u8>) -> u64 {
    out.clear();
    let mut converter = Converter::new(to, Box::new(out)).expect("a format that is written");
    let file = "f".into();
    converter.file(&file, from.into());
    astracer_formats::read(from, &mut &*text, &file, &Limits::default(), &mut converter);
    converter.finish().expect("writes to memory succeed").spans
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
