//! Jaeger's recordings, compared with the results of a plain JSON parser and with the same spans in
//! OTLP.

use std::fs::File;
use std::io::Read as _;

use astracer_model::span::lookup;
use astracer_model::value::{Attribute, Value};
use astracer_model::{Format, ProblemKind, Span, SpanKind, Status, TraceId};
use serde_json::Value as Json;

use crate::collected::Collected;
use crate::sample;

fn text(name: &str) -> String {
    let mut file = File::open(sample("jaeger_json").join(name)).unwrap();
    let mut text = String::new();
    if name.ends_with(".gz") {
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    } else {
        file.read_to_string(&mut text).unwrap();
    }
    text
}

/// Ids, parents, name, service, times, and the number of tags.
type Outline = (TraceId, u64, Vec<u64>, String, String, u64, u64, usize);

fn outline(span: &Span<'_>) -> Outline {
    let warnings = lookup(&span.attributes, "@jaeger@warnings").is_some();
    let tags = span.attributes.len() - usize::from(warnings)
        + usize::from(span.kind != SpanKind::Unspecified)
        + 2 * usize::from(span.status == Status::Error)
        + usize::from(!span.scope.name.is_empty())
        + usize::from(!span.scope.version.is_empty());
    (
        span.trace_id,
        span.span_id.0,
        span.parents.iter().map(|parent| parent.0).collect(),
        span.name.clone().into_owned(),
        span.resource.service_name().to_owned(),
        span.start.unwrap().0,
        span.end.unwrap().0,
        tags,
    )
}

/// The same outlines from a JSON tree.
fn outlines(text: &str) -> Vec<Outline> {
    let json: Json = serde_json::Deserializer::from_str(text).into_iter().next().unwrap().unwrap();
    let mut outlines = Vec::new();
    for trace in json["data"].as_array().unwrap() {
        for span in trace["spans"].as_array().unwrap() {
            let hex = |json: &Json| u128::from_str_radix(json.as_str().unwrap(), 16).unwrap();
            let references = span["references"].as_array().unwrap().iter();
            let process = &trace["processes"][span["processID"].as_str().unwrap()];
            let start = span["startTime"].as_u64().unwrap() * 1_000;
            outlines.push((
                TraceId(hex(&span["traceID"])),
                hex(&span["spanID"]) as u64,
                references.map(|reference| hex(&reference["spanID"]) as u64).collect(),
                span["operationName"].as_str().unwrap().to_owned(),
                process["serviceName"].as_str().unwrap().to_owned(),
                start,
                start + span["duration"].as_u64().unwrap() * 1_000,
                span["tags"].as_array().map_or(0, Vec::len),
            ));
        }
    }
    outlines
}

/// Reads a recording, compares it with the JSON tree, and returns it.
#[track_caller]
fn check(name: &str, spans: usize) -> Collected {
    let text = text(name);
    let read = Collected::from_text(Format::JaegerJson, &text);
    assert_eq!(read.problems, []);
    assert_eq!(read.spans.len(), spans);
    read.assert_places(text.as_bytes());
    let found: Vec<_> = read.spans.iter().map(outline).collect();
    assert_eq!(found, outlines(&text));
    read
}

/// Writes each trace and checks that it is read back unchanged.
#[track_caller]
fn check_written(read: &Collected) {
    let mut text = Vec::new();
    let mut writer = astracer_formats::writer(Format::JaegerJson, Box::new(&mut text)).unwrap();
    for trace in read.spans.chunk_by(|one, other| one.trace_id == other.trace_id) {
        writer.trace(trace).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    assert_eq!(Collected::from_text(Format::JaegerJson, &text).spans, read.spans);
}

#[test]
fn a_social_network_whose_references_hold_whole_spans() {
    let read = check("socialnetwork.json.gz", 660);
    check_written(&read);
    let roots = read.spans.iter().filter(|span| span.parents.is_empty());
    assert_eq!(roots.count(), 20);
    // The span of nginx at the beginning of the file.
    let root = read
        .spans
        .iter()
        .find(|span| span.trace_id.0 == 0x151e8ea44a5cf41c && span.parents.is_empty())
        .unwrap();
    assert_eq!(root.span_id.0, 0x151e8ea44a5cf41c);
    assert_eq!(lookup(&root.attributes, "http.status_code"), Some(&Value::Int(200)));
    assert_eq!(lookup(&root.attributes, "sampler.param"), Some(&Value::Double(0.2)));
    assert_eq!(lookup(&root.resource.attributes, "hostname"), Some(&Value::from("nginx-thrift")));
    assert_eq!(root.flags, 1);
}

#[test]
fn a_hotel_with_warnings_about_clocks() {
    let read = check("hotel-40-traces.json.gz", 440);
    check_written(&read);
    let warned = read.spans.iter().filter(|span| lookup(&span.attributes, "@jaeger@warnings").is_some());
    assert_eq!(warned.count(), 102);
}

#[test]
fn ids_that_are_not_hexadecimal() {
    // Spans named by letters, as in CRISP's tests; letters after F are not hexadecimal digits.
    let text = text("crisp-18.json");
    let read = Collected::from_text(Format::JaegerJson, &text);
    let json: Json = serde_json::from_str(&text).unwrap();
    let spans = json["data"][0]["spans"].as_array().unwrap();
    assert_eq!(read.spans.len(), spans.len());
    // Distinct ids stay distinct, and each parent is the same span as before.
    let number = |id: &Json| spans.iter().position(|span| span["spanID"] == *id);
    let read_number = |id| read.spans.iter().position(|span| span.span_id == id);
    for (span, written) in read.spans.iter().zip(spans) {
        assert_eq!(read_number(span.span_id), number(&written["spanID"]));
        let parents: Vec<_> = span.parents.iter().map(|&parent| read_number(parent)).collect();
        let references = written["references"].as_array().unwrap().iter();
        assert_eq!(parents, references.map(|reference| number(&reference["spanID"])).collect::<Vec<_>>());
    }
}

#[test]
fn the_ui_s_own_cases() {
    // Each case contains one trace; its references have no trace id.
    let json: Json = serde_json::from_str(&text("jaeger_ui_cases.json")).unwrap();
    let traces = json.as_array().unwrap().iter().map(|case| &case["trace"]);
    let texts: String = traces.clone().map(|trace| format!("{trace}\n")).collect();
    let read = Collected::from_text(Format::JaegerJson, &texts);
    let spans = traces.map(|trace| trace["spans"].as_array().unwrap().len()).sum::<usize>();
    assert_eq!(read.spans.len(), spans);
    let (ids, others): (Vec<_>, Vec<_>) =
        read.kinds().into_iter().partition(|kind| *kind == ProblemKind::ForeignId);
    assert_eq!((ids.is_empty(), others), (false, vec![]));
    assert!(read.spans.iter().all(|span| !span.resource.service_name().is_empty() && span.links.is_empty()));
}

/// The part of a span that both formats represent: Jaeger sorts tags, truncates times, and has
/// neither schemas nor flags.
fn comparable(mut span: Span<'static>) -> String {
    let sort =
        |attributes: &mut Vec<Attribute<'static>>| attributes.sort_by(|one, other| one.key.cmp(&other.key));
    sort(&mut span.attributes);
    span.events.iter_mut().for_each(|event| sort(&mut event.attributes));
    let mut resource = span.resource.attributes.clone();
    sort(&mut resource);
    for time in [&mut span.start, &mut span.end].into_iter().flatten() {
        time.0 = time.0 / 1_000 * 1_000;
    }
    let (resource, scope) = (format!("{resource:?}"), format!("{}@{}", span.scope.name, span.scope.version));
    let span = Span { flags: 0, resource: Default::default(), scope: Default::default(), ..span };
    format!("{span:?} of {resource} by {scope}")
}

/// The spans of both files, with repetitions.
fn pair(otlp: &str, jaeger: &str) -> [Vec<String>; 2] {
    let otlp = std::fs::read(sample("otlp_json").join(otlp)).unwrap();
    [Collected::from_text(Format::OtlpJson, otlp), Collected::from_text(Format::JaegerJson, text(jaeger))]
        .map(|read| {
            assert_eq!(read.problems, []);
            let mut spans: Vec<_> = read.spans.into_iter().map(comparable).collect();
            spans.sort();
            spans
        })
}

#[test]
fn what_jaeger_made_of_otlp_says_the_same_as_otlp() {
    let [otlp, jaeger] = pair("otlp2jaeger-in.json", "otlp2jaeger-out.json");
    assert_eq!(otlp.len(), 2);
    assert_eq!(jaeger, otlp);
    for otlp in ["multi-in.jsonl", "multi-in-combined.json"] {
        let [otlp, jaeger] = pair(otlp, "otlp2jaeger-multi-out.json");
        assert_eq!(jaeger, otlp);
    }
}
