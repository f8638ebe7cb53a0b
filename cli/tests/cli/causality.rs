//! One recording, one answer: `order`, `query`, `critical-path` and `events` agree on hosts, clocks
//! and causes.

use serde_json::{Value, json};

use crate::{Scratch, run, success, workload};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
/// `first`'s end, then `second`'s start.
const JOIN: &str = "From s In second Join f In first@end On f -> s GroupBy f.name Select f.name, COUNT";
/// Kind, name, parent, id, start and end in ms: web calls `first`, then `second`, on db.
const SPANS: [(u64, &str, u64, u64, u64, u64); 5] = [
    (2, "request", 0, 0xa1, 0, 100),
    (3, "call-first", 0xa1, 0xb1, 5, 55),
    (3, "call-second", 0xa1, 0xb2, 60, 95),
    (2, "first", 0xb1, 0xc1, 10, 50),
    (2, "second", 0xb2, 0xc2, 65, 90),
];

/// The clock of db is ahead by `skew` ms.
fn otlp(name: &str, skew: u64) -> Scratch {
    let of = |service: &str, host: &str, spans: &[(u64, &str, u64, u64, u64, u64)], skew: u64| {
        let nanos = |ms: u64| format!("{}", 1_764_000_000_000_000_000 + (ms + skew) * 1_000_000);
        let span = |&(kind, name, parent, id, start, end): &(u64, &str, u64, u64, u64, u64)| {
            let parent = if parent == 0 { String::new() } else { format!("{parent:016x}") };
            json!({"traceId": TRACE, "spanId": format!("{id:016x}"), "parentSpanId": parent, "name": name,
                "kind": kind, "startTimeUnixNano": nanos(start), "endTimeUnixNano": nanos(end)})
        };
        let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        json!({"resource": {"attributes": [text("service.name", service), text("host.name", host)]},
            "scopeSpans": [{"spans": spans.iter().map(span).collect::<Vec<_>>()}]})
    };
    let (web, db) = (of("web", "h1", &SPANS[..3], 0), of("db", "h2", &SPANS[3..], skew));
    Scratch::new(name, &json!({"resourceSpans": [web, db]}).to_string())
}

/// The same in Jaeger's form, whose clients state `hostname` and `ip` of a process.
fn jaeger(name: &str, skew: u64) -> Scratch {
    let span = |(at, &(kind, name, parent, id, start, end)): (usize, &(u64, &str, u64, u64, u64, u64))| {
        let is_db = at >= 3;
        let parents = (parent > 0)
            .then(|| json!({"refType": "CHILD_OF", "traceID": TRACE, "spanID": format!("{parent:016x}")}));
        json!({"traceID": TRACE, "spanID": format!("{id:016x}"), "operationName": name,
            "references": parents.into_iter().collect::<Vec<_>>(),
            "startTime": 1_764_000_000_000_000 + (start + if is_db { skew } else { 0 }) * 1000,
            "duration": (end - start) * 1000, "logs": [], "processID": if is_db { "p1" } else { "p0" },
            "tags": [{"key": "span.kind", "type": "string", "value": if kind == 2 { "server" } else { "client" }}]})
    };
    let process = |service: &str, host: &str, ip: &str| {
        json!({"serviceName": service, "tags": [{"key": "hostname", "type": "string", "value": host},
            {"key": "ip", "type": "string", "value": ip}]})
    };
    let trace = json!({"traceID": TRACE, "spans": SPANS.iter().enumerate().map(span).collect::<Vec<_>>(),
        "processes": {"p0": process("web", "h1", "10.0.0.1"), "p1": process("db", "h2", "10.0.0.2")}});
    Scratch::new(name, &json!({ "data": [trace] }).to_string())
}

fn answer(args: &[&str]) -> Value {
    serde_json::from_str(&success(&run(&[args, &["--json"]].concat()))).expect("JSON")
}

/// Ids are in the order of the file: 3 is the end of `call-first`, 7 that of `first`, 8 the start
/// of `second`, and 1 the end of the request.
#[test]
fn a_returned_call_is_before_what_its_caller_does_next_whatever_clocks_say() {
    let files = [otlp("before.json", 0), otlp("skewed.json", 200), jaeger("jaeger-native.json", 200)];
    for (file, skew) in files.iter().zip([0, 200_000_000, 200_000_000]) {
        let path = file.path();
        for effect in ["3", "8", "1"] {
            let text = success(&run(&["order", path, "--between", "7", effect]));
            assert!(text.contains("A is before B"), "{path}: 7 and {effect}: {text}");
        }
        let asked = answer(&["query", path, "-q", JOIN]);
        assert_eq!(asked["rows"], json!([["first", 1]]), "{path}");
        let order = answer(&["order", path]);
        assert_eq!(order["hosts"], json!(["h1", "h2"]), "{path}");
        let text = success(&run(&["order", path]));
        let offset = if skew == 0 { "h2 agrees with h1" } else { "h2 runs 200.0 ms ahead of h1" };
        assert!(text.contains(offset), "{path}: {text}");
        // By hand: the path has all of the request's 100 ms, 65 of them on db (40 and 25).
        let path_of = answer(&["critical-path", path, "--by", "service"]);
        let db = &path_of["rows"][0];
        assert_eq!((&db["name"], &db["total_ms"]), (&json!(["db"]), &json!(65.0)), "{path}: {path_of}");
    }
}

#[test]
fn hosts_are_the_same_in_every_command() {
    let path = workload("hdfs_client_ops.tar.xz");
    let hosts = json!(["client", "dn1", "dn2", "dn3", "nn"]);
    let mut found = answer(&["order", &path])["hosts"].clone();
    found.as_array_mut().expect("hosts").sort_by_key(ToString::to_string);
    assert_eq!(found, hosts);
    let asked = answer(&["query", &path, "-q", "From s In \"*\" GroupBy s.host Select s.host, COUNT"]);
    let mut asked: Vec<&Value> = asked["rows"].as_array().expect("rows").iter().map(|row| &row[0]).collect();
    asked.sort_by_key(ToString::to_string);
    assert_eq!(json!(asked), hosts);
    // Zipkin's endpoint has an address; a service without one is on an unknown host.
    let span = |id: u64, service: &str, ip: Option<&str>| {
        let mut endpoint = json!({ "serviceName": service });
        if let Some(ip) = ip {
            endpoint["ipv4"] = ip.into();
        }
        json!({"traceId": "1", "id": format!("{id:x}"), "name": service, "timestamp": 1_764_000_000_000_000_u64,
            "duration": 1000, "localEndpoint": endpoint})
    };
    let zipkin =
        json!([span(1, "web", Some("10.0.0.1")), span(2, "db", Some("10.0.0.2")), span(3, "mq", None)]);
    let file = Scratch::new("endpoints.json", &zipkin.to_string());
    let hosts = answer(&["order", file.path()])["hosts"].clone();
    assert_eq!(hosts, json!(["10.0.0.1", "10.0.0.2", "unknown (mq)"]));
    let asked = answer(&["query", file.path(), "-q", "From s In \"*\" Select s.name, s.host"]);
    assert_eq!(asked["rows"], json!([["db", "10.0.0.2"], ["mq", null], ["web", "10.0.0.1"]]));
}

/// The root takes 217 ms; its start is the longest path's begin, and its end the path's end.
#[test]
fn events_draws_starts_and_ends_of_spans() {
    let path = workload("hdfs_client_ops.tar.xz");
    let one = ["--trace", "32b1386bf16669f7"];
    let drawn = answer(&[&["events", &path], &one[..]].concat());
    assert_eq!(drawn["paths"][0]["length_ns"], 217_000_000.0);
    let traced = answer(&[&["critical-path", &path], &one[..]].concat());
    assert_eq!(traced["total_ms"], 217.0, "{traced}");
}

/// A trace whose link leads to a later sibling's start: the cycle is cut, and what is left out is
/// listed, although it leads over a moment that is no event.
#[test]
fn constraints_over_junctions_can_be_left_out() {
    let span = |id: u64, parent: u64, start: u64, end: u64, link: Option<u64>| {
        let id16 = |id: u64| format!("{id:016x}");
        let links: Vec<Value> =
            link.into_iter().map(|to| json!({"traceId": TRACE, "spanId": id16(to)})).collect();
        let parent = if parent == 0 { String::new() } else { id16(parent) };
        json!({"traceId": TRACE, "spanId": id16(id), "parentSpanId": parent, "name": format!("s{id}"), "kind": 1,
            "startTimeUnixNano": format!("{}", start * 1000), "endTimeUnixNano": format!("{}", end * 1000),
            "links": links})
    };
    let spans = [
        span(1, 0, 100, 900, None),
        span(2, 1, 200, 300, Some(4)),
        span(3, 1, 210, 310, None),
        span(4, 1, 400, 500, None),
        span(5, 1, 410, 510, None),
    ];
    let file = Scratch::new(
        "cycle.json",
        &json!({"resourceSpans": [{"scopeSpans": [{ "spans": spans }]}]}).to_string(),
    );
    let refused = run(&["order", file.path()]);
    let says = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && says.contains("no order exists: 1 contradiction"), "{says}");
    let found = answer(&["order", file.path(), "--drop-cycles"]);
    let dropped = found["dropped"].as_array().expect("dropped");
    assert!(!dropped.is_empty() && dropped.iter().all(|edge| edge["before"] != edge["after"]), "{dropped:?}");
}

/// The files of the load of two services under strace.
const LOAD: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/../order/tests/data/load-spans.jsonl.xz"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../order/tests/data/load.strace.xz"),
];

/// `grep -c 'write(9</srv/load/load.log>' load.strace` counts 120.
#[test]
fn a_query_sees_writes_to_files_that_are_not_read() {
    let query = "From w In write Where w.file = \"/srv/load/load.log\" Select COUNT";
    let found = answer(&["query", LOAD[0], LOAD[1], "-q", query]);
    assert_eq!(found["rows"], json!([[120]]), "{found}");
}

/// Lines 49 and 70 of the strace: the request with the span's id was sent at .026782, and its
/// answer came at .029228 on the same connection. In between the thread served another.
#[test]
fn a_critical_path_names_the_call_that_its_span_waited_in() {
    let found = answer(&["critical-path", LOAD[0], LOAD[1], "--trace", "82531bd5b9785f9f1fd6177842d2988c"]);
    let waits = &found["waits"];
    assert_eq!(waits[0]["call"], "recvfrom", "{waits}");
    assert_eq!((&waits[0]["bytes"], &waits[0]["ns"]), (&json!(139), &json!(2_446_000)), "{waits}");
    assert_eq!(waits.as_array().map(Vec::len), Some(1), "{waits}");
}
