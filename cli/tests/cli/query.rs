//! `astracer query`: its options, its messages, and what it prints.

use std::process::Command;

use serde_json::Value;

use crate::options::{Codes, FROM_0, INPUT, RECORDING, REFUSED};
use crate::{Scratch, TWO_TRACES, failure, run, success, workload};

const COUNT: &str = "From r In read* Select COUNT";
const ASK: &[&str] = &["query", INPUT, "-q", COUNT];

/// The rows of the table in `options.rs`.
pub(crate) const OPTIONS: &[(&[&str], &str, Codes)] = &[
    (&["query", "-q", COUNT], "", RECORDING),
    (ASK, "--format", REFUSED),
    (ASK, "--expanded-max", REFUSED),
    (ASK, "--record-max", REFUSED),
    (ASK, "--names", REFUSED),
    (ASK, "--fold", REFUSED),
    (ASK, "--rewrite", REFUSED),
    // They need --logs.
    (ASK, "--layout", REFUSED),
    (ASK, "--layouts", REFUSED),
    (ASK, "--log-zone", REFUSED),
    (ASK, "--sort", REFUSED),
    (ASK, "--limit-time", REFUSED),
    (ASK, "--top", FROM_0),
    // No value is the text of a query, or names a file with one.
    (&["query", INPUT], "--query", REFUSED),
    (&["query", INPUT], "--file", [1, 2, 1, 1, 1, 2, 2, 1, 1, 2]),
    // Each is a pattern, which may match nothing.
    (&["query", INPUT], "--tracepoints", [0, 2, 0, 0, 0, 0, 0, 0, 0, 0]),
    (ASK, "--definitions", [1, 2, 1, 1, 1, 2, 1, 1, 1, 1]),
];

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&success(&run(&[args, &["--json"]].concat()))).expect("JSON")
}

/// The rows are those of a brute-force program (`queries/tests/data/README.md`).
#[test]
fn an_answer_has_the_promised_keys() {
    let path = workload("hdfs_client_ops.tar.xz");
    let text = "From dn In OpReadBlockProto GroupBy dn.host Select dn.host, COUNT";
    let answer = json(&["query", &path, "-q", text]);
    let keys: Vec<&str> = answer.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = "clocks columns cut_counts errors hints incomplete_rows intervals of_one_trace problems rows seen traces \
         unweighted_traces why";
    assert_eq!(keys.join(" "), expected);
    assert_eq!(answer["columns"].to_string(), r#"["dn.host","COUNT"]"#);
    assert_eq!(answer["rows"].to_string(), r#"[["dn1",423],["dn2",449],["dn3",391]]"#);
    assert_eq!((&answer["errors"], &answer["incomplete_rows"]), (&Value::Null, &0.into()));
    let text = success(&run(&["query", &path, "-q", text]));
    assert!(text.contains("\ndn.host  COUNT\ndn2        449\ndn1        423\n"), "{text}");
}

/// Each message has the place, a caret and a remedy, and the exit code is that of wrong usage.
#[test]
fn a_wrong_query_is_refused_with_a_caret() {
    let input = Scratch::new("query-refused.json", TWO_TRACES);
    let output = run(&["query", input.path(), "-q", "From r In read*\nSlect COUNT"]);
    failure(&output, 2, &["line 2, column 1", "\n  Slect COUNT\n  ^^^^^", "help:"]);
    let file = Scratch::new("wrong.query", "From r In read* Join s In send On r -> s Select COUNT");
    failure(&run(&["query", input.path(), "-f", file.path()]), 2, &["wrong.query", "^", "help:"]);
    failure(&run(&["query", input.path()]), 2, &["--query"]);
    failure(
        &run(&["query", input.path(), "-q", COUNT, "--log-zone", "UTC"]),
        2,
        &["no effect without --logs"],
    );
    failure(&run(&["query", "-q", COUNT]), 2, &["RECORDING"]);
}

/// Neither the order of files nor the number of threads shows in an answer.
#[test]
fn every_order_of_files_and_number_of_threads_answers_alike() {
    let path = workload("hdfs_client_ops.tar.xz");
    let lines = include_str!("../../../docs/queries-example.jsonl").lines();
    let (web, store): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.contains("\"r\":\"web\""));
    let [web, store] = [("query-web.json", web), ("query-store.json", store)]
        .map(|(name, lines)| Scratch::new(name, &(lines.join("\n") + "\n")));
    let text = "From d In disk.read Join c In \"GET*\" On c -> d GroupBy c.client, d.host Select c.client, d.host, \
                SUM(d.bytes)";
    let one = json(&["query", web.path(), store.path(), "-q", text]);
    assert_ne!(one["rows"].to_string(), "[]");
    assert_eq!(one["rows"], json(&["query", store.path(), web.path(), "-q", text])["rows"]);
    let text = "From r In OpReadBlockProto Join c In First(\"client:*\") On c -> r GroupBy c.name, r.host Select \
                c.name, r.host, COUNT, QUANTILE(r.time, 0.5)";
    let with_threads = |threads: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_astracer"))
            .args(["query", &path, "--json", "-q", text])
            .env("RAYON_NUM_THREADS", threads)
            .output();
        success(&output.expect("the binary starts"))
    };
    assert_eq!(with_threads("1"), with_threads("5"));
}

/// Three traces of probability 1/2, 1 (unknown) and 0 (kept late): 2 + 1 + 0, and the variance is
/// w (w - 1) = 2 of the first.
#[test]
fn weights_count_what_traces_stand_for() {
    let span = |trace: u32, more: &str| {
        format!(
            r#"{{"traceId":"{trace:032x}","spanId":"{trace:016x}","name":"read","startTimeUnixNano":"1","endTimeUnixNano":"2"{more}}}"#
        )
    };
    let late = r#","attributes":[{"key":"sampler.adjusted_count","value":{"intValue":"0"}}]"#;
    let sampled = span(1, r#","traceState":"ot=th:8""#);
    let recording = |name: &str, spans: &[String]| {
        let text = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#, spans.join(","));
        Scratch::new(name, &text)
    };
    let count = ["--weights", "-q", "From r In read Select COUNT"];
    let input = recording("query-weights-known.json", &[sampled.clone(), span(3, late)]);
    let answer = json(&[&["query", input.path()], &count[..]].concat());
    assert_eq!((answer["rows"].to_string(), &answer["unweighted_traces"]), ("[[2.0]]".to_owned(), &0.into()));
    assert!((answer["errors"][0][0].as_f64().unwrap() - 2f64.sqrt()).abs() < 1e-9, "{answer}");
    assert_eq!(answer["of_one_trace"].to_string(), "[[0,0]]");
    let text = success(&run(&[&["query", input.path()], &count[..]].concat()));
    // At least the two that were seen, and at most 2 + 1.96 * 2^0.5.
    assert!(text.contains("2.000* (2.000 to 4.772)") && text.contains("\n*: one trace makes up"), "{text}");
    let input = recording("query-weights.json", &[sampled, span(2, ""), span(3, late)]);
    let answer = json(&[&["query", input.path()], &count[..]].concat());
    assert_eq!((answer["rows"].to_string(), &answer["unweighted_traces"]), ("[[3.0]]".to_owned(), &1.into()));
    // A trace of unknown weight bounds nothing but itself.
    assert_eq!(
        (answer["errors"].to_string(), answer["intervals"].to_string()),
        ("[[null]]".into(), "[[[3.0,null]]]".into())
    );
    let plain = json(&["query", input.path(), "-q", "From r In read Select COUNT"]);
    assert_eq!((plain["rows"].to_string(), &plain["errors"]), ("[[3]]".to_owned(), &Value::Null));
}

/// A second request that begins after the first one's reads is after them, and not above them.
#[test]
fn below_is_not_before() {
    let span = |id: u32, parent: u32, name: &str, (begin, end): (u32, u32)| {
        let parent = if parent == 0 { String::new() } else { format!("\"{parent:032x}\"") };
        format!(r#"{{"a":"{id:032x}","b":{begin},"e":{end},"d":"{name}","r":"web","p":[{parent}]}}"#)
    };
    let spans = [
        span(1, 0, "root", (0, 900)),
        span(2, 1, "A", (100, 200)),
        span(3, 2, "B", (110, 120)),
        span(4, 3, "C", (112, 114)),
        span(5, 1, "A", (300, 500)),
        span(6, 5, "B", (310, 320)),
        span(7, 5, "B", (330, 480)),
    ];
    let input = Scratch::new("query-below.json", &(spans.join("\n") + "\n"));
    let rows = |text: &str| json(&["query", input.path(), "-q", text])["rows"].to_string();
    let select = "GroupBy a.duration Select a.duration, COUNT";
    let by = |clause: &str| rows(&format!("From a In A@end Join b In B {clause} {select}"));
    assert_eq!(by("On b -> a"), "[[100000000,1],[200000000,3]]");
    assert_eq!(by("Below a"), "[[100000000,1],[200000000,2]]");
    let all = "From a In root Join c In \"*\" Below a Select COUNT";
    assert_eq!(rows(all), "[[6]]");
    // A span that is written twice counts once.
    let twice = [&spans[2..3], &spans[..]].concat();
    let twice = Scratch::new("query-below-twice.json", &(twice.join("\n") + "\n"));
    assert_eq!(json(&["query", twice.path(), "-q", all])["rows"].to_string(), "[[6]]");
    let kept = Scratch::new("query-below-kept.jsonl", "");
    let args = ["evaluate", twice.path(), "--sampler", "always", "--seeds", "1", "--kept-out", kept.path()];
    success(&run(&args));
    assert_eq!(json(&["query", kept.path(), "-q", all])["rows"].to_string(), "[[6]]");
    assert_eq!(rows("From a In root Join c In \"*\" Child Of a Select COUNT"), "[[2]]");
    // By hand: under root the two A; under each A its B; C is under the first B alone.
    assert_eq!(rows("From a In A@end Join Without c In C Below a Select a.duration"), "[[200000000]]");
    assert_eq!(
        rows("From a In A@end Join b In B Below a Join c In C Child Of b Select a.duration"),
        "[[100000000]]"
    );
}

/// The kept recording says by its weights what the whole one does: `ratio:0.25` keeps the traces of
/// `--kept`, each of which stands for four.
#[test]
fn a_kept_recording_is_asked_by_weights() {
    let path = workload("hdfs_client_ops.tar.xz");
    let [kept, ids] = ["query-kept.jsonl", "query-kept.txt"].map(|name| Scratch::new(name, ""));
    let sampler = ["evaluate", &path, "--sampler", "ratio:0.25", "--seeds", "1", "--kept-out", kept.path()];
    success(&run(&[&sampler[..], &["--kept", ids.path()]].concat()));
    let ids = std::fs::read_to_string(ids.path()).unwrap().lines().count();
    let all = json(&["query", kept.path(), "-q", "From s In \"*\" Select COUNT DISTINCT s.trace"]);
    assert_eq!(all["rows"][0][0].as_u64(), Some(ids as u64));
    let text = "From s In \"client:*\" Select COUNT";
    let answer = json(&["query", kept.path(), "--weights", "-q", text]);
    let exact = json(&["query", &path, "-q", text])["rows"][0][0].as_f64().unwrap();
    let (estimate, interval) = (answer["rows"][0][0].as_f64().unwrap(), &answer["intervals"][0][0]);
    assert_eq!((answer["unweighted_traces"].as_u64(), estimate % 4.0), (Some(0), 0.0));
    let ends = [0, 1].map(|end| interval[end].as_f64().unwrap());
    assert!(ends[0] < exact && exact < ends[1], "{ends:?} for {exact}");
    // Traces kept late stand for no others.
    let failed = r#"{"traceId":"00000000000000000000000000000007","spanId":"0000000000000007","name":"s","startTimeUnixNano":"1","endTimeUnixNano":"2","status":{"code":2}}"#;
    let text = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{failed}]}}]}}]}}"#);
    let input = Scratch::new("query-failed.json", &text);
    let tail = ["--tail", "error", "--provisional", "always", "--sampler", "never", "--seeds", "1"];
    success(&run(&[&["evaluate", input.path(), "--kept-out", kept.path()], &tail[..]].concat()));
    let answer = json(&["query", kept.path(), "--weights", "-q", "From s In \"*\" Select COUNT"]);
    assert_eq!((answer["rows"].to_string(), answer["seen"].to_string()), ("[[null]]".into(), "[1]".into()));
    failure(
        &run(&["evaluate", "-", "--sampler", "always", "--kept-out", kept.path()]),
        2,
        &["reads the recording twice"],
    );
}

/// Each row names traces, and each extreme value the one that it is in.
#[test]
fn why_names_traces() {
    let span = |trace: u32, ms: u32| {
        format!(r#"{{"a":"{trace:016x}{:016x}","b":1,"e":{ms},"d":"read","r":"web","p":[]}}"#, 1)
    };
    let spans = [(9, 5), (2, 70), (4, 6), (3, 70), (5, 8)].map(|(trace, ms)| span(trace, ms));
    let input = Scratch::new("query-why.json", &(spans.join("\n") + "\n"));
    let text = "From r In read@end Select MAX(r.duration), COUNT, MIN(r.duration)";
    let answer = json(&["query", input.path(), "--why", "-q", text]);
    let id = |trace: u32| format!("{trace:016x}");
    let expected = serde_json::json!([{
        "traces": [id(2), id(3), id(4)],
        "extremes": {"MAX(r.duration)": id(2), "MIN(r.duration)": id(9)},
    }]);
    assert_eq!(answer["why"], expected);
    assert_eq!(json(&["query", input.path(), "-q", text])["why"], Value::Null);
    let text = success(&run(&["query", input.path(), "--why", "-q", text]));
    assert!(text.contains(&format!("\n  all: {}, ", id(2))), "{text}");
    assert!(text.contains(&format!("\n    MIN(r.duration): in {}\n", id(9))), "{text}");
}

#[test]
fn advice_needs_no_recording() {
    let text = success(&run(&["query", "--explain", "-q", "From a In x Where a.y > 1 Select a.z"]));
    assert!(text.contains("1. a at x\n") && text.contains("OBSERVE a.y") && text.contains("EMIT"), "{text}");
}

/// A misspelt name is the likely reason for an empty answer.
#[test]
fn a_tracepoint_that_nothing_matches_is_named() {
    let input = Scratch::new("query-unmatched.json", TWO_TRACES);
    let text = success(&run(&["query", input.path(), "-q", "From s In snd Select COUNT"]));
    assert!(text.contains("snd: did you mean \"send\"?"), "{text}");
    let text = success(&run(&["query", input.path(), "-q", "From s In send Select s.tim, s.time"]));
    assert!(text.contains("they are null: 1\n  tim\n"), "{text}");
}

#[test]
fn definitions_give_tracepoints_other_names() {
    let input = Scratch::new("query-defined.json", TWO_TRACES);
    let names = Scratch::new("names.toml", "Work.all = [\"read*\", \"send\"]\nWork.ends = \"read*@end\"\n");
    let ask = |text: &str| json(&["query", input.path(), "--definitions", names.path(), "-q", text]);
    assert_eq!(ask("From w In Work.all Select COUNT")["rows"].to_string(), "[[3]]");
    assert_eq!(
        ask("From w In Work.ends Select COUNT, SUM(w.duration)")["rows"].to_string(),
        "[[2,18000000]]"
    );
    let wrong = Scratch::new("wrong.toml", "a = 5\n");
    failure(
        &run(&["query", input.path(), "--definitions", wrong.path(), "-q", COUNT]),
        1,
        &["'a' needs a pattern"],
    );
}

/// Numbers from the three lines of the input.
#[test]
fn tracepoints_are_listed_with_their_hosts_and_fields() {
    let attribute = |key: &str, value: &str| format!(r#"{{"key":"{key}","value":{value}}}"#);
    let span = |id: u32, name: &str, attributes: &str, event: &str| {
        format!(
            r#"{{"traceId":"{id:032x}","spanId":"{id:016x}","name":"{name}","startTimeUnixNano":"1000","endTimeUnixNano":"2000","attributes":[{attributes}],"events":[{event}]}}"#
        )
    };
    let bytes = attribute("bytes", r#"{"intValue":"7"}"#);
    let event = format!(
        r#"{{"timeUnixNano":"1500","name":"retry","attributes":[{}]}}"#,
        attribute("n", r#"{"doubleValue":0.5}"#)
    );
    let spans =
        [span(1, "read", &bytes, &event), span(2, "read", &attribute("path", r#"{"stringValue":"/a"}"#), "")];
    let text = format!(
        r#"{{"resourceSpans":[{{"resource":{{"attributes":[{}]}},"scopeSpans":[{{"spans":[{}]}}]}}]}}"#,
        attribute("host.name", r#"{"stringValue":"dn1"}"#),
        spans.join(",")
    );
    let input = Scratch::new("query-tracepoints.json", &text);
    let found = json(&["query", input.path(), "--tracepoints"]);
    let expected = serde_json::json!([
        {"name": "read", "kind": "span", "points": 2, "hosts": ["dn1"], "fields": [
            {"name": "bytes", "types": ["integer"], "count": 1, "examples": ["7"]},
            {"name": "path", "types": ["text"], "count": 1, "examples": ["/a"]}]},
        {"name": "retry", "kind": "event", "points": 1, "hosts": ["dn1"], "fields": [
            {"name": "n", "types": ["number"], "count": 1, "examples": ["0.5"]}]}
    ]);
    assert_eq!(found["tracepoints"], expected);
    assert_eq!(found["resource"][0]["name"], "host.name");
    let text = success(&run(&["query", input.path(), "--tracepoints", "re?ry*"]));
    assert!(text.contains("no tracepoint matches 're?ry*'"), "{text}");
    let text = success(&run(&["query", input.path(), "--tracepoints", "ret*"]));
    assert!(text.contains("\nretry (event, 1 point on dn1)\n  n: number, 1 times: 0.5\n"), "{text}");
    assert!(!text.contains("\nread "), "{text}");
}

/// The queries that the document shows without a command are valid.
#[test]
fn the_queries_of_the_document_are_valid() {
    let text = include_str!("../../../docs/queries.md");
    let queries: Vec<&str> =
        text.split("```query\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(queries.len(), 25);
    for query in queries {
        success(&run(&["query", "--explain", "-q", query]));
    }
}

/// The records of a log are read by the layout and in the zone that the user states.
#[test]
fn log_records_are_asked_in_a_stated_layout() {
    let log = Scratch::new("query-layout.log", "I 133/2026 090007: up\nW 133/2026 090008: slow\n");
    let text = "From r In log Select r.time";
    let layout = ["--layout", "%.1p %j/%Y %H%M%S: %m", "--log-zone", "+02:00"];
    let answer = json(&[&["query", log.path(), "--logs", "-q", text][..], &layout].concat());
    assert_eq!(answer["rows"].as_array().map(Vec::len), Some(2), "{answer}");
}
