//! Requests, spans and waits for tests of late keeping.

use std::time::Duration;

use astracer_sdk::{ProvisionalMode, Tail, TailStats};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, TraceId, Value};
use opentelemetry_sdk::trace::SpanData;
use tracing::{Span, error, info_span};

use crate::wait::wait_until;
use crate::world::{TIMEOUT, World, attribute, remote_parent};

/// Policies that see every dropped trace.
///
/// # Panics
///
/// If the text is not a list of policies.
pub fn tail(policies: &str) -> Tail {
    policies.parse::<Tail>().unwrap().with_provisional(ProvisionalMode::Always)
}

/// A request with a call below it. If `fails`, the call has an error.
pub fn request(fails: bool) -> TraceId {
    let root = info_span!("GET /cart").entered();
    let trace_id = Context::current().span().span_context().trace_id();
    info_span!("query").in_scope(|| {
        if fails {
            error!("no such table");
        }
    });
    drop(root);
    trace_id
}

/// That many of them.
pub fn requests(number: usize, fail: bool) {
    for _ in 0..number {
        request(fail);
    }
}

/// Enters the root, and creates children that end inside.
pub fn steps(root: &Span, number: usize) {
    (0..number).for_each(|_| root.in_scope(|| info_span!("step").in_scope(|| ())));
}

/// Enters the root, and creates a child that ends inside with an error.
pub fn fails(root: &Span) {
    root.in_scope(|| info_span!("fails").in_scope(|| error!("failed")));
}

/// A root that is a part of another process's trace, which that process dropped.
pub fn part_of(trace_id: u128, root: impl FnOnce() -> Span) -> Span {
    let _remote = remote_parent(trace_id, false).attach();
    root()
}

/// The number of spans missing from the root's trace, as the root reports it.
pub fn cut_by(root: &SpanData) -> i64 {
    match attribute(root, "sampling.spans_cut") {
        Some(Value::I64(cut)) => *cut,
        _ => 0,
    }
}

/// Names in alphabetical order: with a manual clock, times do not order spans.
pub fn names(spans: &[SpanData]) -> Vec<&str> {
    let mut names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
    names.sort_unstable();
    names
}

/// Waits until open traces have left their slots at their maximum age. Spans that end after that
/// are late.
pub fn all_leave(world: &World) {
    all_leave_but(world, 0);
}

/// As [`all_leave`], but this number of traces stays.
pub fn all_leave_but(world: &World, stay: u64) {
    world.clock.advance(Duration::from_secs(31));
    wait_with_work(world, |tail| tail.traces_open == stay);
}

/// Waits for the exporter's thread, which looks for old traces only when it has work.
///
/// # Panics
///
/// If it takes longer than any test may.
pub fn wait_with_work(world: &World, is_met: impl Fn(&TailStats) -> bool) {
    wait_until("old traces leave", || {
        let is_over = is_met(&world.handle.stats().tail);
        if !is_over {
            assert!(world.handle.keep(request(false)));
            world.handle.flush(TIMEOUT).unwrap();
        }
        is_over
    });
}
