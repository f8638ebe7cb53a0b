//! `evaluate --tail` keeps exactly the traces that a service keeps: the same traces are replayed
//! from a recording, and created through the layer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use astracer_model::problem::Place;
use astracer_model::sink::{Record, Sink as _};
use astracer_model::value::{Attribute, Value};
use astracer_model::{Span as ModelSpan, SpanId as ModelSpanId, Status, TraceId as ModelTraceId, UnixNanos};
use astracer_recording::recording::{Intake, Keep, Recording};
use astracer_samplers::Config;
use astracer_samplers::tail::{ProvisionalMode, Tail};
use astracer_sdk::{Astracer, Clock, ManualClock, Start};
use astracer_testing::SplitMix;
use astracer_tuner::draw::Draw;
use astracer_tuner::key::Grouping;
use astracer_tuner::stop::Stop;
use astracer_tuner::tail::{Outcomes, attributes};
use astracer_tuner::workload::Workload;
use opentelemetry::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, InMemorySpanExporter};
use tracing::{Span, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

/// A trace to create. `start` and `duration` are in ns.
#[derive(Clone, Debug)]
struct Made {
    start: u64,
    duration: u64,
    key: &'static str,
    children: Vec<Child>,
}

#[derive(Clone, Debug)]
struct Child {
    name: &'static str,
    code: Code,
    fails: bool,
    below: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
enum Code {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(&'static str),
}

fn made(random: &mut SplitMix, number: usize, gap: u64) -> Vec<Made> {
    let codes = [
        Code::Int(200),
        Code::Int(503),
        Code::Int(i64::MAX),
        Code::Float(0.5),
        Code::Float(499.999),
        Code::Float(-1.0),
        Code::Bool(true),
        Code::Text("500"),
        Code::Text(" 501 "),
        Code::Text("timeout"),
        Code::Text(""),
    ];
    let mut start = 1_000;
    let mut of_trace = |_| {
        start += 1 + random.below(gap);
        let children = (0..random.below(4)).map(|_| Child {
            name: random.one_of(&["query", "cache", "render"]),
            code: if random.below(3) > 0 { Code::Int(200) } else { random.one_of(&codes) },
            fails: random.one_in(40),
            below: (random.one_in(3)).then_some("row"),
        });
        let children = children.collect();
        let slow = if random.one_in(60) { 40 } else { 1 };
        Made {
            start,
            duration: (1_000 + random.below(5_000_000)) * slow,
            key: random.one_of(&["GET /cart", "GET /cart", "POST /order"]),
            children,
        }
    };
    (0..number).map(&mut of_trace).collect()
}

fn recording(traces: &[Made], tail: &Tail) -> Recording {
    let keep = Keep { own_labels: attributes(tail), ..Keep::default() };
    let mut intake = Intake::new(keep);
    let place = Place { file: Arc::from("test"), line: 1, byte: 0 };
    const EPOCH: u64 = 1_700_000_000_000_000_000;
    for (trace, number) in traces.iter().zip(1_u64..) {
        let mut ids = 0;
        let mut span = |parent: Option<ModelSpanId>, name: &'static str| {
            ids += 1;
            ModelSpan {
                trace_id: ModelTraceId(number.into()),
                span_id: ModelSpanId(number << 16 | ids),
                parents: parent.into_iter().collect(),
                name: name.into(),
                start: Some(UnixNanos(EPOCH + trace.start)),
                end: Some(UnixNanos(EPOCH + trace.start + trace.duration)),
                ..ModelSpan::default()
            }
        };
        let root = span(None, trace.key);
        let root_id = root.span_id;
        let mut all = vec![root];
        for child in &trace.children {
            let value = match child.code {
                Code::Int(code) => Value::Int(code),
                Code::Float(code) => Value::Double(code),
                Code::Bool(code) => Value::Bool(code),
                Code::Text(code) => Value::String(code.into()),
            };
            let made = ModelSpan {
                status: if child.fails { Status::Error } else { Status::Unset },
                attributes: vec![Attribute { key: "code".into(), value }],
                ..span(Some(root_id), child.name)
            };
            let below = child.below.map(|name| span(Some(made.span_id), name));
            all.push(made);
            all.extend(below);
        }
        for span in all {
            intake.span(span, Record { bytes: &[0; 100], place: &place });
        }
    }
    intake.finish()
}

/// The numbers of the traces that a replay keeps.
pub(crate) fn replayed(recording: &Recording, tail: &Tail) -> BTreeSet<u64> {
    let workload = Workload::new(recording, &Grouping::default());
    let outcomes = Outcomes::new(recording, tail, Stop::never()).unwrap();
    let kept = outcomes.kept(&workload, &Config::Never.into(), &Draw::recorded(1));
    kept.into_iter().map(|id| id.0 as u64).collect()
}

/// Ascending trace ids. Their randomness never divides by 1,024, so none is recorded as one of the
/// share that `ProvisionalMode::Armed` always records.
#[derive(Debug, Default)]
pub(crate) struct Ids(AtomicU64, AtomicU64);

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        // The highest randomness, so that a budget admits each trace while it lasts, as a replay
        // does.
        let number = u128::from(self.0.fetch_add(1, Ordering::Relaxed) + 1);
        TraceId::from((number << 56) | ((1 << 56) - 1))
    }

    fn new_span_id(&self) -> SpanId {
        SpanId::from(self.1.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

pub(crate) fn go_to(clock: &ManualClock, now: &mut u64, at: u64) {
    clock.advance(Duration::from_nanos(at - *now));
    *now = at;
}

/// The numbers of the traces that a service keeps.
fn served(traces: &[Made], tail: &Tail) -> BTreeSet<u64> {
    let (clock, hand) = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    let exporter = InMemorySpanExporter::default();
    let astracer = Astracer::builder()
        .with_sampler(Config::Never)
        .with_tail(tail.clone())
        .with_id_generator(Ids::default())
        .with_clock(clock)
        .with_start(Start::AtOnce)
        .with_queue_bytes_max(1 << 30)
        .with_exporter(exporter.clone())
        .build()
        .unwrap();
    let subscriber = tracing_subscriber::registry().with(astracer.layer.clone());
    let first = traces[0].start;
    tracing::subscriber::with_default(subscriber, || {
        let mut now = first;
        let mut open: BTreeMap<(u64, usize), (Span, Vec<Span>)> = BTreeMap::new();
        let end = |(root, children): (Span, Vec<Span>), of: &Made| {
            let mut spans = children.into_iter();
            for child in &of.children {
                let span = spans.next().unwrap();
                if child.fails {
                    // If the trace is not recorded, an error is seen only inside its root.
                    root.in_scope(|| span.record("otel.status_code", "ERROR"));
                }
                if child.below.is_some() {
                    drop(spans.next());
                }
                drop(span);
            }
            drop(root);
        };
        let until = |open: &mut BTreeMap<(u64, usize), (Span, Vec<Span>)>, now: &mut u64, at: u64| {
            while let Some(next) = open.first_entry().filter(|next| next.key().0 <= at) {
                let ((ends, number), spans) = next.remove_entry();
                go_to(&hand, now, ends);
                end(spans, &traces[number]);
            }
        };
        for (number, trace) in traces.iter().enumerate() {
            until(&mut open, &mut now, trace.start);
            go_to(&hand, &mut now, trace.start);
            let root = info_span!(parent: None, "root", otel.name = trace.key);
            let mut children = Vec::new();
            for child in &trace.children {
                macro_rules! child {
                    ($code:expr) => {
                        info_span!(parent: &root, "child", otel.name = child.name, code = $code,
                            otel.status_code = tracing::field::Empty)
                    };
                }
                let span = match child.code {
                    Code::Int(code) => child!(code),
                    Code::Float(code) => child!(code),
                    Code::Bool(code) => child!(code),
                    Code::Text(code) => child!(code),
                };
                let below = child.below.map(|name| info_span!(parent: &span, "below", otel.name = name));
                children.push(span);
                children.extend(below);
            }
            open.insert((trace.start + trace.duration, number), (root, children));
        }
        until(&mut open, &mut now, u64::MAX);
    });
    astracer.handle.flush(Duration::from_secs(60)).unwrap();
    let spans = exporter.get_finished_spans().unwrap();
    let numbers = spans.iter().map(|span| {
        let id = u128::from_be_bytes(span.span_context.trace_id().to_bytes());
        (id >> 56) as u64
    });
    numbers.collect()
}

#[test]
fn a_replay_keeps_what_a_service_keeps() {
    // In the first two sets some policies match nothing. The gaps of the third set are long enough
    // for a budget to refill.
    let mut kept = 0;
    for (seed, number, gap) in [(1, 400, 2_000_000), (2, 600, 1_000_000), (3, 1_000, 400_000_000)] {
        let traces = made(&mut SplitMix::new(seed), number, gap);
        for policies in [
            "error()",
            "error",
            "error(traces=1,burst=2),slow:20ms(key_traces=1,key_burst=1)",
            "slow:p99()",
            "slow:p50(traces=3)",
            "odd()",
            "odd(traces=1,burst=1),error()",
            "attr:code>=500()",
            "attr:code=true(),attr:code!=200(traces=5),attr:code<0.75()",
            "attr:code=timeout(),attr:code=\"\"(),attr:code>499.5()",
            "error,slow:p99,slow:30ms,odd,attr:code>=500",
        ] {
            for provisional in [ProvisionalMode::Always, ProvisionalMode::Armed] {
                let tail = policies.parse::<Tail>().unwrap().with_provisional(provisional);
                let (replayed, served) =
                    (replayed(&recording(&traces, &tail), &tail), served(&traces, &tail));
                assert_eq!(replayed, served, "{policies}, {provisional}, of {number} traces");
                kept += served.len();
            }
        }
    }
    assert!(kept > 4_000, "{kept}");
}
