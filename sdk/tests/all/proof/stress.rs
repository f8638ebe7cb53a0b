//! Concurrent threads: what must hold whatever the order of events.
//!
//! Each trace has a number, which every one of its spans carries as an attribute. So the checks
//! need no knowledge of the order: inside any span the current trace is the one with that span's
//! number; every exported span is in the trace of its number, below a span that exists, and is
//! exported once; and the counts add up. With late keeping, all spans of a trace have one reason,
//! which is true, and the weight that belongs to it. Meanwhile the threads request traces, change
//! settings and flush, and a policy's function calls the handle.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use astracer_sdk::{
    Astracer, Clock, ContextMode, DroppedSpans, ManualClock, ProvisionalMode, Start, Stats, Tail, WeakHandle,
};
use astracer_testing::{SplitMix, attribute, sums, wait_until};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, SpanId, TraceId, Value};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tracing::dispatcher::with_default;
use tracing::span::EnteredSpan;
use tracing::{Dispatch, Span, error, info, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

use super::flows::Counted;
use crate::late::reason;
use crate::late_weights::adjusted_count;
use crate::support::{Base, TIMEOUT, start};

/// The traces by number.
#[derive(Debug, Default)]
struct Traces {
    of: HashMap<u64, Trace>,
    /// The numbers of traces in which an error was emitted.
    failed: HashSet<u64>,
    /// Numbers, oldest first. Old ones are dropped, so that a long run takes no more memory than a
    /// short one.
    order: VecDeque<u64>,
    lies: Vec<String>,
    exported: u64,
    /// Local roots among the exported spans.
    roots: u64,
}

#[derive(Debug)]
struct Trace {
    id: TraceId,
    spans: HashSet<SpanId>,
    /// Set with the first exported span: why the trace was kept late, or `None` if by the sampler.
    reason: Option<Option<String>>,
}

/// More traces than are ever open.
const TRACES_MAX: usize = 200_000;

impl Traces {
    /// Checks that the number's trace has this id, now and whenever it is checked again.
    fn check(&mut self, number: u64, id: TraceId, place: &str) -> &mut Trace {
        if !self.of.contains_key(&number) {
            self.order.push_back(number);
            if self.order.len() > TRACES_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.of.remove(&oldest);
            }
        }
        let trace =
            self.of.entry(number).or_insert_with(|| Trace { id, spans: HashSet::new(), reason: None });
        if trace.id != id && self.lies.len() < 10 {
            self.lies.push(format!("{place}: request {number} is trace {}, and was {}", id, trace.id));
        }
        trace
    }
}

/// An exporter that compares spans with the known traces.
#[derive(Clone, Debug, Default)]
struct Checker(Arc<Mutex<Traces>>);

impl SpanExporter for Checker {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let mut traces = self.0.lock().unwrap();
        for span in batch {
            traces.exported += 1;
            traces.roots += u64::from(span.name == "root");
            let number = match attribute(&span, "request") {
                Some(Value::I64(number)) => Some(*number),
                // tracing-opentelemetry writes unsigned numbers as strings.
                Some(Value::String(text)) => text.as_str().parse().ok(),
                _ => None,
            };
            let Some(number) = number else {
                traces.lies.push(format!("{} has lost its attribute: {:?}", span.name, span.attributes));
                continue;
            };
            let ids = &span.span_context;
            let trace = traces.check(
                number as u64,
                ids.trace_id(),
                &format!("{} {} in {}", span.name, ids.span_id(), span.parent_span_id),
            );
            let is_new = trace.spans.insert(ids.span_id());
            let reason = reason(&span);
            let is_constant = *trace.reason.get_or_insert_with(|| reason.clone()) == reason;
            if !is_new {
                traces.lies.push(format!("span {} of request {number} is exported again", ids.span_id()));
            }
            let is_true = reason.as_deref() != Some("error") || traces.failed.contains(&(number as u64));
            if !is_constant || !is_true || !is_weighed(&span, reason.is_some()) {
                traces.lies.push(format!("request {number} was kept for {reason:?}: {span:?}"));
            }
            if (span.parent_span_id == SpanId::INVALID) != (span.name == "root") {
                traces.lies.push(format!("{} of request {number} in {}", span.name, span.parent_span_id));
            }
        }
        Ok(())
    }
}

/// Whether a span says by its flag and its weight how its trace was kept. A trace that was kept
/// late is not sampled, and counts as many calls by its attribute as by its tracestate: none
/// without a threshold.
fn is_weighed(span: &SpanData, is_late: bool) -> bool {
    let count = attribute(span, "sampler.adjusted_count").cloned();
    let state = span.span_context.trace_state().header();
    is_late != span.span_context.is_sampled()
        && (!is_late
            || match (count, state.contains("th:")) {
                (Some(Value::F64(count)), false) => count == 0.0,
                (Some(Value::F64(count)), true) => (count / adjusted_count(span) - 1.0).abs() < 1e-9,
                _ => false,
            })
}

/// A handle of a span, and the number of its trace.
#[derive(Clone)]
struct Handle {
    span: Span,
    number: u64,
}

/// The settings of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) base: Base,
    pub(crate) dropped_spans: DroppedSpans,
    pub(crate) context: ContextMode,
    pub(crate) sampler: &'static str,
    pub(crate) threads: usize,
    /// Places with spans whose handles any thread may use, drop or replace.
    pub(crate) places: usize,
    /// Rounds of each thread, unless the run's time ends first.
    pub(crate) rounds: u64,
    /// One handle in this many is leaked, or none if this is 0.
    pub(crate) leak_one_in: u64,
    /// The clock's advance with each round of a thread.
    pub(crate) round: Duration,
    pub(crate) start: Start,
    /// A thread shuts the service down in the middle.
    pub(crate) shuts_down: bool,
    /// Policies for late keeping. With them every dropped trace is recorded, and some events are
    /// errors.
    pub(crate) late: Option<&'static str>,
}

struct Service {
    load: Load,
    dispatch: Dispatch,
    traces: Arc<Mutex<Traces>>,
    places: Vec<Mutex<Option<Handle>>>,
    clock: ManualClock,
    astracer: Astracer,
    numbers: AtomicU64,
    /// Leaked handles. They are dropped after the counts are checked, because a span holds its
    /// subscriber: a long run would otherwise keep all subscribers in memory.
    leaked: Mutex<Vec<Handle>>,
    /// Handles that another one replaced.
    replaced: AtomicU64,
    stop: AtomicBool,
}

/// Runs a load and checks everything that must hold. Returns the counts at the end, and the number
/// of leaked handles. `until` ends it before its rounds are over.
/// `seen` receives the counts now and then.
pub(crate) fn run(
    seed: u64,
    load: Load,
    until: Option<Instant>,
    seen: &mut dyn FnMut(&Stats),
) -> (Stats, u64) {
    let (clock, hand) = Clock::manual(start());
    let checker = Checker::default();
    let own = Arc::new(OnceLock::<WeakHandle>::new());
    let flows = Arc::new(Counted::default());
    let builder = match load.late {
        Some(policies) => {
            let tail = policies.parse::<Tail>().unwrap().with_provisional(ProvisionalMode::Always);
            let own = own.clone();
            Astracer::builder().with_tail(tail).with_own_policy("calls_back", move |trace| {
                let handle = own.get().and_then(WeakHandle::upgrade);
                handle.is_some_and(|handle| {
                    let _ = (handle.stats(), handle.outcomes());
                    trace.trace_id().to_bytes()[15] % 32 == 1 && !handle.keep(trace.trace_id())
                })
            })
        }
        None => Astracer::builder(),
    };
    let astracer = builder
        .with_sampler(load.sampler.parse().unwrap())
        .with_start(load.start)
        .with_dropped_spans(load.dropped_spans)
        .with_context_mode(load.context)
        .with_clock(clock)
        .with_observer(flows.clone())
        // So large that eight threads do not fill it while the exporter compares.
        .with_queue_bytes_max(256 << 20)
        .with_exporter(checker.clone())
        .build()
        .unwrap();
    own.set(astracer.handle.downgrade()).unwrap();
    let service = Arc::new(Service {
        load,
        dispatch: match load.base {
            Base::Registry => Dispatch::new(Registry::default().with(astracer.layer.clone())),
            Base::Subscriber => Dispatch::new(astracer.subscriber()),
        },
        traces: checker.0.clone(),
        places: (0..load.places).map(|_| Mutex::new(None)).collect(),
        clock: hand,
        astracer,
        numbers: AtomicU64::new(1),
        leaked: Mutex::default(),
        replaced: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    let work = |thread: u64| {
        let service = service.clone();
        std::thread::spawn(move || {
            let shuts_down = load.shuts_down && thread == 0;
            with_default(&service.dispatch.clone(), || service.work(seed ^ thread << 32, shuts_down))
        })
    };
    let threads: Vec<_> = (0..load.threads as u64).map(work).collect();
    while !threads.iter().all(|thread| thread.is_finished()) {
        if until.is_some_and(|until| Instant::now() >= until) {
            service.stop.store(true, Ordering::Relaxed);
        }
        seen(&service.astracer.handle.stats());
        std::thread::yield_now();
        if until.is_some() {
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }
    threads.into_iter().for_each(|thread| thread.join().expect("a thread panicked"));
    with_default(&service.dispatch, || {
        service.places.iter().for_each(|place| drop(place.lock().unwrap().take()))
    });
    let handle = &service.astracer.handle;
    if load.shuts_down {
        // The exporter's thread may still be counting.
        wait_until("the counts add up", || sums(&handle.stats()).iter().all(|(made, all)| made == all));
    } else {
        flush_while_it_proceeds(&service.astracer, seed);
    }
    let stats = handle.stats();
    let traces = service.traces.lock().unwrap();
    assert!(traces.lies.is_empty(), "seed {seed}, {load:?}:\n{}", traces.lies.join("\n"));
    let leaked = service.leaked.lock().unwrap().len() as u64;
    check(&stats, traces.exported, seed);
    let [wrong, panics] = [flows.wrong.load(Ordering::Relaxed), stats.observer_panics];
    assert_eq!((wrong, panics), (0, 0), "seed {seed}, {load:?}: numbers of other traces");
    if load.leak_one_in == 0 {
        // The registry itself fails to close some spans.
        let open = flows.spans.load(Ordering::Relaxed);
        let open_max = if matches!(load.base, Base::Registry) { 20 } else { 0 };
        assert!((0..=open_max).contains(&open), "seed {seed}, {load:?}: {open} spans have a number");
    }
    (stats, leaked)
}

/// Flushes again while the exporter makes progress. On a loaded machine the threads may leave the
/// exporter's thread so little time that several hundred thousand spans wait at their end. No fixed
/// timeout is enough for those.
fn flush_while_it_proceeds(Astracer { handle, .. }: &Astracer, seed: u64) {
    let mut before = handle.stats().spans_exported;
    while let Err(error) = handle.flush(TIMEOUT) {
        let stats = handle.stats();
        let proceeds = error.is_timeout() && stats.spans_exported > before;
        assert!(proceeds, "seed {seed}: {error}: {before} spans were exported before, now {stats:?}");
        before = stats.spans_exported;
    }
}

/// Checks made = exported + lost + open + held + given up, for spans and for traces. Only ended
/// spans of undecided traces may wait: the registry never ends the roots of some of these, and a
/// flush does not decide them.
fn check(stats: &Stats, exported: u64, seed: u64) {
    assert_eq!(stats.spans_exported, exported, "seed {seed}");
    assert!(stats.spans_waiting == 0 || stats.tail.traces_open > 0, "seed {seed}: {stats:?}");
    for (made, all) in sums(stats) {
        assert_eq!(made, all, "seed {seed}: {stats:?}");
    }
}

impl Service {
    fn work(&self, seed: u64, shuts_down: bool) {
        let mut random = SplitMix::new(seed);
        let mut inside: Vec<(EnteredSpan, u64)> = Vec::new();
        let mut rounds = 0;
        while rounds < self.load.rounds && !self.stop.load(Ordering::Relaxed) {
            rounds += 1;
            self.clock.advance(self.load.round);
            if shuts_down && rounds == self.load.rounds / 2 {
                let _ = self.astracer.handle.shutdown(TIMEOUT);
            }
            self.round(&mut random, &mut inside);
            self.look(&inside);
        }
        while let Some(last) = inside.pop() {
            drop(last);
            self.look(&inside);
        }
    }

    fn round(&self, random: &mut SplitMix, inside: &mut Vec<(EnteredSpan, u64)>) {
        let place = &self.places[random.index(self.places.len())];
        match random.index(12) {
            0 | 1 => {
                let number = self.numbers.fetch_add(1, Ordering::Relaxed);
                let span = if random.one_in(2) {
                    info_span!(parent: None, "root", request = number)
                } else {
                    info_span!(parent: None, "root", otel.kind = "server", request = number)
                };
                self.put(place, Handle { span, number });
            }
            2..5 => {
                let Some(parent) = self.take(place) else { return };
                let number = parent.number;
                let span = info_span!(parent: &parent.span, "child", request = number);
                drop(parent);
                let elsewhere = &self.places[random.index(self.places.len())];
                self.put(elsewhere, Handle { span, number });
            }
            5..8 if inside.len() < 8 => {
                let Some(Handle { span, number }) = self.take(place) else { return };
                if !span.is_disabled() {
                    inside.push((span.entered(), number));
                }
            }
            8 => {
                let Some((_, number)) = inside.last() else { return };
                let number = *number;
                let span = info_span!("contextual", request = number);
                self.put(place, Handle { span, number });
            }
            9 | 10 => {
                if !inside.is_empty() {
                    // Mostly the last one.
                    let back = if random.one_in(4) { random.index(inside.len()) } else { 0 };
                    let id = inside[inside.len() - 1 - back].0.id();
                    // A span that was entered twice exits its last entry.
                    if let Some(at) = inside.iter().rposition(|(span, _)| span.id() == id) {
                        drop(inside.remove(at));
                    }
                }
            }
            _ => {
                if self.load.late.is_some() && random.one_in(8) {
                    let number = inside.last().map(|(_, number)| *number);
                    self.traces.lock().unwrap().failed.extend(number);
                    error!("a failure");
                } else if self.load.late.is_some() && random.one_in(8) {
                    self.meddle(random);
                } else {
                    info!("an event");
                }
                let old = place.lock().unwrap().take();
                drop(old);
            }
        }
    }

    /// Reads statistics, requests traces, flushes and changes settings.
    fn meddle(&self, random: &mut SplitMix) {
        let handle = &self.astracer.handle;
        match random.index(7) {
            0 => drop((handle.stats(), handle.outcomes())),
            1 => handle.set_sampler(&self.load.sampler.parse().unwrap()),
            2 if random.one_in(8) => drop(handle.flush(TIMEOUT)),
            3 => _ = handle.keep_where(|trace| trace.trace_id().to_bytes()[15] % 16 == 3),
            4 => _ = handle.keep_for_caller(&format!("{:032x}", u128::from(random.next()) | 1 << 100)),
            5 => handle.arm_all(Duration::from_secs(1)),
            _ => _ = handle.keep(Context::map_current(|cx| cx.span().span_context().trace_id())),
        }
    }

    /// A clone of the handle in a place.
    fn take(&self, place: &Mutex<Option<Handle>>) -> Option<Handle> {
        let handle = place.lock().unwrap().clone();
        handle.filter(|handle| !handle.span.is_disabled())
    }

    /// Stores a handle. The previous one is dropped or leaked.
    fn put(&self, place: &Mutex<Option<Handle>>, handle: Handle) {
        let old = place.lock().unwrap().replace(handle);
        if self.load.leak_one_in != 0
            && let Some(old) = old
            && self.replaced.fetch_add(1, Ordering::Relaxed) % self.load.leak_one_in
                == self.load.leak_one_in / 2
        {
            self.leaked.lock().unwrap().push(old);
        }
    }

    /// Checks that the current context is in the trace of the span that the thread entered last.
    fn look(&self, inside: &[(EnteredSpan, u64)]) {
        // After the shutdown no context is made current.
        if self.load.context == ContextMode::Off || self.load.shuts_down {
            return;
        }
        let id = Context::map_current(|cx| cx.span().span_context().trace_id());
        let mut traces = self.traces.lock().unwrap();
        match inside.last() {
            Some((_, number)) => {
                traces.check(*number, id, "current");
            }
            None if id != TraceId::INVALID => traces.lies.push(format!("outside of all spans: {id}")),
            None => {}
        }
    }
}
