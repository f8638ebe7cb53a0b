//! The order of points against a slow model: the relation of each two points as the rules state it,
//! and its transitive closure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use astracer_causality::flow::Flow;
use astracer_causality::rules::{Asked, Options, TraceGraph};
use astracer_causality::shifts::Shifts;
use astracer_causality::spot::{At, Spot};
use astracer_model::problem::Place;
use astracer_model::sink::{Record, Sink as _};
use astracer_model::span::{Event, Link, Parents, Resource, Span, SpanKind};
use astracer_model::value::Attribute;
use astracer_model::{Format, SpanId, TraceId, UnixNanos};
use astracer_recording::Recording;
use astracer_recording::recording::{Intake, Keep, KeepPoints, SpanView, TraceView};
use astracer_recording::stop::Pulse;
use astracer_testing::{SplitMix, size};

/// A point by the span's id.
type Name = (u64, Spot);

/// Some points of a trace; the others only carry the order.
struct Chosen<'s>(&'s dyn Fn(u64, Spot) -> bool);

impl Asked for Chosen<'_> {
    fn span(&self, span: SpanView<'_>) -> bool {
        let events = (0..span.events().count() as u32).map(Spot::Event);
        [Spot::Start, Spot::End, Spot::Report].into_iter().chain(events).any(|spot| self.point(span, spot))
    }

    fn point(&self, span: SpanView<'_>, spot: Spot) -> bool {
        (self.0)(span.id().0, spot)
    }
}

/// A bag is the set of the points before. Counts splits.
#[derive(Default)]
struct Past {
    ids: Vec<u64>,
    before: BTreeMap<Name, BTreeSet<Name>>,
    splits: usize,
    lost: usize,
}

impl Flow<At> for Past {
    type Bag = BTreeSet<Name>;

    fn begin(&mut self) -> Self::Bag {
        BTreeSet::new()
    }

    fn lost(&mut self) -> Self::Bag {
        self.lost += 1;
        BTreeSet::new()
    }

    fn split(&mut self, bag: &mut Self::Bag) -> Self::Bag {
        self.splits += 1;
        bag.clone()
    }

    fn merge(&mut self, bag: &mut Self::Bag, other: Self::Bag) {
        bag.extend(other);
    }

    fn visit(&mut self, bag: &mut Self::Bag, At { span, spot }: At) {
        let name = (self.ids[span as usize], spot);
        assert!(self.before.insert(name, bag.clone()).is_none(), "{name:?} is visited twice");
        bag.insert(name);
    }
}

fn past(trace: TraceView<'_>, options: Options, asked: &dyn Fn(u64, Spot) -> bool) -> (Past, u64) {
    let mut order = TraceGraph::new(options);
    let mut past = Past::default();
    if !order.read(trace, &Shifts::none(), &Chosen(asked), &mut Pulse::never()) {
        return (past, 0);
    }
    past.ids = order.spans().iter().map(|span| span.id().0).collect();
    let cycles = order.walk(&mut past, &mut Pulse::never()).expect("not stopped");
    (past, cycles)
}

fn all(_: u64, _: Spot) -> bool {
    true
}

fn recording(spans: &[Span<'_>], format: Format) -> Recording {
    let wants = Arc::new(|_: &str, _: Option<(&str, u32)>| true);
    let points = KeepPoints { fields: Vec::new(), own_fields: Vec::new(), wants, lines: false };
    let mut intake = Intake::new(Keep { points: Some(points), origins: true, ..Keep::default() });
    let file: Arc<str> = "test.json".into();
    intake.file(&file, format.into());
    for (line, span) in (1..).zip(spans) {
        let place = Place { file: Arc::clone(&file), line, byte: 0 };
        intake.span(span.clone(), Record { bytes: &[], place: &place });
    }
    intake.finish()
}

/// `id parents start end [host] [kind] [event times]`, where `-` is absent, and `~9` among the
/// parents is a link.
fn spans(lines: &str) -> Vec<Span<'static>> {
    let span = |line: &str| {
        let mut words = line.split_whitespace();
        let mut word = || words.next().unwrap_or("-").to_owned();
        let number = |word: &str| word.parse::<u64>().ok();
        let id = SpanId(number(&word()).expect("an id"));
        let causes = word();
        let (start, end, host, kind) = (word(), word(), word(), word());
        let event = |time: &str| Event { time: UnixNanos(number(time).expect("a time")), ..Event::default() };
        let link = |id: &str| {
            let span_id = SpanId(number(id).expect("an id"));
            Link { trace_id: TraceId(1), span_id, ..Link::default() }
        };
        Span {
            trace_id: TraceId(1),
            span_id: id,
            parents: causes.split(',').filter_map(number).map(SpanId).collect::<Parents>(),
            links: causes.split(',').filter_map(|cause| Some(link(cause.strip_prefix('~')?))).collect(),
            name: format!("s{}", id.0).into(),
            start: number(&start).map(UnixNanos),
            end: number(&end).map(UnixNanos),
            kind: match &*kind {
                "producer" => SpanKind::Producer,
                "consumer" => SpanKind::Consumer,
                _ => SpanKind::Unspecified,
            },
            events: words.map(event).collect(),
            resource: Arc::new(Resource {
                attributes: vec![Attribute::new("host.name", &*host).into_owned()],
                ..Resource::default()
            }),
            ..Span::default()
        }
    };
    lines.trim().lines().map(span).collect()
}

fn random_spans(random: &mut SplitMix) -> Vec<Span<'static>> {
    let count = 1 + random.below(9);
    let mut lines = String::new();
    for id in 1..=count {
        let start = random.below(12);
        let length = if random.below(3) == 0 { 0 } else { random.below(12) };
        let end = match random.below(12) {
            0 => "-".to_owned(),
            1 => (start / 2).to_string(),
            _ => (start + length).to_string(),
        };
        let mut causes: Vec<String> = Vec::new();
        if id > 1 && random.below(12) > 0 {
            causes.push((1 + random.below(id - 1)).to_string());
            while random.below(6) == 0 {
                causes.push((1 + random.below(count)).to_string());
            }
            if random.below(8) == 0 {
                causes.push(format!("~{}", 1 + random.below(id - 1)));
            }
        }
        let causes = if causes.is_empty() { "-".to_owned() } else { causes.join(",") };
        let host = ["a", "a", "b"][random.below(3) as usize];
        let kind = ["-", "-", "producer", "consumer"][random.below(4) as usize];
        let events: Vec<String> =
            (0..random.below(3)).map(|_| (start + random.below(9)).to_string()).collect();
        lines += &format!("{id} {causes} {start} {end} {host} {kind} {}\n", events.join(" "));
    }
    spans(&lines)
}

/// Each pair of points that a rule orders, of spans whose ids are 1, 2, ... in the order of the
/// input.
fn direct(trace: TraceView<'_>, remote_returns: bool) -> Vec<(Name, Name)> {
    let spans: BTreeMap<u64, SpanView<'_>> = trace.spans().map(|span| (span.id().0, span)).collect();
    let mut pairs = Vec::new();
    for (&id, &span) in &spans {
        let start = span.start().0;
        let end = span.end().map_or(u64::MAX, |end| end.0.max(start));
        // The span's own points with the place of each in its timeline: the time, and its place
        // among equal times. (0: returns, 1: events, 2: without length, 3: starts, 4: end)
        let mut own: Vec<(Name, (u64, u8, u64))> = vec![((id, Spot::Start), (0, 0, 0))];
        for (event, view) in (0u32..).zip(span.events()) {
            own.push(((id, Spot::Event(event)), (view.time.0.clamp(start, end), 1, event.into())));
        }
        own.push(((id, Spot::End), (end, 4, 0)));
        // Rule 1.
        for (one, place) in &own {
            let later = own.iter().filter(|(_, other)| place < other);
            pairs.extend(later.map(|(other, _)| (*one, *other)));
        }
        // Children, each with the places at which it begins and returns.
        let mut begins: Vec<(u64, (u64, u8, u64))> = Vec::new();
        let mut returns: Vec<(u64, (u64, u8, u64))> = Vec::new();
        for (&child, &view) in &spans {
            let is_first = view.parent().is_some_and(|parent| parent.id().0 == id);
            let is_other = view.parent_ids().count() > 1 && view.parent_ids().any(|parent| parent.0 == id);
            let is_linked = view.links().iter().any(|link| link.0 == id);
            if child == id || !(is_first || is_other || is_linked) {
                continue;
            }
            let is_message = span.kind() == SpanKind::Producer && view.kind() == SpanKind::Consumer;
            let is_remote = span.origin().host != view.origin().host;
            let is_bound = (is_first || is_other) && !is_message && (remote_returns || !is_remote);
            let begin = view.start().0.max(start);
            let returned =
                view.end().map(|end| end.0.max(view.start().0)).filter(|&last| is_bound && last <= end);
            let outlives = is_bound && is_remote && returned.is_none() && span.end().is_some();
            let begin = if outlives { begin.min(end) } else { begin };
            let is_instant = view.end() == Some(view.start()) || returned.is_some_and(|last| last <= begin);
            begins.push((child, (begin, if is_instant { 2 } else { 3 }, child)));
            if let Some(last) = returned {
                let place = if is_instant { (begin, 2, child) } else { (last, 0, child) };
                returns.push((child, place));
            }
            // Rule 4.
            if outlives {
                pairs.push(((child, Spot::Start), (id, Spot::End)));
            }
        }
        // Rule 2.
        for &(child, begin) in &begins {
            let before = own.iter().filter(|(_, place)| *place < begin);
            pairs.extend(before.map(|(point, _)| (*point, (child, Spot::Start))));
        }
        // Rule 3, for the span's own points and the children that begin later.
        for &(child, back) in &returns {
            let later = own.iter().filter(|(_, place)| *place > back).map(|(point, _)| *point);
            pairs.extend(later.map(|point| ((child, Spot::End), point)));
            let later = begins.iter().filter(|&&(other, begin)| other != child && begin > back);
            pairs.extend(later.map(|&(other, _)| ((child, Spot::End), (other, Spot::Start))));
        }
    }
    pairs
}

/// The points before each, or `None` if the relation has a cycle.
fn closure(pairs: &[(Name, Name)]) -> Option<BTreeMap<Name, BTreeSet<Name>>> {
    let mut before: BTreeMap<Name, BTreeSet<Name>> = BTreeMap::new();
    for &(one, other) in pairs {
        before.entry(one).or_default();
        before.entry(other).or_default().insert(one);
    }
    loop {
        let mut is_changed = false;
        for &(one, other) in pairs {
            let more = before[&one].clone();
            let own = before.get_mut(&other)?;
            let count = own.len();
            own.extend(more);
            is_changed |= own.len() > count;
        }
        if !is_changed {
            break;
        }
    }
    before.iter().all(|(point, before)| !before.contains(point)).then_some(before)
}

#[test]
fn random_traces_are_ordered_as_the_rules_say() {
    let (mut compared, mut cyclic) = (0, 0);
    for seed in 0..size(3_000, 300_000) {
        let mut random = SplitMix::new(seed);
        let spans = random_spans(&mut random);
        let recording = recording(&spans, Format::OtlpJson);
        let remote_returns = random.below(3) > 0;
        let salt = random.below(5);
        for trace in recording.traces() {
            let options = Options { remote_returns };
            let (whole, cycles) = past(trace, options, &all);
            let points: usize =
                trace.spans().map(|span| 1 + span.events().count() + usize::from(span.end().is_some())).sum();
            assert_eq!(whole.before.len(), points, "seed {seed}: {spans:#?}");
            let Some(mut expected) = closure(&direct(trace, remote_returns)) else {
                cyclic += 1;
                continue;
            };
            assert_eq!(cycles, 0, "seed {seed}: {spans:#?}");
            // All points are visited; an end that was not recorded has none.
            expected.retain(|point, _| whole.before.contains_key(point));
            for before in expected.values_mut() {
                before.retain(|point| whole.before.contains_key(point));
            }
            assert_eq!(whole.before, expected, "seed {seed}, returns {remote_returns}: {spans:#?}");
            // Asked for fewer points, the order of these is the same.
            let some = |id: u64, spot: Spot| (id * 7 + u64::from(spot == Spot::End) + salt).is_multiple_of(3);
            let is_some = |&(id, spot): &Name| some(id, spot);
            let (part, _) = past(trace, options, &some);
            expected.retain(|point, _| is_some(point));
            for before in expected.values_mut() {
                before.retain(is_some);
            }
            assert_eq!(part.before, expected, "seed {seed}, some: {spans:#?}");
            compared += 1;
        }
    }
    assert!(compared > 2 * cyclic && cyclic > 100, "{compared} compared, {cyclic} with cycles");
}

/// Worked by hand: a client calls two servers one after the other, and the first outlives its call
/// by a tick.
#[test]
fn a_call_cannot_return_before_its_server_began() {
    let spans = spans(
        "1 - 0 20 client
         2 1 1 5 client
         3 2 2 6 server
         4 1 7 9 client
         5 4 8 9 server",
    );
    let recording = recording(&spans, Format::HTrace);
    let trace = recording.traces().next().expect("a trace");
    let starts = |_: u64, spot: Spot| spot == Spot::Start;
    let before = |remote_returns: bool, point: Name| -> Vec<u64> {
        let (past, _) = past(trace, Options { remote_returns }, &starts);
        past.before[&point].iter().map(|&(id, _)| id).collect()
    };
    assert_eq!(before(true, (5, Spot::Start)), [1, 2, 3, 4]);
    assert_eq!(before(false, (5, Spot::Start)), [1, 2, 4]);
}

/// A caller that only waits hands its bag over, so that nothing is split.
#[test]
fn calls_one_after_the_other_need_no_split() {
    let mut lines = "1 - 0 1000000 a\n".to_owned();
    for id in 2..1000 {
        lines += &format!("{id} 1 {} {} b\n", 10 * id, 10 * id + 5);
    }
    let recording = recording(&spans(&lines), Format::OtlpJson);
    let (past, _) = past(recording.traces().next().expect("a trace"), Options::default(), &all);
    assert_eq!(past.splits, 0);
    assert_eq!(past.before[&(1, Spot::End)].len(), 2 * 999 - 1);
}

#[test]
fn reports_are_ordered_by_their_edges() {
    let spans = spans("1 - 9 9\n2 1 8 8\n3 1 7 7\n4 2,3 1 1\n5 99 1 1\n6 7 3 3\n7 6 2 2");
    let recording = recording(&spans, Format::XTraceJson);
    let trace = recording.traces().next().expect("a trace");
    let (past, cycles) = past(trace, Options::default(), &all);
    let before = |id| past.before[&(id, Spot::Report)].iter().map(|&(id, _)| id).collect::<Vec<_>>();
    assert_eq!([before(4), before(2), before(5)], [vec![1, 2, 3], vec![1], vec![]]);
    // The earliest of a cycle goes first.
    assert_eq!([before(7), before(6)], [vec![], vec![7]]);
    assert_eq!((past.lost, cycles), (1, 1));
}

/// A flow that only counts.
#[derive(Default)]
struct Count {
    visits: u64,
    splits: u64,
}

impl Flow<At> for Count {
    type Bag = ();

    fn begin(&mut self) {}

    fn lost(&mut self) {}

    fn split(&mut self, (): &mut ()) {
        self.splits += 1;
    }

    fn merge(&mut self, (): &mut (), (): ()) {}

    fn visit(&mut self, (): &mut (), _: At) {
        self.visits += 1;
    }
}

/// Shapes that would take quadratic time if anything looked at all children or at all spans above.
#[test]
fn a_large_trace_takes_linear_time() {
    let count: u64 = size(50_000, 1_000_000);
    let shapes: [(&str, &dyn Fn(u64) -> String); 4] = [
        ("chain", &|id| format!("{id} {} {id} {}", id - 1, 3 * count - id)),
        ("children at once", &|id| format!("{id} 1 5 {}", 10 + id)),
        ("cycles", &|id| format!("{id} {},{} {id} {}", id ^ 1, id / 2, id + 3)),
        ("several parents", &|id| format!("{id} {},{} {id} {}", id / 2, id / 3 + 1, 2 * id)),
    ];
    for (name, line) in shapes {
        let mut lines = format!("1 - 0 {}\n", 4 * count);
        (2..=count).for_each(|id| lines += &(line(id) + "\n"));
        let recording = recording(&spans(&lines), Format::OtlpJson);
        let mut count_all = Count::default();
        for trace in recording.traces() {
            let mut order = TraceGraph::new(Options::default());
            assert!(order.read(trace, &Shifts::none(), &Chosen(&all), &mut Pulse::never()));
            order.walk(&mut count_all, &mut Pulse::never()).expect("not stopped");
        }
        assert_eq!(count_all.visits, 2 * count, "{name}");
        assert!(count_all.splits <= 3 * count, "{name}: {} splits", count_all.splits);
    }
}
