//! `astracer compare` on logs alone: files, stretches of time and ids as instances.

use std::fmt::Write as _;

use serde_json::json;

use crate::compare::{comparison, first, rows};
use crate::outputs::Folder;
use crate::{run, success};

/// A line of log4j, this many ms after midnight.
fn line(ms: u64, level: &str, message: &str) -> String {
    let (seconds, ms) = (ms / 1_000, ms % 1_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("2026-11-20 {hour:02}:{minute:02}:{second:02},{ms:03} {level} [main] shop.Api: {message}\n")
}

/// Two minutes of a log from this hour on: a request each 300 ms, of a user of twenty. In a bad one
/// the cache misses and the answer takes 30 ms more.
fn log(hour: u64, is_bad: bool) -> String {
    (0..400u64).fold(String::new(), |mut text, number| {
        let (start, user) = (hour * 3_600_000 + number * 300, char::from(b'a' + (number % 20) as u8));
        text += &line(start, "INFO", &format!("request of user {user}"));
        text += &line(start + 10, "DEBUG", if is_bad { "cache miss for key" } else { "cache hit for key" });
        let took = number % 7 + if is_bad { 50 } else { 20 };
        text += &line(start + took, "INFO", &format!("done in {took} ms"));
        text
    })
}

#[test]
fn two_logs_are_compared_in_stretches_of_time() {
    let folder = Folder::new("compare-logs");
    let (good, bad) = (folder.file("good.log", &log(9, false)), folder.file("bad.log", &log(10, true)));
    let found = comparison(&[&good, &bad]);
    assert_eq!(found["of"], "stretches of time");
    let names: Vec<_> =
        rows(&found).iter().map(|row| row["variable"].as_str().expect("a name").to_owned()).collect();
    // One word of the cache's lines has two values, so they stay apart; the user has twenty.
    assert_eq!(first(&found), ("log shop.Api cache hit for key", "Present", 1.0, 0.0));
    assert!(names[..2].contains(&"log shop.Api cache miss for key".to_owned()), "{names:?}");
    assert!(names.contains(&"log shop.Api done in # ms [1]".to_owned()), "{names:?}");
    let tests = found["tests"].as_array().expect("tests");
    assert!(tests.iter().any(|test| test[1] == "log shop.Api request of user *"), "{tests:?}");
    let shown = success(&run(&["compare", &good, &bad]));
    assert!(shown.contains("in stretches") && shown.contains("an instance is"), "{shown}");
    // The same log at another hour does not differ.
    let again = folder.file("again.log", &log(11, false));
    assert_eq!(comparison(&[&good, &again])["significant"], 0);
}

/// As in HDFS: each line names a block, and one line names two.
#[test]
fn the_records_of_an_id_are_an_instance() {
    let folder = Folder::new("compare-blocks");
    let (mut text, mut failed) = (String::new(), String::new());
    for block in 0..40u64 {
        let at = block * 1_000;
        text += &line(at, "INFO", &format!("Receiving block blk_-{block} src: /10.0.0.1"));
        text += &line(at + 5 + block % 3, "INFO", &format!("Received block blk_-{block} of size 67108864"));
        if block % 4 == 0 {
            let _ = writeln!(failed, "blk_-{block} Anomaly");
            text += &line(at + 9, "ERROR", &format!("Redundant addStoredBlock on blk_-{block}"));
        }
    }
    text += &line(50_000, "INFO", "ask 10.0.0.1 to delete blk_-1 blk_-2");
    text += &line(51_000, "INFO", "no block");
    let (log, ids) = (folder.file("hdfs.log", &text), folder.file("failed.txt", &failed));
    let args = ["compare", &log, "--instance", "/blk_-?[0-9]+/", "--bad-ids", &ids];
    let found = comparison(&args[1..]);
    assert_eq!((&found["instances"], &found["of"]), (&json!([30, 10]), &json!("instances")));
    assert_eq!(first(&found), ("log shop.Api Redundant addStoredBlock on blk_-#", "Present", 0.0, 1.0));
    let shown = success(&run(&args));
    assert!(shown.contains("left out: 1 log record that belong"), "{shown}");
    // Errors choose the same blocks.
    assert_eq!(
        comparison(&[&log, "--instance", "/blk_-?[0-9]+/", "--bad-errors"])["instances"],
        json!([30, 10])
    );
    assert_eq!(run(&["compare", &log, "--instance", "/nothing/", "--bad-errors"]).status.code(), Some(1));
    // Which records are one instance cannot be guessed.
    assert_eq!(run(&["compare", &log, "--bad-errors"]).status.code(), Some(2));
}

/// A line as tracing's JSON has it.
fn json_line(ms: u64, request: &str, message: &str) -> String {
    let time = format!("2026-11-20T10:{:02}:{:02}.{:03}Z", ms / 60_000, ms / 1_000 % 60, ms % 1_000);
    json!({"timestamp": time, "level": "INFO", "fields": {"message": message}, "target": "shop::api",
        "span": {"request_id": request, "name": "request"}, "spans": [{"request_id": request, "name": "request"}]})
    .to_string()
        + "\n"
}

#[test]
fn the_records_of_an_attribute_are_an_instance() {
    let folder = Folder::new("compare-requests");
    let log = |from: u64, is_bad: bool| {
        (0..10u64).fold(String::new(), |mut text, number| {
            let (at, id) = (from + number * 1_000, format!("r{number}"));
            text += &json_line(at, &id, "request started");
            if is_bad {
                text += &json_line(at + 4, &id, "retry");
            }
            text + &json_line(at + 7 + number % 3, &id, "done")
        })
    };
    let (good, bad) = (folder.file("a.jsonl", &log(0, false)), folder.file("b.jsonl", &log(900_000, true)));
    // Two runs may have the same ids, but one request is not in both classes.
    let found = comparison(&[&good, &bad, "--instance", "request_id"]);
    assert_eq!(found["instances"], json!([10, 10]));
    assert_eq!(first(&found), ("log shop::api retry", "Present", 0.0, 1.0));
    let copy = run(&["compare", &good, &good, "--instance", "request_id"]);
    assert!(
        copy.status.code() == Some(1) && String::from_utf8_lossy(&copy.stderr).contains("in both classes")
    );
    // Two single instances are put side by side.
    let found = comparison(&[&good, &bad, "--instance", "file"]);
    assert_eq!(found["rows"][0]["values"], json!([0.0, 10.0]));
}

/// A minute of silence is a stretch without records.
#[test]
fn silence_is_found_in_its_time() {
    let folder = Folder::new("compare-silence");
    let text: String = (0..600u64)
        .filter(|at| !(300..360).contains(at))
        .map(|at| line(at * 1_000, "INFO", "tick"))
        .collect();
    let log = folder.file("tick.log", &text);
    let args = [&*log, "--bad-time", "2026-11-20T00:05:00Z+60s", "--instance", "time:5s"];
    let found = comparison(&args);
    assert_eq!(found["instances"], json!([107, 12]));
    assert_eq!(first(&found), ("log shop.Api tick", "Present", 1.0, 0.0));
}
