//! Hosts, typed fields, events and links that are kept for queries, in every format.

use std::io::Write as _;
use std::sync::Arc;

use astracer_model::value::Value;
use astracer_recording::Recording;
use astracer_recording::intern::Symbol;
use astracer_recording::recording::{Intake, Keep, KeepPoints};
use astracer_recording::source::{self, Options};

/// Reads a text from the file `dn1.x.json`, and keeps these fields of spans and events with these
/// names.
fn read(text: &str, fields: &[&str], names: &'static [&'static str]) -> Recording {
    let points = KeepPoints {
        fields: fields.iter().map(|&field| field.to_owned()).collect(),
        own_fields: vec!["name".to_owned()],
        wants: Arc::new(move |name, line| names.contains(&name) || line == Some(("src/a.rs", 7))),
        lines: true,
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dn1.x.json");
    std::fs::File::create(&path).and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
    let mut intake = Intake::new(Keep { origins: true, points: Some(points), ..Keep::default() });
    source::read(&path, &Options::default(), &mut intake).expect("readable");
    intake.finish()
}

fn fields(recording: &Recording, set: Option<Symbol>) -> Vec<String> {
    let values: Vec<Value<'_>> = recording.field_values().collect();
    let symbols = set.map_or(&[][..], |set| recording.field_symbols(set));
    let of = |(key, symbol): (&str, &Option<Symbol>)| {
        Some(format!("{key}={:?}", values[symbol.as_ref()?.index()]))
    };
    recording.field_keys().zip(symbols).filter_map(of).collect()
}

/// Each span: its host, its fields, and its events with their times and fields.
fn shown(recording: &Recording) -> String {
    let mut text = String::new();
    for trace in recording.traces() {
        for span in trace.spans() {
            let host = recording.hosts().name(span.origin().host);
            text += &format!("{} on {host} {:?}\n", span.name(), fields(recording, span.fields()));
            for event in span.events() {
                let own = fields(recording, Some(event.fields));
                text += &format!("  {} at {} {own:?}\n", event.name, event.time.0);
            }
        }
    }
    text
}

#[test]
fn events_of_every_format_have_names_times_and_fields() {
    let otlp = r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"host.name","value":{"stringValue":"h1"}},
        {"key":"zone","value":{"stringValue":"z"}},{"key":"name","value":{"stringValue":"of the process"}}]},
        "scopeSpans":[{"spans":[{"traceId":"00000000000000000000000000000001","spanId":"0000000000000001","name":"read",
        "startTimeUnixNano":"1000","endTimeUnixNano":"9000","attributes":[{"key":"n","value":{"intValue":"5"}}],
        "links":[{"traceId":"00000000000000000000000000000001","spanId":"0000000000000002"},
                 {"traceId":"00000000000000000000000000000009","spanId":"0000000000000003"}],
        "events":[{"timeUnixNano":"2000","name":"retry","attributes":[{"key":"n","value":{"boolValue":true}}]},
                  {"timeUnixNano":"3000","name":"other"}]},
        {"traceId":"00000000000000000000000000000001","spanId":"0000000000000002","parentSpanId":"0000000000000001",
        "name":"unasked","startTimeUnixNano":"1000","endTimeUnixNano":"9000","attributes":[{"key":"n","value":{"intValue":"6"}}]}]}]}]}"#;
    let recording = read(otlp, &["n", "zone"], &["read", "retry"]);
    assert_eq!(
        shown(&recording),
        r#"read on h1 ["n=Int(5)", "zone=String(\"z\")"]
  retry at 2000 ["n=Bool(true)", "zone=String(\"z\")"]
unasked on h1 []
"#
    );
    let root = recording.traces().next().expect("a trace").root();
    assert_eq!(root.links().iter().map(|id| id.0).collect::<Vec<_>>(), [2], "of another trace: left out");

    let jaeger = r#"{"data":[{"traceID":"1","spans":[{"traceID":"1","spanID":"1","operationName":"read","startTime":1,"duration":8,
        "tags":[{"key":"n","type":"float64","value":0.5}],"processID":"p",
        "logs":[{"timestamp":2,"fields":[{"key":"event","type":"string","value":"retry"},{"key":"n","type":"int64","value":7}]}]}],
        "processes":{"p":{"serviceName":"s","tags":[{"key":"service.instance.id","type":"string","value":"i"}]}}}]}"#;
    let expected = "read on i [\"n=Double(0.5)\"]\n  retry at 2000 [\"n=Int(7)\"]\n";
    assert_eq!(shown(&read(jaeger, &["n"], &["read", "retry"])), expected);

    let zipkin = r#"[{"traceId":"1","id":"1","name":"read","timestamp":1,"duration":8,"tags":{"n":"5"},
        "localEndpoint":{"serviceName":"s"},"annotations":[{"timestamp":2,"value":"retry"}]}]"#;
    let expected = "read on  [\"n=String(\\\"5\\\")\"]\n  retry at 2000 []\n";
    assert_eq!(shown(&read(zipkin, &["n"], &["read", "retry"])), expected);

    let htrace =
        r#"{"i":"1","s":"1","b":1,"e":9,"d":"read","r":"s","p":[],"n":{"n":"5"},"t":[{"t":2,"m":"retry"}]}"#;
    let expected = "read on dn1 [\"n=String(\\\"5\\\")\"]\n  retry at 2000000 []\n";
    assert_eq!(shown(&read(htrace, &["n"], &["read", "retry"])), expected);
}

#[test]
fn every_key_of_a_report_is_a_field() {
    let reports = r#"[{"id":"1","reports":[
        {"X-Trace":["190000000000000001000000000000000A"],"Edge":["0000000000000000"],"Class":["org.x.FileIO"],"Label":["write"],
         "Agent":["FsShell"],"Host":["manny"],"ProcessID":["7@manny"],"ThreadID":["3"],"ThreadName":["main"],"Timestamp":["1384989800278"],"Bytes":["12"]},
        {"X-Trace":["190000000000000001000000000000000B"],"Edge":["000000000000000A"],"Class":["org.x.FileIO"],"Operation":["sync"],"Timestamp":["1384989800279"]},
        {"X-Trace":["190000000000000001000000000000000C"],"Edge":["000000000000000A"],"Class":["org.x.Other"],"Timestamp":["1384989800280"]}]}]"#;
    let keys =
        ["Agent", "Class", "Host", "ProcessID", "ThreadID", "ThreadName", "Label", "Bytes", "Operation"];
    assert_eq!(
        shown(&read(reports, &keys, &["org.x.FileIO"])),
        r#"write on manny ["Agent=String(\"FsShell\")", "Class=String(\"org.x.FileIO\")", "Host=String(\"manny\")", "ProcessID=String(\"7@manny\")", "ThreadID=String(\"3\")", "ThreadName=String(\"main\")", "Label=String(\"write\")", "Bytes=String(\"12\")"]
sync on  ["Class=String(\"org.x.FileIO\")", "Operation=String(\"sync\")"]
Other on  []
"#
    );
}

#[test]
fn a_line_of_source_code_is_asked_for_too() {
    let line = |number| {
        format!(
            r#"{{"i":"1","s":"{number}","b":1,"e":9,"d":"read","r":"s","n":{{"code.filepath":"src/a.rs","code.lineno":"{number}"}}}}"#
        )
    };
    let shown = shown(&read(&format!("{}\n{}", line(7), line(8)), &["code.lineno"], &[]));
    assert_eq!(shown, "read on dn1 [\"code.lineno=String(\\\"7\\\")\"]\nread on dn1 []\n");
}
