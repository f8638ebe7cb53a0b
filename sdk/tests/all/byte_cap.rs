//! The cap on each key's exported bytes: which traces it applies to, and which traces belong to no
//! key.

use std::time::Duration;

use astracer_sdk::OpenTelemetrySpanExt as _;
use astracer_testing::remote_parent;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceState};
use tracing::{Span, info_span};

use crate::support::{TIMEOUT, World, sampling, world};

/// The bytes of one span with a one-letter name and nothing else. The rate is so low that the
/// bucket refills only after an hour.
const ONE_SPAN: &str = "key_bytes=0.001,key_bytes_burst=70";

fn root(name: &str) -> Span {
    info_span!("root", otel.name = name)
}

/// Runs `f`. Returns the sorted names of the exported spans, and the number of spans that the cap
/// refused.
fn run(world: &World, f: impl FnOnce()) -> (Vec<String>, u64) {
    world.inside(f);
    // An error only reports the refused spans.
    let _ = world.handle.flush(TIMEOUT);
    let mut names: Vec<_> = world.collector.spans().iter().map(|span| span.name.to_string()).collect();
    names.sort_unstable();
    (names, world.handle.stats().spans_lost.capped)
}

fn these(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Each key has its own allowance, whether the cap was set at the start or later.
#[test]
fn a_cap_that_comes_at_run_time_knows_the_keys() {
    let caps: [fn(&World); 2] = [
        |world| world.handle.set_cap(&ONE_SPAN.parse().unwrap()),
        |world| {
            let cap = ONE_SPAN.replace(',', "\n");
            world.handle.set_parameters(&format!("version = 3\n[always]\n[cap]\n{cap}\n")).unwrap();
        },
    ];
    for set_cap in caps {
        let world = world(|builder| builder);
        set_cap(&world);
        let exported =
            run(&world, || ["a", "b", "a", "c"].iter().for_each(|name| root(name).in_scope(|| ())));
        assert_eq!(exported, (these(&["a", "b", "c"]), 1));
    }
}

/// After a raise of the cap, an exhausted slow bucket refills at the new rate.
#[test]
fn a_cap_that_is_raised_in_need_is_at_work_at_once() {
    for kind in ["bytes", "key_bytes"] {
        let world = world(|builder| builder.with_cap(format!("{kind}=1,{kind}_burst=230").parse().unwrap()));
        let roots = |count| {
            let (_, refused) = run(&world, || (0..count).for_each(|_| root("a").in_scope(|| ())));
            refused
        };
        // Spans have 70 bytes; three fit into the burst.
        assert_eq!(roots(5), 2, "{kind}");
        world.handle.set_cap(&format!("{kind}=1000,{kind}_burst=290").parse().unwrap());
        assert_eq!(roots(1), 3, "{kind}: the bucket stays empty");
        world.clock.advance(Duration::from_secs(1));
        // The burst of 290 bytes allows four more, and no fifth.
        assert_eq!((roots(5), roots(1)), (4, 5), "{kind}");
    }
}

/// Keys are recorded only while there is a byte cap, so traces that began before it have none.
#[test]
fn traces_from_before_the_cap_use_no_keys_allowance() {
    let world = world(|builder| builder);
    let exported = run(&world, || {
        let before: Vec<_> = ["a", "b", "a"].iter().map(|name| root(name)).collect();
        before.iter().for_each(|span| span.in_scope(|| ()));
        world.handle.set_cap(&ONE_SPAN.parse().unwrap());
        ["c", "c"].iter().for_each(|name| root(name).in_scope(|| ()));
        let _ = world.handle.flush(TIMEOUT);
        drop(before);
    });
    assert_eq!(exported, (these(&["a", "a", "b", "c"]), 1));
}

/// The sampler did not decide on these traces, so they have no key.
#[test]
fn traces_decided_by_a_parent_use_no_keys_allowance() {
    let world = world(|builder| builder.with_cap(ONE_SPAN.parse().unwrap()));
    let exported = run(&world, || {
        for trace in 1..=5 {
            let root = root("f");
            root.set_parent(remote_parent(trace, true)).unwrap();
            root.in_scope(|| ());
        }
        ["a", "a"].iter().for_each(|name| root(name).in_scope(|| ()));
    });
    assert_eq!(exported, (these(&["a", "f", "f", "f", "f", "f"]), 1));
}

/// A service calls itself. The trace keeps the key of the root on which this process decided.
#[test]
fn a_trace_keeps_its_key_when_it_comes_back() {
    let world = world(|builder| builder.with_cap(ONE_SPAN.parse().unwrap()));
    let exported = run(&world, || {
        for _ in 0..2 {
            let outer = root("a").entered();
            let ids = Context::current().span().span_context().clone();
            let called =
                SpanContext::new(ids.trace_id(), ids.span_id(), ids.trace_flags(), true, TraceState::NONE);
            let inner = root("b");
            inner.set_parent(Context::new().with_remote_span_context(called)).unwrap();
            inner.in_scope(|| ());
            drop((inner, outer));
        }
    });
    // Two spans exceed the allowance.
    assert_eq!(exported, (these(&[]), 4));
}

/// One thread's long traces among many short ones, some kept and some dropped.
#[test]
fn a_key_is_known_after_many_other_traces() {
    let world = world(|builder| builder.with_cap(ONE_SPAN.parse().unwrap()));
    let exported = run(&world, || {
        let long: Vec<_> = ["a", "b", "b"].iter().map(|name| root(name)).collect();
        long.iter().for_each(|span| span.in_scope(|| ()));
        (0..20_000).for_each(|_| root("c").in_scope(|| ()));
        drop(long);
    });
    assert_eq!(exported, (these(&["a", "b", "c"]), 20_000));
}

/// A heartbeat is not one of the service's traces: see `heartbeat`.
#[test]
fn heartbeats_use_no_keys_allowance() {
    let world = sampling("bump:lambda=9", |builder| {
        builder.with_cap(ONE_SPAN.parse().unwrap()).with_heartbeat(Duration::from_secs(3_600))
    });
    let _ = run(&world, || ["a", "a"].iter().for_each(|name| root(name).in_scope(|| ())));
    world.handle.shutdown(TIMEOUT).unwrap();
    assert_eq!(world.handle.heartbeat_spans(), (1, 0));
}
