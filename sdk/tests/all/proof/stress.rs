//! Concurrent threads: what must hold whatever the order of events.
//!
//! Each trace has a number, which every one of its spans carries as an attribute. So the checks
//! need no knowledge of the order: inside any span the current trace is the one with that span's
//! number; every exported span is in the trace of its number, below a span that exists, and is
//! exported once; and the counts add up.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use astracer_sdk::{Astracer, Clock, ContextMode, DroppedSpans, ManualClock, ProvisionalMode, Stats, Tail};
use astracer_testing::SplitMix;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, SpanId, TraceId, Value};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tracing::dispatcher::with_default;
use tracing::span::EnteredSpan;
use tracing::{Dispatch, Span, error, info, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::support::{Base, TIMEOUT, start};

/// The traces by number.
#[derive(Debug, Default)]
struct Traces {
    of: HashMap<u64, Trace>,
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
        let trace = self.of.entry(number).or_insert_with(|| Trace { id, spans: HashSet::new() });
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
            let request = span.attributes.iter().find(|pair| pair.key.as_str() == "request");
            let number = match request.map(|pair| &pair.value) {
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
            if !is_new {
                traces.lies.push(format!("span {} of request {number} is exported again", ids.span_id()));
            }
            if (span.parent_span_id == SpanId::INVALID) != (span.name == "root") {
                traces.lies.push(format!("{} of request {number} in {}", span.name, span.parent_span_id));
            }
        }
        Ok(())
    }
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

/// The state at the end of a run.
#[derive(Debug)]
pub(crate) struct RunResult {
    pub(crate) stats: Stats,
    pub(crate) leaked: u64,
}

/// Runs a load and checks everything that must hold. `until` ends it before its rounds are over.
/// `seen` receives the counts now and then.
pub(crate) fn run(seed: u64, load: Load, until: Option<Instant>, seen: &mut dyn FnMut(&Stats)) -> RunResult {
    let (clock, hand) = Clock::manual(start());
    let checker = Checker::default();
    let builder = match load.late {
        Some(policies) => Astracer::builder()
            .with_tail(policies.parse::<Tail>().unwrap().with_provisional(ProvisionalMode::Always)),
        None => Astracer::builder(),
    };
    let astracer = builder
        .with_sampler(load.sampler.parse().unwrap())
        .with_dropped_spans(load.dropped_spans)
        .with_context_mode(load.context)
        .with_clock(clock)
        // So large that eight threads do not fill it while the exporter compares.
        .with_queue_bytes_max(256 << 20)
        .with_exporter(checker.clone())
        .build()
        .unwrap();
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
            with_default(&service.dispatch.clone(), || service.work(seed ^ thread << 32))
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
    flush_while_it_proceeds(&service.astracer, seed);
    let stats = service.astracer.handle.stats();
    let traces = service.traces.lock().unwrap();
    assert!(traces.lies.is_empty(), "seed {seed}, {load:?}:\n{}", traces.lies.join("\n"));
    let leaked = service.leaked.lock().unwrap().len() as u64;
    check(&stats, traces.exported, seed);
    RunResult { stats, leaked }
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
    let Stats { spans_made, spans_exported, spans_open, spans_waiting, .. } = *stats;
    assert_eq!(spans_exported, exported, "seed {seed}");
    let late = &stats.tail;
    assert!(spans_waiting == 0 || late.traces_open > 0, "seed {seed}: {stats:?}");
    let spans = spans_exported + stats.spans_lost.total() + spans_open + spans_waiting;
    let spans = spans + late.spans_held + late.spans_given_up.total();
    assert_eq!(spans_made, spans, "seed {seed}: {stats:?}");
    let traces = stats.traces_exported + stats.traces_lost.total() + stats.traces_open;
    let traces = traces + late.traces_held + late.traces_given_up.total();
    assert_eq!(stats.traces_made, traces, "seed {seed}: {stats:?}");
}

impl Service {
    fn work(&self, seed: u64) {
        let mut random = SplitMix::new(seed);
        let mut inside: Vec<(EnteredSpan, u64)> = Vec::new();
        let mut rounds = 0;
        while rounds < self.load.rounds && !self.stop.load(Ordering::Relaxed) {
            rounds += 1;
            self.clock.advance(self.load.round);
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
                    error!("a failure");
                } else {
                    info!("an event");
                }
                let old = place.lock().unwrap().take();
                drop(old);
            }
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
        if self.load.context == ContextMode::Off {
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
