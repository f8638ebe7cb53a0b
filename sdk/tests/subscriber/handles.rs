//! Ids and handles: a span ends once, when its last handle is dropped, and a stale id refers to no
//! span.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use astracer_sdk::{AstracerSubscriber, ContextMode, DroppedSpans};
use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt as _;
use tracing::span::{Attributes, Id};
use tracing::subscriber::with_default;
use tracing::{Dispatch, Span, info, info_span};
use tracing_subscriber::layer::{Context as LayerContext, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry};

use crate::support::{draw, one, sampling, world};

#[test]
fn no_id_is_reused() {
    let world = sampling("never", |builder| builder);
    world.inside(|| {
        let ids: HashSet<Id> = (0..100_000).filter_map(|_| info_span!("one of many").id()).collect();
        assert_eq!(ids.len(), 100_000);
    });
}

/// The calls of code that keeps an id after its span has ended.
fn misuse(dispatch: &Dispatch, stale: &Id) {
    dispatch.enter(stale);
    info!("inside of a span that has ended");
    dispatch.exit(stale);
    let _ = dispatch.clone_span(stale);
    assert!(!dispatch.try_close(stale.clone()));
    dispatch.record_follows_from(stale, stale);
}

#[test]
fn a_stale_id_does_nothing_to_the_span_in_its_place() {
    let world = world(|builder| builder);
    let spans = world.run(|| {
        let root = info_span!("root");
        let stale = info_span!("ended").id().unwrap();
        misuse(&world.dispatch, &stale);
        // This span reuses the entry of the ended one.
        let next = info_span!(parent: &root, "next");
        misuse(&world.dispatch, &stale);
        let orphan = info_span!(parent: stale.clone(), "orphan");
        assert_ne!(orphan.id(), Some(stale));
        drop(root);
        assert_eq!(world.handle.stats().spans_open, 2, "root and next are open; the orphan is undecided");
        next.in_scope(|| info!("still open"));
    });
    let (orphan, next) = (one(&spans, "orphan"), one(&spans, "next"));
    assert!(!orphan.parent_span_is_remote && orphan.parent_span_id == opentelemetry::SpanId::INVALID);
    assert_eq!(next.events.events.len(), 1);
    assert_eq!(spans.len(), 4);
    assert_eq!(world.handle.stats().spans_open, 0);
}

/// Each span holds the one above; only the last has a handle.
#[test]
fn a_long_chain_ends_with_its_last_span() {
    const LENGTH: usize = 50_000;
    let world = world(|builder| builder);
    let spans = world.run(|| {
        let mut last = info_span!("root");
        for _ in 1..LENGTH {
            last = info_span!(parent: &last, "link");
        }
        world.handle.flush(crate::support::TIMEOUT).unwrap();
        assert_eq!(world.collector.take().len(), 0);
        drop(last);
    });
    assert_eq!(spans.len(), LENGTH);
    assert_eq!(spans.last().unwrap().name, "root");
}

/// A registry searches the thread's stack at each entry, and takes minutes for this.
#[test]
fn a_long_chain_of_entered_spans_takes_its_length() {
    const LENGTH: usize = 100_000;
    let modes = [ContextMode::Off, ContextMode::Ids, ContextMode::Recording];
    for (mode, sampler) in modes.into_iter().flat_map(|mode| [(mode, "always"), (mode, "never")]) {
        let world = sampling(sampler, |builder| {
            let builder = builder.with_spans_per_trace_max(u32::MAX).with_open_bytes_max(1 << 30);
            builder.with_context_mode(mode)
        });
        let spans = world.run(|| {
            let mut entered: Vec<_> = (0..LENGTH).map(|_| info_span!("link").entered()).collect();
            while let Some(innermost) = entered.pop() {
                drop(innermost);
            }
        });
        let expected = if sampler == "always" { LENGTH } else { 0 };
        assert_eq!(spans.len(), expected, "{mode:?}: {:?}", world.handle.stats());
        let traces: HashSet<_> = spans.iter().map(|span| span.span_context.trace_id()).collect();
        assert!(traces.len() <= 1);
    }
}

#[test]
fn the_last_of_many_handles_ends_a_span_once() {
    for round in 0..200 {
        let world = world(|builder| builder);
        let spans = world.run(|| {
            let root = info_span!("root");
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    let (root, dispatch) = (root.clone(), world.dispatch.clone());
                    scope.spawn(move || {
                        let _default = tracing::dispatcher::set_default(&dispatch);
                        for _ in 0..20 {
                            let clone = root.clone();
                            clone.in_scope(|| drop(info_span!("child").entered()));
                        }
                    });
                }
                drop(root);
            });
        });
        assert_eq!(spans.len(), 81, "round {round}");
        assert_eq!(spans.last().unwrap().name, "root", "it ends after its children");
        assert_eq!(world.handle.stats().spans_open, 0);
    }
}

/// Children begin inside a parent on one thread, more than the handles that the thread reserves at
/// once. They end on another thread, before and after the parent is exited. The parent ends with
/// the last of them.
#[test]
fn children_that_end_on_another_thread_hold_their_parent() {
    const CHILDREN: usize = 200;
    for left_first in [false, true] {
        let world = world(|builder| builder);
        let spans = world.run(|| {
            let root = info_span!("root");
            let entered = root.enter();
            let mut children: Vec<Span> = (0..CHILDREN).map(|_| info_span!("child")).collect();
            // Returned handles are reused.
            for _ in 0..CHILDREN {
                drop(info_span!("short"));
            }
            let rest = children.split_off(CHILDREN / 2);
            let end_elsewhere = |spans: Vec<Span>| {
                let dispatch = &world.dispatch;
                let end = move || tracing::dispatcher::with_default(dispatch, || drop(spans));
                std::thread::scope(|scope| scope.spawn(end).join().unwrap());
            };
            end_elsewhere(children);
            assert_eq!(world.handle.stats().spans_open, CHILDREN as u64 / 2 + 1);
            if left_first {
                drop(entered);
                drop(root);
                assert_eq!(world.handle.stats().spans_open, CHILDREN as u64 / 2 + 1, "root waits");
                end_elsewhere(rest);
            } else {
                end_elsewhere(rest);
                drop(entered);
                assert_eq!(world.handle.stats().spans_open, 1, "only its own handle is left");
            }
        });
        assert_eq!(spans.len(), 2 * CHILDREN + 1, "left first: {left_first}");
        assert_eq!(spans.last().unwrap().name, "root", "left first: {left_first}");
        assert_eq!(world.handle.stats().spans_open, 0, "left first: {left_first}");
    }
}

/// A leaked guard keeps the span open once a child has begun inside. A thread that ends drops the
/// handles that it reserved for children. If no other handle is left then, the span stays open and
/// is counted, and the spans below it leave at the trace's maximum age.
#[test]
fn a_leaked_guard_keeps_a_span_open() {
    for is_dropped_inside in [false, true] {
        let world = world(|builder| builder);
        let spans = world.run(|| {
            let mut root = Some(info_span!("root"));
            std::thread::scope(|scope| {
                let inside = || {
                    world.inside(|| {
                        std::mem::forget(root.as_ref().unwrap().enter());
                        drop(info_span!("child"));
                        if is_dropped_inside {
                            root = None;
                        }
                        assert_eq!(world.handle.stats().spans_open, 1);
                    });
                };
                scope.spawn(inside).join().unwrap();
            });
            drop(root);
        });
        let expected: &[&str] = if is_dropped_inside { &["child"] } else { &["child", "root"] };
        assert_eq!(spans.iter().map(|span| &*span.name).collect::<Vec<_>>(), expected);
        assert_eq!(world.handle.stats().spans_open, u64::from(is_dropped_inside));
    }
}

/// On a registry, a thread does not hold the spans that it has entered.
#[test]
fn a_leaked_guard_keeps_no_span_of_a_registry_open() {
    let world = world(|builder| builder);
    let dispatch = Dispatch::new(Registry::default().with(world.astracer.layer.clone()));
    let leaks = || {
        let root = info_span!("root");
        std::mem::forget(root.enter());
        drop(info_span!("child"));
    };
    let inside = || tracing::dispatcher::with_default(&dispatch, leaks);
    std::thread::scope(|scope| scope.spawn(inside).join().unwrap());
    assert_eq!(draw(&world.exported()), "root\n  child\n");
}

/// The service's formatting panics while a child begins. The child never exists, and holds nothing.
#[test]
fn a_child_whose_fields_panic_releases_its_parent() {
    struct Panics;
    impl std::fmt::Debug for Panics {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("a field of the service's")
        }
    }
    let world = world(|builder| builder);
    let spans = world.run(|| {
        let _root = info_span!("root").entered();
        assert!(std::panic::catch_unwind(|| info_span!("never", field = ?Panics)).is_err());
        drop(info_span!("child"));
    });
    assert_eq!(spans.iter().map(|span| &*span.name).collect::<Vec<_>>(), ["child", "root"]);
    assert_eq!(world.handle.stats().spans_open, 0);
}

/// Collects the spans that begin and end.
#[derive(Clone, Default)]
struct SeenCloses(Arc<Mutex<Vec<(bool, u64)>>>);

impl Layer<AstracerSubscriber> for SeenCloses {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, _: LayerContext<'_, AstracerSubscriber>) {
        self.0.lock().unwrap().push((true, id.into_u64()));
    }

    fn on_close(&self, id: Id, _: LayerContext<'_, AstracerSubscriber>) {
        self.0.lock().unwrap().push((false, id.into_u64()));
    }
}

/// A service that chooses its subscriber at start boxes its layers, and a boxed layer does not
/// learn which subscriber it is in. A shared layer serves under one dispatcher, and then under
/// another.
#[test]
fn a_filter_sees_each_close_once_per_dispatcher() {
    type Subscriber = dyn tracing::Subscriber + Send + Sync;
    let world = world(|builder| builder);
    let seen = SeenCloses::default();
    let filtered = || world.astracer.subscriber().with_filter(seen.clone());
    let boxed: Box<Subscriber> = Box::new(filtered());
    let shared: Arc<Subscriber> = Arc::new(filtered());
    for dispatch in [filtered().into(), boxed.into(), Dispatch::new(shared.clone()), Dispatch::new(shared)] {
        sees_each_close_once(&seen, dispatch);
        seen.0.lock().unwrap().clear();
    }
}

fn sees_each_close_once(seen: &SeenCloses, dispatch: Dispatch) {
    let mut ids = Vec::new();
    tracing::dispatcher::with_default(&dispatch, || {
        let root = info_span!("root");
        let child = info_span!(parent: &root, "child");
        let leaf = info_span!(parent: &child, "leaf");
        ids = [&root, &child, &leaf].map(|span| span.id().unwrap().into_u64()).to_vec();
        drop((root.clone(), root, child));
        drop(leaf);
    });
    let [root, child, leaf] = ids[..] else { panic!("{ids:?}") };
    let mut seen = seen.0.lock().unwrap().clone();
    // Sorted, because a parent's end is reported before that of the child that causes it: nothing
    // runs after the filters have received the child's.
    seen.sort();
    let expected = [(false, root), (false, child), (false, leaf), (true, root), (true, child), (true, leaf)];
    assert_eq!(seen, expected);
}

/// Panics when it receives the end of this span.
struct PanicsAt(Arc<Mutex<Option<Id>>>);

impl Layer<AstracerSubscriber> for PanicsAt {
    fn on_close(&self, id: Id, _: LayerContext<'_, AstracerSubscriber>) {
        let is_it = self.0.lock().unwrap().as_ref() == Some(&id);
        assert!(!is_it, "a filter of the service's");
    }
}

/// The panic reaches the service. The spans above still end, including those of the thread that
/// continues.
#[test]
fn a_filter_that_panics_at_an_end_keeps_no_span_open() {
    let world = world(|builder| builder);
    let at = Arc::new(Mutex::new(None));
    with_default(world.astracer.subscriber().with_filter(PanicsAt(at.clone())), || {
        let chain = || {
            let root = info_span!("root");
            let middle = info_span!(parent: &root, "middle");
            let leaf = info_span!(parent: &middle, "leaf");
            (middle.id(), leaf)
        };
        let (middle, leaf) = chain();
        *at.lock().unwrap() = middle;
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(leaf))).is_err());
        assert_eq!(world.handle.stats().spans_open, 0);
        drop(chain());
    });
    assert_eq!(world.exported().len(), 6);
    assert_eq!(world.handle.stats().spans_open, 0);
}

/// The last handle of the span is the thread's own, which is dropped at the exit.
#[test]
fn a_filter_that_panics_when_a_span_is_left_leaves_no_context() {
    let world = world(|builder| builder);
    let at = Arc::new(Mutex::new(None));
    let dispatch = Dispatch::new(world.astracer.subscriber().with_filter(PanicsAt(at.clone())));
    tracing::dispatcher::with_default(&dispatch, || {
        let root = info_span!("root");
        let id = root.id().unwrap();
        dispatch.enter(&id);
        drop(info_span!("child"));
        drop(root);
        *at.lock().unwrap() = Some(id.clone());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| dispatch.exit(&id))).is_err());
        assert!(!Context::current().span().span_context().is_valid());
    });
    assert_eq!(draw(&world.exported()), "root\n  child\n");
}

/// A span that begins inside another one holds only spans of its own subscriber.
#[test]
fn subscribers_on_one_thread_keep_their_spans_apart() {
    let world = world(|builder| builder);
    let other = crate::support::dispatch(&world.astracer);
    let spans = world.run(|| {
        let outer = info_span!("outer").entered();
        tracing::dispatcher::with_default(&other, || {
            let _inner = info_span!("inner").entered();
            let current = Span::current();
            assert_eq!(current.metadata().unwrap().name(), "inner");
        });
        assert_eq!(Span::current().id(), outer.id());
    });
    assert_eq!(draw(&spans), "outer\n  inner\n", "by OpenTelemetry's context");
    assert_eq!(world.handle.stats().spans_open, 0);
}

#[test]
fn a_span_is_current_where_it_was_entered_last() {
    let world = world(|builder| builder.with_open_bytes_max(0));
    world.inside(|| {
        assert!(Span::current().is_none());
        // A span without an entry, and without a span above.
        let lost = info_span!("lost").entered();
        let current = Span::current();
        assert_eq!(current.id(), lost.id());
        assert!(!Context::current().span().span_context().is_sampled());
        drop(lost);
        assert!(Span::current().is_none());
        drop(current);
    });
    assert_eq!(world.handle.stats().spans_lost.open_spans, 1);
}

/// As on a registry: if a local root found no entry, a task spawned inside it stays in that root's
/// trace, which is dropped.
#[test]
fn a_task_stays_in_the_dropped_trace_of_a_root_beyond_the_budget() {
    for base in [false, true] {
        let world = world(|builder| builder.with_open_bytes_max(0));
        let registry = Dispatch::new(Registry::default().with(world.astracer.layer.clone()));
        let dispatch = if base { &world.dispatch } else { &registry };
        tracing::dispatcher::with_default(dispatch, || {
            let task = info_span!("root").in_scope(Span::current);
            let work = || {
                let is_sampled = || Context::current().span().span_context().is_sampled();
                task.in_scope(|| info_span!("below").in_scope(|| assert!(!is_sampled())));
            };
            let thread = || tracing::dispatcher::with_default(dispatch, work);
            std::thread::scope(|scope| scope.spawn(thread).join().unwrap());
            // The span has no record for this value.
            task.record("late", 1);
            task.in_scope(|| info!("inside"));
        });
        let stats = world.handle.stats();
        assert_eq!(stats.roots_kept + stats.roots_dropped, 1, "the subscriber: {base}");
        assert_eq!((stats.spans_open, stats.spans_exported), (0, 0));
    }
}

/// Also as on a registry: a span that begins where telemetry is suppressed is current inside
/// itself.
#[test]
fn a_suppressed_span_is_current_inside() {
    let world = world(|builder| builder);
    let spans = world.run(|| {
        let _root = info_span!("root").entered();
        let suppressed = Context::enter_telemetry_suppressed_scope();
        let inner = info_span!("inner").entered();
        assert_eq!(Span::current().id(), inner.id());
        drop((inner, suppressed));
        assert_eq!(Span::current().metadata().unwrap().name(), "root");
    });
    assert_eq!(spans.len(), 1);
}

/// Below a dropped root neither spans nor events exist, except for a client's span, which passes
/// the decision on.
#[test]
fn below_a_dropped_root_everything_is_refused() {
    let never = "never".parse().unwrap();
    let world = world(|builder| builder.with_sampler(never).with_dropped_spans(DroppedSpans::Disabled));
    world.inside(|| {
        info_span!("root").in_scope(|| {
            assert!(info_span!("child").is_disabled());
            assert!(!info_span!("client", otel.kind = "client").is_disabled());
            assert!(!tracing::enabled!(tracing::Level::ERROR));
        });
        assert!(tracing::enabled!(tracing::Level::ERROR));
    });
    assert_eq!(world.handle.stats().refusals, 1);
}
