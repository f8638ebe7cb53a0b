//! Workload of `cargo xtask instructions`: the cases of `sdk/benches/instructions.rs` whose names
//! follow `flows, `, with flows that have no application and nothing in their baggage, or all
//! applications; and the stock layer, to compare with. Run by hand it prints nothing.
//!
//! Arguments: the case's name and the number of rounds.

#![allow(clippy::disallowed_methods, reason = "only the library is free of I/O")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use astracer_baggage::critical_path::CriticalPath;
use astracer_baggage::{Applications, Flows, branch_fn};
use astracer_sdk::destination::{Counter, Delivery, DeliveryReport, Span};
use astracer_sdk::{Astracer, ContextMode, DroppedSpans, Start};
use astracer_testing::{Delivering, Ids};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{SpanId, TraceId};
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::{Dispatch, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

/// Rounds before those that are counted: callsites are registered, memory is taken.
const WARM: u64 = 20;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(Ok(rounds))) = (arguments.next(), arguments.next().map(|rounds| rounds.parse()))
    else {
        return;
    };
    trace(&name, rounds);
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

fn trace(name: &str, rounds: u64) {
    let own = name.contains("subscriber");
    let body: fn() = if name.contains("branch") { branches } else { plain };
    if name.contains("stock") {
        let provider = SdkTracerProvider::builder().with_sampler(Sampler::AlwaysOff).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("stock"));
        let dispatch = Dispatch::new(Registry::default().with(layer));
        return tracing::dispatcher::with_default(&dispatch, || {
            let mut body = body;
            warm_up(&mut body);
            measured(&mut body, rounds);
        });
    }
    let applications = Applications::new(&astracer_baggage::Registry::default());
    let flows = Flows::new(if name.contains("all applications") {
        applications.with_tenants("tenant.id").with_x_trace()
    } else if name.contains("critical path") {
        applications.with_critical_path(&CriticalPath::default())
    } else {
        applications
    });
    let astracer = Astracer::builder()
        .with_sampler(if name.contains("kept") { "always" } else { "never" }.parse().expect("a sampler"))
        .with_dropped_spans(DroppedSpans::Disabled)
        .with_context_mode(if name.ends_with("no context") {
            ContextMode::Off
        } else {
            ContextMode::Recording
        })
        .with_start(if own { Start::AtOnce } else { Start::WhenUsed })
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_id_generator(Ids(|| TraceId::from(u128::from(next())), || SpanId::from(next())))
        // The exporter's thread begins when all is over.
        .with_batch_spans(usize::MAX)
        .with_batch_delay(Duration::from_secs(3_600))
        .with_destination(Delivering(
            |spans: &[Span<'_>]| DeliveryReport::delivered(Delivery::all(spans)),
            Counter::default,
        ))
        .with_observer(Arc::new(flows))
        .build()
        .expect("a layer");
    let run = |mut body: fn()| {
        warm_up(&mut body);
        measured(&mut body, rounds);
    };
    if own {
        // As in a service: the process's subscriber is found faster than one of the thread.
        tracing::subscriber::set_global_default(astracer.subscriber()).expect("the first subscriber");
        run(body);
    } else {
        let dispatch = Dispatch::new(Registry::default().with(astracer.layer));
        tracing::dispatcher::with_default(&dispatch, || run(body));
    }
    let _ = astracer.handle.shutdown(Duration::from_secs(60));
}

/// A trace of 1 + 3 + 6 spans.
fn plain() {
    let _root = info_span!("root").entered();
    for _ in 0..3 {
        let _child = info_span!("child").entered();
        for _ in 0..2 {
            let _leaf = info_span!("leaf").entered();
        }
    }
}

/// Ten branches that are joined, in one request.
fn branches() {
    let _root = info_span!("root").entered();
    for _ in 0..10 {
        branch_fn(|| ())().join();
    }
}

fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
