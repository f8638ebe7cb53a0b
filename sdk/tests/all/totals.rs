//! Exact totals next to the kept traces: heartbeats, metrics, and the byte cap.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{Status, TraceContextExt as _};
use opentelemetry::{Context, SpanId, TraceId};
use opentelemetry_sdk::trace::SpanData;
use tracing::info_span;

use crate::late::tail;
use crate::support::{TIMEOUT, World, sampling, world};

/// Runs `f`, of whose spans the cap refuses a part: the flush reports it. Returns the exported
/// spans.
fn run(world: &World, f: impl FnOnce()) -> Vec<SpanData> {
    world.inside(f);
    assert!(world.handle.flush(TIMEOUT).is_err());
    world.collector.spans()
}

/// (seen, kept) by key.
fn totals(heartbeats: &[&SpanData]) -> BTreeMap<String, (i64, i64)> {
    let events = heartbeats.iter().flat_map(|span| &span.events.events);
    let of = |event: &opentelemetry::trace::Event| {
        let find = |name: &str| event.attributes.iter().find(|known| known.key.as_str() == name);
        let number = |name: &str| match find(name).map(|known| &known.value) {
            Some(opentelemetry::Value::I64(number)) => *number,
            other => panic!("{name}: {other:?}"),
        };
        let key = find("astracer.key").map(|known| known.value.as_str().into_owned()).unwrap_or_default();
        (key, (number("astracer.seen"), number("astracer.kept")))
    };
    events.map(of).collect()
}

#[test]
fn a_heartbeat_has_the_exact_counts_of_each_key() {
    let world =
        sampling("bucket:capacity=2,rate=1", |builder| builder.with_heartbeat(Duration::from_secs(3_600)));
    world.roots("a", 50);
    world.roots("b", 1);
    for n in 0..250u8 {
        let letters = [b'g' + n / 16, b'g' + n % 16].map(char::from);
        world.roots(&format!("name {}{}", letters[0], letters[1]), 1);
    }
    world.handle.shutdown(TIMEOUT).unwrap();
    let spans = world.collector.spans();
    let heartbeats: Vec<&SpanData> = spans.iter().filter(|span| span.name == "astracer.heartbeat").collect();
    // 252 keys, a hundred per span.
    assert_eq!(heartbeats.len(), 3);
    assert!(heartbeats.iter().all(|span| span.status == Status::Unset && span.events.events.len() <= 100));
    let totals = totals(&heartbeats);
    assert_eq!((totals.len(), totals["a"], totals["b"]), (252, (50, 2), (1, 1)));
    // Heartbeats are not counted as the service's traces.
    let stats = world.handle.stats();
    assert_eq!((stats.roots_kept + stats.roots_dropped, stats.spans_exported), (301, stats.spans_made));
    assert_eq!(world.handle.heartbeat_spans(), (3, 0));
    assert_eq!(spans.len() as u64, stats.spans_exported + 3);
}

/// A root with a one-letter name takes 70 bytes: ids of 18 and 10, the name of 3, the kind of 2,
/// two times of 9 each, a status of 2, flags of 6, the trace state of 9, and 2 for the tag and
/// length of the span itself.
#[test]
fn the_cap_on_bytes_refuses_whole_traces_and_counts_them() {
    let world = world(|builder| {
        builder.with_cap("bytes=1000,bytes_burst=700".parse().unwrap()).with_batch_spans(1_000)
    });
    let spans = run(&world, || {
        for _ in 0..20 {
            info_span!("r").in_scope(|| ());
        }
    });
    assert_eq!(spans.len(), 10, "70 bytes each");
    let stats = world.handle.stats();
    assert_eq!((stats.spans_made, stats.spans_exported, stats.spans_lost.capped), (20, 10, 10));
    assert_eq!(stats.last_error.as_deref(), Some("the cap on exported bytes was used up: 10 spans lost"));
    world.clock.advance(Duration::from_secs(1));
    let spans = run(&world, || {
        let _root = info_span!("r").entered();
        for _ in 0..20 {
            info_span!("child").in_scope(|| ());
        }
    });
    assert_eq!(spans.len(), 10, "a trace larger than the burst is refused whole");
    assert_eq!(world.handle.stats().spans_lost.capped, 31);
}

/// Traces kept by the head sampler, by a policy or through the handle are exemplars of their
/// duration. A dropped trace is not.
#[test]
fn kept_traces_are_exemplars_of_durations() {
    let world = sampling("bucket:capacity=1,rate=0.001", |builder| builder.with_tail(tail("error")));
    let began = world.handle.counted_since().unwrap();
    let root = |millis: u64, fails: bool| {
        info_span!("r").in_scope(|| {
            world.clock.advance(Duration::from_millis(millis));
            if fails {
                tracing::error!("failed");
            }
            Context::current().span().span_context().clone()
        })
    };
    let mut roots = Vec::new();
    world.inside(|| {
        roots = vec![root(100, false), root(3, true), root(700, false), root(20, false)];
    });
    assert!(world.handle.keep(roots[3].trace_id()));
    world.handle.shutdown(TIMEOUT).unwrap();
    let outcomes = world.handle.outcomes();
    let found: Vec<_> = outcomes[0]
        .exemplars
        .iter()
        .map(|of| (of.duration.get() / 1_000_000, TraceId::from(of.trace_id), SpanId::from(of.span_id)))
        .collect();
    let of = |millis, at: usize| (millis, roots[at].trace_id(), roots[at].span_id());
    assert_eq!(found, [of(3, 1), of(20, 3), of(100, 0)]);
    let since_1970 = |date: SystemTime| date.duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let ends = outcomes[0].exemplars.iter().map(|of| u128::from(of.unix_nanos) - since_1970(began));
    assert_eq!(ends.collect::<Vec<_>>(), [103, 823, 100].map(|millis| millis * 1_000_000));
    assert_eq!((outcomes[0].calls, outcomes[0].errors), (4, 1));
    assert!(world.handle.resource().is_some());
}
