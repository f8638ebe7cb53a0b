use std::fs;

use astracer_model::SpanId;
use astracer_recording::recording::{Intake, Keep, LogView, Recording, Stated};
use astracer_recording::source;
use tempfile::TempDir;

use crate::sample;

/// Reads files of a folder, in the order of their names.
fn read(files: &[(&str, &str)], keep: Keep) -> Recording {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let mut intake = Intake::new(keep);
    source::read(folder.path(), &source::Options::default(), &mut intake).unwrap();
    intake.finish()
}

fn logs() -> Keep {
    Keep { logs: true, ..Keep::default() }
}

const SPANS: &str = "TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano,Duration\n\
                     a1,1,root,front-x-y,GET,100,900,\n\
                     a1,2,1,seat-x-y,seat,200,800,\n\
                     b2,3,root,front-x-y,GET,1000,1900,\n";

const LOGS: &str = "TimeUnixNano,PodName,TraceID,SpanID,Log\n\
                    1500,front-x-y,b2,3,1:1 INFO a.B#7 got 5 seats\n\
                    300,seat-x-y,a1,2,1:1 INFO a.C#9 got 6 seats\n\
                    300,seat-x-y,a1,2,1:1 INFO a.C#9 got 6 seats\n\
                    250,,a1,1,1:1 INFO a.C#9 got 7 seats\n\
                    400,front-x-y,a1,77,no place 12\n\
                    10,other-x-y,ff,1,no trace\n";

fn line(log: LogView<'_>) -> String {
    let span = log.span().map_or(SpanId::ZERO, |span| span.id()).0;
    let values: Vec<_> = log.values().iter().map(|&(_, value)| value).collect();
    format!("{} {} {}: {span} {values:?}", log.time().unwrap().0, log.service(), log.event())
}

#[test]
fn records_are_joined_to_their_traces_and_spans() {
    let recording = read(&[("log.csv", LOGS), ("trace.csv", SPANS)], logs());
    let traces: Vec<Vec<_>> = recording.traces().map(|trace| trace.logs().map(line).collect()).collect();
    let first = [
        "250 front log a.C#9: 1 [7.0]",
        "300 seat log a.C#9: 2 [6.0]",
        "300 seat log a.C#9: 2 [6.0]",
        "400 front log no place #: 0 [12.0]",
    ];
    assert_eq!(traces, [&first[..], &["1500 front log a.B#7: 3 [5.0]"]]);
    let rest: Vec<_> = recording.logs_without_trace().map(line).collect();
    assert_eq!(rest, ["10 other log no trace: 0 []"]);
    let seats = recording.log_names().find("log a.C#9").unwrap();
    assert_eq!(recording.log_example(seats), "got 6 seats");
}

/// Records mention the ids of the spans in every form that loggers write, under no known name.
#[test]
fn records_are_joined_by_the_shape_of_ids() {
    let spans = "TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano,Duration\n\
                 1a1afe878b33e968617959ce3f1f65a8,3fd4235992edcf45,root,shop-x-y,GET,100,900,\n";
    // The low half of the trace and the span in decimal: 0x617959ce3f1f65a8, 0x3fd4235992edcf45.
    for (mention, has_span) in [
        ("x=1A1AFE878B33E968617959CE3F1F65A8/3fd4235992edcf45", true),
        ("00-1a1afe878b33e968617959ce3f1f65a8-3fd4235992edcf45-01", true),
        ("1a1afe87-8b33-e968-6179-59ce3f1f65a8 0x3fd4235992edcf45", true),
        ("[shop,617959ce3f1f65a8]", false),
        ("dd=7023743836218156456 4599339987076239173", true),
        ("projects/p/traces/1a1afe878b33e968617959ce3f1f65a8", false),
    ] {
        let log = format!(
            "2026-05-14 09:00:00 INFO {mention} sold\n2026-05-14 09:00:01 INFO trace_id={:032x} other\n2026-05-14 09:00:02 INFO none\n",
            7
        );
        let recording = read(&[("a.log", &log), ("b.csv", spans)], logs());
        let trace = recording.traces().next().unwrap();
        let found: Vec<_> = trace.logs().map(|log| log.span().map(|span| span.id())).collect();
        assert_eq!(found, [has_span.then_some(SpanId(0x3fd4235992edcf45))], "{mention}");
        assert_eq!(recording.logs_stated(), Stated { none: 1, elsewhere: 1 }, "{mention}");
    }
}

/// Each layout states the trace, and all but one the span, under its own names and in its own form.
#[test]
fn records_of_usual_layouts_are_joined_by_their_ids() {
    let spans = "TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano,Duration\n\
                 5bc8fbbcbde5c0994164d8399f767c45,b0c11fdecb91ce37,root,shop-x-y,buy,1764288000000000000,1764288000011535020,\n";
    let layouts = include_str!("../data/log_ids.txt").split("== ").skip(1);
    let mut count = 0;
    for (name, log) in layouts.filter_map(|layout| layout.split_once('\n')) {
        let recording = read(&[("a.log", log), ("b.csv", spans)], logs());
        assert_eq!(recording.logs().len(), 2, "{name}");
        assert_eq!(recording.logs_stated(), Stated::default(), "{name}");
        let trace = recording.traces().next().unwrap();
        let has_span = trace.logs().filter(|log| log.span().is_some()).count();
        assert_eq!(has_span, if name == "log4j-isoT" { 0 } else { 2 }, "{name}");
        assert!(
            trace.logs().any(|log| recording.log_example(log.event_symbol()).contains("order stored")),
            "{name}"
        );
        count += 1;
    }
    assert_eq!(count, 22);
}

#[test]
fn the_order_of_files_changes_nothing() {
    let lines = |recording: &Recording| -> Vec<_> {
        recording.logs().map(|log| (log.event_symbol(), log.service_symbol(), line(log))).collect()
    };
    let one = read(&[("a.csv", LOGS), ("b.csv", SPANS)], logs());
    let mut reversed: Vec<_> = LOGS.lines().collect();
    reversed[1..].reverse();
    let other = read(&[("a.csv", SPANS), ("b.csv", &reversed.join("\n"))], logs());
    assert_eq!(lines(&one), lines(&other));
}

#[test]
fn files_of_logs_are_skipped_unless_asked_for() {
    let recording = read(&[("log.csv", LOGS), ("trace.csv", SPANS)], Keep::default());
    assert_eq!(recording.logs().len(), 0);
    assert!(recording.traces().all(|trace| trace.logs().len() == 0));
    assert_eq!(recording.skipped().0[0].reason, "a log, not traces; order, compare and query --logs read it");
}

#[test]
fn a_real_minute_is_joined() {
    let mut intake = Intake::new(logs());
    source::read(&sample("trainticket"), &source::Options::default(), &mut intake).unwrap();
    let recording = intake.finish();
    assert_eq!(recording.logs().len(), 5, "rows of the sample");
    assert!(recording.logs().all(|log| log.service().starts_with("ts-")));
}
