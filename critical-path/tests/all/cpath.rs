//! Longest paths, slack and experiments, compared with an oracle for random executions that fork
//! and join.

use std::collections::{BTreeMap, HashMap};

use astracer_critical_path::graph::{Edge, Graph};
use astracer_testing::{lines_agree, near};
use serde_json::Value;

use crate::goldens;

/// An execution as a graph. An edge between consecutive events of a thread is as long as the thread
/// worked; an edge from a fork or to a join has length zero.
struct Execution {
    graph: Graph,
    lengths: Vec<f64>,
    /// For each edge, the functions on the stack.
    stacks: Vec<Vec<String>>,
    sink: u32,
}

#[derive(Clone, Default)]
struct Thread {
    last: Option<(u32, i64)>,
    stack: Vec<String>,
    paused: bool,
    waiting: bool,
    daemon: bool,
}

fn execution(case: &Value) -> Execution {
    let events = case["events"].as_array().expect("events");
    let (mut threads, mut forks) =
        (HashMap::<String, Thread>::new(), HashMap::<String, (Thread, u32)>::new());
    let (mut edges, mut lengths, mut stacks) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let (name, kind, child) = (text("thread"), text("type"), text("child"));
        let (id, time) = (event["id"].as_u64().expect("id") as u32, event["t"].as_i64().expect("time"));
        let mut thread = threads.remove(&name).unwrap_or_default();
        if kind == "START" {
            if let Some((parent, fork)) = forks.remove(&name) {
                edges.push(Edge { from: fork, to: id });
                lengths.push(0.0);
                stacks.push(Vec::new());
                thread = Thread { stack: parent.stack, daemon: parent.daemon, ..Thread::default() };
            }
        } else {
            let (last, before) = thread.last.expect("a thread starts first");
            let works = !thread.paused && !thread.waiting && !thread.daemon;
            edges.push(Edge { from: last, to: id });
            lengths.push(if works { (time - before) as f64 } else { 0.0 });
            stacks.push(thread.stack.clone());
        }
        match kind.as_str() {
            "FORK" => drop(forks.insert(child, (thread.clone(), id))),
            "WAIT" => thread.waiting = true,
            "JOIN" => {
                thread.waiting = false;
                let other = &threads[&child];
                edges.push(Edge { from: other.last.expect("it ended").0, to: id });
                lengths.push(0.0);
                stacks.push(Vec::new());
                thread.daemon &= other.daemon;
            }
            "PAUSE" => thread.paused = true,
            "RESUME" => thread.paused = false,
            "ENTER" => thread.stack.push(text("func")),
            "EXIT" => {
                let place = thread
                    .stack
                    .iter()
                    .rposition(|name| *name == text("func"))
                    .expect("the function was entered");
                thread.stack.remove(place);
            }
            "DAEMONIZE" => thread.daemon = true,
            _ => {}
        }
        thread.last = Some((id, time));
        threads.insert(name, thread);
    }
    let sink = threads["T0"].last.expect("T0 ends").0;
    let graph = Graph::new(events.len(), edges, |event| event);
    assert_eq!(graph.cut_edges(), 0);
    Execution { graph, lengths, stacks, sink }
}

impl Execution {
    fn inside(&self, edge: u32, function: &str) -> bool {
        self.stacks[edge as usize].iter().any(|name| name == function)
    }

    fn latency(&self, function: Option<&str>, factor: f64) -> f64 {
        let scaled = |(edge, length): (u32, &f64)| {
            if function.is_some_and(|function| self.inside(edge, function)) {
                length * factor
            } else {
                *length
            }
        };
        let lengths: Vec<f64> = (0u32..).zip(&self.lengths).map(scaled).collect();
        self.graph.longest_to(&lengths)[self.sink as usize]
    }
}

#[test]
fn longest_paths_slack_and_experiments_are_those_of_the_oracle() {
    let Some(text) = goldens::text("cpath/cases.jsonl") else { return };
    lines_agree("cpath", &text, check);
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn check(case: &Value) -> Result<(), String> {
    let (execution, expected) = (execution(case), &case["expected"]);
    let unique = expected["unique"] == true;
    for experiment in case["experiments"].as_array().expect("experiments") {
        let name = experiment["name"].as_str().expect("a name");
        let latency = execution.latency(experiment["func"].as_str(), number(&experiment["discount"]));
        near(name, latency, number(&expected["dag"][name]))?;
    }
    let to = execution.graph.longest_to(&execution.lengths);
    for (event, latency) in expected["latency_at"].as_object().expect("latencies") {
        let event: usize = event.parse().expect("an event");
        near(&format!("latency at {event}"), to[event], number(latency))?;
    }
    slack(&execution, expected)?;
    top_paths(&execution, expected, unique)?;
    for (function, expected) in expected["procedure"].as_object().expect("procedures") {
        let found = execution
            .graph
            .procedure(&execution.lengths, execution.sink, |edge| execution.inside(edge, function));
        near(&format!("gain of {function}"), found.gain, number(&expected["zeroing_gain"]))?;
        if unique {
            near(&format!("{function} on the path"), found.on_path, number(&expected["on_critical_path"]))?;
            near(&format!("slack of {function}"), found.slack, number(&expected["slack"]))?;
        }
    }
    Ok(())
}

fn slack(execution: &Execution, expected: &Value) -> Result<(), String> {
    let slack = execution.graph.edge_slack(&execution.lengths, execution.sink);
    let edges = execution.graph.edges().iter().zip(execution.lengths.iter().zip(slack));
    let found: BTreeMap<(u32, u32), (f64, f64)> =
        edges.filter_map(|(edge, (&length, slack))| Some(((edge.from, edge.to), (length, slack?)))).collect();
    let expected = expected["edge_slack"].as_array().expect("slacks");
    if found.len() != expected.len() {
        return Err(format!("{} edges have slack, expected {}", found.len(), expected.len()));
    }
    for row in expected {
        let end = |place: usize| row[place].as_u64().expect("an event") as u32;
        let (from, to) = (end(0), end(1));
        let &(length, slack) = found.get(&(from, to)).ok_or(format!("no edge {from} to {to}"))?;
        near(&format!("length of {from} to {to}"), length, number(&row[2]))?;
        near(&format!("slack of {from} to {to}"), slack, number(&row[3]))?;
    }
    Ok(())
}

fn top_paths(execution: &Execution, expected: &Value, unique: bool) -> Result<(), String> {
    let expected_paths = expected["top_paths"].as_array().expect("paths");
    // One more than the oracle lists, for ties at the end of its list.
    let found = execution.graph.top_paths(&execution.lengths, execution.sink, 6);
    if found.len() < expected_paths.len() {
        return Err(format!("{} paths, expected {}", found.len(), expected_paths.len()));
    }
    for (place, (path, expected)) in found.iter().zip(expected_paths).enumerate() {
        near(&format!("path {place}"), path.length, number(&expected["latency"]))?;
        // If no other path has the same length, the events are determined too.
        let alone = found.iter().filter(|other| (other.length - path.length).abs() < 1e-6).count() == 1;
        let events: Vec<u32> = serde_json::from_value(expected["events"].clone()).expect("events");
        if alone && path.events != events {
            return Err(format!("path {place}: {:?}, expected {events:?}", path.events));
        }
    }
    if unique {
        let events: Vec<u32> = serde_json::from_value(expected["critical_path"].clone()).expect("events");
        if found[0].events != events {
            return Err(format!("critical path {:?}, expected {events:?}", found[0].events));
        }
    }
    Ok(())
}
