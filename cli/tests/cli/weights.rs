//! `inspect --weights`.

use std::fs;

use crate::{failure, run, success};

/// Two keys with weights computed by hand: three roots of weight 4 and one without a weight, and
/// heartbeats that count 14 and 7.
const KEPT: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[
{"traceId":"00000000000000000000000000000001","spanId":"0000000000000001","name":"GET /a","startTimeUnixNano":"1","endTimeUnixNano":"2","traceState":"ot=th:c"},
{"traceId":"00000000000000000000000000000001","spanId":"0000000000000009","parentSpanId":"0000000000000001","name":"child","startTimeUnixNano":"1","endTimeUnixNano":"2","traceState":"ot=th:c"},
{"traceId":"00000000000000000000000000000002","spanId":"0000000000000002","name":"GET /a","startTimeUnixNano":"1","endTimeUnixNano":"2","traceState":"ot=th:c"},
{"traceId":"00000000000000000000000000000003","spanId":"0000000000000003","name":"GET /a","startTimeUnixNano":"1","endTimeUnixNano":"2","traceState":"v=1,ot=th:c;rv:ffffffffffffff"},
{"traceId":"00000000000000000000000000000004","spanId":"0000000000000004","name":"other","startTimeUnixNano":"1","endTimeUnixNano":"2","attributes":[{"key":"sampler.key","value":{"stringValue":"GET /b"}}]},
{"traceId":"00000000000000000000000000000005","spanId":"0000000000000005","name":"astracer.heartbeat","startTimeUnixNano":"1","endTimeUnixNano":"1",
"attributes":[{"key":"astracer.process","value":{"stringValue":"p"}},{"key":"astracer.beat","value":{"intValue":"2"}}],
"events":[{"timeUnixNano":"1","name":"astracer.key","attributes":[{"key":"astracer.key","value":{"stringValue":"GET /a"}},{"key":"astracer.seen","value":{"intValue":"16"}}]},
{"timeUnixNano":"1","name":"astracer.key","attributes":[{"key":"astracer.key","value":{"stringValue":"GET /c"}},{"key":"astracer.seen","value":{"intValue":"7"}}]}]},
{"traceId":"00000000000000000000000000000006","spanId":"0000000000000006","name":"astracer.heartbeat","startTimeUnixNano":"1","endTimeUnixNano":"1",
"attributes":[{"key":"astracer.process","value":{"stringValue":"p"}},{"key":"astracer.beat","value":{"intValue":"1"}}],
"events":[{"timeUnixNano":"1","name":"astracer.key","attributes":[{"key":"astracer.key","value":{"stringValue":"GET /a"}},{"key":"astracer.seen","value":{"intValue":"9"}}]}]}
]}]}]}"#;

#[test]
fn weights_are_summed_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.json");
    fs::write(&path, KEPT).unwrap();
    let path = path.to_str().unwrap();
    // A span that is recorded twice counts once.
    for paths in [&[path][..], &[path, path]] {
        let text = success(&run(&[&["inspect", "--weights"], paths].concat()));
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        // 12 of 16; the deviation is the square root of 3 * 4 * 3.
        assert!(rows.contains(&vec!["GET", "/a", "3", "0", "12", "6", "16", "-25.0%"]), "{text}");
        assert!(rows.contains(&vec!["GET", "/b", "1", "1", "1", "unknown"]), "{text}");
        assert!(rows.contains(&vec!["GET", "/c", "0", "0", "0", "0", "7", "-100.0%"]), "{text}");
        assert!(text.contains("come from 2 heartbeat spans"), "{text}");
    }
    let json = success(&run(&["inspect", path, "--weights", "--json", "--top", "1"]));
    assert!(json.contains("\"estimate\": 12.0") && !json.contains("GET /b"), "{json}");
}

/// Only a threshold above 0 makes a sample of a recording.
#[test]
fn the_hint_at_weights_is_for_samples() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.json");
    for (threshold, is_sample) in [("th:c", true), ("th:0", false), ("th:00", false), ("th:01", true)] {
        fs::write(&path, KEPT.replace("th:c", threshold)).unwrap();
        let text = success(&run(&["inspect", path.to_str().unwrap()]));
        assert_eq!(text.contains("traces have weights (ot=th)"), is_sample, "{threshold}: {text}");
    }
}

/// A recording in which only some traces have a weight may have all traces: a service may export
/// what it drops, too. Only if all traces have one, it is certainly a sample.
#[test]
fn some_traces_with_weights_are_not_called_a_sample() {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("kept.json"), folder.path().join("p.toml"));
    fs::write(&file, "version = 6\n[ratio]\nprobability = 0.5\n[recorded]\nkept = 0.001\n").unwrap();
    let (path, file) = (path.to_str().unwrap(), file.to_str().unwrap());
    let some = KEPT.lines().take(6).collect::<Vec<_>>().join("\n");
    let end = |spans: &str| format!("{}\n]}}]}}]}}", spans.trim_end().trim_end_matches(','));
    let whole = KEPT.lines().take(5).collect::<Vec<_>>().join("\n");
    let sample = "warning: the recording is itself a sample with weights (ot=th)";
    for (spans, warning) in
        [(end(&some), "warning: 3 of 4 traces have weights (ot=th)"), (end(&whole), sample)]
    {
        fs::write(path, spans).unwrap();
        for command in
            [&["evaluate", path, "--sampler", "ratio:0.5"][..], &["inspect", path, "--parameters", file]]
        {
            let text = crate::unwrapped(&success(&run(command)));
            assert!(text.contains(warning), "{command:?}: {text}");
            let advises = text.contains("tune on this recording");
            assert!(!advises || warning != sample, "{command:?}: {text}");
        }
    }
}

/// Heartbeats shorten a key of more than 88 bytes to its first 80 and an ellipsis; roots have it in
/// full.
#[test]
fn long_keys_are_compared_with_heartbeats_as_those_name_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.json");
    let long = format!("request;http.route=/api/organizations/{}", "projects/".repeat(9));
    let short = format!("{}…", &long[..80]);
    // The key comes from an attribute, or from the name.
    let named = KEPT.replace(r#"{"stringValue":"GET /b"}"#, &format!(r#"{{"stringValue":"{long}"}}"#));
    for text in [named, KEPT.replace(r#""name":"GET /a""#, &format!(r#""name":"{long}""#))] {
        let beat =
            if text.contains("GET /c") && text.contains(r#""name":"GET /a""#) { "GET /c" } else { "GET /a" };
        fs::write(&path, text.replace(beat, &short)).unwrap();
        let json = success(&run(&["inspect", path.to_str().unwrap(), "--weights", "--json"]));
        let found: serde_json::Value = serde_json::from_str(&json).unwrap();
        let rows = found["keys"].as_array().unwrap();
        let row = rows.iter().find(|row| row["key"] == short.as_str()).unwrap();
        assert!(row["roots"].as_u64() > Some(0) && row["seen"].as_u64() > Some(0), "{json}");
        assert!(rows.iter().all(|row| row["key"] != long.as_str()), "{json}");
    }
}

/// A trace of the first key, kept by a late policy.
const LATE: &str = r#"{"traceId":"00000000000000000000000000000007","spanId":"0000000000000007","name":"GET /a","startTimeUnixNano":"1","endTimeUnixNano":"9","attributes":[{"key":"sampling.reason","value":{"stringValue":"error"}},{"key":"sampler.adjusted_count","value":{"doubleValue":0}}]}"#;

/// A trace that a late policy kept has weight 0, because the weights of the sampled traces already
/// cover it.
#[test]
fn traces_that_were_kept_late_stand_for_none() {
    let folder = tempfile::tempdir().unwrap();
    let (all, alone) = (folder.path().join("all.json"), folder.path().join("late.json"));
    let begin = r#"{"resourceSpans":[{"scopeSpans":[{"spans":["#;
    fs::write(&all, KEPT.replacen(begin, &format!("{begin}{LATE},"), 1)).unwrap();
    fs::write(&alone, format!("{begin}{LATE}]}}]}}]}}")).unwrap();
    let (all, alone) = (all.to_str().unwrap(), alone.to_str().unwrap());
    let text = success(&run(&["inspect", "--weights", all]));
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.contains(&vec!["GET", "/a", "4", "0", "12", "6", "16", "-25.0%"]), "{text}");
    assert!(text.contains("1 root kept by a late policy, with weight 0"), "{text}");
    let path = ["critical-path", "--weights", "--root", "GET /a", "--json"];
    let found: serde_json::Value =
        serde_json::from_str(&success(&run(&[&path[..], &[all]].concat()))).unwrap();
    assert_eq!(
        (&found["traces"], &found["weight"], &found["unweighted"]),
        (&4.into(), &12.0.into(), &0.into())
    );
    let none = run(&[&path[..], &[alone]].concat());
    failure(&none, 1, &["kept by late policies and have weight 0"]);
    // Traces that all have weight 0 cannot be compared.
    let none = run(&[&path[..], &[all, "--compare", alone]].concat());
    failure(&none, 1, &["late.json", "kept by late policies and have weight 0"]);
}

/// Formats that only have strings write the count 0 as a string.
#[test]
fn traces_that_were_kept_late_stand_for_none_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("all.json"), folder.path().join("converted"));
    let begin = r#"{"resourceSpans":[{"scopeSpans":[{"spans":["#;
    fs::write(&from, KEPT.replacen(begin, &format!("{begin}{LATE},"), 1)).unwrap();
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    for format in ["otlp-json", "jaeger-json", "zipkin-json", "htrace"] {
        assert!(run(&["convert", from, to, "--to", format]).status.success(), "{format}");
        let text = success(&run(&["inspect", "--weights", "--format", format, to]));
        let is_a = |line: &str| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            cells.starts_with(&["GET", "/a", "4", "0", "12", "6"])
        };
        assert!(text.lines().any(is_a), "{format}: {text}");
        assert!(text.contains("1 root kept by a late policy, with weight 0"), "{format}: {text}");
        let path = ["critical-path", to, "--format", format, "--weights", "--root", "GET /a", "--json"];
        let found: serde_json::Value = serde_json::from_str(&success(&run(&path))).unwrap();
        assert_eq!((&found["traces"], &found["weight"]), (&4.into(), &12.0.into()), "{format}");
        fs::remove_file(to).unwrap();
    }
}

/// A heartbeat's number, how many spans it has, and its keys with their counts; `""` stands for
/// keys without a record.
type Beat<'a> = (u32, u32, &'a [(&'a str, u32)]);

/// The heartbeats of one process.
fn heartbeats(beats: &[Beat<'_>]) -> String {
    let attribute = |key: &str, kind: &str, value: &dyn std::fmt::Display| {
        format!(r#"{{"key":"astracer.{key}","value":{{"{kind}":"{value}"}}}}"#)
    };
    let event = |&(key, seen): &(&str, u32)| {
        let key = if key.is_empty() { String::new() } else { attribute("key", "stringValue", &key) + "," };
        format!(
            r#"{{"timeUnixNano":"1","name":"astracer.key","attributes":[{key}{}]}}"#,
            attribute("seen", "intValue", &seen)
        )
    };
    let span = |(id, (beat, parts, keys)): (u32, &Beat<'_>)| {
        let attributes = [
            attribute("process", "stringValue", &"p"),
            attribute("beat", "intValue", beat),
            attribute("parts", "intValue", parts),
        ];
        let events: Vec<String> = keys.iter().map(event).collect();
        format!(
            r#"{{"traceId":"{id:032x}","spanId":"{id:016x}","name":"astracer.heartbeat","startTimeUnixNano":"1","endTimeUnixNano":"1","attributes":[{}],"events":[{}]}}"#,
            attributes.join(","),
            events.join(",")
        )
    };
    let spans: Vec<String> = (1..).zip(beats).map(span).collect();
    format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#, spans.join(","))
}

/// Only the latest heartbeat counts: a key whose record was evicted is among those without a
/// record. Earlier versions listed these twice.
#[test]
fn exact_counts_are_those_of_the_last_heartbeat() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("beats.json");
    let seen = |beats: &[Beat<'_>]| {
        fs::write(&path, heartbeats(beats)).unwrap();
        let text = success(&run(&["inspect", "--weights", "--json", path.to_str().unwrap()]));
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        let rows = found["keys"].as_array().unwrap();
        let row = |row: &serde_json::Value| (row["key"].as_str().unwrap().to_owned(), row["seen"].as_u64());
        rows.iter().map(row).collect::<std::collections::BTreeMap<_, _>>()
    };
    let row = |key: &str, seen: u64| (key.to_owned(), Some(seen));
    let others = "(keys without a record)";
    assert_eq!(seen(&[(1, 1, &[("a", 100)]), (2, 1, &[("", 100)])]), [row(others, 100)].into());
    // In any order.
    assert_eq!(seen(&[(2, 1, &[("", 100)]), (1, 1, &[("a", 100)])]), [row(others, 100)].into());
    assert_eq!(seen(&[(1, 1, &[("", 5), ("a", 1), ("", 7)])]), [row(others, 12), row("a", 1)].into());
    assert_eq!(
        seen(&[(1, 2, &[("", 5)]), (1, 2, &[("a", 1), ("", 7)])]),
        [row(others, 12), row("a", 1)].into()
    );
    // Half of the latest heartbeat is missing.
    let half = seen(&[(1, 2, &[("a", 100)]), (1, 2, &[("b", 1)]), (2, 2, &[("a", 105)])]);
    assert_eq!(half, [row("a", 105), row("b", 1)].into());
}
