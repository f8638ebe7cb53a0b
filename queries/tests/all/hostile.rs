//! Programs, fields and bags of people who mean harm, or have much data.

use std::fmt::Write;
use std::time::{Duration, Instant};

use astracer_queries::{Bag, BagError, Limits, Output, OutputOptions, Plan, Program, Rewrite, Value};

use crate::run::{CARRIES, Carry, Event, run};

/// Parses within a second, whatever it is. The limit is far above what any of them needs.
#[track_caller]
fn parse(text: &str) -> Result<Program, String> {
    let start = Instant::now();
    let program = Program::parse(text);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    program.map_err(|faults| {
        assert!(!faults.is_empty() && faults.len() <= 20);
        faults.iter().for_each(|fault| assert!(fault.to_string().len() < 2000));
        faults[0].to_string()
    })
}

#[test]
fn large_and_deep_programs_are_refused_quickly() {
    let refused = |text: &str, part: &str| {
        let message = parse(text).expect_err(part);
        assert!(message.contains(part), "{message}");
    };
    let megabyte = "From e In t Where e.a = 1 ".repeat(40_000);
    assert!(megabyte.len() > 1_000_000);
    refused(&megabyte, "1040000 bytes");
    for open in ["(", "Not ", "- ", "SUM("] {
        refused(&format!("From e In t Where {}1", open.repeat(10_000)), "nested more than 64");
    }
    refused(&format!("From e In t Where e.a{} Select COUNT", " + 1".repeat(10_000)), "more than 256");
    refused(&format!("From e In t Where e.a In ({}1)", "1,".repeat(10_000)), "more than 256");
    let faulty = "From e In t Where e.a = = 1 ".repeat(5_000);
    assert!(parse(&faulty).is_err());
    assert!(parse(&"x: ".repeat(50_000)).is_err());
    assert!(parse(&"From ".repeat(50_000)).is_err());
    assert!(parse(&"\u{0}\u{1}é".repeat(50_000)).is_err());
    let names = format!("From {} In t Select y.a", "ä".repeat(100_000));
    assert!(parse(&names).is_err());
}

#[test]
fn five_hundred_queries_are_fine_until_one_joins_many() {
    let mut text = String::new();
    for index in 0..500 {
        let before = if index > 0 { format!(" Join b In q{0} On b -> a", index - 1) } else { String::new() };
        writeln!(text, "q{index}: From a In t{before} Select a.x + a.x As x").unwrap();
    }
    let short = format!("{text}From z In u Join q In q3 On q -> z Select q.x");
    parse(&short).unwrap().plan(Rewrite::ALL).unwrap();
    let long = format!("{text}From z In u Join q In q499 On q -> z Select q.x");
    let faults = parse(&long).unwrap().plan(Rewrite::ALL).unwrap_err();
    assert!(faults[0].to_string().contains("more than 16 tracepoints"));
    // Each query doubles the column of the one before.
    let mut text = "q0: From a In t Select a.x As x\n".to_owned();
    for index in 1..15 {
        let before = index - 1;
        writeln!(text, "q{index}: From a In t Join b In q{before} On b -> a Select b.x + b.x As x").unwrap();
    }
    text.push_str("From z In u Join q In q14 On q -> z Select q.x");
    let faults = parse(&text).unwrap().plan(Rewrite::ALL).unwrap_err();
    assert!(faults[0].to_string().contains("too long"), "{}", faults[0]);
    // Two joins of the query before: 2^20 tracepoints.
    let mut text = "q0: From a In t Select a.x As x\n".to_owned();
    for index in 1..20 {
        let before = index - 1;
        writeln!(
            text,
            "q{index}: From a In t Join b In q{before} On b -> a Join c In q{before} On c -> a Select b.x As x"
        )
        .unwrap();
    }
    text.push_str("From z In u Join q In q19 On q -> z Select q.x");
    assert!(parse(&text).unwrap().plan(Rewrite::ALL).is_err());
}

fn plan(text: &str, rewrite: Rewrite) -> Plan {
    Program::parse(text).unwrap().plan(rewrite).unwrap()
}

fn event(tracepoint: &str, parents: &[usize], value: impl Into<Value>) -> Event {
    Event {
        tracepoint: tracepoint.to_owned(),
        parents: parents.to_vec(),
        fields: [("v".to_owned(), value.into())].into(),
        ..Event::default()
    }
}

/// A field of 10 MB does not travel, and is counted; the group of one is a part of `(other)`.
#[test]
fn large_fields_stay_where_they_are() {
    let large = "x".repeat(10_000_000);
    let events = [event("b", &[], &*large), event("b", &[0], "small"), event("a", &[1], 1_i64)];
    let options = OutputOptions { bags: Limits::LIVE, ..OutputOptions::default() };
    for (text, rows) in [
        ("From a In a Join b In b On b -> a Select b.v, a.v", 1),
        ("From a In a Join b In First(b) On b -> a Select b.v, a.v", 0),
        ("From a In a Join b In MostRecent(b) On b -> a Select b.v, a.v", 1),
        ("From a In a Join b In b On b -> a GroupBy b.v Select b.v, COUNT", 1),
    ] {
        for carry in CARRIES {
            let table = run(&plan(text, Rewrite::ALL), &events, carry, options).finish();
            assert_eq!(table.rows.len(), rows, "{text}");
            assert!(table.rows.iter().all(|row| row[0] == Value::from("small")));
            assert_eq!(table.incomplete_rows, rows as u64, "{text}");
        }
    }
    let table = run(
        &plan("From b In b GroupBy b.v Select b.v, COUNT", Rewrite::ALL),
        &events,
        Carry::Split,
        OutputOptions::default(),
    )
    .finish();
    assert_eq!(table.rows, [[Value::from("(other)"), Value::Int(1)], [Value::from("small"), Value::Int(1)]]);
}

/// A live bag holds 64 entries and 2 KiB; a recording's holds all.
#[test]
fn live_bags_are_bounded_and_say_so() {
    let before = |at: usize| if at > 0 { vec![at - 1] } else { Vec::new() };
    let mut events: Vec<Event> = (0..500).map(|at| event("b", &before(at), at as i64)).collect();
    events.push(event("a", &[499], 1_i64));
    for (text, kept, whole) in [
        ("From a In a Join b In b On b -> a Select b.v", 64, false),
        ("From a In a Join b In b On b -> a GroupBy b.v Select b.v, COUNT", 64, false),
        ("From a In a Join b In b On b -> a Select SUM(b.v)", 1, true),
        ("From a In a Join b In FirstN(64, b) On b -> a Select b.v", 64, true),
        ("From a In a Join b In MostRecentN(3, b) On b -> a Select b.v", 3, true),
    ] {
        let plan = plan(text, Rewrite::ALL);
        let live = OutputOptions { bags: Limits::LIVE, ..OutputOptions::default() };
        // Copies that pack are branches, which take room of their own.
        let table = run(&plan, &events, Carry::Split, live).finish();
        assert!(table.rows.len() <= kept, "{text}");
        let table = run(&plan, &events, Carry::Move, live).finish();
        assert!(table.rows.len() <= kept && (table.rows.len() == kept || !whole), "{text}");
        assert_eq!(table.incomplete_rows == 0, whole, "{text}");
        for carry in CARRIES {
            let table = run(&plan, &events, carry, OutputOptions::default()).finish();
            assert_eq!(table.incomplete_rows, 0, "{text}");
        }
    }
    let plan = plan("From a In a Join b In b On b -> a Select b.v", Rewrite::ALL);
    let mut output = Output::new(&plan, OutputOptions { bags: Limits::LIVE, ..OutputOptions::default() });
    let mut bag = output.begin();
    for event in &events[..500] {
        plan.visit(&mut bag, plan.select("b", None), event, &mut output);
    }
    assert!(bag.is_incomplete());
    assert!(bag.encode(usize::MAX).len() <= 2048);
    let empty = Bag::decode(&bag.encode(100), &plan, Limits::LIVE).unwrap();
    assert!(empty.is_incomplete() && empty.is_marked() && bag.encode(100).len() <= 100);
}

/// A flow that joins brings its mark and what it lacks, whichever side asks.
#[test]
fn merged_flows_share_marks_and_losses() {
    let plan = plan("From a In a Join b In b On b -> a GroupBy b.v Select b.v, COUNT", Rewrite::ALL);
    let options = OutputOptions { bags: Limits { entries: 3, ..Limits::LIVE }, ..OutputOptions::default() };
    let mut output = Output::new(&plan, options);
    let mut full = output.begin();
    for value in 0..4_i64 {
        assert!(!full.is_incomplete(), "three groups fit");
        plan.visit(&mut full, plan.select("b", None), &event("b", &[], value), &mut output);
    }
    assert!(full.is_incomplete(), "the fourth has no room");
    let mut lost = output.lost();
    lost.merge(full.split());
    assert!(lost.is_marked() && lost.is_incomplete());
    full.merge(output.lost());
    assert!(full.is_marked() && full.is_incomplete());
}

/// Groups that one event packs share the room that is left.
#[test]
fn groups_of_one_event_are_bounded() {
    let text = "From c In c Join b In b On b -> c Join a In a On a -> b GroupBy a.v, b.v Select a.v, COUNT";
    let plan = plan(text, Rewrite::ALL);
    for (entries, is_incomplete) in [(10, false), (9, true)] {
        let bags = Limits { entries, ..Limits::LIVE };
        let mut output = Output::new(&plan, OutputOptions { bags, ..OutputOptions::default() });
        let mut bag = output.begin();
        for value in 0..5_i64 {
            plan.visit(&mut bag, plan.select("a", None), &event("a", &[], value), &mut output);
        }
        plan.visit(&mut bag, plan.select("b", None), &event("b", &[], 1_i64), &mut output);
        assert_eq!(bag.is_incomplete(), is_incomplete, "{entries} entries");
    }
}

#[test]
fn points_without_their_causes_are_counted() {
    let plan = plan("From a In a Join b In b On b -> a Select COUNT", Rewrite::ALL);
    let mut output = Output::new(&plan, OutputOptions::default());
    let mut bag = output.lost();
    plan.visit(&mut bag, plan.select("a", None), &event("a", &[], 1_i64), &mut output);
    plan.visit(&mut bag, plan.select("b", None), &event("b", &[], 1_i64), &mut output);
    plan.visit(&mut bag, plan.select("a", None), &event("a", &[], 1_i64), &mut output);
    let table = output.finish();
    assert_eq!(table.rows, [[Value::Int(1)]]);
    assert_eq!(table.lost.into_iter().collect::<Vec<_>>(), [("a".to_owned(), 2)]);
}

/// Every byte of advice and bags changed: refused, or a plan and a bag that run.
#[test]
fn bytes_that_are_damaged_are_refused_or_harmless() {
    let text = "q: From d In b GroupBy d.v Select d.v, QUANTILE(d.v, 0.5)
        From a In a Join b In MostRecent(b) On b -> a Join s In q On s -> a Join c In b On c -> a
        Where b.v > 0 And a.v Is Not Null GroupBy b.v Select b.v, MAX(s.d.v), SUM(c.v * 2), COUNT";
    let plan = plan(text, Rewrite::ALL);
    let events = [event("b", &[], 1.5), event("b", &[0], "x"), event("a", &[1], 1_i64)];
    let bytes = plan.encode();
    let mut output = Output::new(&plan, OutputOptions::default());
    let mut bag = output.begin();
    for event in &events[..2] {
        plan.visit(&mut bag, plan.select("b", None), event, &mut output);
    }
    let message = bag.encode(usize::MAX);
    assert_eq!(Bag::decode(&message, &plan, Limits::LIVE).unwrap().encode(usize::MAX), message);
    assert_eq!(Bag::decode(&[9], &plan, Limits::LIVE).unwrap_err(), BagError::Version(9));
    for at in 0..bytes.len() {
        for change in [1, 2, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= change;
            if let Ok(plan) = Plan::decode(&damaged) {
                run(&plan, &events, Carry::Split, OutputOptions::default()).finish();
                assert!(!plan.to_string().is_empty());
            }
        }
        assert!(Plan::decode(&bytes[..at]).is_err());
    }
    for at in 0..message.len() {
        for change in [1, 2, 0x80, 0xff] {
            let mut damaged = message.clone();
            damaged[at] ^= change;
            if let Ok(mut bag) = Bag::decode(&damaged, &plan, Limits::LIVE) {
                bag.merge(Bag::decode(&message, &plan, Limits::LIVE).unwrap());
                plan.visit(&mut bag, plan.select("a", None), &events[2], &mut output);
            }
        }
        assert!(Bag::decode(&message[..at], &plan, Limits::LIVE).is_err());
    }
}

/// Thousands of concurrent events, and a flow that forks while it packs, take about linear work:
/// by the cube, this test does not end. The counts are by hand.
#[test]
fn concurrent_events_are_united_in_linear_time() {
    const WIDE: i128 = 4_000;
    for (source, rounds, rows) in [
        // After each round its own events; in the end the last one, or two.
        ("MostRecent(c)", 2, WIDE + WIDE + 1),
        ("MostRecentN(2, c)", 1, WIDE + 2),
        // The first round's, three times.
        ("First(c)", 2, 3 * WIDE),
        ("c", 2, WIDE + 2 * WIDE + 3 * WIDE),
    ] {
        let plan = plan(&format!("From r In r Join c In {source} On c -> r Select COUNT"), Rewrite::ALL);
        let mut output = Output::new(&plan, OutputOptions::default());
        let mut visit = |bag: &mut Bag, name: &str| {
            plan.visit(bag, plan.select(name, None), &event(name, &[], 1_i64), &mut output);
        };
        let mut root = Bag::begin(Limits::RECORDING);
        let fork = |root: &Bag| (0..WIDE).map(|_| root.split()).collect::<Vec<Bag>>();
        for _ in 0..rounds {
            for mut child in fork(&root) {
                visit(&mut child, "c");
                root.merge(child);
            }
            visit(&mut root, "r");
        }
        // The parent goes on while its children run.
        let mut children = Vec::new();
        for _ in 0..WIDE {
            children.push(root.split());
            visit(&mut root, "c");
        }
        children.into_iter().for_each(|child| root.merge(child));
        visit(&mut root, "r");
        assert_eq!(output.finish().rows, [[Value::Int(rows)]], "{source}");
    }
}
