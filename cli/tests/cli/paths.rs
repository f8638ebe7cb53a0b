//! `astracer critical-path` and `astracer events` on two HTrace traces and on X-Trace reports.

use serde_json::Value;

use crate::outputs::Folder;
use crate::{TWO_TRACES, run, success};

const REPORTS: &str = r#"[{"id":"1","reports":[
    {"X-Trace":["1900000000000000010000000000000001"],"Edge":[],"Timestamp":["1000.000"],"Label":["start"],"Host":["h"],"ThreadID":["1"]},
    {"X-Trace":["1900000000000000010000000000000002"],"Edge":["0000000000000001"],"Timestamp":["1000.010"],"Label":["work"],"Host":["h"],"ThreadID":["2"]},
    {"X-Trace":["1900000000000000010000000000000003"],"Edge":["0000000000000001"],"Timestamp":["1000.030"],"Label":["other"],"Host":["h"],"ThreadID":["3"]},
    {"X-Trace":["1900000000000000010000000000000004"],"Edge":["0000000000000002","0000000000000003"],"Timestamp":["1000.050"],"Label":["join"],"Host":["h"],"ThreadID":["1"]}
]}]"#;

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&success(&run(args))).expect("JSON")
}

#[test]
fn critical_time_is_that_of_a_computation_by_hand() {
    let folder = Folder::new("paths");
    let recording = folder.file("w.jsonl", TWO_TRACES);
    // The path of the first trace has 6 ms of the root and 4 of send, that of the second 8 of the
    // root.
    let found = json(&["critical-path", &recording, "--json", "--speedup", "send=0"]);
    let row = |place: usize| {
        let row = &found["rows"][place];
        (row["name"][0].as_str().expect("a name").to_owned(), row["total_ms"].clone(), row["traces"].clone())
    };
    assert_eq!(row(0), ("read(*)".to_owned(), 14.0.into(), 2.0.into()));
    assert_eq!(row(1), ("send".to_owned(), 4.0.into(), 1.0.into()));
    for (top, rows) in [("0", 2), ("1", 1), ("3", 2)] {
        let found = json(&["critical-path", &recording, "--json", "--top", top]);
        assert_eq!(found["rows"].as_array().map(Vec::len), Some(rows), "--top {top}");
    }
    assert_eq!(found["speedup"]["before"]["mean_ms"], 9.0);
    assert_eq!(found["speedup"]["after"]["mean_ms"], 7.0);
    let text = success(&run(&["critical-path", &recording]));
    assert!(text.lines().any(|line| line.starts_with("send") && line.contains("22.2%")), "{text}");
}

/// A root of 8 µs with a child of 1 µs, and with events of X-Trace, 2 and 1 µs apart.
const WITH_EVENTS: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[
 {"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"b7ad6b7169203331","name":"GET /",
  "startTimeUnixNano":"1000","endTimeUnixNano":"9000","events":[
  {"timeUnixNano":"1000","name":"begin","attributes":[
   {"key":"xtrace.event","value":{"stringValue":"000000000000000a"}}]},
  {"timeUnixNano":"3000","name":"fork","attributes":[
   {"key":"xtrace.event","value":{"stringValue":"000000000000000b"}},
   {"key":"xtrace.parents","value":{"arrayValue":{"values":[{"stringValue":"000000000000000a"}]}}}]},
  {"timeUnixNano":"4000","name":"join","attributes":[
   {"key":"xtrace.event","value":{"stringValue":"000000000000000c"}},
   {"key":"xtrace.parents","value":{"arrayValue":{"values":[{"stringValue":"000000000000000b"}]}}}]}]},
 {"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"00ad6b7169203332",
  "parentSpanId":"b7ad6b7169203331","name":"child","startTimeUnixNano":"2000","endTimeUnixNano":"3000"}
]}]}]}"#;

#[test]
fn spans_are_followed_in_place_of_their_events() {
    let folder = Folder::new("spans-or-events");
    let recording = folder.file("w.json", WITH_EVENTS);
    let rows = |options: &[&str]| -> Vec<(String, f64)> {
        let found = json(&[&["critical-path", &recording, "--json"], options].concat());
        let rows = found["rows"].as_array().expect("rows").iter();
        rows.map(|row| {
            (row["name"][0].as_str().expect("a name").to_owned(), row["total_ms"].as_f64().expect("a time"))
        })
        .collect()
    };
    let named =
        |rows: &[(&str, f64)]| rows.iter().map(|(name, ms)| ((*name).to_owned(), *ms)).collect::<Vec<_>>();
    assert_eq!(rows(&[])[..2], named(&[("GET / begin", 0.002), ("GET / fork", 0.001)]));
    assert_eq!(rows(&["--spans"]), named(&[("GET /", 0.007), ("child", 0.001)]));
    let refused = run(&["critical-path", &recording, "--spans", "--rule", "events"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn segments_and_folded_stacks_are_written() {
    let folder = Folder::new("segments");
    let recording = folder.file("w.jsonl", TWO_TRACES);
    let (segments, folded) = (folder.join("s"), folder.join("f"));
    success(&run(&["critical-path", &recording, "--segments", &segments, "--folded", &folded]));
    let folded = std::fs::read_to_string(folded).expect("written");
    assert_eq!(folded, "read(*) 14000000\nread(*);send 4000000\n");
    let lines = std::fs::read_to_string(segments).expect("written");
    let first: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["trace_id"], "0000000000000001");
    assert_eq!((&first["root"], &first["duration_ns"]), (&"0000000000000011".into(), &10_000_000.into()));
    assert_eq!(first["exclusive_ns"]["0000000000000012"], 4_000_000);
    let times: Vec<_> =
        first["segments"].as_array().expect("segments").iter().map(|own| own["start_ns"].clone()).collect();
    assert_eq!(times, [1_000_000_000u64, 1_002_000_000, 1_006_000_000]);
    assert_eq!(lines.lines().count(), 2);
}

#[test]
fn a_join_waits_for_the_event_that_comes_last() {
    let folder = Folder::new("events");
    let recording = folder.file("x.json", REPORTS);
    let found = json(&["events", &recording, "--trace", "1", "--json"]);
    let on_path: Vec<_> = found["events"]
        .as_array()
        .expect("events")
        .iter()
        .filter(|event| event["on_path"] == true)
        .map(|event| {
            (event["name"].as_str().expect("a name"), event["critical_ns"].as_u64().expect("a time"))
        })
        .collect();
    assert_eq!(on_path, [("start", 30_000_000), ("other", 20_000_000), ("join", 0)]);
    // The edge from work has 20 ms of slack.
    assert_eq!(found["events"][3]["edges"][0]["slack_ns"], 20_000_000.0);
    let dot = success(&run(&["events", &recording, "--trace", "1", "--dot"]));
    assert!(dot.starts_with("digraph") && dot.contains("e2 -> e3 [label=\"20.000\", style=bold]"), "{dot}");
    // By hand: 30 + 20 ms through other; 10 ms through work, and then the same 20 ms.
    let lengths: Vec<_> =
        found["paths"].as_array().expect("paths").iter().map(|path| path["length_ns"].clone()).collect();
    assert_eq!(lengths, [50_000_000.0, 30_000_000.0]);
    assert_eq!(found["paths"][1]["behind_ns"], 20_000_000.0);
    let start = &found["procedures"][0];
    assert_eq!((&start["name"], &start["gain_ns"]), (&"start".into(), &30_000_000.0.into()));
    assert_eq!(start["slack_ns"], 30_000_000.0);
    let text = success(&run(&["events", &recording, "--trace", "1", "--top", "2"]));
    assert!(text.lines().any(|line| line.starts_with("2, through work ")), "{text}");
    assert!(
        text.lines().any(|line| line.starts_with("other ") && line.ends_with("20.00  20.00  20.00")),
        "{text}"
    );
    let page = folder.join("g.html");
    success(&run(&["events", &recording, "--trace", "1", "--html", &page]));
    let page = std::fs::read_to_string(page).expect("written");
    assert!(page.contains("Longest paths") && page.contains("Functions on the longest path"), "{page}");
    let profile = json(&["critical-path", &recording, "--json", "--speedup", "start=0.5"]);
    assert_eq!(profile["rows"][0]["name"][0], "start");
    // Half of 30 ms is gained on the path by other; work would be done after 5.
    assert_eq!(profile["speedup"]["after"]["mean_ms"], 35.0);
}

#[test]
fn a_comparison_separates_the_mix_of_roots() {
    let folder = Folder::new("compare");
    // Traces of a root that takes 10 ms and of one that takes 2.
    let trace = |id: usize, name: &str, ms: u64| {
        format!(
            r#"{{"a":"{id:016x}{:016x}","b":{},"e":{},"d":"{name}","r":"s","p":[]}}"#,
            1,
            1000 * id,
            1000 * id as u64 + ms
        )
    };
    let recording = |slow: usize, fast: usize| -> String {
        let slow = (1..=slow).map(|id| trace(id, "slow", 10));
        let fast = (101..=100 + fast).map(|id| trace(id, "fast", 2));
        slow.chain(fast).collect::<Vec<_>>().join("\n")
    };
    let (there, here) = (recording(1, 3), recording(3, 1));
    let (there, here) = (folder.file("there.jsonl", &there), folder.file("here.jsonl", &here));
    let found = json(&["critical-path", &here, "--compare", &there, "--json"]);
    let comparison = &found["comparison"];
    assert_eq!((&comparison["before_ms"], &comparison["after_ms"]), (&4.0.into(), &8.0.into()));
    assert_eq!((&comparison["same_roots_ms"], &comparison["mix_ms"]), (&0.0.into(), &4.0.into()));
    let first = json(&["critical-path", &here, "--compare", &there, "--json", "--top", "1"]);
    let differences = |found: &Value| found["comparison"]["differences"].as_array().map(Vec::len);
    assert_eq!((differences(&found), differences(&first)), (Some(2), Some(1)));
    let text = crate::unwrapped(&success(&run(&["critical-path", &here, "--compare", &there])));
    assert!(text.contains("8.000 ms here: 0 ms in traces of the same roots, +4.000 ms"), "{text}");
}

#[test]
fn unused_and_missing_weights_are_reported() {
    let folder = Folder::new("weights");
    let request = |state: &str| {
        format!(
            r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"traceId":"00000000000000000000000000000001","spanId":"0000000000000001","name":"a","startTimeUnixNano":"1","endTimeUnixNano":"2","traceState":"{state}"}}]}}]}}]}}"#
        )
    };
    for (state, recorded) in [
        ("ot=th:8", true),
        ("x=1, ot=rv:aaaaaaaaaaaaaa;th:c", true),
        ("ot=rv:aaaaaaaaaaaaaa", false),
        ("x=th:8", false),
        ("", false),
    ] {
        let file = folder.file("w.json", &request(state));
        let told = |args: &[&str]| success(&run(args)).contains("--weights");
        assert_eq!(told(&["critical-path", &file]), recorded, "{state}");
        let weighed = |more: &[&str]| {
            crate::unwrapped(&success(&run(&[&["critical-path", &file, "--weights"], more].concat())))
        };
        let once = "warning: 1 trace without a weight (ot=th): each counts once";
        assert_eq!(weighed(&[]).contains(once), !recorded, "{state}");
        assert_eq!(weighed(&[]).contains("which represent"), recorded, "{state}");
        let other = folder.file("other.json", &request(""));
        let of_other = format!("warning: 1 trace of {other} without a weight (ot=th)");
        // Beside a sample, a recording without weights is one of all traces.
        assert_eq!(weighed(&["--compare", &other]).contains(&of_other), !recorded, "{state}");
        let page = folder.join("w.html");
        success(&run(&["critical-path", &file, "--html", &page]));
        let page = std::fs::read_to_string(page).unwrap();
        assert_eq!(page.contains("estimates all traffic"), recorded, "{state}");
        let inspected = crate::unwrapped(&success(&run(&["inspect", &file])));
        assert_eq!(inspected.contains(&format!("critical-path {file} --weights")), recorded, "{inspected}");
        assert_eq!(told(&["inspect", &file]), recorded, "{state}");
        assert_eq!(json(&["critical-path", &file, "--json"])["weights_recorded"], recorded, "{state}");
    }
}

/// A root with 60 children on its path, one after the other, and longer ones beside it: the
/// terminal shows 60 rows, even if a page is written too.
#[test]
fn a_trace_has_as_many_rows_in_the_terminal_whatever_else_is_written() {
    let folder = Folder::new("rows");
    let span = |id: u64, parent: &str, (begin, end): (u64, u64)| {
        format!(r#"{{"a":"{:016x}{id:016x}","b":{begin},"e":{end},"d":"n{id}","r":"s","p":[{parent}]}}"#, 1)
    };
    let root = format!("\"{:016x}{:016x}\"", 1, 1);
    let on_path = (0..60).map(|at| span(2 + at, &root, (1_000 + 10 * at, 1_010 + 10 * at)));
    let beside = (0..540).map(|at| span(100 + at, &root, (1_005, 1_395)));
    let spans: Vec<String> = [span(1, "", (1_000, 1_600))].into_iter().chain(on_path).chain(beside).collect();
    let recording = folder.file("t.jsonl", &spans.join("\n"));
    let page = folder.join("t.html");
    let shown = ["critical-path", &recording, "--trace", "1"];
    for args in [&shown[..], &[&shown[..], &["--html", &page]].concat()] {
        let text = success(&run(args));
        assert_eq!(text.lines().filter(|line| line.starts_with(" n")).count(), 60, "{text}");
        assert!(text.contains("... 541 more spans, ") && text.contains("--json has more"), "{text}");
    }
    let found = json(&[&shown[..], &["--json"]].concat());
    assert_eq!(found["trace"]["lanes"].as_array().map(Vec::len), Some(500));
}
