//! `evaluate` keeps exactly the traces that strata keep in a service: the same traces are created
//! through the layer, and replayed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use astracer_model::problem::Place;
use astracer_model::sink::{Record, Sink as _};
use astracer_model::value::Attribute;
use astracer_model::{
    Span as ModelSpan, SpanId as ModelSpanId, Status, TraceId as ModelTraceId, UnixNanos, Value,
};
use astracer_recording::recording::{Intake, Keep, Recording};
use astracer_samplers::{KeyRule, strata};
use astracer_sdk::{Astracer, Clock, Start};
use astracer_testing::{SplitMix, size};
use astracer_tuner::late::{Fit, FitOptions, Late};
use astracer_tuner::{Candidate, Draw, Grouping, Stop, Workload};
use opentelemetry::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, InMemorySpanExporter};
use tracing::info_span;
use tracing_subscriber::layer::SubscriberExt as _;

const EPOCH: u64 = 1_700_000_000_000_000_000;

/// Trace n has the n-th number of a seed as the randomness of its id.
#[derive(Debug, Default)]
struct Ids(AtomicU64, AtomicU64);

fn id(number: u64) -> u128 {
    u128::from(number + 1) << 64 | u128::from(SplitMix::new(number).next())
}

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        TraceId::from(id(self.0.fetch_add(1, Ordering::Relaxed)))
    }

    fn new_span_id(&self) -> SpanId {
        SpanId::from(self.1.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// A trace of a root and a child. Times are in us.
#[derive(Clone, Debug)]
struct Made {
    start: u64,
    end: u64,
    name: &'static str,
    child: &'static str,
    code: i64,
    fails: bool,
}

/// Overlapping traces, of which no two begin or end at once.
fn made(seed: u64) -> Vec<Made> {
    let mut random = SplitMix::new(seed);
    let mut ends = BTreeSet::new();
    let one = |number: u64| {
        let start = 2 * (1_000 * number + random.below(1_000));
        let longest = 900 * random.one_of(&[1, 1, 1, 20, 400]);
        let mut end = start + 1 + 2 * random.below(longest);
        while !ends.insert(end) {
            end += 2;
        }
        Made {
            start,
            end,
            name: random.one_of(&["GET /cart", "GET /cart", "POST /order"]),
            child: random.one_of(&["query", "cache"]),
            code: if random.one_in(15) { 500 } else { 200 },
            fails: random.one_in(30),
        }
    };
    (0..size(3_000, 30_000)).map(one).collect()
}

/// The ids of the traces that a service keeps.
fn served(traces: &[Made], late: &Late, rule: &KeyRule, seed: u64) -> BTreeSet<u128> {
    let (clock, hand) = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_nanos(EPOCH));
    let exporter = InMemorySpanExporter::default();
    let astracer = Astracer::builder()
        .with_sampler(late.head.clone())
        .with_strata(late.strata.clone())
        .with_key(rule.clone())
        .with_seed(seed)
        .with_id_generator(Ids::default())
        .with_clock(clock)
        .with_start(Start::AtOnce)
        .with_queue_bytes_max(1 << 30)
        .with_exporter(exporter.clone())
        .build()
        .unwrap();
    let subscriber = tracing_subscriber::registry().with(astracer.layer.clone());
    let starts = traces.iter().enumerate().map(|(place, trace)| (trace.start, place));
    let ends = traces.iter().enumerate().map(|(place, trace)| (trace.end, place));
    let times: BTreeSet<(u64, usize)> = starts.chain(ends).collect();
    tracing::subscriber::with_default(subscriber, || {
        let mut now = 0;
        let mut open: Vec<Option<tracing::Span>> = vec![None; traces.len()];
        for (at, place) in times {
            hand.advance(Duration::from_micros(at - now));
            now = at;
            let trace = &traces[place];
            let Some(root) = open[place].take() else {
                open[place] = Some(info_span!(
                    parent: None, "root", otel.name = trace.name, code = tracing::field::Empty,
                    otel.status_code = tracing::field::Empty
                ));
                continue;
            };
            root.in_scope(|| {
                drop(info_span!("child", otel.name = trace.child));
                root.record("code", trace.code);
                if trace.fails {
                    root.record("otel.status_code", "ERROR");
                }
            });
        }
    });
    astracer.handle.flush(Duration::from_secs(60)).unwrap();
    let spans = exporter.get_finished_spans().unwrap();
    spans.iter().map(|span| u128::from_be_bytes(span.span_context.trace_id().to_bytes())).collect()
}

fn recording(traces: &[Made]) -> Recording {
    let mut intake = Intake::new(Keep { labels: vec!["code".to_owned()], ..Keep::default() });
    let place = Place { file: Arc::from("test"), line: 1, byte: 0 };
    let nanos = |micros: u64| Some(UnixNanos(EPOCH + 1_000 * micros));
    for (trace, number) in traces.iter().zip(0..) {
        let root = ModelSpan {
            trace_id: ModelTraceId(id(number)),
            span_id: ModelSpanId(1 << 32 | number),
            name: trace.name.into(),
            start: nanos(trace.start),
            end: nanos(trace.end),
            status: if trace.fails { Status::Error } else { Status::Unset },
            attributes: vec![Attribute { key: "code".into(), value: Value::Int(trace.code) }],
            ..ModelSpan::default()
        };
        let child = ModelSpan {
            span_id: ModelSpanId(2 << 32 | number),
            parents: [root.span_id].into_iter().collect(),
            name: trace.child.into(),
            start: root.end,
            status: Status::Unset,
            attributes: Vec::new(),
            ..root.clone()
        };
        for span in [root, child] {
            intake.span(span, Record { bytes: &[0; 100], place: &place });
        }
    }
    intake.finish()
}

/// Fitted to one workload and used for others, as a file is: with all recorded, and with twice what
/// the head keeps.
#[test]
fn a_replay_keeps_what_strata_keep_in_a_service() {
    let rule: KeyRule = "name+end:code".parse().unwrap();
    let grouping = Grouping::Key(rule.clone());
    let workload = Workload::new(&recording(&made(1)), &grouping);
    for record in [strata::Record::All, strata::Record::Times(2.0)] {
        for by_kind in [false, true] {
            let options = FitOptions::new(0.1, record).by_kind(by_kind);
            let late = Fit::new(&workload, options, Stop::never()).unwrap().unwrap().late;
            for seed in [2, 3] {
                let traces = made(seed);
                let workload = Workload::new(&recording(&traces), &grouping);
                let mut replayed = BTreeSet::new();
                let draw = Draw::recorded(seed).of_ids(true);
                let candidate = Candidate::from(late.clone());
                assert!(candidate.replay(&workload, &draw, Stop::never(), |arrival, _| {
                    replayed.insert(workload.trace_id(arrival).0);
                }));
                let served = served(&traces, &late, &rule, seed);
                let others = served.symmetric_difference(&replayed).count();
                assert_eq!(others, 0, "{record:?}, seed {seed}, of {} and {}", served.len(), replayed.len());
                assert!(served.len() > traces.len() / 20, "{} of {}", served.len(), traces.len());
            }
        }
    }
}
