//! The seeds exercise what their targets are about: every reader finds spans in each of its seeds,
//! and every parser accepts its own. Otherwise mutations of them would test little more than the
//! first error.

use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use astracer_baselines::BaselineSpec;
use astracer_formats::Limits;
use astracer_model::Format;
use astracer_model::problem::Problem;
use astracer_model::sink::{Record, Sink};
use astracer_model::span::Span;
use astracer_queries::{Program, Rewrite};
use astracer_samplers::Config;
use astracer_samplers::parameters::Parameters;

#[derive(Default)]
struct Count {
    spans: usize,
    problems: Vec<String>,
}

impl Sink for Count {
    fn span(&mut self, _span: Span<'_>, _record: Record<'_>) {
        self.spans += 1;
    }

    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem.to_string());
    }

    fn skipped(&mut self, _file: &Arc<str>, _reason: &str) {}
}

#[track_caller]
fn check(format: Format, seed: &str, spans: usize, problems: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(format.name().replace('-', "_"));
    let data = std::fs::read(folder.join(seed)).unwrap();
    let mut count = Count::default();
    astracer_formats::read(format, &mut data.as_slice(), &Arc::from(seed), &Limits::default(), &mut count);
    assert_eq!((count.spans, count.problems.len()), (spans, problems), "{seed}: {:#?}", count.problems);
}

#[test]
fn htrace_seeds_hold_spans() {
    check(Format::HTrace, "htrace3-client.json", 4, 0);
    check(Format::HTrace, "htrace3-datanode.json", 3, 0);
    check(Format::HTrace, "htrace4.jsonl", 4, 0);
    check(Format::HTrace, "htrace401-without-newlines.json", 5, 0);
    // A record without an id, a line of words, and a truncated record.
    check(Format::HTrace, "every-field.json", 2, 3);
}

#[test]
fn nezha_seeds_hold_spans() {
    check(Format::NezhaCsv, "trainticket.csv", 8, 0);
    // A row with missing columns.
    check(Format::NezhaCsv, "quoted.csv", 2, 1);
}

#[test]
fn xtrace_json_seeds_hold_events() {
    check(Format::XTraceJson, "hadoop.json", 4, 0);
    // A report without ids, an invalid edge, and an invalid time.
    check(Format::XTraceJson, "every-field.json", 3, 3);
}

#[test]
fn otlp_json_seeds_hold_spans() {
    check(Format::OtlpJson, "proto-example.json", 1, 0);
    check(Format::OtlpJson, "jaeger-example.json", 2, 0);
    check(Format::OtlpJson, "every-kind.json", 2, 0);
    // A truncated request between good ones.
    check(Format::OtlpJson, "lines.json", 3, 1);
}

#[test]
fn jaeger_json_seeds_hold_spans() {
    check(Format::JaegerJson, "socialnetwork.json", 3, 0);
    check(Format::JaegerJson, "nested-reference.json", 1, 0);
    check(Format::JaegerJson, "every-kind.json", 2, 0);
}

#[test]
fn zipkin_json_seeds_hold_spans() {
    check(Format::ZipkinJson, "skew.json", 4, 0);
    check(Format::ZipkinJson, "messaging.json", 4, 0);
    check(Format::ZipkinJson, "smartthings.json", 3, 0);
    check(Format::ZipkinJson, "every-kind.json", 2, 0);
}

#[test]
fn otlp_proto_seeds_hold_spans() {
    check(Format::OtlpProto, "request.pb", 2, 0);
    check(Format::OtlpProto, "two-resources.pb", 2, 0);
    check(Format::OtlpProto, "delimited.pb", 3, 0);
}

/// Parses every seed of a target for texts.
fn texts<T: FromStr<Err: Display>>(target: &str) -> Vec<T> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    std::fs::read_dir(folder).unwrap().map(read).collect()
}

#[test]
fn seeds_of_texts_are_read() {
    let parameters = texts::<Parameters>("parameters");
    // Each part of the format is in one of them.
    assert!(
        parameters.iter().any(|file| !file.cap.is_none() && !file.tail.is_none() && file.budget.is_some())
    );
    assert!(parameters.iter().any(|file| file.key.attributes().count() > 1));
    for table in [
        "[bump.root.",
        "[bump.probability_by_key]",
        "[bump.min_by_key]",
        "[bucket.root.",
        "count = \"decaying\"",
    ] {
        assert!(parameters.iter().any(|file| file.to_string().contains(table)), "{table}");
    }
    assert!(!texts::<Config>("sampler_config").is_empty() && !texts::<BaselineSpec>("baseline").is_empty());
}

/// Advice and bags are bytes that nobody reads: `ASTRACER_WRITE=1` writes them after a change of
/// their form.
#[test]
fn query_seeds_are_accepted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for (name, bytes) in astracer_fuzz::target::query_seeds() {
        let path = folder.join(name);
        if std::env::var_os("ASTRACER_WRITE").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{name} differs: write it with ASTRACER_WRITE=1");
    }
    for seed in std::fs::read_dir(folder.join("query_language")).unwrap() {
        let text = std::fs::read_to_string(seed.unwrap().path()).unwrap();
        let program = Program::parse(&text).unwrap_or_else(|faults| panic!("{}", faults[0]));
        program.plan(Rewrite::ALL).unwrap_or_else(|faults| panic!("{}", faults[0]));
    }
}
