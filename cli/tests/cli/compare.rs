//! `astracer compare`: what differs plainly is found, and what was not tested is not called chance.

use serde_json::{Value, json};

use crate::{Scratch, run, success};

/// A trace: its root's duration in ms, whether it failed, the names of its calls of 1 ms one after
/// the other, and an attribute of the root.
struct Trace<'a> {
    ms: u64,
    failed: bool,
    calls: &'a [&'a str],
    customer: String,
}

const CALLED: Trace<'_> = Trace { ms: 10, failed: false, calls: &["SELECT"], customer: String::new() };

/// A recording in OTLP's JSON, an hour long from this hour on.
fn recording(name: &str, hour: u64, traces: &[Trace<'_>]) -> Scratch {
    let mut spans = Vec::new();
    for (number, trace) in (1u64..).zip(traces) {
        let nanos = |ms: u64| {
            format!(
                "{}",
                1_764_000_000_000_000_000
                    + hour * 3_600_000_000_000
                    + number * 1_000_000_000
                    + ms * 1_000_000
            )
        };
        let mut span = |id: u64,
                        parent: u64,
                        name: &str,
                        from: u64,
                        to: u64,
                        status: u64,
                        attributes: Value| {
            let parent = if parent == 0 { String::new() } else { format!("{parent:016x}") };
            spans.push(json!({"traceId": format!("{:032x}", hour * 100_000 + number), "spanId": format!("{id:016x}"),
                "parentSpanId": parent, "name": name, "startTimeUnixNano": nanos(from), "endTimeUnixNano": nanos(to),
                "status": {"code": status}, "attributes": attributes}));
        };
        let own = json!([{"key": "customer", "value": {"stringValue": trace.customer}}]);
        // Durations vary by a few ms, as real ones do.
        span(1, 0, "GET /cart", 0, trace.ms + number % 4, if trace.failed { 2 } else { 0 }, own);
        for (at, name) in (0u64..).zip(trace.calls) {
            span(2 + at, 1, name, 1 + at, 2 + at, 0, json!([]));
        }
    }
    let service = json!([{"key": "service.name", "value": {"stringValue": "cart"}}]);
    let text =
        json!({"resourceSpans": [{"resource": {"attributes": service}, "scopeSpans": [{"spans": spans}]}]});
    Scratch::new(name, &text.to_string())
}

fn traces<'a>(count: usize, of: impl Fn(usize) -> Trace<'a>) -> Vec<Trace<'a>> {
    (0..count).map(of).collect()
}

pub(crate) fn comparison(args: &[&str]) -> Value {
    serde_json::from_str(&success(&run(&[&["compare"], args, &["--json"]].concat()))).expect("JSON")
}

/// The rows, each with those that it explains behind it.
pub(crate) fn rows(comparison: &Value) -> Vec<Value> {
    let below = |row: &Value| row["explains"].as_array().cloned().unwrap_or_default();
    let rows = comparison["ranked"].as_array().expect("rows").iter();
    rows.flat_map(|row| [vec![row.clone()], below(row)].concat()).collect()
}

/// The first row: variable, feature and both means.
pub(crate) fn first(comparison: &Value) -> (&str, &str, f64, f64) {
    let row = &comparison["ranked"][0];
    let text = |name: &str| row[name].as_str().unwrap_or_default();
    let mean = |at: usize| row["means"][at].as_f64().unwrap_or(f64::NAN);
    (text("variable"), text("feature"), mean(0), mean(1))
}

#[test]
fn an_event_of_one_class_alone_comes_first() {
    let good = recording("compare-present-good", 0, &traces(40, |_| CALLED));
    let bad = recording(
        "compare-present-bad",
        1,
        &traces(40, |_| Trace { calls: &["SELECT", "lookup"], ..CALLED }),
    );
    let found = comparison(&[good.path(), bad.path()]);
    assert_eq!(first(&found), ("cart lookup", "Present", 0.0, 1.0));
    assert_eq!(found["ranked"][0]["chance"], 1.0 / 201.0);
    let shown = success(&run(&["compare", good.path(), bad.path()]));
    assert!(shown.contains("in traces  0.00%   100%"), "{shown}");
    // The same calls in both classes are no difference.
    let same =
        comparison(&[good.path(), recording("compare-present-same", 2, &traces(40, |_| CALLED)).path()]);
    assert_eq!(same["ranked"], json!([]));
    assert_eq!(same["tested_values"].as_u64().map(|tested| tested > 0), Some(true), "{same}");
}

#[test]
fn a_second_query_in_every_trace_is_a_count() {
    let good = recording("compare-twice-good", 0, &traces(40, |_| CALLED));
    let bad =
        recording("compare-twice-bad", 1, &traces(40, |_| Trace { calls: &["SELECT", "SELECT"], ..CALLED }));
    let found = comparison(&[good.path(), bad.path()]);
    assert_eq!(first(&found), ("cart SELECT", "Count", 1.0, 2.0));
}

/// A root that takes three times as long, and 30 % errors, end a build. So does neither where runs
/// differ by accident only.
#[test]
fn a_slower_root_and_its_errors_fail_a_build() {
    let run_of = |name: &str, hour: u64, ms: u64, failed: usize| {
        let of = |at: usize| Trace { ms, failed: at % 100 < failed, ..CALLED };
        recording(name, hour, &traces(200, of))
    };
    let good = [0, 1, 2].map(|hour| run_of(&format!("compare-run-{hour}"), hour, 10, 1));
    let with = |bad: &Scratch| {
        let mut args = vec!["compare"];
        good.iter().for_each(|run| args.extend(["--good", run.path()]));
        args.extend(["--bad", bad.path(), "--fail-on", "confirmed"]);
        let output = run(&args);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, says) = with(&run_of("compare-run-slow", 3, 30, 1));
    assert!(code == Some(1) && says.contains("GET /cart"), "{says}");
    let (code, says) = with(&run_of("compare-run-failing", 4, 10, 30));
    assert!(code == Some(1) && says.contains("cart GET /cart error"), "{says}");
    assert_eq!(with(&run_of("compare-run-same", 5, 10, 1)).0, Some(0));
}

#[test]
fn the_roots_own_time_explains_its_whole_time() {
    let good = recording("compare-own-good", 0, &traces(40, |_| CALLED));
    let bad = recording("compare-own-bad", 1, &traces(40, |_| Trace { ms: 30, ..CALLED }));
    let found = comparison(&[good.path(), bad.path()]);
    assert_eq!(first(&found).0, "cart GET /cart own ms");
    assert_eq!(found["ranked"][0]["explains"][0]["variable"], "cart GET /cart ms");
}

/// One customer of a thousand has nearly all slow requests.
#[test]
fn a_frequent_value_of_many_is_found() {
    let of = |at: usize| {
        let is_slow = at.is_multiple_of(20);
        let customer = if is_slow { "c-42".to_owned() } else { format!("c-{at}") };
        Trace { ms: if is_slow { 90 } else { 10 }, customer, ..CALLED }
    };
    let day = recording("compare-customers", 0, &traces(1_000, of));
    let found = comparison(&[day.path(), "--bad-slowest", "5%"]);
    let rows = rows(&found);
    let customer = rows.iter().find(|row| row["variable"] == "cart customer=c-42").expect("a row");
    // One good trace is c-42, too: number 42 of a thousand.
    let means = [0, 1].map(|at| customer["means"][at].as_f64().unwrap_or(f64::NAN));
    assert_eq!(means, [1.0 / 950.0, 1.0]);
    // The duration chose the classes, so it is no finding.
    assert!(rows.iter().all(|row| row["variable"] != "cart GET /cart ms"), "{found}");
}

#[test]
fn too_few_traces_are_not_within_chance() {
    let of = |at: usize| Trace { ms: if at < 4 { 2_000 } else { 10 }, ..CALLED };
    let day = recording("compare-few", 0, &traces(60, of));
    let shown = success(&run(&["compare", day.path(), "--bad-above", "1s"]));
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("nothing was tested: times and counts need 5 values of each class"), "{shown}");
    assert!(!shown.contains("beyond chance"), "{shown}");
    // Presence is tested with four.
    let of = |at: usize| Trace { calls: if at < 4 { &["SELECT", "lock"] } else { &["SELECT"] }, ..of(at) };
    let day = recording("compare-four", 0, &traces(60, of));
    assert_eq!(first(&comparison(&[day.path(), "--bad-above", "1s"])), ("cart lock", "Present", 0.0, 1.0));
}

/// One trace of each has no spread, so both are shown, and a build cannot fail by them.
#[test]
fn two_traces_are_put_side_by_side() {
    let good = recording("compare-one-good", 0, &traces(1, |_| CALLED));
    let bad = recording(
        "compare-one-bad",
        1,
        &traces(1, |_| Trace { ms: 30, calls: &["SELECT", "SELECT", "lock"], ..CALLED }),
    );
    let found = comparison(&[good.path(), bad.path()]);
    // The first trace of a recording takes a millisecond more.
    assert_eq!(found["values"], json!([11.0, 31.0]));
    let rows: Vec<_> = found["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| json!([row["variable"], row["values"]]))
        .collect();
    let want = [
        json!(["cart lock", [0.0, 1.0]]),
        json!(["cart SELECT", [1.0, 2.0]]),
        json!(["cart GET /cart ms", [11.0, 31.0]]),
        json!(["cart GET /cart own ms", [10.0, 28.0]]),
        json!(["cart SELECT ms", [1.0, 2.0]]),
    ];
    assert_eq!(rows, want);
    let shown = success(&run(&["compare", good.path(), bad.path()]));
    assert!(shown.contains("side by side") && shown.contains("nothing was tested"), "{shown}");
    let failed = run(&["compare", good.path(), bad.path(), "--fail-on", "significant"]);
    assert_eq!(failed.status.code(), Some(1));
}

/// The seventh of 60 traces alone takes a lock and 90 ms.
#[test]
fn a_trace_is_explained_by_the_others_of_its_type() {
    let of = |at: usize| match at {
        7 => Trace { ms: 90, calls: &["SELECT", "lock"], ..CALLED },
        _ => CALLED,
    };
    let day = recording("compare-explain", 0, &traces(60, of));
    let found = comparison(&[day.path(), "--explain", "8"]);
    assert_eq!(
        (&found["others"], &found["value"], &found["percentile"]),
        (&json!(59), &json!(90.0), &json!(1.0))
    );
    let rows: Vec<_> =
        found["rows"].as_array().expect("rows").iter().map(|row| row["variable"].as_str()).collect();
    // 90 ms against a median of 12 ms, of which 88 against 11 are its own.
    assert_eq!(rows, [Some("cart lock"), Some("cart GET /cart ms"), Some("cart GET /cart own ms")]);
    let shown = success(&run(&["compare", day.path(), "--explain", "8"]));
    assert!(shown.contains("among 59 others of cart GET /cart"), "{shown}");
    assert_eq!(run(&["compare", day.path(), "--explain", "999"]).status.code(), Some(1));
}

/// The processor of the database is busy in the bad hour, and a row of the file is not a number.
#[test]
fn metrics_are_variables() {
    let good = recording("compare-metrics-good", 0, &traces(40, |_| CALLED));
    let bad = recording("compare-metrics-bad", 1, &traces(40, |_| CALLED));
    let row = |second: u64| {
        let busy = if second >= 3_600 { 80 } else { 20 };
        format!(
            "{},db,cpu %,{}\n{},db,threads,8\n",
            1_764_000_000 + second,
            busy + second % 3,
            1_764_000_000 + second
        )
    };
    let rows: String = (0..60).chain(3_600..3_660).map(row).collect();
    let metrics = Scratch::new(
        "compare-metrics.csv",
        &format!("time,entity,name,value\n{rows}1764000000,db,cpu %,NaN\n"),
    );
    let found = comparison(&[good.path(), bad.path(), "--metrics", metrics.path()]);
    assert_eq!(first(&found).0, "db cpu %");
    let shown = success(&run(&["compare", good.path(), bad.path(), "--metrics", metrics.path()]));
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("2 series of --metrics") && shown.contains("skipped: 1 row of"), "{shown}");
}

/// Exceptions have the same name as events, and differ by type and message. Numbers in messages do
/// not tell them apart.
#[test]
fn exceptions_are_told_apart_by_type_and_message() {
    let day = |name: &str, hour: u64, class: &str| {
        let span = |number: u64| {
            let start = 1_764_000_000_000_000_000 + hour * 3_600_000_000_000 + number * 1_000_000_000;
            let text = |key: &str, value: String| json!({"key": key, "value": {"stringValue": value}});
            let attributes = [
                text("exception.type", class.to_owned()),
                text("exception.message", format!("no seat {number} left")),
            ];
            json!({"traceId": format!("{:032x}", hour * 1_000 + number + 1), "spanId": "0000000000000001", "name": "buy",
                "startTimeUnixNano": format!("{start}"), "endTimeUnixNano": format!("{}", start + 5_000_000 + number % 3),
                "events": [{"name": "exception", "timeUnixNano": format!("{start}"), "attributes": attributes}]})
        };
        let spans: Vec<Value> = (0..20).map(span).collect();
        Scratch::new(name, &json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string())
    };
    let (good, bad) = (day("compare-full", 0, "Full"), day("compare-closed", 1, "Closed"));
    let found = comparison(&[good.path(), bad.path()]);
    let names: Vec<_> =
        rows(&found).iter().map(|row| row["variable"].as_str().unwrap_or_default().to_owned()).collect();
    for name in ["buy: Closed", "buy: Closed no seat # left", "buy: Full", "buy: Full no seat # left"] {
        assert!(names.contains(&name.to_owned()), "{names:?}");
    }
    assert!(!names.contains(&"buy: exception".to_owned()), "{names:?}");
}

#[test]
fn a_misspelt_name_is_answered_by_the_nearest() {
    let of = |at: usize| Trace { customer: format!("customer-{}", at % 3), ..CALLED };
    let day = recording("compare-misspelt", 0, &traces(30, of));
    for (option, value, says) in [
        (
            "--bad-where",
            "custmer=customer-1",
            "no span has the attribute 'custmer'; did you mean 'customer'?",
        ),
        ("--bad-where", "customer=custmer-1", "no trace has customer=custmer-1; did you mean 'customer-1'?"),
        ("--root", "GET /crat", "did you mean 'GET /cart'?"),
    ] {
        let split: &[&str] = if option == "--root" { &["--bad-slowest", "10%"] } else { &[] };
        let output = run(&[&["compare", day.path(), option, value], split].concat());
        let text = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.status.code() == Some(1) && text.contains(says), "{text}");
    }
}

/// Instance 1 has the weight 1,000 of 1,019 in its class, 98.1 %.
#[test]
fn a_weight_that_outweighs_its_class_is_named() {
    let line = |at: usize| {
        let weight = if at == 1 { 1_000 } else { 1 };
        format!("{{\"id\":\"{at}\",\"cls\":{},\"dur\":{},\"weight\":{weight}}}\n", at % 2, 5 + at % 7)
    };
    let file = Scratch::new("compare-heavy.jsonl", &(0..40).map(line).collect::<String>());
    let shown = success(&run(&["compare", file.path()]));
    assert!(shown.contains("one bad instance has 98% of the weight"), "{shown}");
}

/// With four of each class, 2 of 70 permutations separate the labels as the true ones do.
#[test]
fn a_chance_of_1_to_5_percent_is_no_certainty() {
    let instances = |each: usize| -> String {
        let event = |cls: usize| if cls == 1 { r#"{"a":[0.0],"x":[1.0]}"# } else { r#"{"a":[0.0]}"# };
        (0..2 * each)
            .map(|n| {
                format!(r#"{{"id":"{n}","cls":{},"dur":5.0,"ev":{},"st":{{}}}}"#, n % 2, event(n % 2)) + "\n"
            })
            .collect()
    };
    for (each, says, significant) in [
        (4, "1 variable may differ, but 1 to 5 of 100 permutations", 0),
        (20, "1 variable differs significantly", 1),
    ] {
        let input = Scratch::new(&format!("compare-unsure-{each}.jsonl"), &instances(each));
        let text = success(&run(&["compare", input.path()]));
        assert!(crate::unwrapped(&text).contains(says), "{text}");
        let json = success(&run(&["compare", input.path(), "--json"]));
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["significant"], significant, "{json}");
        assert_eq!(json["unsure"], 1 - significant);
    }
}

/// Two nodes of a service write a file of HTrace each. In a converted recording, as --kept-out
/// writes, all spans are in one file, whose name does not name a node.
#[test]
fn the_name_of_a_converted_file_is_no_node() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |run: &str, first: u64| {
        let run = folder.path().join(run);
        std::fs::create_dir(&run).expect("a folder");
        for node in 0..2 {
            let span = |id: u64| {
                let begin = id * 1_000;
                let end = begin + 5 + id % 7;
                format!(
                    r#"{{"a":"{id:016x}{id:016x}","b":{begin},"e":{end},"d":"read","r":"DataNode","p":[]}}"#
                )
            };
            let ids = (0..60).filter(|id| id % 2 == node).map(|id| first + id);
            let lines: Vec<String> = ids.map(span).collect();
            std::fs::write(run.join(format!("dn{node}.json")), lines.join("\n")).expect("written");
        }
        run.to_str().expect("UTF-8").to_owned()
    };
    let (good, bad) = (write("good", 1), write("bad", 1_000));
    let converted = folder.path().join("kept.json");
    let converted = converted.to_str().expect("UTF-8");
    assert!(run(&["convert", &bad, converted, "--to", "otlp-json"]).status.success());
    let variables = |bad: &str| {
        let found = comparison(&[&good, bad, "--assume-runs"]);
        let tests = found["tests"].as_array().expect("tests").clone();
        tests.iter().map(|test| test[1].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    let of = |names: &[String], text: &str| names.iter().any(|name| name.contains(text));
    let nodes = variables(&bad);
    assert!(of(&nodes, "dn1 DataNode read"), "{nodes:?}");
    let files = variables(converted);
    assert!(of(&files, "DataNode read") && !of(&files, "dn1") && !of(&files, "kept"), "{files:?}");
}
