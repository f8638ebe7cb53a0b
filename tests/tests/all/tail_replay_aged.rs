//! `evaluate --tail` keeps exactly the traces that a service keeps, for traces whose root stays
//! open longer than the service's maximum trace age.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use astracer_model::problem::Place;
use astracer_model::sink::{Record, Sink as _};
use astracer_model::value::{Attribute, Value};
use astracer_model::{Span as ModelSpan, SpanId, Status, TraceId, UnixNanos};
use astracer_recording::recording::{Intake, Keep, Recording};
use astracer_samplers::Config;
use astracer_samplers::tail::{ProvisionalMode, Tail};
use astracer_sdk::{Astracer, Clock, Start};
use astracer_testing::SplitMix;
use astracer_tuner::draw::Draw;
use astracer_tuner::key::Grouping;
use astracer_tuner::stop::Stop;
use astracer_tuner::tail::{Outcomes, attributes};
use astracer_tuner::workload::Workload;
use opentelemetry_sdk::trace::InMemorySpanExporter;
use tracing::{Span, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

use crate::tail_replay::{Ids, go_to, replayed};

const SECOND: u64 = 1_000_000_000;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A trace to create. `start` and `duration` are in ns; `fails` is the root's status.
#[derive(Clone, Debug)]
struct Made {
    start: u64,
    duration: u64,
    key: &'static str,
    fails: bool,
    children: Vec<Child>,
}

/// A child that begins with the root. `duration` is in ns.
#[derive(Clone, Debug)]
struct Child {
    duration: u64,
    name: &'static str,
    code: i64,
    fails: bool,
}

/// Most traces stay open for long. Their ends lie close to the maximum age of a trace and to the
/// end of the hold.
fn made(random: &mut SplitMix, number: usize, gap: u64) -> Vec<Made> {
    let mut start = 1_000;
    let mut of_trace = |_| {
        start += 1 + random.below(gap);
        let mut time = || {
            let (from, length) =
                random.one_of(&[(0, 100), (0, 29_000), (29_000, 1_100), (30_100, 1_800), (32_100, 60_000)]);
            from * 1_000_000 + random.below(length * 1_000_000) + 1
        };
        let duration = time().max(time());
        let ends: Vec<u64> = (0..4).map(|_| 1 + time().min(duration - 2)).collect();
        let number = random.index(5);
        let of_child = |ends| Child {
            duration: ends,
            name: random.one_of(&["query", "cache", "render"]),
            code: random.one_of(&[200, 200, 200, 503]),
            fails: random.one_in(8),
        };
        let children = ends.into_iter().take(number).map(of_child).collect();
        Made {
            start,
            duration,
            key: random.one_of(&["GET /cart", "POST /order"]),
            fails: random.one_in(8),
            children,
        }
    };
    (0..number).map(&mut of_trace).collect()
}

fn recording(traces: &[Made], tail: &Tail) -> Recording {
    let mut intake = Intake::new(Keep { own_labels: attributes(tail), ..Keep::default() });
    let place = Place { file: Arc::from("test"), line: 1, byte: 0 };
    const EPOCH: u64 = 1_700_000_000 * SECOND;
    for (trace, number) in traces.iter().zip(1_u64..) {
        let span = |id: u64, name: &'static str, duration: u64, fails: bool| ModelSpan {
            trace_id: TraceId(number.into()),
            span_id: SpanId(number << 16 | id),
            name: name.into(),
            start: Some(UnixNanos(EPOCH + trace.start)),
            end: Some(UnixNanos(EPOCH + trace.start + duration)),
            status: if fails { Status::Error } else { Status::Unset },
            ..ModelSpan::default()
        };
        let root = span(1, trace.key, trace.duration, trace.fails);
        let parents = [root.span_id];
        let children = trace.children.iter().zip(2..).map(|(child, id)| ModelSpan {
            parents: parents.iter().copied().collect(),
            attributes: vec![Attribute { key: "code".into(), value: Value::Int(child.code) }],
            ..span(id, child.name, child.duration, child.fails)
        });
        for span in [root.clone()].into_iter().chain(children) {
            intake.span(span, Record { bytes: &[0; 100], place: &place });
        }
    }
    intake.finish()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Begins,
    ChildEnds(usize),
    RootEnds,
    /// The service hands over aged traces and discards those whose hold is over.
    Upkeep,
}

/// The numbers of the traces that a service keeps. Its upkeep runs after each event.
fn served(traces: &[Made], tail: &Tail) -> BTreeSet<u64> {
    let (clock, hand) = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    let exporter = InMemorySpanExporter::default();
    let astracer = Astracer::builder()
        .with_sampler(Config::Never)
        .with_tail(tail.clone())
        .with_id_generator(Ids::default())
        .with_clock(clock)
        .with_start(Start::AtOnce)
        .with_exporter(exporter.clone())
        .build()
        .unwrap();
    let mut events = Vec::new();
    for (number, trace) in traces.iter().enumerate() {
        events.push((trace.start, number, Event::Begins));
        events.push((trace.start + trace.duration, number, Event::RootEnds));
        let age = trace.start + 30 * SECOND + 1;
        events.extend([age, age + 2 * SECOND].map(|at| (at, number, Event::Upkeep)));
        for (child, of) in trace.children.iter().enumerate() {
            let ends = trace.start + of.duration;
            events.extend([
                (ends, number, Event::ChildEnds(child)),
                (ends + 2 * SECOND, number, Event::Upkeep),
            ]);
        }
    }
    events.sort_unstable();
    let subscriber = tracing_subscriber::registry().with(astracer.layer.clone());
    tracing::subscriber::with_default(subscriber, || {
        let mut now = events[0].0;
        let mut open: Vec<Option<(Span, Vec<Option<Span>>)>> = vec![];
        for &(at, number, event) in &events {
            go_to(&hand, &mut now, at);
            let of = &traces[number];
            // If the trace is not recorded, an error is seen only inside its root.
            let fail = |root: &Span, span: &Span| {
                root.in_scope(|| {
                    span.record("otel.status_code", "ERROR");
                });
            };
            match event {
                Event::Begins => {
                    let empty = tracing::field::Empty;
                    let root = info_span!(parent: None, "root", otel.name = of.key, otel.status_code = empty);
                    let child = |child: &Child| {
                        info_span!(parent: &root, "child", otel.name = child.name, code = child.code,
                            otel.status_code = empty)
                    };
                    let children = of.children.iter().map(child).map(Some).collect();
                    open.push(Some((root, children)));
                }
                Event::ChildEnds(child) => {
                    let (root, children) = open[number].as_mut().unwrap();
                    let span = children[child].take().unwrap();
                    if of.children[child].fails {
                        fail(root, &span);
                    }
                }
                Event::RootEnds => {
                    let (root, _) = open[number].take().unwrap();
                    if of.fails {
                        fail(&root, &root);
                    }
                    // A root's end is the time at which it was last exited.
                    root.in_scope(|| ());
                }
                Event::Upkeep => {}
            }
            astracer.handle.flush(TIMEOUT).unwrap();
        }
    });
    let spans = exporter.get_finished_spans().unwrap();
    let number = |id: opentelemetry::TraceId| (u128::from_be_bytes(id.to_bytes()) >> 56) as u64;
    spans.iter().map(|span| number(span.span_context.trace_id())).collect()
}

/// A root of 60 s has a child of 1 s and another that fails at 50 s. At the maximum age of 30 s
/// nothing has failed yet, and the root is not slow.
#[test]
fn what_fails_after_the_age_of_a_trace_is_late() {
    let child = |seconds, fails| Child { duration: seconds * SECOND, name: "call", code: 200, fails };
    let of = |children: Vec<Child>| {
        vec![Made { start: 1_000, duration: 60 * SECOND, key: "job", fails: false, children }]
    };
    let long = of(vec![child(1, false), child(50, true)]);
    let kept = |traces: &[Made], policies: &str| {
        let tail = policies.parse::<Tail>().unwrap().with_provisional(ProvisionalMode::Always);
        let (replayed, served) = (replayed(&recording(traces, &tail), &tail), served(traces, &tail));
        assert_eq!(replayed, served, "{policies}");
        served.len()
    };
    assert_eq!(kept(&long, "error(),slow:45s()"), 0);
    assert_eq!(kept(&long, "slow:20s()"), 1);
    // Such an error is counted as late, unless a policy kept the trace before and the failing span
    // joined it.
    let late = |policies: &str| {
        let tail = policies.parse::<Tail>().unwrap().with_provisional(ProvisionalMode::Always);
        let recording = recording(&long, &tail);
        let workload = Workload::new(&recording, &Grouping::default());
        let outcomes = Outcomes::new(&recording, &tail, Stop::never()).unwrap();
        let summary =
            outcomes.replay(&workload, &Config::Never.into(), &[Draw::recorded(1)], Stop::never()).unwrap();
        let bytes = summary.policies[0].kept_otlp_bytes.mean;
        assert!((summary.tail.mean > 0.99) == (bytes > 0.0), "{summary:?}");
        [summary.errors_late, summary.errors_kept, summary.errors_refused].map(|of| of.mean)
    };
    assert_eq!(late("error(),slow:45s()"), [1.0, 0.0, 0.0]);
    assert_eq!(late("slow:20s()"), [0.0, 1.0, 0.0]);
    // The failing span joins the trace while it is held, or if no span had ended before.
    assert_eq!(kept(&of(vec![child(1, false), child(31, true)]), "error()"), 1);
    assert_eq!(kept(&of(vec![child(50, true)]), "error()"), 1);
}

#[test]
fn a_replay_keeps_of_long_traces_what_a_service_keeps() {
    let (mut kept, mut dropped) = (0, 0);
    for (seed, number, gap) in [(1, 60, 10 * SECOND), (2, 120, SECOND)] {
        let traces = made(&mut SplitMix::new(seed), number, gap);
        for policies in [
            "error()",
            "error(traces=0.1,burst=2)",
            "slow:29s()",
            "slow:31s(),error()",
            "slow:40s(traces=0.1,burst=1),error",
            "odd()",
            "attr:code>=500()",
            "attr:code>=500(traces=0.1,burst=1),odd(traces=0.1,burst=1),error(traces=1,burst=1)",
        ] {
            for provisional in [ProvisionalMode::Always, ProvisionalMode::Armed] {
                let tail = policies.parse::<Tail>().unwrap().with_provisional(provisional);
                let (replayed, served) =
                    (replayed(&recording(&traces, &tail), &tail), served(&traces, &tail));
                assert_eq!(replayed, served, "{policies}, {provisional}, of {number} traces");
                kept += served.len();
                dropped += traces.len() - served.len();
            }
        }
    }
    assert!(kept > 300 && dropped > 300, "{kept}, {dropped}");
}
