//! The calls that an observer gets, and the numbers of flows that spans have.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use astracer_sdk::{
    Builder, Clock, ContextMode, DroppedSpans, Key, ObservedSpan, Observer, OpenTelemetrySpanExt as _,
    ParentDecision, Root, SpanLimits, Start,
};
use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::{Context, KeyValue};
use tracing::{Event, Span, info, info_span};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Registry, reload};

use crate::support::{World, draw, named, sampling};

/// Numbers roots from 1 on, and writes down each call.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    state: Mutex<State>,
    /// Entering a span named `fork` splits its flow, once.
    pub(crate) splits: bool,
    /// Attributes to set on each span that ends.
    sets: Vec<KeyValue>,
    reads_keys: bool,
    /// The keys of roots.
    keys: Mutex<Vec<String>>,
    panics: AtomicBool,
    /// In nanoseconds.
    now: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    last: u32,
    /// The spans that have each number.
    counts: BTreeMap<u32, i64>,
    calls: Vec<String>,
}

impl Flows {
    fn note(&self, call: &str, span: &ObservedSpan<'_>) {
        self.now.store(span.now().as_nanos() as u64, Ordering::Relaxed);
        let kept = if span.is_recorded() { "" } else { " dropped" };
        let root = if span.is_root() { " root" } else { "" };
        let call = format!("{call} {} of {}{root}{kept}", span.metadata().name(), span.flow());
        self.state.lock().unwrap().calls.push(call);
        assert!(!self.panics.load(Ordering::Relaxed), "on purpose");
    }

    fn count(&self, flow: u32, by: i64) -> u32 {
        *self.state.lock().unwrap().counts.entry(flow).or_default() += by;
        flow
    }

    fn next(&self) -> u32 {
        let mut state = self.state.lock().unwrap();
        state.last += 1;
        state.last
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }

    /// The numbers that spans have.
    pub(crate) fn used(&self) -> Vec<u32> {
        let state = self.state.lock().unwrap();
        let used = state.counts.iter().filter(|(_, count)| **count != 0);
        used.map(|(flow, count)| {
            assert!(*count > 0, "{flow} was released more often than it was counted: {state:?}");
            *flow
        })
        .collect()
    }
}

impl Observer for Flows {
    fn reads_keys(&self) -> bool {
        self.reads_keys
    }

    fn root(&self, root: &ObservedSpan<'_>, base: Option<&Context>) -> u32 {
        assert_eq!(root.flow(), 0);
        self.keys.lock().unwrap().push(root.sampling_key().to_owned());
        let tenant = base.and_then(|base| base.baggage().get("tenant.id").map(|value| value.to_string()));
        self.note(&format!("root{}", tenant.map_or(String::new(), |tenant| format!("({tenant})"))), root);
        self.count(self.next(), 1)
    }

    fn begin(&self, span: &ObservedSpan<'_>) -> u32 {
        self.note("begin", span);
        self.count(span.flow(), 1)
    }

    fn enter(&self, span: &ObservedSpan<'_>) -> u32 {
        self.note("enter", span);
        if self.splits && span.metadata().name() == "fork" && span.flow() == 1 {
            return self.count(self.next(), 1);
        }
        span.flow()
    }

    fn exit(&self, span: &ObservedSpan<'_>) {
        self.note("exit", span);
    }

    fn end(&self, span: &ObservedSpan<'_>) {
        self.count(span.flow(), -1);
        span.set_attributes(self.sets.clone());
        self.note("end", span);
    }

    fn release(&self, flow: u32) {
        self.count(flow, -1);
        self.state.lock().unwrap().calls.push(format!("release {flow}"));
    }

    fn event(&self, span: &ObservedSpan<'_>, _: &Event<'_>) {
        self.note("event on", span);
    }
}

fn observed(sampler: &str, flows: &Arc<Flows>, change: impl FnOnce(Builder) -> Builder) -> World {
    sampling(sampler, |builder| change(builder.with_observer(flows.clone())))
}

const NONE: [u32; 0] = [];
const STARTS: [Start; 2] = [Start::WhenUsed, Start::AtOnce];
const MODES: [ContextMode; 3] = [ContextMode::Off, ContextMode::Ids, ContextMode::Recording];

/// Each span of a trace, kept or dropped, has its root's number, also if its root has ended.
#[test]
fn spans_have_the_number_of_their_root() {
    for (start, mode) in STARTS.into_iter().flat_map(|start| MODES.map(|mode| (start, mode))) {
        for (sampler, dropped) in [("always", ""), ("never", " dropped")] {
            let flows = Arc::<Flows>::default();
            let world =
                observed(sampler, &flows, |builder| builder.with_start(start).with_context_mode(mode));
            world.inside(|| {
                for _ in 0..2 {
                    let root = info_span!("a");
                    let child = root.in_scope(|| {
                        info!("an event");
                        info_span!("b")
                    });
                    assert_eq!(flows.used().len(), 1);
                    drop(root);
                    child.in_scope(|| info_span!(parent: &child, "c")).in_scope(|| ());
                    info!(parent: &child, "an event");
                    drop(child);
                    assert_eq!(flows.used(), NONE, "{start:?} {mode:?} {sampler}");
                }
            });
            let calls = flows.calls();
            for (round, calls) in calls.chunks(calls.len() / 2).enumerate() {
                let flow = round + 1;
                let expected = [
                    "root a of 0 root dropped".to_owned(),
                    format!("enter a of {flow} root{dropped}"),
                    format!("event on a of {flow} root{dropped}"),
                    format!("begin b of {flow}{dropped}"),
                    format!("exit a of {flow} root{dropped}"),
                    format!("enter b of {flow}{dropped}"),
                    format!("begin c of {flow}{dropped}"),
                    format!("exit b of {flow}{dropped}"),
                    format!("enter c of {flow}{dropped}"),
                    format!("exit c of {flow}{dropped}"),
                    format!("end c of {flow}{dropped}"),
                    format!("event on b of {flow}{dropped}"),
                    format!("end b of {flow}{dropped}"),
                ];
                // A span of the subscriber holds its parent, and so does one of a registry.
                let mut expected: Vec<_> = expected.into();
                expected.push(format!("end a of {flow} root{dropped}"));
                assert_eq!(calls, expected, "{start:?} {mode:?}");
            }
        }
    }
}

/// A root that is never entered is decided when it ends.
#[test]
fn a_root_that_is_never_used_has_a_number_until_it_ends() {
    let flows = Arc::<Flows>::default();
    observed("always", &flows, |builder| builder).inside(|| drop(info_span!("a")));
    assert_eq!(flows.calls(), ["root a of 0 root dropped", "end a of 1 root"]);
    assert_eq!(flows.used(), NONE);
}

/// Attributes of an ended span are kept and cut as the service's own are, also on a span that has
/// no other.
#[test]
fn attributes_are_set_at_a_spans_end() {
    let mut limits = SpanLimits::default();
    (limits.attributes, limits.text_length) = (2, 3);
    for sampler in ["always", "never"] {
        let sets = vec![KeyValue::new("total", 7), KeyValue::new("names", "abcd"), KeyValue::new("more", 1)];
        let flows = Arc::new(Flows { sets, ..Flows::default() });
        let world = observed(sampler, &flows, |builder| builder.with_span_limits(limits));
        world.inside(|| {
            info_span!("bare").in_scope(|| ());
            info_span!("full", total = 1).in_scope(|| ());
            drop(info_span!("unused"));
        });
        let spans = world.exported();
        assert_eq!(spans.len(), if sampler == "always" { 3 } else { 0 });
        for span in spans {
            let set = [KeyValue::new("total", 7), KeyValue::new("names", "abc")];
            assert_eq!((&span.attributes[..], span.dropped_attributes_count), (&set[..], 1), "{}", span.name);
        }
    }
}

/// The keys are those by which the sampler counts roots, which decides no root that has a parent.
#[test]
fn roots_have_the_keys_of_the_sampler() {
    let by_route = || Key::name().with_attribute("http.route");
    let custom = || {
        Key::custom(|root: &Root<'_>, out: &mut String| {
            info_span!("in the key").in_scope(|| out.push_str(root.name()));
            out.push_str(" of ours");
        })
    };
    type Makes<'a> = &'a dyn Fn() -> Key;
    let keys: [(Makes<'_>, [&str; 2]); 3] = [
        (&Key::default, ["GET /orders/*", "request"]),
        (&by_route, ["GET /orders/1234;http.route=/orders", "request"]),
        (&custom, ["GET /orders/1234 of ours", "request of ours"]),
    ];
    for (start, (key, expected)) in STARTS.into_iter().flat_map(|start| keys.map(|key| (start, key))) {
        for (sampler, reads_keys) in [("always", true), ("never", true), ("never", false)] {
            let flows = Arc::new(Flows { reads_keys, ..Flows::default() });
            let world = observed(sampler, &flows, |builder| builder.with_start(start).with_key(key()));
            world.inside(|| {
                info_span!("a", otel.name = "GET /orders/1234", http.route = "/orders").in_scope(|| ());
                let _remote = astracer_testing::remote_parent(7, false).attach();
                info_span!("request").in_scope(|| ());
            });
            let mut found = std::mem::take(&mut *flows.keys.lock().unwrap());
            // The span that the function makes is a root, too.
            found.retain(|key| !key.starts_with("in the key"));
            let expected = if reads_keys { expected } else { ["GET /orders/1234", "request"] };
            assert_eq!(found, expected, "{start:?} {sampler}");
        }
    }
}

/// A span that was never entered ends when its observer is called, at the time the observer gets.
#[test]
fn a_span_that_was_never_entered_ends_when_it_is_reported() {
    let flows = Arc::<Flows>::default();
    let clock = Clock::system();
    let world = observed("always", &flows, |builder| builder.with_clock(clock.clone()));
    for _ in 0..100 {
        let began = world.inside(|| {
            let root = info_span!("a");
            root.context();
            let began = flows.now.load(Ordering::Relaxed);
            drop(root);
            began
        });
        let span = world.exported().pop().unwrap();
        let took = flows.now.load(Ordering::Relaxed) - began;
        assert_eq!(span.end_time.duration_since(span.start_time).unwrap().as_nanos(), u128::from(took));
    }
}

/// `set_parent` on a child that has not started makes it a local root, which leaves the flow that it
/// began in. The observer reads the baggage of the new parent's context.
#[test]
fn a_child_that_gets_another_parent_leaves_its_flow() {
    let flows = Arc::<Flows>::default();
    let world = observed("always", &flows, |builder| builder);
    world.inside(|| {
        let root = info_span!("a").entered();
        let child = info_span!("b");
        let remote = astracer_testing::remote_parent(7, true);
        let remote = remote.with_baggage([KeyValue::new("tenant.id", "x")]);
        child.set_parent(remote).unwrap();
        flows.calls();
        child.in_scope(|| ());
        assert_eq!(
            flows.calls(),
            ["root(x) b of 0 root dropped", "release 1", "enter b of 2 root", "exit b of 2 root"]
        );
        drop((child, root));
    });
    assert_eq!(flows.used(), NONE);
}

#[test]
fn a_flow_splits_where_a_span_is_entered() {
    for sampler in ["always", "never"] {
        let flows = Arc::new(Flows { splits: true, ..Flows::default() });
        let world = observed(sampler, &flows, |builder| builder);
        world.inside(|| {
            let root = info_span!("a").entered();
            let fork = info_span!("fork");
            assert_eq!(flows.used(), [1]);
            let below = fork.in_scope(|| info_span!("below"));
            assert_eq!(flows.used(), [1, 2]);
            drop(root);
            drop(fork);
            drop(below);
        });
        let calls = flows.calls();
        assert!(calls.iter().any(|call| call.starts_with("begin below of 2")), "{calls:?}");
        assert_eq!(
            calls.iter().filter(|call| call.starts_with("release")).collect::<Vec<_>>(),
            ["release 1"]
        );
        assert_eq!(flows.used(), NONE);
    }
}

/// Each call panics. Spans are recorded all the same, and the panics are counted.
#[test]
fn an_observer_that_panics_does_not_reach_the_service() {
    let flows = Arc::<Flows>::default();
    let world = observed("always", &flows, |builder| builder);
    world.inside(|| {
        let root = info_span!("a").entered();
        flows.panics.store(true, Ordering::Relaxed);
        // Its begin panics, so it has no number.
        info_span!("b").in_scope(|| info_span!("c"));
        info!("an event");
        drop(root);
        // Its root panics.
        info_span!("d").in_scope(|| info_span!("e").in_scope(|| ()));
    });
    assert_eq!(world.handle.stats().observer_panics, 5, "begin, event, exit, end, root");
    let names: Vec<String> = draw(&world.exported()).split_whitespace().map(str::to_owned).collect();
    assert_eq!(
        names,
        ["a", "*", "an", "event", "level=\"INFO\"", "target=\"tests::observer\"", "b", "c", "d", "e"]
    );
}

/// The table's first page of entries, in bytes.
const PAGE: usize = 32 * 192;

/// Spans for which there is no memory have no number.
#[test]
fn a_refused_span_leaves_the_flow_as_it_is() {
    for sampler in ["always", "never"] {
        let flows = Arc::<Flows>::default();
        let world = observed(sampler, &flows, |builder| {
            builder.with_context_mode(ContextMode::Ids).with_open_bytes_max(PAGE * 3 / 2)
        });
        let stats = world.inside(|| {
            let root = info_span!("a").entered();
            let mut held: Vec<Span> = (0..100).map(|_| info_span!("held")).collect();
            flows.calls();
            let refused = info_span!("refused").entered();
            assert_eq!(flows.calls(), [""; 0], "{sampler}");
            held.truncate(1);
            // There is memory again, but spans below a lost one are lost too.
            drop(info_span!("below"));
            let calls = flows.calls();
            let begins = calls.iter().any(|call| call == "begin below of 1 dropped");
            assert_eq!(begins, sampler == "never", "{calls:?}");
            drop((refused, held, root));
            world.handle.stats()
        });
        assert_eq!(stats.spans_lost.open_spans > 0, sampler == "always", "{stats:?}");
        assert_eq!(flows.used(), NONE);
    }
}

/// A layer that `reload` removes reports the end of its open spans.
#[test]
fn no_number_outlives_the_layer() {
    for sampler in ["always", "never"] {
        let flows = Arc::<Flows>::default();
        let world = observed(sampler, &flows, |builder| builder);
        let (layer, handle) = reload::Layer::new(Some(world.astracer.layer.clone()));
        tracing::subscriber::with_default(Registry::default().with(layer), || {
            let root = info_span!("a");
            let _child = root.in_scope(|| info_span!("b"));
            assert_eq!(flows.used(), [1]);
            handle.reload(None).unwrap();
            assert_eq!(flows.used(), NONE, "{sampler}");
        });
    }
}

/// Spans that [`DroppedSpans::Disabled`] disables do not exist.
#[test]
fn a_disabled_span_is_not_reported() {
    let flows = Arc::<Flows>::default();
    let world = observed("never", &flows, |builder| builder.with_dropped_spans(DroppedSpans::Disabled));
    world.inside(|| info_span!("a").in_scope(|| info_span!("b").in_scope(|| ())));
    let expected = [
        "root a of 0 root dropped",
        "enter a of 1 root dropped",
        "exit a of 1 root dropped",
        "end a of 1 root dropped",
    ];
    assert_eq!(flows.calls(), expected);
}

#[test]
fn calls_have_the_time_of_the_clock() {
    #[derive(Debug, Default)]
    struct Started(Mutex<Option<Clock>>, Flows);
    impl Observer for Started {
        fn start(&self, clock: &Clock, _: ParentDecision) {
            *self.0.lock().unwrap() = Some(clock.clone());
        }
        fn root(&self, root: &ObservedSpan<'_>, base: Option<&Context>) -> u32 {
            self.1.root(root, base)
        }
        fn begin(&self, span: &ObservedSpan<'_>) -> u32 {
            self.1.begin(span)
        }
        fn enter(&self, span: &ObservedSpan<'_>) -> u32 {
            self.1.enter(span)
        }
        fn exit(&self, span: &ObservedSpan<'_>) {
            self.1.exit(span);
        }
        fn end(&self, span: &ObservedSpan<'_>) {
            self.1.end(span);
        }
        fn release(&self, flow: u32) {
            self.1.release(flow);
        }
        fn event(&self, span: &ObservedSpan<'_>, event: &Event<'_>) {
            self.1.event(span, event);
        }
    }
    for sampler in ["always", "never"] {
        let observer = Arc::<Started>::default();
        let world = sampling(sampler, |builder| builder.with_observer(observer.clone()));
        let now = || Duration::from_nanos(observer.1.now.load(Ordering::Relaxed));
        let tick = || world.clock.advance(Duration::from_millis(1));
        world.inside(|| {
            let root = info_span!("a");
            tick();
            root.in_scope(tick);
            assert_eq!(now(), Duration::from_millis(2), "an exit");
            let clock = observer.0.lock().unwrap().clone().unwrap();
            assert_eq!(clock.since_origin(clock.ticks()).get(), 2_000_000);
        });
        assert_eq!(named(&world.exported(), "a").len(), usize::from(sampler == "always"));
    }
}
