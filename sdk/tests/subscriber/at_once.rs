//! Spans that start when they begin: [`Start::AtOnce`].

use std::cell::Cell;
use std::fmt;

use astracer_sdk::{
    Builder, ContextMode, DroppedSpans, Key, OpenTelemetrySpanExt as _, SetParentError, Start,
};
use astracer_testing::remote_parent;
use tracing::info_span;

use crate::allocations::count;
use crate::support::{draw, one, sampling};

fn at_once(builder: Builder) -> Builder {
    builder.with_start(Start::AtOnce)
}

#[test]
fn a_parent_is_the_one_that_is_attached_and_cannot_be_set() {
    let world = sampling("never", at_once);
    let spans = world.run(|| {
        let guard = remote_parent(7, true).attach();
        let span = info_span!("request", otel.kind = "server");
        drop(guard);
        assert_eq!(span.set_parent(remote_parent(7, false)), Err(SetParentError::AlreadyStarted));
        span.in_scope(|| info_span!("child").in_scope(|| ()));
        let guard = remote_parent(7, false).attach();
        info_span!("dropped by the caller").in_scope(|| ());
        drop(guard);
        info_span!("dropped by the sampler").in_scope(|| ());
    });
    let request = one(&spans, "request");
    assert!(request.parent_span_is_remote && request.parent_span_id == 5.into());
    assert_eq!(request.span_context.trace_id(), 7.into());
    assert_eq!(draw(&spans), "request\n  child\n");
    let stats = world.handle.stats();
    assert_eq!((stats.parents_kept, stats.parents_dropped, stats.roots_dropped), (1, 1, 1));
}

/// Counts how often it is formatted.
struct Formatted<'a>(&'a Cell<u32>);

impl fmt::Display for Formatted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.set(self.0.get() + 1);
        f.write_str("/orders/17")
    }
}

#[test]
fn a_dropped_root_formats_what_its_key_needs() {
    let (route, other) = (Cell::new(0), Cell::new(0));
    let world =
        sampling("every:2", |builder| at_once(builder).with_key(Key::default().with_attribute("http.route")));
    let spans = world.run(|| {
        for _ in 0..2 {
            let _span =
                info_span!("request", http.route = %Formatted(&route), other = %Formatted(&other)).entered();
        }
    });
    assert_eq!(spans.len(), 1);
    assert_eq!((route.get(), other.get()), (3, 1), "formatted once per key, and once each for the kept span");
    let snapshot = world.handle.snapshot();
    assert!(snapshot.is_none_or(|snapshot| format!("{snapshot:?}").contains("request;http.route=/orders/*")));
}

#[test]
fn the_key_has_the_name_of_a_field() {
    let world = sampling("bucket:capacity=1,rate=0.001", at_once);
    let spans = world.run(|| {
        for name in ["a", "b", "a"] {
            info_span!("request", otel.name = name).in_scope(|| ());
        }
    });
    assert_eq!(draw(&spans), "a\nb\n");
}

/// Allocations of one dropped root with fields, after a warm-up.
fn allocations(mode: ContextMode, key: Key) -> u64 {
    let world = sampling("never", |builder| {
        at_once(builder).with_dropped_spans(DroppedSpans::Disabled).with_context_mode(mode).with_key(key)
    });
    let request = || {
        let span = info_span!("request", http.route = "/orders/{id}", http.request.method = "GET", n = 5);
        span.in_scope(|| info_span!("child", n = 6).in_scope(|| tracing::info!("an event")));
    };
    let mut last = 0;
    world.inside(|| {
        for _ in 0..50 {
            last = count(request);
        }
    });
    last
}

#[test]
fn a_dropped_root_allocates_its_context_and_nothing_else() {
    for key in [Key::name(), Key::default(), Key::default().with_attribute("http.route")] {
        assert_eq!(allocations(ContextMode::Off, key.clone()), 0, "{key:?}");
        // OpenTelemetry's context holds its span behind a pointer.
        assert_eq!(allocations(ContextMode::Ids, key.clone()), 1, "{key:?}");
        assert_eq!(allocations(ContextMode::Recording, key.clone()), 1, "{key:?}");
    }
}
