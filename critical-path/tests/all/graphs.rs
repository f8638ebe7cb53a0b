//! Event graphs: the slack of paths, events and functions, compared with a brute-force search.

use astracer_critical_path::CriticalPath;
use astracer_critical_path::drawing::Drawing;
use astracer_critical_path::events::{Event, EventGraph};
use astracer_critical_path::graph::{Edge, Graph};
use astracer_critical_path::{Amount, Analyser, Method, Rule, Skew};
use astracer_formats::Limits;
use astracer_model::{Format, Sink as _};
use astracer_recording::intern::Symbol;
use astracer_recording::recording::{Intake, Keep};
use astracer_testing::SplitMix;

/// An execution whose events follow one another, some at the same time, each after up to three
/// earlier ones.
fn random_graph(seed: u64) -> EventGraph {
    let mut random = SplitMix::new(seed);
    let count = 2 + random.below(10) as u32;
    let mut time = 1_000;
    let (mut events, mut edges) = (Vec::new(), Vec::new());
    for to in 0..count {
        time += random.below(4);
        events.push(Event { time, name: Symbol(random.below(4) as u32), service: Symbol(0), index: to });
        for _ in 0..random.below(4).min(u64::from(to)) {
            edges.push(Edge { from: random.below(u64::from(to)) as u32, to });
        }
    }
    EventGraph::new(events, edges, 0)
}

/// The longest path to the last event that avoids one event, found by ignoring the event's edges.
/// An event that loses all its incoming edges this way does not become a new start.
fn avoiding(graph: &EventGraph, avoided: u32) -> f64 {
    let (all, lengths, sink) = (graph.graph(), graph.lengths(), graph.last_event());
    if avoided == sink {
        return f64::NEG_INFINITY;
    }
    let start = graph.events().iter().map(|event| event.time).min().expect("events");
    // Recursive, because the graphs are small.
    fn longest(all: &Graph, lengths: &[f64], starts: &dyn Fn(u32) -> f64, at: u32, avoided: u32) -> f64 {
        if at == avoided {
            return f64::NEG_INFINITY;
        }
        if all.edges_into(at).is_empty() {
            return starts(at);
        }
        let ways = all.edges_into(at).iter().map(|&edge| {
            longest(all, lengths, starts, all.edges()[edge as usize].from, avoided) + lengths[edge as usize]
        });
        ways.fold(f64::NEG_INFINITY, f64::max)
    }
    let starts = |event: u32| (graph.events()[event as usize].time - start) as f64;
    longest(all, &lengths, &starts, sink, avoided)
}

#[test]
fn the_longest_path_around_an_event_is_that_of_a_search() {
    for seed in 1..=2_000 {
        let graph = random_graph(seed);
        let found = graph.graph().longest_avoiding(&graph.lengths(), graph.last_event());
        for (event, &found) in (0u32..).zip(&found) {
            assert_eq!(found, avoiding(&graph, event), "seed {seed}, event {event}: {graph:?}");
        }
    }
}

/// Shrinks, or extends, the time after one event, in a copy of the graph in which every event has a
/// unique name.
#[test]
fn drag_and_slack_are_what_retiming_says() {
    let mut checked = (0, 0);
    for seed in 1..=2_000 {
        let graph = random_graph(seed);
        let alone = graph.events().iter().zip(0u32..);
        let alone: Vec<Event> = alone.map(|(event, name)| Event { name: Symbol(name), ..*event }).collect();
        let alone = EventGraph::new(alone, graph.graph().edges().to_vec(), 0);
        let mut path = CriticalPath::default();
        alone.find(Rule::Last, &mut path);
        let length = alone.retime(|_| 1.0);
        for segment in path.segments.iter() {
            let (node, own) = (segment.node, segment.length());
            let drag = path.drag.iter().find(|amount| amount.node == node).expect("each has a drag").ns;
            // Nothing waits before the path's next event.
            let mut lengths = alone.lengths();
            let next = path.segments.iter().skip_while(|other| other.node != node).nth(1);
            for &edge in next.map_or(&[][..], |next| alone.graph().edges_into(next.node)) {
                lengths[edge as usize] = 0.0;
            }
            let without = alone.graph().longest_to(&lengths)[alone.last_event() as usize];
            assert_eq!(length - without, drag as f64, "seed {seed}, event {node} of {own} ns: {alone:?}");
            checked.0 += 1;
        }
        for Amount { node, ns } in path.slack.iter() {
            // The time after an event is the time until the first event that waited for it.
            let waited = |event: &u32| alone.latest_parent(*event) == Some(node);
            let times: Vec<u64> = (0..alone.events().len() as u32)
                .filter(waited)
                .map(|event| alone.events()[event as usize].time - alone.events()[node as usize].time)
                .collect();
            if let [own] = times[..]
                && own > 0
            {
                let grown = |extra: u64| {
                    let factor = (own + extra) as f64 / own as f64;
                    alone.retime(|name| if name.0 == node { factor } else { 1.0 })
                };
                assert!(
                    (grown(ns) - length).abs() < 1e-9,
                    "seed {seed}, event {node}, slack {ns}: {alone:?}"
                );
                assert!(grown(ns + 1) > length + 0.9, "seed {seed}, event {node}, slack {ns}: {alone:?}");
                checked.1 += 1;
            }
        }
    }
    assert!(checked.0 > 4_000 && checked.1 > 100, "{checked:?}");
}

#[test]
fn a_function_gains_what_retiming_says() {
    for seed in 1..=500 {
        let graph = random_graph(seed);
        let length = graph.retime(|_| 1.0);
        let procedures = graph.procedures(10);
        for (name, effect) in &procedures {
            let without = graph.retime(|own| if own == *name { 0.0 } else { 1.0 });
            assert!((length - without - effect.gain).abs() < 1e-9, "seed {seed}: {effect:?} {graph:?}");
            assert!(
                effect.slack <= effect.on_path + 1e-9 && effect.slack >= -1e-9,
                "seed {seed}: {effect:?}"
            );
        }
        let on_path: f64 = procedures.iter().map(|(_, effect)| effect.on_path).sum();
        let paths = graph.top_paths(3);
        // A path may begin later than the graph's first event.
        let start = graph.events().iter().map(|event| event.time).min().expect("events");
        let begins = graph.events()[paths[0].events[0] as usize].time - start;
        assert_eq!(paths[0].length, length, "seed {seed}");
        assert!((on_path + begins as f64 - length).abs() < 1e-9, "seed {seed}: {procedures:?} {graph:?}");
        assert!(paths.is_sorted_by(|a, b| a.length >= b.length), "seed {seed}: {paths:?}");
    }
}

fn graph(times: &[u64], edges: &[(u32, u32)]) -> EventGraph {
    let events = (0u32..).zip(times);
    let events =
        events.map(|(at, &time)| Event { time, name: Symbol(at), service: Symbol(0), index: at }).collect();
    EventGraph::new(events, edges.iter().map(|&(from, to)| Edge { from, to }).collect(), 0)
}

/// If several events have the latest time, the last in the input is the end.
#[test]
fn an_execution_ends_at_the_last_written_of_its_latest_events() {
    let ended = graph(&[0, 10, 10], &[(0, 1), (0, 2)]);
    assert_eq!((ended.last_event(), ended.path(Rule::Last)), (2, vec![0, 2]));
    assert_eq!(ended.path(Rule::Events), [0, 2]);
}

/// The second event lies before the first, which it followed: that takes no time. The third is 15
/// after it.
#[test]
fn an_event_before_its_parent_took_no_time() {
    let skewed = graph(&[10, 5, 20], &[(0, 1), (1, 2)]);
    assert_eq!(skewed.lengths(), [0.0, 15.0]);
    // The first event is 5 after the earliest of all.
    assert_eq!(skewed.retime(|_| 1.0), 20.0);
    let mut path = CriticalPath::default();
    skewed.find(Rule::Last, &mut path);
    assert!(path.tiles(10, 20), "{path:?}");
}

/// The second and third events are equally far from the first, although the third's clock is late.
/// The path goes through the later parent, for which the fourth waited.
#[test]
fn of_equally_long_paths_the_latest_parents_is_taken() {
    let tied = graph(&[0, 10, 5, 20], &[(0, 1), (1, 2), (2, 3), (1, 3)]);
    assert_eq!(tied.path(Rule::Last), [0, 1, 3]);
}

/// The first event leads nowhere. Lengths count from the beginning of the path.
#[test]
fn an_execution_that_begins_elsewhere_too_is_as_long_as_its_path() {
    let report = |id: u32, second: u32, edge: &str| {
        format!(
            r#"{{"X-Trace":["19000000000000000100000000000000{id:02}"],"Edge":[{edge}],"Timestamp":["{second}.000"],"Label":["e{id}"]}}"#
        )
    };
    let reports = [report(1, 1_000, ""), report(2, 1_010, ""), report(3, 1_100, r#""0000000000000002""#)];
    let text = format!(r#"[{{"id":"1","reports":[{}]}}]"#, reports.join(","));
    let mut intake = Intake::new(Keep::default());
    let (file, limits) = ("reports".into(), Limits::default());
    intake.file(&file, Format::XTraceJson.into());
    astracer_formats::read(Format::XTraceJson, &mut text.as_bytes(), &file, &limits, &mut intake);
    let recording = intake.finish();
    let trace = recording.traces().next().expect("a trace");
    assert_eq!(EventGraph::read(trace).retime(|_| 1.0), 100e9, "from the first event on");
    for rule in [Rule::Last, Rule::Events] {
        let mut analyser = Analyser::new(Method { rule, skew: Skew::Shift });
        assert_eq!(analyser.trace(&recording, trace).path.length(), 90_000_000_000);
        assert_eq!(analyser.retime(|_| 1.0), (90_000_000_000, 90e9));
        assert_eq!(analyser.retime(|_| 0.5), (90_000_000_000, 45e9));
        let drawing = Drawing::new(&recording, trace, rule, 3);
        assert_eq!((drawing.path_ns, drawing.paths.len()), (90_000_000_000, 1));
        assert_eq!((drawing.paths[0].length_ns, drawing.paths[0].behind_ns), (90e9, 0.0));
    }
}
