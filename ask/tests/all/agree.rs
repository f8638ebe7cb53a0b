//! One meaning of cause: for random recordings and every pair of their points, `order --between`, a
//! query's join and reachability in a slow graph agree, whatever the clocks of hosts say.
//!
//! The slow model states each rule for each pair of points, on the times of one true clock, and
//! takes the transitive closure. Times are distinct, so ties (which `points.rs` of causality tests)
//! play no part here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use astracer_ask::{Question, ask, ask_all, keep};
use astracer_causality::causes::{Causes, Clocking};
use astracer_causality::intake::{self, Intake};
use astracer_causality::rules::Options;
use astracer_formats::Limits;
use astracer_model::event::{Channel, Endpoint, Event, EventFormat, EventKind};
use astracer_model::log::{LogFormat, LogRecord};
use astracer_model::problem::Place;
use astracer_model::sink::{Record, Sink};
use astracer_model::span::{Link, Parents, Resource, Span, SpanKind};
use astracer_model::value::Attribute;
use astracer_model::{Format, SpanId, TraceId, UnixNanos};
use astracer_order::links::{Links, Relation};
use astracer_queries::{Program, Rewrite, Value};
use astracer_recording::recording::{self, Keep};
use astracer_recording::stop::Pulse;
use astracer_testing::{SplitMix, size};

/// Noon, so that skews lead to no time before 1970.
const NOON: u64 = 1_795_000_000_000_000_000;
const HOSTS: [&str; 3] = ["h0", "h1", "h2"];

/// A point's name in a query, and whether it is the end of a span.
type Name = (String, bool);

#[derive(Clone, Debug)]
struct SpanPlan {
    host: usize,
    kind: SpanKind,
    parent: Option<usize>,
    link: Option<usize>,
    follows: bool,
    start: u64,
    end: u64,
    events: Vec<u64>,
}

/// A random recording, on one true clock.
#[derive(Clone, Debug, Default)]
struct Plan {
    spans: Vec<SpanPlan>,
    /// Log records: the span and the time. The record's file is one thread of the span's host.
    logs: Vec<(usize, u64)>,
    /// Messages: from host, to host, sent, received.
    messages: Vec<(usize, usize, u64, u64)>,
}

/// Distinct times: each is taken once.
struct Times {
    taken: BTreeSet<u64>,
}

impl Times {
    fn within(&mut self, random: &mut SplitMix, from: u64, to: u64) -> Option<u64> {
        (0..20)
            .map(|_| from + 1 + random.below(to.saturating_sub(from + 1).max(1)))
            .find(|&time| time > from && time < to && self.taken.insert(time))
    }
}

/// A tree of calls on three hosts. Each client has a server that lies within it; in each pair of
/// hosts one call has a server as long as its client, so that clocks are known exactly.
fn plan(random: &mut SplitMix, is_mixed: bool) -> Plan {
    let mut times = Times { taken: BTreeSet::new() };
    let mut plan = Plan::default();
    let root = |start, end| SpanPlan {
        host: 0,
        kind: SpanKind::Internal,
        parent: None,
        link: None,
        follows: false,
        start,
        end,
        events: Vec::new(),
    };
    plan.spans.push(root(1_000_000, 9_000_000));
    // Exact calls before everything else, one to each other host.
    for host in [1, 2] {
        let (start, end) = (1_000_000 + 10_000 * host as u64, 1_004_000 + 10_000 * host as u64);
        let client = plan.spans.len();
        let call = |host, kind, parent| SpanPlan { host, kind, parent: Some(parent), ..root(start, end) };
        plan.spans.push(call(0, SpanKind::Client, 0));
        plan.spans.push(call(host, SpanKind::Server, client));
    }
    for _ in 0..2 + random.below(9) {
        let candidates: Vec<usize> = (0..plan.spans.len())
            .filter(|&at| at == 0 || at > 4 && plan.spans[at].kind != SpanKind::Client)
            .collect();
        let parent = candidates[random.below(candidates.len() as u64) as usize];
        let above = plan.spans[parent].clone();
        let from = above.start.max(1_100_000);
        let Some(start) = times.within(random, from, above.end) else { continue };
        let Some(end) = times.within(random, start, above.end) else { continue };
        let host = above.host;
        let follows = random.below(8) == 0;
        let link = (random.below(6) == 0 && plan.spans.len() > 6)
            .then(|| 5 + random.below(plan.spans.len() as u64 - 5) as usize)
            // A link to a span that began later would be a cycle in time.
            .filter(|&other| plan.spans[other].start < start && other != parent);
        let is_call = random.below(2) == 0;
        let kind = if is_call { SpanKind::Client } else { SpanKind::Internal };
        let own = plan.spans.len();
        plan.spans.push(SpanPlan {
            host,
            kind,
            parent: Some(parent),
            link,
            follows,
            start,
            end,
            events: Vec::new(),
        });
        let served = times
            .within(random, start, end)
            .and_then(|begin| Some((begin, times.within(random, begin, end)?)));
        if let (true, Some((start, end))) = (is_call, served) {
            let host = (host + 1 + random.below(2) as usize) % 3;
            let server = root(start, end);
            plan.spans.push(SpanPlan { host, kind: SpanKind::Server, parent: Some(own), ..server });
        }
    }
    for at in 5..plan.spans.len() {
        for _ in 0..random.below(3) {
            let (start, end) = (plan.spans[at].start, plan.spans[at].end);
            plan.spans[at].events.extend(times.within(random, start, end));
        }
        plan.spans[at].events.sort_unstable();
    }
    if is_mixed {
        for _ in 0..random.below(5) {
            let at = random.below(plan.spans.len() as u64) as usize;
            let (start, end) = (plan.spans[at].start, plan.spans[at].end + 50_000);
            plan.logs.extend(times.within(random, start, end).map(|time| (at, time)));
        }
        for _ in 0..random.below(6) {
            let from = random.below(3) as usize;
            let to = (from + 1 + random.below(2) as usize) % 3;
            let Some(sent) = times.within(random, 1_100_000, 8_900_000) else { continue };
            let Some(received) = times.within(random, sent, 9_000_000) else { continue };
            plan.messages.push((from, to, sent, received));
        }
    }
    plan
}

impl Plan {
    fn span_name(&self, at: usize) -> String {
        format!("s{at}")
    }

    /// The relation by the rules, for each pair.
    fn model(&self) -> BTreeSet<(Name, Name)> {
        let start = |at: usize| (self.span_name(at), false);
        let end = |at: usize| (self.span_name(at), true);
        let event = |at: usize, number: usize| (format!("e{at}_{number}"), false);
        let mut before: BTreeSet<(Name, Name)> = BTreeSet::new();
        let mut add = |one: Name, other: Name| {
            before.insert((one, other));
        };
        for (at, span) in self.spans.iter().enumerate() {
            add(start(at), end(at));
            for (number, _) in span.events.iter().enumerate() {
                add(start(at), event(at, number));
                add(event(at, number), end(at));
                (0..number).for_each(|earlier| add(event(at, earlier), event(at, number)));
            }
            for (parent, waits) in [(span.parent, !span.follows), (span.link, false)] {
                let Some(parent) = parent else { continue };
                let above = &self.spans[parent];
                add(start(parent), start(at));
                for (number, &time) in above.events.iter().enumerate() {
                    if time < span.start {
                        add(event(parent, number), start(at));
                    } else if waits && time > span.end && span.end <= above.end {
                        add(end(at), event(parent, number));
                    }
                }
                if waits && span.end <= above.end {
                    add(end(at), end(parent));
                    // Siblings that began after this one had returned, also by a link.
                    for (later, sibling) in self.spans.iter().enumerate().filter(|&(later, _)| later != at) {
                        let is_below = sibling.parent == Some(parent) || sibling.link == Some(parent);
                        if is_below && sibling.start > span.end && sibling.start <= above.end {
                            add(end(at), start(later));
                        }
                    }
                }
                // A link from a span that begins after its end knows all of it.
                if above.end < span.start {
                    add(end(parent), start(at));
                }
            }
        }
        let log = |number: usize| (format!("l{number}"), false);
        // Lines of a log without threads are in an order, but no causes of each other.
        for (number, &(at, time)) in self.logs.iter().enumerate() {
            add(start(at), log(number));
            if time <= self.spans[at].end {
                add(log(number), end(at));
            }
        }
        // Calls of one host are of one thread.
        let mut calls: Vec<(usize, u64, Name)> = Vec::new();
        for (number, &(from, to, sent, received)) in self.messages.iter().enumerate() {
            let (send, receive) = ((format!("k{number}"), false), (format!("r{number}"), false));
            add(send.clone(), receive.clone());
            calls.extend([(from, sent, send), (to, received, receive)]);
        }
        for one in &calls {
            for other in calls.iter().filter(|other| one.0 == other.0 && one.1 < other.1) {
                add(one.2.clone(), other.2.clone());
            }
        }
        closure(before)
    }

    /// All points.
    fn names(&self) -> Vec<Name> {
        let mut names: Vec<Name> = Vec::new();
        for (at, span) in self.spans.iter().enumerate() {
            names.extend([(self.span_name(at), false), (self.span_name(at), true)]);
            names.extend((0..span.events.len()).map(|number| (format!("e{at}_{number}"), false)));
        }
        names.extend((0..self.logs.len()).map(|number| (format!("l{number}"), false)));
        names.extend(
            (0..self.messages.len()).flat_map(|at| [(format!("k{at}"), false), (format!("r{at}"), false)]),
        );
        names
    }

    /// The spans as hosts recorded them, whose clocks are ahead by `skews`.
    fn spans(&self, skews: [i64; 3]) -> Vec<Span<'static>> {
        let id = |at: usize| SpanId(at as u64 + 1);
        let time = |host: usize, time: u64| UnixNanos((NOON + time * 1000).wrapping_add_signed(skews[host]));
        let resources: Vec<Arc<Resource>> = HOSTS.iter().map(|host| Arc::new(resource(host))).collect();
        let span = |(at, plan): (usize, &SpanPlan)| {
            let mut span = Span::of(Arc::clone(&resources[plan.host]), Arc::default());
            (span.trace_id, span.span_id) = (TraceId(7), id(at));
            span.parents = plan.parent.map(id).into_iter().collect::<Parents>();
            span.links = plan
                .link
                .map(|other| Link { trace_id: TraceId(7), span_id: id(other), ..Link::default() })
                .into_iter()
                .collect();
            (span.name, span.kind, span.follows) = (self.span_name(at).into(), plan.kind, plan.follows);
            (span.start, span.end) = (Some(time(plan.host, plan.start)), Some(time(plan.host, plan.end)));
            let event = |(number, &at_time): (usize, &u64)| astracer_model::span::Event {
                time: time(plan.host, at_time),
                name: format!("e{at}_{number}").into(),
                ..Default::default()
            };
            span.events = plan.events.iter().enumerate().map(event).collect();
            span
        };
        self.spans.iter().enumerate().map(span).collect()
    }

    /// Reads the recording as files of these hosts.
    fn read<'i>(&self, spans: &[Span<'static>], skews: [i64; 3], keep: Keep) -> Intake<'i> {
        let mut intake = Intake::of(recording::Intake::new(keep));
        let place =
            |file: &str, line: usize| Place { file: file.into(), line: line as u64, byte: line as u64 };
        intake.file(&"spans.json".into(), Format::OtlpJson.into());
        for (line, span) in spans.iter().enumerate() {
            intake.span(span.clone(), Record { bytes: b"", place: &place("spans.json", line + 1) });
        }
        let time = |host: usize, time: u64| UnixNanos((NOON + time * 1000).wrapping_add_signed(skews[host]));
        for (host, name) in HOSTS.iter().enumerate() {
            let file: Arc<str> = format!("{name}/app.log").into();
            let mut logs: Vec<(u64, usize, usize)> =
                self.logs.iter().enumerate().map(|(number, &(at, time))| (time, number, at)).collect();
            logs.retain(|&(_, _, at)| self.spans[at].host == host);
            logs.sort_unstable();
            if !logs.is_empty() {
                intake.file(&file, LogFormat::JsonLines.into());
            }
            let own = Arc::new(resource(name));
            for (line, &(at_time, number, at)) in logs.iter().enumerate() {
                let record = LogRecord {
                    time: Some(time(host, at_time)),
                    event_name: format!("l{number}").into(),
                    trace_id: TraceId(7),
                    span_id: SpanId(at as u64 + 1),
                    ..LogRecord::of(Arc::clone(&own), Arc::default())
                };
                let place = Place { file: Arc::clone(&file), line: line as u64 + 1, byte: line as u64 };
                intake.log(record, Record { bytes: b"text", place: &place });
            }
        }
        for (host, name) in HOSTS.iter().enumerate() {
            let mut calls: Vec<(u64, bool, usize)> = Vec::new();
            for (number, &(from, to, sent, received)) in self.messages.iter().enumerate() {
                calls.extend((from == host).then_some((sent, true, number)));
                calls.extend((to == host).then_some((received, false, number)));
            }
            if calls.is_empty() {
                continue;
            }
            calls.sort_unstable();
            let file: Arc<str> = format!("{name}/svc{host}.strace").into();
            intake.set_host(name);
            intake.file(&file, EventFormat::Strace.into());
            for (line, &(at_time, is_send, number)) in calls.iter().enumerate() {
                let kind = if is_send { EventKind::Send } else { EventKind::Receive };
                let mut event = Event::new(kind, time(host, at_time), format!("{host}"));
                let port = |port: usize| Endpoint { address: "10.0.0.1".into(), port: port as u16 };
                event.channel = Some(Channel { from: port(1000 + number), to: port(80), is_datagram: false });
                event.sequence = line as u64 * 4;
                (event.bytes, event.call) =
                    (1, format!("{}{number}", if is_send { 'k' } else { 'r' }).into());
                intake.event(event, Record { bytes: b"", place: &place(&file, line + 1) });
            }
            intake.set_host("");
        }
        intake
    }
}

fn resource(host: &str) -> Resource {
    let service = format!("svc{}", &host[1..]);
    let attributes = [("service.name", &*service), ("host.name", host)];
    let attributes = attributes.map(|(key, value)| Attribute::new(key, value).into_owned()).to_vec();
    Resource { attributes, ..Resource::default() }
}

/// All pairs that a chain of pairs connects.
fn closure(mut before: BTreeSet<(Name, Name)>) -> BTreeSet<(Name, Name)> {
    let points: BTreeSet<Name> =
        before.iter().flat_map(|(one, other)| [one.clone(), other.clone()]).collect();
    for middle in &points {
        let into: Vec<Name> =
            before.iter().filter(|pair| pair.1 == *middle).map(|pair| pair.0.clone()).collect();
        let out: Vec<Name> =
            before.iter().filter(|pair| pair.0 == *middle).map(|pair| pair.1.clone()).collect();
        for from in &into {
            before.extend(out.iter().map(|to| (from.clone(), to.clone())));
        }
    }
    before
}

/// Each pair of points that a query joins by a clause: `a`, and the `b` that it is before or below.
fn joined(plan: &Plan, spans: &[Span<'static>], skews: [i64; 3], clause: &str) -> BTreeSet<(Name, Name)> {
    let all = plan.names();
    let list = |names: &[Name]| {
        let names =
            names.iter().map(|(name, is_end)| format!("\"{name}\"{}", if *is_end { "@end" } else { "" }));
        names.collect::<Vec<_>>().join(", ")
    };
    let text = format!(
        "From b In {0} Join a In {0} {clause} Select a.tracepoint, a.duration, b.tracepoint, b.duration",
        list(&all)
    );
    let query = Program::parse(&text).expect("valid").plan(Rewrite::ALL).expect("a plan");
    let query = Arc::new(query);
    let keep = Keep { points: Some(keep(&query)), origins: true, records: true, ..Keep::default() };
    let question = Question { plan: &query, rules: Options::default(), weights: false, traces: false };
    let answer = match plan.read(spans, skews, keep).spans_only() {
        Ok(recording) => ask(&recording, question, || false),
        Err(intake) => {
            let found = Causes::find(intake.finish(), &Clocking::default(), &mut Pulse::never());
            let (causes, recording) = found.expect("not stopped");
            ask_all(&causes, &recording, question, || false)
        }
    }
    .expect("not stopped");
    assert_eq!((answer.table.incomplete_rows, answer.cycles), (0, 0));
    assert_eq!(answer.unmatched, [], "every point has a name");
    let name = |row: &[Value]| match row {
        [Value::Text(name), duration] => (name.to_string(), *duration != Value::Null),
        other => panic!("{other:?} is no point"),
    };
    answer.table.rows.iter().map(|row| (name(&row[..2]), name(&row[2..]))).collect()
}

/// The same by `order --between`, and by how much it finds the clocks of hosts ahead of the first.
fn ordered(
    plan: &Plan,
    spans: &[Span<'static>],
    skews: [i64; 3],
) -> (BTreeSet<(Name, Name)>, BTreeMap<String, i64>) {
    let collected = plan.read(spans, skews, intake::keep()).finish();
    let order = astracer_order::order(collected, &astracer_order::Options::default(), &mut Pulse::never());
    let order = order.expect("not stopped");
    assert!(order.exists(), "{:?}", order.cycles);
    let events = &order.events;
    let logs = BTreeMap::from_iter(plan.logs.iter().enumerate().map(|(number, &(at, time))| {
        (
            (
                HOSTS[plan.spans[at].host].to_owned(),
                NOON.wrapping_add_signed(skews[plan.spans[at].host]) + time * 1000,
            ),
            number,
        )
    }));
    let name = |event: u32| {
        let row = &events.rows()[event as usize];
        match row.kind {
            EventKind::SpanStart | EventKind::SpanEvent => (events.text(row).to_owned(), false),
            EventKind::SpanEnd => (events.text(row).to_owned(), true),
            EventKind::Log => (format!("l{}", logs[&(events.host(row).to_owned(), row.time)]), false),
            _ => (events.calls().name(row.call).to_owned(), false),
        }
    };
    let points: Vec<u32> = (0..events.len() as u32)
        .filter(|&at| !matches!(events.rows()[at as usize].kind, EventKind::Start | EventKind::End))
        .collect();
    let links = Links::new(&order);
    let mut found = BTreeSet::new();
    for &one in &points {
        for &other in &points {
            if links.between(one, other).0 == Relation::Before {
                found.insert((name(one), name(other)));
            }
        }
    }
    let ahead = |host: &str| {
        let at = events.hosts().iter().position(|known| known == host);
        at.map_or(0, |at| order.host_clocks[at].ahead)
    };
    let offsets = HOSTS.iter().map(|host| ((*host).to_owned(), ahead(host) - ahead(HOSTS[0])));
    (found, offsets.collect())
}

#[track_caller]
fn check(plan: &Plan, spans: &[Span<'static>], skews: [i64; 3], say: &str) {
    let expected = plan.model();
    let differ = |found: &BTreeSet<(Name, Name)>| -> (Vec<_>, Vec<_>) {
        let pairs = |one: &BTreeSet<(Name, Name)>, other: &BTreeSet<(Name, Name)>| {
            one.difference(other).take(5).cloned().collect()
        };
        (pairs(found, &expected), pairs(&expected, found))
    };
    let (by_order, offsets) = ordered(plan, spans, skews);
    assert_eq!(differ(&by_order), (vec![], vec![]), "{say}: order has more, the model has more; {plan:#?}");
    let by_query = joined(plan, spans, skews, "On a -> b");
    assert_eq!(
        differ(&by_query),
        (vec![], vec![]),
        "{say}: the query has more, the model has more; {plan:#?}"
    );
    for (at, host) in HOSTS.iter().enumerate() {
        assert_eq!(offsets[*host], skews[at] - skews[0], "{say}: {host}");
    }
}

#[test]
fn order_queries_and_reachability_agree_whatever_clocks_say() {
    for seed in 0..size(60, 3000) {
        let mut random = SplitMix::new(seed);
        let plan = plan(&mut random, seed % 2 == 1);
        for skews in [[0; 3], [0, 200_000_000, -70_000_000], [-3_600_000_000_000, 5_000_000, 1]] {
            check(&plan, &plan.spans(skews), skews, &format!("seed {seed}, skews {skews:?}"));
        }
    }
}

/// Below is said by parents alone, whatever clocks say.
#[test]
fn queries_find_what_is_below_a_span() {
    for seed in 0..size(40, 1000) {
        let plan = plan(&mut SplitMix::new(seed), seed % 2 == 1);
        let above = |at: usize| std::iter::successors(plan.spans[at].parent, |&at| plan.spans[at].parent);
        let (mut below, mut child) = (BTreeSet::new(), BTreeSet::new());
        // The points within a span, directly or further down.
        let mut add = |point: Name, spans: &mut dyn Iterator<Item = usize>| {
            for (depth, span) in spans.enumerate() {
                for is_end in [false, true] {
                    let pair = (point.clone(), (plan.span_name(span), is_end));
                    below.extend(std::iter::once(pair.clone()));
                    child.extend((depth == 0).then_some(pair));
                }
            }
        };
        for (at, span) in plan.spans.iter().enumerate() {
            add((plan.span_name(at), false), &mut above(at));
            add((plan.span_name(at), true), &mut above(at));
            for number in 0..span.events.len() {
                add((format!("e{at}_{number}"), false), &mut std::iter::once(at).chain(above(at)));
            }
        }
        for (number, &(at, _)) in plan.logs.iter().enumerate() {
            add((format!("l{number}"), false), &mut std::iter::once(at).chain(above(at)));
        }
        let skews = [0, 200_000_000, -70_000_000];
        let spans = plan.spans(skews);
        assert_eq!(joined(&plan, &spans, skews, "Below b"), below, "seed {seed}: {plan:#?}");
        assert_eq!(joined(&plan, &spans, skews, "Child Of b"), child, "seed {seed}: {plan:#?}");
    }
}

/// Writing a recording and reading it again changes no answer that the format can hold.
#[test]
fn formats_hold_causes() {
    for seed in 0..size(20, 500) {
        let mut random = SplitMix::new(1_000_000 + seed);
        let mut plan = plan(&mut random, false);
        // Neither OTLP nor Zipkin states that a parent did not wait, and Zipkin has no links.
        for format in [Format::OtlpJson, Format::JaegerJson, Format::ZipkinJson] {
            if format != Format::JaegerJson {
                plan.spans.iter_mut().for_each(|span| span.follows = false);
            }
            if format == Format::ZipkinJson {
                plan.spans.iter_mut().for_each(|span| span.link = None);
            }
            let skews = [0, 200_000_000, -70_000_000];
            let mut bytes = Vec::new();
            let mut writer =
                astracer_formats::writer(format, Box::new(&mut bytes)).expect("it can be written");
            writer.trace(&plan.spans(skews)).expect("memory");
            writer.finish().expect("memory");
            drop(writer);
            let mut read = Collected::default();
            astracer_formats::read(format, &mut &*bytes, &"again".into(), &Limits::default(), &mut read);
            assert_eq!(read.0.len(), plan.spans.len());
            check(&plan, &read.0, skews, &format!("{format}, seed {seed}"));
        }
    }
}

#[derive(Default)]
struct Collected(Vec<Span<'static>>);

impl Sink for Collected {
    fn span(&mut self, span: Span<'_>, _: Record<'_>) {
        self.0.push(span.into_owned());
    }

    fn problem(&mut self, problem: astracer_model::Problem) {
        panic!("{problem:?}");
    }

    fn skipped(&mut self, _: &Arc<str>, _: &str) {}
}
