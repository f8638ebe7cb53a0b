//! Events of X-Trace that spans have.

use std::sync::Arc;

use astracer_formats::Limits;
use astracer_model::{Format, Sink as _};
use astracer_recording::recording::{Intake, Keep, Recording};

/// A span with three events, of which the last one joins an event that is not here, a span without
/// events below it, and a trace without any.
const TEXT: &str = r#"{"resourceSpans":[{"resource":{"attributes":[
  {"key":"service.name","value":{"stringValue":"shop"}}]},"scopeSpans":[{"spans":[
 {"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"b7ad6b7169203331","name":"GET /",
  "startTimeUnixNano":"1000","endTimeUnixNano":"9000",
  "attributes":[{"key":"thread.id","value":{"intValue":"1"}}],"events":[
  {"timeUnixNano":"1000","name":"begin","attributes":[
   {"key":"xtrace.event","value":{"stringValue":"000000000000000a"}},
   {"key":"xtrace.parents","value":{"arrayValue":{}}},{"key":"thread.id","value":{"intValue":"7"}}]},
  {"timeUnixNano":"2000","name":"no event of ours"},
  {"timeUnixNano":"3000","name":"fork","attributes":[
   {"key":"xtrace.event","value":{"stringValue":"000000000000000b"}},
   {"key":"xtrace.parents","value":{"arrayValue":{"values":[{"stringValue":"000000000000000a"}]}}}]},
  {"timeUnixNano":"4000","name":"join","attributes":[
   {"key":"xtrace.event","value":{"stringValue":"000000000000000c"}},
   {"key":"xtrace.parents","value":{"arrayValue":{"values":[
    {"stringValue":"000000000000000b"},{"stringValue":"00000000000000ff"},{"stringValue":"no id"}]}}}]}]},
 {"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"00ad6b7169203332",
  "parentSpanId":"b7ad6b7169203331","name":"child","startTimeUnixNano":"2000","endTimeUnixNano":"3000"},
 {"traceId":"1af7651916cd43dd8448eb211c80319c","spanId":"00ad6b7169203333","name":"other",
  "startTimeUnixNano":"2000","endTimeUnixNano":"3000"}]}]}]}"#;

fn read(x_trace: bool) -> Recording {
    let labels = vec!["thread.id".to_owned(), "xtrace.process".to_owned()];
    let mut intake = Intake::new(Keep { x_trace, labels, ..Keep::default() });
    let file: Arc<str> = "test".into();
    intake.file(&file, Format::OtlpJson.into());
    astracer_formats::read(Format::OtlpJson, &mut TEXT.as_bytes(), &file, &Limits::default(), &mut intake);
    intake.finish()
}

/// Each trace as a line for each of its spans: name, times, ids of its parents, labels, format.
fn drawn(recording: &Recording) -> Vec<Vec<String>> {
    let line = |span: astracer_recording::recording::SpanView<'_>| {
        let parents: Vec<String> = span.parent_ids().map(|id| id.to_string()).collect();
        let labels = span.label_symbol().map(|labels| recording.label_values(labels));
        let labels: Vec<&str> = labels.into_iter().flatten().flatten().collect();
        let (start, end) = (span.start().0, span.end().map_or(0, |end| end.0));
        format!("{} {start}-{end} {parents:?} {labels:?} {:?}", span.name(), span.format())
    };
    recording.traces().map(|trace| trace.spans().map(line).collect()).collect()
}

#[test]
fn a_trace_with_events_consists_of_them() {
    let expected = [
        vec![
            r#"GET / begin 1000-1000 [] ["7", "shop"] Some(XTraceJson)"#,
            r#"GET / fork 3000-3000 ["000000000000000a"] ["1", "shop"] Some(XTraceJson)"#,
            r#"GET / join 4000-4000 ["000000000000000b", "00000000000000ff"] ["1", "shop"] Some(XTraceJson)"#,
        ],
        vec![r#"other 2000-3000 [] [] Some(OtlpJson)"#],
    ];
    assert_eq!(drawn(&read(true)), expected);
}

#[test]
fn on_its_own_a_recording_keeps_spans() {
    let names = drawn(&read(false)).concat();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.iter().all(|line| line.ends_with("Some(OtlpJson)")), "{names:?}");
}
