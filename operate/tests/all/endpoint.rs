//! The local endpoint: its responses, its refusals, and its bounds.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use astracer_operate::{Endpoint, Operate as _};
use astracer_sdk::{ProvisionalMode, Tail};
use astracer_testing::{World, sampling};
use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt as _;
use serde_json::{Value, json};
use tracing::info_span;

pub(crate) fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Sends the bytes of a request. Returns the response's status and body.
fn send(endpoint: &Endpoint, request: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(endpoint.address()).unwrap();
    // The endpoint may respond and close the connection before everything is sent.
    let _ = stream.write_all(request);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    (head.get(9..12).unwrap_or("0").parse().unwrap(), body.to_owned())
}

pub(crate) fn ask(endpoint: &Endpoint, line: &str, headers: &str) -> (u16, String) {
    send(endpoint, format!("{line} HTTP/1.1\r\nHost: localhost:1\r\n{headers}\r\n").as_bytes())
}

fn root(world: &World, name: &str) -> String {
    world.inside(|| {
        let _root = info_span!("root", otel.name = name).entered();
        Context::current().span().span_context().trace_id().to_string()
    })
}

fn explained() -> World {
    sampling("bucket:capacity=2,rate=1", |builder| builder.with_explanations(100))
}

/// Connections without a request, and one with half of one, do not delay others.
#[test]
fn idle_connections_delay_nobody() {
    let world = explained();
    let endpoint = world.handle.serve(any_port(), None).unwrap();
    let idle: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(endpoint.address()).unwrap()).collect();
    (&idle[99]).write_all(b"GET /stats HT").unwrap();
    let begun = Instant::now();
    assert_eq!(ask(&endpoint, "GET /stats", "").0, 200);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let rest = b"TP/1.1\r\nHost: localhost\r\n\r\n";
    (&idle[99]).write_all(rest).unwrap();
    let mut answer = String::new();
    (&idle[99]).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn counts_and_decisions_are_served() {
    let world = explained();
    let endpoint = world.handle.serve(any_port(), None).unwrap();
    let traces: Vec<String> = (0..5).map(|_| root(&world, "say \"hi\"\n<b>")).collect();
    let (status, body) = ask(&endpoint, "GET /stats", "");
    assert_eq!(status, 200);
    let stats: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&stats["sampler"], &stats["cap"]), (&json!("bucket:capacity=2,rate=1"), &Value::Null));
    assert_eq!((&stats["roots_kept"], &stats["roots_dropped"]), (&json!(2), &json!(3)));
    let key = &stats["keys"][0];
    assert_eq!(
        [&key["key"], &key["seen"], &key["kept"], &key["sampler"], &key["cap"]],
        [&json!("say \"hi\"\n<b>"), &json!(5), &json!(2), &json!(3), &json!(0)]
    );
    let (status, body) = ask(&endpoint, &format!("GET /why/{}", traces[4]), "");
    assert_eq!(status, 200);
    let why: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&why["keep"], &why["reason"]), (&json!(false), &json!("token_bucket")));
    assert_eq!(ask(&endpoint, "GET /why/00000000000000000000000000000001", "").0, 404);
    assert_eq!(ask(&endpoint, "GET /why/xyz", "").0, 400);
    for path in ["/", "/page.js", "/page.css"] {
        let (status, body) = ask(&endpoint, &format!("GET {path}"), "");
        assert!(status == 200 && !body.contains("//cdn") && !body.contains("https:"), "{path}");
    }
}

#[test]
fn what_is_kept_late_is_served() {
    let world = sampling("never", |builder| {
        let tail: Tail = "error,own:bad".parse().unwrap();
        let tail = tail.with_provisional(ProvisionalMode::Always).with_ring_bytes(1 << 20);
        let builder = builder.with_tail(tail);
        builder.with_own_policy("bad", |_| panic!("a fault of the policy's"))
    });
    let endpoint = world.handle.serve(any_port(), None).unwrap();
    (0..20).for_each(|_| drop(root(&world, "GET /")));
    world.inside(|| {
        info_span!("root", otel.name = "GET /").in_scope(|| tracing::error!("failed"));
    });
    world.handle.keep_for_caller(&"f".repeat(32));
    let stats: Value = serde_json::from_str(&ask(&endpoint, "GET /stats", "").1).unwrap();
    let tail = &stats["tail"];
    assert_eq!(tail["policies"][0]["policy"], json!("error"));
    assert_eq!(tail["policies"][0]["kept"], json!(1));
    assert_eq!((&tail["held"], &tail["ring_bytes_max"]), (&json!(20), &json!(1 << 20)));
    assert!(tail["ring_bytes"].as_u64().unwrap() > 0);
    assert_eq!((&tail["not_there"], &tail["switched_off"]), (&json!(1), &json!(["bad"])));
    let key = &stats["outcomes"][0];
    assert_eq!((&key["errors"], &key["missed_errors"], &key["calls"]), (&json!(1), &json!(0), &json!(21)));
    assert!(["p50_ms", "p95_ms", "p99_ms"].iter().all(|name| key[name].is_number()));
    assert_eq!((&stats["waiting"], &stats["lost_by"]), (&Value::Null, &json!({})));
    for name in
        ["policies", "given_up", "not_there", "refused_callers", "untold", "without_slot", "switched_off"]
    {
        assert!(page_script(&endpoint).contains(name) && !tail[name].is_null(), "{name}");
    }
}

/// A service does not compile the crate `report`, which has the styles of all pages.
#[test]
fn the_page_has_the_styles_of_the_reports() {
    let reports = concat!(env!("CARGO_MANIFEST_DIR"), "/../report/src/page/page.css");
    let copy = concat!(env!("CARGO_MANIFEST_DIR"), "/src/endpoint/shared.css");
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    assert!(read(reports) == read(copy), "copy report/src/page/page.css to operate/src/endpoint/shared.css");
    let endpoint = explained().handle.serve(any_port(), None).unwrap();
    assert!(ask(&endpoint, "GET /page.css", "").1.starts_with(&read(reports)));
}

fn page_script(endpoint: &Endpoint) -> String {
    ask(endpoint, "GET /page.js", "").1
}

#[test]
fn unknown_requests_are_refused() {
    let world = explained();
    let endpoint = world.handle.serve(any_port(), Some("secret".to_owned())).unwrap();
    for (request, status) in [
        (&b"GET /stats HTTP/1.1\r\nHost: evil.example\r\n\r\n"[..], 403),
        (b"GET /stats HTTP/1.1\r\nHost: 127.0.0.1.evil.example:80\r\n\r\n", 403),
        (b"GET /stats HTTP/1.1\r\n\r\n", 403),
        (b"GET /stats HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 200),
        (b"GET /stats HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", 200),
        (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"DELETE /stats HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET stats HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /stats HTTP/1.1\r\nHost: localhost\r\nhost: evil.example\r\n\r\n", 400),
        (b"\x16\x03\x01\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n", 431),
        (b"GET /", 408),
        (&[b'a'; 20_000], 431),
    ] {
        assert_eq!(send(&endpoint, request).0, status, "{}", String::from_utf8_lossy(request));
    }
    let set = "POST /override?key=GET+%2Fcheckout&seconds=600&keep=0.5";
    assert_eq!(ask(&endpoint, set, "").0, 401);
    assert_eq!(ask(&endpoint, set, "Authorization: Bearer secrex\r\n").0, 401);
    assert!(world.handle.overrides().is_empty());
    let token = "Authorization: Bearer secret\r\n";
    assert_eq!(ask(&endpoint, set, token).0, 200);
    assert!(world.handle.overrides().contains_key("GET /checkout"));
    assert_eq!(ask(&endpoint, "POST /override?key=a&seconds=9&keep=1.5", token).0, 400);
    assert_eq!(ask(&endpoint, "POST /override?key=%ff&seconds=9", token).0, 400);
    assert_eq!(ask(&endpoint, "POST /override?key=GET+%2Fcheckout&seconds=0", token).0, 200);
    assert!(world.handle.overrides().is_empty());
    let read_only = world.handle.serve(any_port(), None).unwrap();
    assert_eq!(ask(&read_only, set, token).0, 403);
    assert!(world.handle.serve("0.0.0.0:0".parse().unwrap(), None).is_err());
    assert!(world.handle.serve(any_port(), Some(String::new())).is_err());
}

/// A thousand requests while a service traces: all get a response, and none of them is traced.
#[test]
fn frequent_page_requests_disturb_no_other_work() {
    let world = explained();
    let endpoint = world.handle.serve(any_port(), None).unwrap();
    std::thread::scope(|scope| {
        let work = scope.spawn(|| (0..1_000).for_each(|n| drop(root(&world, &format!("key {}", n % 7)))));
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..500 {
                    assert_eq!(ask(&endpoint, "GET /stats", "").0, 200);
                }
            });
        }
        work.join().unwrap();
    });
    let stats = world.handle.stats();
    assert_eq!(stats.roots_kept + stats.roots_dropped, 1_000);
    let address = endpoint.address();
    drop(endpoint);
    assert!(TcpStream::connect(address).is_err(), "the endpoint stops when it is dropped");
}
