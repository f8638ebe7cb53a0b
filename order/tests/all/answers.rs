//! Answers about an order, against reachability by a matrix: `between`, selections, and the vector
//! clocks of the export to ShiViz.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::sync::Arc;

use astracer_causality::intake::Intake;
use astracer_formats::events::{self, falcon};
use astracer_formats::{Limits, logs};
use astracer_model::sink::Sink as _;
use astracer_order::links::{Links, Relation, Toward};
use astracer_order::select::Selection;
use astracer_order::vectors::Lines;
use astracer_order::{self as order, Options, Order, shiviz};
use astracer_recording::stop::Pulse;
use astracer_testing::{SplitMix, size};
use liblzma::read::XzDecoder;

/// Random messages and forks between threads, as Falcon's JSON.
fn random_events(events: u64, threads: u64, random: &mut SplitMix) -> String {
    let mut text = String::new();
    // Bytes in flight by sender and receiver.
    let mut sent: HashMap<(u64, u64), u64> = HashMap::new();
    let mut add = |id: u64, kind: &str, thread: u64, more: &str| {
        let _ = writeln!(
            text,
            "{{\"type\":\"{kind}\",\"timestamp\":{},\"thread\":\"t{thread}@h\",\"id\":{id}{more}}}",
            1_500_000_000_000 + id
        );
    };
    for id in 0..events {
        let (one, other) = (random.next() % threads, random.next() % threads);
        let message = |from: u64, to: u64, bytes: u64| {
            format!(
                ",\"src\":\"h{from}\",\"src_port\":{},\"dst\":\"h{to}\",\"dst_port\":{},\"socket_type\":\"TCP\",\"size\":{bytes}",
                1000 + from,
                1000 + to
            )
        };
        let waiting = sent.get(&(other, one)).copied().unwrap_or(0);
        match random.next() % 3 {
            0 if one != other => {
                let bytes = 1 + random.next() % 9;
                *sent.entry((one, other)).or_insert(0) += bytes;
                add(id, "SND", one, &message(one, other, bytes));
            }
            1 if waiting > 0 => {
                let bytes = 1 + random.next() % waiting;
                sent.insert((other, one), waiting - bytes);
                add(id, "RCV", one, &message(other, one, bytes));
            }
            _ => add(id, "LOG", one, &format!(",\"message\":\"n {id} {{x}}\"")),
        }
    }
    text
}

fn order_of(text: &str) -> Order {
    let mut intake = Intake::new(4);
    falcon::read(&mut text.as_bytes(), &"events.jsonl".into(), &Limits::default(), &mut intake);
    let order = order::order(intake.finish(), &Options::default(), &mut Pulse::never()).expect("not stopped");
    assert!(order.exists());
    order
}

/// Which events are before which: each row holds a bit for every cause, by Warshall's algorithm.
struct Matrix(Vec<Vec<u64>>);

impl Matrix {
    fn new(order: &Order) -> Self {
        let len = order.events.len();
        let mut rows = vec![vec![0u64; len.div_ceil(64)]; len];
        for edge in &order.edges {
            rows[edge.after as usize][edge.before as usize / 64] |= 1 << (edge.before % 64);
        }
        for through in 0..len {
            let causes = rows[through].clone();
            for row in &mut rows {
                if row[through / 64] >> (through % 64) & 1 == 1 {
                    row.iter_mut().zip(&causes).for_each(|(own, cause)| *own |= cause);
                }
            }
        }
        Self(rows)
    }

    fn is_before(&self, one: u32, other: u32) -> bool {
        self.0[other as usize][one as usize / 64] >> (one % 64) & 1 == 1
    }
}

/// The events that an export names by their records, and their clocks.
fn read_clocks(text: &str) -> Vec<(String, HashMap<String, u64>, String)> {
    let mut lines = text.lines();
    assert_eq!((lines.next(), lines.next()), (Some(shiviz::EXPRESSION), Some("")));
    let mut found = Vec::new();
    while let (Some(clock), Some(event)) = (lines.next(), lines.next()) {
        let (host, clock) = clock.split_once(' ').expect("host and clock");
        found.push((host.to_owned(), serde_json::from_str(clock).expect("JSON"), event.to_owned()));
    }
    found
}

fn exported(links: &Links<'_>, lines: &Lines, chosen: &Selection) -> String {
    let mut out = Vec::new();
    shiviz::write(links, lines, chosen, &mut out).expect("memory");
    String::from_utf8(out).expect("UTF-8")
}

/// Events by host must count 1, 2, 3 ..., and an event is before another whose clock knows it.
fn check_clocks(text: &str, events: &[u32], is_before: impl Fn(u32, u32) -> bool) {
    let found = read_clocks(text);
    assert_eq!(found.len(), events.len());
    let mut counts: HashMap<&str, u64> = HashMap::new();
    for (host, clock, _) in &found {
        let count = counts.entry(host).or_insert(0);
        *count += 1;
        assert_eq!(clock[host], *count, "{host}");
        assert!(clock.values().all(|&number| number > 0));
    }
    // ShiViz refuses clocks of unknown hosts, and numbers that no event of the host has.
    let is_known =
        |(host, &number): (&String, &u64)| counts.get(&**host).is_some_and(|&count| number <= count);
    assert!(found.iter().all(|(_, clock, _)| clock.iter().all(is_known)));
    for (one, (host, clock, _)) in events.iter().zip(&found) {
        for (other, (_, its, _)) in events.iter().zip(&found).filter(|(other, _)| *other != one) {
            let knows = its.get(host).is_some_and(|&number| number >= clock[host]);
            assert_eq!(knows, is_before(*one, *other), "{one} before {other}");
        }
    }
}

#[test]
fn between_and_vector_clocks_are_reachability() {
    for (seed, threads, events) in [(1, 4, 250), (2, 25, 250), (3, 12, size(250, 1000))] {
        println!("seed {seed}");
        let order = order_of(&random_events(events, threads, &mut SplitMix::new(seed)));
        let (links, matrix) = (Links::new(&order), Matrix::new(&order));
        let len = order.events.len() as u32;
        for one in 0..len {
            for other in 0..len {
                let (relation, chain) = links.between(one, other);
                let expected = match (matrix.is_before(one, other), matrix.is_before(other, one)) {
                    _ if one == other => Relation::Same,
                    (true, _) => Relation::Before,
                    (_, true) => Relation::After,
                    _ => Relation::Concurrent,
                };
                assert_eq!(relation, expected, "{one} {other}");
                let ends = (chain.first().map(|edge| edge.before), chain.last().map(|edge| edge.after));
                match relation {
                    Relation::Before => assert_eq!(ends, (Some(one), Some(other))),
                    Relation::After => assert_eq!(ends, (Some(other), Some(one))),
                    _ => assert!(chain.is_empty()),
                }
                assert!(chain.windows(2).all(|pair| pair[0].after == pair[1].before));
            }
        }
        let lines = Lines::new(&links);
        let all = Selection::all(&links, &lines);
        check_clocks(&exported(&links, &lines, &all), &all.events, |one, other| matrix.is_before(one, other));
    }
}

/// A selection has the relation that the events have among all, both in its vector clocks and by
/// its links and the order on each line.
#[test]
fn a_selection_keeps_the_causality_between_its_events() {
    for seed in 1..=size(4, 40) {
        println!("seed {seed}");
        let mut random = SplitMix::new(seed);
        let order = order_of(&random_events(120, 2 + seed % 7, &mut random));
        let (links, matrix) = (Links::new(&order), Matrix::new(&order));
        let lines = Lines::new(&links);
        let is_chosen: Vec<bool> = (0..order.events.len()).map(|_| random.next().is_multiple_of(4)).collect();
        let chosen = Selection::new(&links, &lines, is_chosen);
        check_clocks(&exported(&links, &lines, &chosen), &chosen.events, |one, other| {
            matrix.is_before(one, other)
        });
        // By the links alone, in order.
        let mut causes: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut last: HashMap<u32, u32> = HashMap::new();
        for &event in &chosen.events {
            let direct = chosen
                .causes(event)
                .iter()
                .map(|link| link.before)
                .chain(last.get(&lines.of(event)).copied());
            let mut all: Vec<u32> = direct
                .flat_map(|cause| causes[&cause].iter().copied().chain([cause]).collect::<Vec<_>>())
                .collect();
            all.sort_unstable();
            all.dedup();
            let mut expected: Vec<u32> =
                chosen.events.iter().copied().filter(|&one| matrix.is_before(one, event)).collect();
            expected.sort_unstable();
            assert_eq!(all, expected, "the causes of {event}");
            causes.insert(event, all);
            last.insert(lines.of(event), event);
        }
        // Everything that leads to the last event.
        let event = order.sequence[order.sequence.len() - 1];
        let reached = links.reach(event, Toward::Causes, u32::MAX);
        assert!((0..).zip(reached).all(|(one, is)| is == (one == event || matrix.is_before(one, event))));
    }
}

/// The order of a log with vector clocks.
fn order_of_clocks(text: &str, pattern: Option<&str>) -> Order {
    let options = logs::Options {
        clock_pattern: pattern.map(|pattern| pattern.parse().expect("an expression")),
        ..logs::Options::default()
    };
    let (mut intake, file) = (Intake::new(4), Arc::from("shiviz.log"));
    let format = events::detect(text.as_bytes(), &options).expect("vector clocks");
    intake.file(&file, format.into());
    events::read(format, &mut text.as_bytes(), &file, &Limits::default(), &options, &mut intake);
    let order = order::order(intake.finish(), &Options::default(), &mut Pulse::never()).expect("not stopped");
    assert!(order.exists());
    order
}

/// Events in the order of the file.
fn by_line(order: &Order) -> Vec<u32> {
    let mut events: Vec<u32> = (0..order.events.len() as u32).collect();
    events.sort_by_key(|&event| order.events.rows()[event as usize].line);
    events
}

/// ShiViz's own examples: imported, ordered, exported and imported again, they have the relation
/// that their clocks state, for every pair.
#[test]
fn logs_of_shiviz_keep_their_relation() {
    let reliable = r"(?<event>.*user/(?<host>\w+)\] (?<clock>\{.*?\}).*)";
    for (name, pattern, events) in [
        ("chord", None, 1235),
        ("reliable-broadcast", Some(reliable), 116),
        ("simpledb", None, 509),
        ("voldemort", None, 864),
    ] {
        let path = format!("{}/tests/data/shiviz/{name}.log.xz", env!("CARGO_MANIFEST_DIR"));
        let mut text = String::new();
        XzDecoder::new(std::fs::File::open(path).expect("a file")).read_to_string(&mut text).expect("text");
        let first = order_of_clocks(&text, pattern);
        assert_eq!(first.events.len(), events, "{name}");
        // The clocks as they stand in the file, one for each event.
        let clocks: Vec<HashMap<String, u64>> = text
            .lines()
            .filter_map(|line| serde_json::from_str(&line[line.find('{')?..=line.find('}')?]).ok())
            .collect();
        assert_eq!(clocks.len(), events, "{name}");
        let (links, matrix, lines) = (Links::new(&first), Matrix::new(&first), by_line(&first));
        let all_lines = Lines::new(&links);
        let all = Selection::all(&links, &all_lines);
        let second = order_of_clocks(&exported(&links, &all_lines, &all), None);
        let (again, written) = (Matrix::new(&second), by_line(&second));
        assert_eq!(written.len(), events, "{name}");
        let place: HashMap<u32, usize> = lines.iter().copied().zip(0..).collect();
        for (&one, &its) in all.events.iter().zip(&written) {
            for (&other, &others) in all.events.iter().zip(&written).filter(|&(&other, _)| other != one) {
                let (clock, known) = (&clocks[place[&one]], &clocks[place[&other]]);
                let expected =
                    clock.iter().all(|(host, number)| known.get(host).is_some_and(|own| own >= number));
                assert_eq!(matrix.is_before(one, other), expected, "{name}: {one} before {other}");
                assert_eq!(again.is_before(its, others), expected, "{name}, written: {one} before {other}");
            }
        }
    }
}
