//! Converts real recordings from each format to each: everything that both formats represent is
//! preserved.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use astracer_formats::losses::{Loss, Losses};
use astracer_model::span::{Resource, Span};
use astracer_model::{Format, TraceId};
use astracer_recording::convert::{Converted, Converter};
use astracer_recording::source::{self, Options};

use crate::collected::Collected;
use crate::sample;

const WRITTEN: [Format; 5] =
    [Format::OtlpJson, Format::OtlpProto, Format::JaegerJson, Format::ZipkinJson, Format::HTrace];

/// Samples of every readable format.
fn samples() -> Vec<PathBuf> {
    let names = [
        "hdfs273",
        "hdfs283",
        "htrace4_sample_spans.jsonl",
        "trainticket",
        "jaeger_json",
        "otlp_json",
        "zipkin_json",
    ];
    names.iter().map(|name| sample(name)).collect()
}

fn spans_of(path: &Path) -> Vec<Span<'static>> {
    let mut collected = Collected::default();
    source::read(path, &Options::default(), &mut collected).expect("there are traces");
    in_order(collected.spans)
}

/// Sorted spans with sorted attributes.
fn in_order(mut spans: Vec<Span<'static>>) -> Vec<Span<'static>> {
    for span in &mut spans {
        span.attributes.sort_by(|a, b| a.key.cmp(&b.key));
        let mut attributes = span.resource.attributes.clone();
        attributes.sort_by(|a, b| a.key.cmp(&b.key));
        span.resource = Arc::new(Resource { attributes, ..Resource::clone(&span.resource) });
    }
    spans.sort_by_cached_key(|span| {
        (span.trace_id, span.span_id, span.start, span.shared, format!("{span:?}"))
    });
    spans
}

fn convert(path: &Path, to: Format) -> (Vec<u8>, Converted) {
    let mut out = Vec::new();
    let mut converter = Converter::new(to, Box::new(&mut out)).expect("the format has a writer");
    source::read(path, &Options::default(), &mut converter).expect("there are traces");
    let converted = converter.finish().expect("writing to memory succeeds");
    (out, converted)
}

#[test]
fn what_a_format_can_hold_comes_through() {
    for path in samples() {
        let originals = spans_of(&path);
        for to in WRITTEN {
            let (text, converted) = convert(&path, to);
            let back = in_order(Collected::from_text(to, &text).spans);
            assert_eq!(converted.spans, originals.len() as u64, "{} as {to}", path.display());
            assert_eq!(back.len(), originals.len(), "{} as {to}", path.display());
            // Spans of HTrace 3's pipelines have no trace of their own and get their parents'.
            // HTrace itself truncates long ids.
            let traceless = back.iter().filter(|span| span.trace_id == TraceId::ZERO).count();
            assert!(traceless == 0 || to == Format::HTrace, "{} as {to}", path.display());
            for span in originals.iter().filter(|span| span.trace_id != TraceId::ZERO) {
                let mut losses = Losses::default();
                losses.count(to, span);
                if losses.is_empty() {
                    let key = |span: &Span<'_>| (span.trace_id, span.span_id);
                    let first = back.partition_point(|other| key(other) < key(span));
                    let mut same_ids = back[first..].iter().take_while(|other| key(other) == key(span));
                    // The wording belongs to the format, not to the span.
                    let is_same =
                        |other: &Span<'_>| *other == Span { wording: other.wording, ..span.clone() };
                    assert!(same_ids.any(is_same), "{} as {to}: {span:#?}", path.display());
                }
            }
        }
    }
}

#[test]
fn losses_of_real_recordings() {
    let losses = |name: &str, to| convert(&sample(name), to).1.losses.counts().collect::<Vec<_>>();
    assert_eq!(losses("hdfs283", Format::OtlpJson), []);
    assert_eq!(losses("hdfs283", Format::JaegerJson), []);
    assert_eq!(losses("hdfs283", Format::HTrace), []);
    // Calls shorter than a millisecond get Zipkin's shortest duration.
    let at_once = spans_of(&sample("hdfs283")).iter().filter(|span| span.start == span.end).count() as u64;
    assert_eq!(losses("hdfs283", Format::ZipkinJson), [(Loss::End, at_once)]);
    // Nezha has times in nanoseconds, ids of 128 bits, and the pod's name as a resource attribute.
    let spans = spans_of(&sample("trainticket")).len() as u64;
    let htrace = losses("trainticket", Format::HTrace);
    assert_eq!(htrace, [(Loss::TraceId, spans), (Loss::TimePrecision, spans), (Loss::AttributeMoved, spans)]);
    assert_eq!(losses("trainticket", Format::OtlpJson), []);
}
