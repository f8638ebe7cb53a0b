//! The live page with counts that a test makes up: a server of its files and of two answers.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::recordings::Names;

/// As in `operate/src/endpoint/http.rs`.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'";
const KEYS: usize = 6;

/// Serves until the process ends. Returns the page's address.
///
/// # Errors
///
/// If no port is free or a file is missing.
pub(super) fn serve(root: &Path, names: Names) -> Result<String, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| format!("cannot listen: {error}"))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let folder = root.join("operate/src/endpoint");
    let read =
        |name: &str| std::fs::read_to_string(folder.join(name)).map_err(|error| format!("{name}: {error}"));
    let style = read("shared.css")? + &read("page.css")?;
    let files = [
        ("/", "text/html", read("page.html")?),
        ("/page.js", "text/javascript", read("page.js")?),
        ("/page.css", "text/css", style),
    ];
    std::thread::spawn(move || {
        let asked = AtomicU64::new(0);
        for stream in listener.incoming().flatten() {
            let answer = |path: &str| match files.iter().find(|(name, ..)| *name == path) {
                Some((_, kind, text)) => (*kind, text.clone()),
                None if path == "/parts" => ("application/json", "[]".to_owned()),
                None => ("application/json", stats(names, asked.fetch_add(1, Ordering::Relaxed)).to_string()),
            };
            // A browser may close a connection that it opened in advance.
            let _ = respond(&stream, answer);
        }
    });
    Ok(format!("http://{address}/"))
}

fn respond(mut stream: &TcpStream, answer: impl Fn(&str) -> (&'static str, String)) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let (kind, body) = answer(first.split(' ').nth(1).unwrap_or_default());
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\
         content-security-policy: {POLICY}\r\n\r\n{body}",
        body.len()
    )
}

/// Counts that grow with the requests; the form of `operate/src/endpoint/json.rs`.
fn stats(names: Names, asked: u64) -> Value {
    let seen = |key: usize| (asked + 1) * 120 / (key as u64 + 1);
    let key = |key: usize| {
        json!({
            "key": names.name("GET /", key), "seen": seen(key), "kept": seen(key) / 9, "kept_late": 0, "sampler": seen(key) * 8 / 9,
            "cap": 0, "cap_empty": 0, "override": 0, "probability": 0.11, "tokens": null,
        })
    };
    let outcome = |key: usize| {
        json!({
            "key": names.name("GET /", key), "calls": seen(key), "errors": seen(key) / 40, "missed_errors": 0,
            "p50_ms": 12.34, "p95_ms": 84.1, "p99_ms": 312.0,
        })
    };
    let overrides: serde_json::Map<String, Value> =
        [(names.name("GET /", 0), json!(540))].into_iter().collect();
    json!({
        "sampler": names.name("bump:lambda=3,min=0.01", 0), "cap": null, "cap_level": null, "parameters_fault": null,
        "file_fit": null, "roots_kept": asked * 30, "roots_dropped": asked * 250, "parents_kept": 3, "parents_dropped": 9,
        "spans_open": 12, "spans_waiting": 431, "spans_exported": asked * 90, "spans_lost": 20,
        "lost_by": { "queue_full": 20 }, "waiting": names.name("connection refused by collector:4317", 0),
        "last_error": names.name("connection refused", 0), "hint": null,
        "tail": {
            "kept": 8, "strata": null, "policies": [{ "policy": names.name("error", 0), "budget": "10%", "kept": 8, "bytes": 9000, "refused": 1 }],
            "kept_by_hand": 0, "kept_by_caller": 0, "open": 2, "held": 40, "not_there": 0, "refused_callers": 0,
            "untold": 1, "ring_bytes": 40_000, "ring_bytes_max": 1 << 20, "without_slot": 0, "switched_off": [], "given_up": { "ring_full": 3 },
        },
        "overrides": overrides, "dry_run": null, "keys_all": 9,
        "keys": (0..KEYS).map(key).collect::<Value>(), "outcomes": (0..KEYS).map(outcome).collect::<Value>(),
    })
}
