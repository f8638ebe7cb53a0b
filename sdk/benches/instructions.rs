//! Workload of `cargo xtask instructions`: one case, warmed up and then run inside [`measured`],
//! the only function that callgrind counts. Run by hand it prints nothing.
//!
//! Arguments: the case's name and the number of rounds; `process: ` before a name says that all of
//! the process is counted. Traces have 1 + 3 + 6 spans, unless the name says otherwise. Nothing
//! here depends on chance or time: ids are counted up, and what the exporter's thread gives back
//! comes after the end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use astracer_samplers::strata::{Record, RecordedTrace, Strata, StrataSampler, Stratum};
use astracer_samplers::{Cap, Config, Limits, Nanos, Probability, Randomness, Request, Sampler, Threshold};
use astracer_sdk::destination::{Counter, Delivery, DeliveryReport, Span};
use astracer_sdk::{Astracer, ContextMode, DroppedSpans, ProvisionalMode, Start, Tail};
use astracer_testing::{Delivering, Exporting, Ids};
use opentelemetry::{SpanId, TraceId};
use tracing::{Dispatch, info_span};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer, Registry};

/// Rounds before those that are counted: callsites are registered, memory is taken.
const WARM: u64 = 20;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(Ok(rounds))) = (arguments.next(), arguments.next().map(|rounds| rounds.parse()))
    else {
        return;
    };
    match name.strip_prefix("process: ").unwrap_or(&name) {
        "decision" => decide(FEW, "", rounds),
        // Within its bounds, as a cap is nearly all of the time.
        "decision, capped" => decide(FEW, "traces=1e9,key_traces=1e9", rounds),
        "decision, kept" => decide(ALL, "", rounds),
        "decision, kept, one allowance" => decide(ALL, "traces=1e9", rounds),
        "decision, kept, capped" => decide(ALL, "traces=1e9,key_traces=1e9", rounds),
        "decision, stratum" => draw(rounds),
        "idle layer" => run(&Dispatch::new(Registry::default().with(Idle)), plain, rounds),
        name => trace(name, rounds),
    }
}

/// The function that is watched.
#[inline(never)]
fn measured(round: &mut dyn FnMut(), rounds: u64) {
    (0..rounds).for_each(|_| round());
}

#[inline(never)]
fn warm_up(round: &mut dyn FnMut()) {
    (0..WARM).for_each(|_| round());
}

fn run(dispatch: &Dispatch, body: fn(), rounds: u64) {
    tracing::dispatcher::with_default(dispatch, || run_here(body, rounds));
}

fn run_here(mut body: fn(), rounds: u64) {
    warm_up(&mut body);
    measured(&mut body, rounds);
}

fn trace(name: &str, rounds: u64) {
    let sampler = match name {
        // All are kept, with a weight.
        name if name.contains("weighed") => "ratio:1",
        name if name.contains("kept") => "always",
        _ => "never",
    };
    let context = match name.rsplit(", ").next() {
        Some("no context") => ContextMode::Off,
        Some("ids") => ContextMode::Ids,
        _ => ContextMode::Recording,
    };
    let own = name.starts_with("subscriber");
    let tail = match name {
        name if name.starts_with("late: all") => recorded(ProvisionalMode::Always),
        name if name.starts_with("late: armed") => recorded(ProvisionalMode::Armed),
        name if name.starts_with("late: counted") => recorded(ProvisionalMode::Never),
        // Ended traces leave as with the policies above.
        name if name.starts_with("late: strata") => Tail::default().with_hold(Nanos::new(1)),
        _ => Tail::default(),
    };
    let exclusive = name.contains("exclusive") || own;
    let builder = Astracer::builder();
    let builder = if name.starts_with("late: strata") { builder.with_strata(strata()) } else { builder };
    let builder = builder
        .with_sampler(sampler.parse().expect("a sampler"))
        .with_dropped_spans(if exclusive { DroppedSpans::Disabled } else { DroppedSpans::Visible })
        .with_context_mode(context)
        .with_tail(tail)
        .with_start(if own { Start::AtOnce } else { Start::WhenUsed })
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_id_generator(Ids(|| TraceId::from(u128::from(next())), || SpanId::from(next())))
        // The exporter's thread begins when all is over.
        .with_batch_spans(usize::MAX)
        .with_batch_delay(Duration::from_secs(3_600));
    let builder = match name.contains("other exporter") {
        true => builder.with_exporter(Exporting(|_| Ok(()))),
        false => {
            let all = |spans: &[Span<'_>]| DeliveryReport::delivered(Delivery::all(spans));
            builder.with_destination(Delivering(all, Counter::default))
        }
    };
    let astracer = builder.build().expect("a layer");
    let body = match name {
        name if name.contains("attributes") => with_attributes,
        name if name.contains("of 100") => hundred,
        name if name.contains("own trait") => calls_by_own_trait,
        name if name.contains("stock trait") => calls_by_stock_trait,
        _ => plain,
    };
    if own {
        // As in a service: the process's subscriber is found faster than one of the thread.
        tracing::subscriber::set_global_default(astracer.subscriber()).expect("the first subscriber");
        run_here(body, rounds);
    } else {
        run(&Dispatch::new(Registry::default().with(astracer.layer)), body, rounds);
    }
    let _ = astracer.handle.shutdown(Duration::from_secs(60));
}

/// A policy that no trace meets. Recorded traces leave the ring with the next one, which is its
/// steady state; the key is quiet after its first roots, so that armed keys record next to nothing.
fn recorded(provisional: ProvisionalMode) -> Tail {
    let tail: Tail = "error".parse().expect("a policy");
    tail.with_provisional(provisional).with_hold(Nanos::new(1))
}

/// Strata that record everything and keep next to nothing of it.
fn strata() -> Strata {
    let p = |value| Probability::new(value).expect("a probability");
    let strata = Strata::new(p(0.01)).and_then(|strata| strata.with_record(Record::All)).expect("a size");
    strata.with_probability("root", "-1".parse().expect("a stratum"), p(1e-9))
}

fn draw(rounds: u64) {
    let sampler = StrataSampler::new(strata(), &Cap::none(), 1);
    let mut random = 1u64;
    let mut round = || {
        random = random.wrapping_mul(0x2545_f491_4f6c_dd1d);
        let trace = RecordedTrace {
            key: "root",
            stratum: Stratum::new(Nanos::new(500), false),
            recorded: Threshold::ALWAYS,
            bytes: 1_300,
            now: Nanos::from_millis(5),
            random,
        };
        let _ = std::hint::black_box(sampler.draw(std::hint::black_box(&trace)));
    };
    warm_up(&mut round);
    measured(&mut round, rounds);
}

/// A sampler that keeps one call in a hundred, and one that keeps all.
const FEW: &str = "bump:lambda=10,min=0.01,window=1s";
const ALL: &str = "bump:lambda=1000000,min=0.01,window=1s";

fn decide(config: &str, cap: &str, rounds: u64) {
    let config: Config = config.parse().expect("a sampler");
    let sampler = Sampler::with_cap(&config, Limits::default(), &cap.parse().expect("a cap"));
    let mut trace_id = 1u128;
    let mut round = || {
        trace_id = trace_id.wrapping_mul(0x2545_f491_4f6c_dd1d);
        let request =
            Request::new("GET /orders/{id}", Randomness::from_trace_id(trace_id), Nanos::from_millis(5));
        let _ = std::hint::black_box(sampler.decide(std::hint::black_box(&request)));
    };
    warm_up(&mut round);
    measured(&mut round, rounds);
}

fn plain() {
    let _root = info_span!("root").entered();
    for _ in 0..3 {
        let _child = info_span!("child").entered();
        for _ in 0..2 {
            let _leaf = info_span!("leaf").entered();
        }
    }
}

/// 1 + 9 + 90 spans.
fn hundred() {
    let _root = info_span!("root").entered();
    for _ in 0..9 {
        let _child = info_span!("child").entered();
        for _ in 0..10 {
            let _leaf = info_span!("leaf").entered();
        }
    }
}

/// Two attributes on the root, one on each other span.
fn with_attributes() {
    let _root = info_span!("root", method = "GET", size = 1234i64).entered();
    for n in 0..3i64 {
        let _child = info_span!("child", n).entered();
        for n in 0..2i64 {
            let _leaf = info_span!("leaf", n).entered();
        }
    }
}

/// A span, and ten calls of our extension trait.
fn calls_by_own_trait() {
    let span = info_span!("span");
    for n in 0..10i64 {
        astracer_sdk::OpenTelemetrySpanExt::set_attribute(&span, "n", n);
    }
}

/// The same by tracing-opentelemetry's, which the bridge answers.
fn calls_by_stock_trait() {
    let span = info_span!("span");
    for n in 0..10i64 {
        tracing_opentelemetry::OpenTelemetrySpanExt::set_attribute(&span, "n", n);
    }
}

struct Idle;

impl<S: tracing::Subscriber> Layer<S> for Idle {}

/// Ids that are counted up.
fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
