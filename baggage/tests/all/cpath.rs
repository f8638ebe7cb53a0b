//! Golden executions that fork and join, of which an oracle knows all ways. The offline half of
//! critical paths has the file, and is tested with it too.
//!
//! `ASTRACER_GOLDENS=folder cargo test -p astracer-baggage --test all goldens -- --nocapture`
//! checks the cases of that folder's `cpath/cases.jsonl`.

use std::collections::{BTreeMap, HashMap};

use astracer_baggage::critical_path::{CriticalPath, Measure, Note, zone};
use astracer_testing::{golden, lines_agree, near};
use serde_json::Value;

const OFFLINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../critical-path");

pub(crate) fn text() -> Option<String> {
    golden(OFFLINE, "cpath/cases.jsonl")
}

#[test]
fn goldens() {
    let Some(text) = text() else { return };
    lines_agree("cpath/cases.jsonl", &text, check);
}

/// A line with another length, way or slack fails.
#[test]
fn falsified_goldens_fail() {
    let text = text().unwrap_or_default();
    let mut falsified = 0;
    for line in text.lines().take(30) {
        let case: Value = serde_json::from_str(line).unwrap();
        let unique = case["expected"]["unique"] == true;
        for path in ["/expected/dag/baseline", "/expected/top_paths/0/latency"] {
            falsified += falsify(&case, path);
        }
        let last = case["events"].as_array().unwrap().len() - 1;
        falsified += falsify(&case, &format!("/expected/latency_at/{last}"));
        if unique {
            falsified += falsify(&case, "/expected/procedure/f/slack");
        }
    }
    assert!(falsified > 90 || std::env::var_os("ASTRACER_GOLDENS").is_some(), "{falsified}");
}

fn falsify(case: &Value, path: &str) -> u32 {
    let mut case = case.clone();
    let Some(value) = case.pointer_mut(path) else { return 0 };
    *value = (value.as_f64().unwrap() + 2.0).into();
    assert!(check(&case).is_err(), "{path}: {case}");
    1
}

/// Replays the events of an execution.
struct Replay<'a> {
    paths: CriticalPath,
    /// The function of a stretch between events: those of the case, or one for each stretch.
    by_event: bool,
    case: &'a Value,
    /// The length at each event.
    lengths: BTreeMap<u64, u64>,
}

impl Replay<'_> {
    fn run(&mut self) -> Note {
        let (mut threads, mut forks) = (HashMap::<String, Note>::new(), HashMap::<String, Note>::new());
        let offset = 1_000_000_i64;
        for event in self.case["events"].as_array().unwrap() {
            let text = |key: &str| event[key].as_str().unwrap_or_default();
            let (thread, child) = (text("thread").to_owned(), text("child").to_owned());
            let now = (event["t"].as_i64().unwrap() + offset) as u64;
            let of = &self.paths;
            let id = event["id"].as_u64().unwrap();
            let mut note = match (text("type"), forks.remove(&thread)) {
                ("START", None) => Note::start(of, now, "main"),
                ("START", Some(mut note)) => {
                    // The clock is another host's.
                    note.start_branch(of, now, false);
                    note
                }
                _ => threads.remove(&thread).unwrap(),
            };
            if self.by_event && text("type") != "START" {
                note.exit_function(of, now);
            }
            match text("type") {
                "START" => {}
                "FORK" => drop(forks.insert(child, note.fork(of, now))),
                "WAIT" => note.wait_for_branch(of, now),
                "JOIN" => note.join(of, now, threads.remove(&child).unwrap(), false),
                "PAUSE" => note.pause(of, now),
                "RESUME" => note.resume(of, now),
                "ENTER" if !self.by_event => note.enter_function(of, now, text("func")),
                "EXIT" if !self.by_event => note.exit_function(of, now),
                "ENTER" | "EXIT" => {}
                "DAEMONIZE" => note.daemonize(of, now),
                "END" => note.end(of, now),
                other => panic!("unknown event {other}"),
            }
            self.lengths.insert(id, note.nanos(of, now));
            if self.by_event {
                note.enter_function(of, now, &id.to_string());
            }
            if text("type") == "END" && thread == "T0" {
                return note;
            }
            threads.insert(thread, note);
        }
        panic!("T0 does not end");
    }
}

fn check(case: &Value) -> Result<(), String> {
    let expected = &case["expected"];
    let number = |value: &Value| value.as_f64().expect("a number");
    // All ways, as far as there is a bound: slack is exact then.
    let paths = CriticalPath::new(Measure::Productive).with_top(64);
    for experiment in case["experiments"].as_array().unwrap() {
        let func = experiment["func"].as_str().unwrap_or("(nowhere)").to_owned();
        let name = experiment["name"].as_str().unwrap();
        paths.experiment(name, zone(func), number(&experiment["discount"])).unwrap();
    }
    let mut replay = Replay { paths, by_event: false, case, lengths: BTreeMap::new() };
    let mut note = replay.run();
    let of = &replay.paths;
    for found in note.experiments(of, 0) {
        near(&found.name, found.nanos, number(&expected["dag"][&*found.name]))?;
    }
    let ways = note.longest(of);
    near("the longest way", ways[0].total_ns as f64, number(&expected["dag"]["baseline"]))?;
    for (event, latency) in expected["latency_at"].as_object().unwrap() {
        let id: u64 = event.parse().unwrap();
        // Events after the end of `T0` are not replayed: they are on no way.
        if let Some(found) = replay.lengths.get(&id) {
            near(&format!("length at {event}"), *found as f64, number(latency))?;
        }
    }
    if expected["unique"] == true {
        for (function, expected) in expected["procedure"].as_object().unwrap() {
            let slack = note.slack(of, function);
            near(
                &format!("{function} on the path"),
                slack.on_path_ns as f64,
                number(&expected["on_critical_path"]),
            )?;
            if slack.is_bound && slack.nanos + 1e-6 >= number(&expected["slack"]) {
                continue;
            }
            near(&format!("slack of {function}"), slack.nanos, number(&expected["slack"]))?;
        }
    }
    top_paths(case, expected)
}

/// The five longest ways: their lengths, and, unless others are as long, the stretches of time
/// that make them up.
fn top_paths(case: &Value, expected: &Value) -> Result<(), String> {
    let paths = CriticalPath::new(Measure::Productive).with_top(64);
    let mut replay = Replay { paths, by_event: true, case, lengths: BTreeMap::new() };
    let ways = replay.run().longest(&replay.paths);
    let lengths: HashMap<(u64, u64), u64> = expected["edge_slack"]
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| {
            ((edge[0].as_u64().unwrap(), edge[1].as_u64().unwrap()), edge[2].as_f64().unwrap() as u64)
        })
        .collect();
    let expected = expected["top_paths"].as_array().unwrap();
    for (place, expected) in expected.iter().enumerate() {
        let way = ways.get(place).ok_or(format!("way {place} is missing"))?;
        near(&format!("way {place}"), way.total_ns as f64, expected["latency"].as_f64().unwrap())?;
        if ways.iter().filter(|other| other.total_ns == way.total_ns).count() > 1 {
            continue;
        }
        let events: Vec<u64> = serde_json::from_value(expected["events"].clone()).unwrap();
        let mut stretches: Vec<(String, u64)> = events
            .windows(2)
            .map(|pair| (pair[0].to_string(), lengths[&(pair[0], pair[1])]))
            .filter(|(_, nanos)| *nanos > 0)
            .collect();
        let mut found: Vec<(String, u64)> =
            way.functions.iter().map(|part| (part.name.to_string(), part.nanos)).collect();
        stretches.sort();
        found.sort();
        if stretches != found {
            return Err(format!("way {place}: {found:?}, expected {stretches:?}"));
        }
    }
    Ok(())
}
