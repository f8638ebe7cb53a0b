//! Malformed, extreme or malicious recordings: every rule analyses each of them in linear time and
//! without recursion, and irregularities are counted.

use std::sync::Arc;
use std::time::Instant;

use astracer_critical_path::page::{Report, page};
use astracer_critical_path::{
    Analyser, By, Lanes, Method, Profile, Profiler, Rule, Shape, Skew, folded, segments,
};
use astracer_model::problem::{Place, ProblemKind};
use astracer_model::sink::{Record, Sink};
use astracer_model::span::Resource;
use astracer_model::{Span, SpanId, TraceId, UnixNanos};
use astracer_recording::recording::{Intake, Keep, Recording};
use astracer_recording::stop::Pulse;

/// One span: id, parents, start and end in ns, name.
struct Row<'r>(u64, &'r [u64], Option<u64>, Option<u64>, &'r str);

fn recording<'r>(rows: impl IntoIterator<Item = Row<'r>>) -> Recording {
    let mut intake = Intake::new(Keep::default());
    let place = Place { file: Arc::from("test"), line: 1, byte: 0 };
    let resource = Arc::new(Resource::service("service"));
    for Row(id, parents, start, end, name) in rows {
        let span = Span {
            trace_id: TraceId(1),
            span_id: SpanId(id),
            parents: parents.iter().map(|&parent| SpanId(parent)).collect(),
            name: name.into(),
            start: start.map(UnixNanos),
            end: end.map(UnixNanos),
            resource: Arc::clone(&resource),
            ..Span::default()
        };
        // Distinct bytes, so that spans with the same id do not count as written twice.
        intake.span(span, Record { bytes: &id.to_le_bytes(), place: &place });
    }
    intake.finish()
}

/// Analyses a recording by every rule and both treatments of skew, and checks that the segments
/// cover every root.
fn by_every_rule(recording: &Recording) -> Vec<Profile> {
    let mut profiles = Vec::new();
    for rule in Rule::ALL {
        for skew in [Skew::Shift, Skew::Clip] {
            let mut analyser = Analyser::new(Method { rule, skew });
            let mut profiler = Profiler::new(recording, By::Path);
            for trace in recording.traces() {
                let traced = analyser.trace(recording, trace);
                let (start, end) = match traced.shape {
                    Shape::Tree(tree) => (tree.nodes()[0].start, tree.nodes()[0].end),
                    Shape::Events(_) => {
                        let segments = &traced.path.segments;
                        (segments.first().expect("a segment").start, segments.last().expect("a segment").end)
                    }
                };
                assert!(traced.path.tiles(start, end), "{rule}: {:?}", traced.path.segments);
                profiler.add(&traced, Some(1.0));
                let (length, retimed) = analyser.retime(|_| 1.0);
                assert!(
                    (length as f64 - retimed).abs() <= 1e-12 * length as f64,
                    "{rule}: {length} {retimed}"
                );
            }
            profiles.push(profiler.finish(&[50.0]));
        }
    }
    profiles
}

fn problem(recording: &Recording, kind: ProblemKind) -> u64 {
    recording.problems().count(kind)
}

#[test]
fn cycles_are_cut_and_counted() {
    let found = recording([
        Row(1, &[3], Some(0), Some(100), "a"),
        Row(2, &[1], Some(10), Some(60), "b"),
        Row(3, &[2], Some(20), Some(50), "c"),
        Row(4, &[4], Some(30), Some(40), "itself"),
    ]);
    assert!(problem(&found, ProblemKind::Cycle) > 0, "{:?}", found.problems());
    by_every_rule(&found);
}

#[test]
fn further_roots_and_orphans_are_counted() {
    let found = recording([
        Row(1, &[], Some(0), Some(100), "root"),
        Row(2, &[1], Some(10), Some(60), "child"),
        Row(3, &[], Some(20), Some(90), "another root"),
        Row(4, &[77], Some(30), Some(95), "orphan"),
        Row(5, &[4], Some(40), Some(50), "below the orphan"),
    ]);
    let profiles = by_every_rule(&found);
    // The three rules for spans only: in a graph, events outside the root's tree are included.
    assert!(profiles[..6].iter().all(|profile| profile.fitting.unreached_spans == 3), "{:?}", profiles[0]);
    assert!(problem(&found, ProblemKind::Orphan) > 0, "{:?}", found.problems());
}

#[test]
fn spans_without_end_or_start_have_no_length() {
    let found = recording([
        Row(1, &[], Some(0), Some(100), "root"),
        Row(2, &[1], Some(10), None, "never ended"),
        Row(3, &[1], None, Some(40), "never began"),
        Row(4, &[1], Some(50), Some(45), "ended before it began"),
        Row(5, &[2], Some(20), Some(30), "below what never ended"),
    ]);
    let profiles = by_every_rule(&found);
    assert_eq!(profiles[0].rows[0].name, ["root"]);
    let odd: u64 = found.problems().counts().map(|(_, count)| count).sum();
    assert!(odd >= 3, "{:?}", found.problems());
}

#[test]
fn spans_that_all_begin_and_end_at_once_are_all_of_the_root() {
    let rows = (1..=50u64).map(|id| Row(id, if id == 1 { &[] } else { &[1] }, Some(7), Some(7), "ms"));
    for profile in by_every_rule(&recording(rows)) {
        assert_eq!((profile.total_ms, profile.rows[0].name.len()), (0.0, 1), "{profile:?}");
    }
    // Children as long as the root: one of them has all of its time.
    let rows = (1..=50u64).map(|id| Row(id, if id == 1 { &[] } else { &[1] }, Some(7), Some(9), "ms"));
    by_every_rule(&recording(rows));
}

#[test]
fn times_at_the_ends_of_64_bits_do_not_overflow() {
    // The last 64-bit value stands for "no time".
    let (first, last) = (0, u64::MAX - 1);
    let rows = [
        Row(1, &[], Some(first), Some(last), "root"),
        Row(2, &[1], Some(first), Some(first), "first"),
        Row(3, &[1], Some(last), Some(last), "last"),
        Row(4, &[1], Some(1), Some(last - 1), "most"),
        Row(5, &[4], Some(first), Some(last), "more than its parent"),
    ];
    for profile in by_every_rule(&recording(rows)) {
        assert!((profile.total_ms - last as f64 / 1e6).abs() < 1e-3 * profile.total_ms, "{profile:?}");
    }
    let early = Row(1, &[], Some(last - 5), Some(last), "late root");
    by_every_rule(&recording([early, Row(2, &[1], Some(first), Some(3), "early child")]));
}

/// A name with characters that are special for terminals, HTML and folded stacks.
const NASTY: &str = "a\u{1b}[2J\u{202e};b c 17\n<script>alert(1)</script>\"'&\r\u{9b}";

#[test]
fn names_cannot_act_in_a_page_a_stack_or_a_line() {
    let found = recording([
        Row(1, &[], Some(0), Some(100_000_000), NASTY),
        Row(2, &[1], Some(10), Some(60_000_000), "x;y\nz 5"),
        Row(3, &[1], Some(70_000_000), Some(80_000_000), ""),
    ]);
    let mut analyser = Analyser::new(Method::default());
    let mut profiler = Profiler::new(&found, By::Path);
    let trace = found.traces().next().expect("a trace");
    let traced = analyser.trace(&found, trace);
    profiler.add(&traced, Some(1.0));
    let mut line = Vec::new();
    segments::write(&mut line, &found, &traced, &mut Pulse::never()).expect("writing to memory cannot fail");
    assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
    let lanes = Lanes::new(&found, &traced, 10);
    let profile = profiler.finish(&[50.0]);
    // Each stack is one line with one frame per call, and ends with its time.
    let stacks = folded(&profile);
    assert_eq!(stacks.lines().count(), 3, "{stacks}");
    for stack in stacks.lines() {
        let (frames, ns) = stack.rsplit_once(' ').expect("a time");
        assert!(ns.parse::<u64>().is_ok(), "{stack}");
        assert!(frames.split(';').count() <= 2, "{stack}");
        assert!(!stack.chars().any(char::is_control), "{stack:?}");
    }
    let page = drawn(&profile, &lanes);
    assert!(!page.contains("<script>alert") && !page.contains("\"'&"), "{page}");
}

fn drawn(profile: &Profile, lanes: &Lanes) -> String {
    page(&Report {
        title: NASTY,
        rule: "last",
        percentiles: &[50.0],
        profile,
        hint: Some(NASTY),
        by_path: profile,
        lanes: Some(lanes),
        speedup: None,
        compared: Some(NASTY),
        comparison: None,
        next: &[],
    })
}

/// The page used to have a mark for each child: 16 MB for 250,000 children.
#[test]
fn a_page_has_no_more_marks_than_can_be_told_apart() {
    const CHILDREN: u64 = 20_000;
    let rows = (1..=CHILDREN + 1).map(|id| {
        let times = if id == 1 { (0, 10 * CHILDREN + 20) } else { (id * 10, id * 10 + 5) };
        Row(id, if id == 1 { &[] } else { &[1] }, Some(times.0), Some(times.1), "wide")
    });
    let found = recording(rows);
    let mut analyser = Analyser::new(Method::default());
    let mut profiler = Profiler::new(&found, By::Path);
    let traced = analyser.trace(&found, found.traces().next().expect("a trace"));
    profiler.add(&traced, Some(1.0));
    let lanes = Lanes::new(&found, &traced, 10);
    assert_eq!(lanes.lanes[0].critical.len() as u64, CHILDREN + 1);
    let page = drawn(&profiler.finish(&[50.0]), &lanes);
    // The root's parts touch each other as drawn, and become one mark; nine children have one mark
    // each.
    assert_eq!(page.matches("height=\"12\" rx=\"2\"").count(), 10);
    assert!(page.len() < 40_000, "{}", page.len());
}

/// Analyses the recording by each rule, within a time limit that a quadratic algorithm would exceed
/// by far.
fn quickly(what: &str, found: &Recording, rules: &[Rule]) {
    for &rule in rules {
        let began = Instant::now();
        let mut analyser = Analyser::new(Method { rule, skew: Skew::Shift });
        let mut profiler = Profiler::new(found, By::Path);
        for trace in found.traces() {
            profiler.add(&analyser.trace(found, trace), Some(1.0));
            analyser.retime(|_| 0.5);
        }
        assert!(profiler.finish(&[50.0]).total_ms > 0.0);
        // Takes a second or two without optimisation; 10^12 steps would take hours.
        assert!(began.elapsed().as_secs() < 120, "{what} by {rule}: {:?}", began.elapsed());
    }
}

#[test]
fn a_million_spans_deep() {
    const DEPTH: u64 = 1_000_000;
    let parents: Vec<[u64; 1]> = (0..DEPTH).map(|id| [id]).collect();
    let rows = (1..=DEPTH).map(|id| {
        let parents = if id == 1 { &[][..] } else { &parents[id as usize - 1][..] };
        Row(id, parents, Some(id), Some(4 * DEPTH - id), "deep")
    });
    quickly("a million deep", &recording(rows), &Rule::ALL);
}

#[test]
fn a_parent_of_300_000_children() {
    let rows = (1..=300_001u64).map(|id| {
        let times = if id == 1 { (0, 2_000_000) } else { (id * 3, id * 3 + id % 9) };
        Row(id, if id == 1 { &[] } else { &[1] }, Some(times.0), Some(times.1), "wide")
    });
    quickly("300,000 children", &recording(rows), &Rule::ALL);
}

#[test]
fn one_trace_of_a_million_spans() {
    const SPANS: u64 = 1_000_000;
    // A tree with ten children per node, whose siblings overlap and reach outside their parents.
    let parents: Vec<[u64; 1]> = (0..=SPANS).map(|id| [(id + 8) / 10]).collect();
    let rows = (1..=SPANS).map(|id| {
        let start = id.wrapping_mul(7_919) % 5_000_000;
        let end = start + id.wrapping_mul(104_729) % 1_000_000;
        let parents = if id == 1 { &[][..] } else { &parents[id as usize][..] };
        Row(
            id,
            parents,
            Some(if id == 1 { 0 } else { start }),
            Some(if id == 1 { 6_000_000 } else { end }),
            "span",
        )
    });
    quickly("a million spans", &recording(rows), &Rule::ALL);
}
