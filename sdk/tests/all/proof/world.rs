//! The subscribers that a program runs on, with one interface: with our layer,
//! tracing-opentelemetry's, or the reference.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use astracer_samplers::Nanos;
use astracer_sdk::{Astracer, Clock, ManualClock, Stats, Tail};
use astracer_testing::sums;
use opentelemetry::propagation::{Injector, TextMapCompositePropagator, TextMapPropagator as _};
use opentelemetry::trace::{
    SpanContext, SpanKind, Status, TraceContextExt as _, TraceState, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue, SpanId, TraceId};
use opentelemetry_sdk::trace::{
    IdGenerator, RandomIdGenerator, SamplingDecision, SamplingResult, SdkTracer, SdkTracerProvider,
    ShouldSample,
};
use tracing::{Dispatch, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

use super::compare::{Link, Mention, Record, SeenContext};
use super::flows::{Call, Flows};
use super::late::Late;
use super::reference::{Book, Reference};
use super::setup::{ByteBounds, Counts, Filter, KeyCounts, Kind, Made, Setup, Waiting};
use crate::support::{Collector, TIMEOUT, start};

/// Ids of which none belongs to the share of 1 in 1,024 that is always recorded. All have the
/// highest randomness, so that a budget admits each trace while it lasts.
#[derive(Debug, Default)]
struct UnluckyIds(RandomIdGenerator);

impl IdGenerator for UnluckyIds {
    fn new_trace_id(&self) -> TraceId {
        TraceId::from(u128::from_be_bytes(self.0.new_trace_id().to_bytes()) | ((1 << 56) - 1))
    }

    fn new_span_id(&self) -> SpanId {
        self.0.new_span_id()
    }
}

/// The clock's advance with each step.
const STEP: Duration = Duration::from_micros(1);

pub(crate) struct World {
    pub(crate) dispatches: Vec<Dispatch>,
    pub(crate) subject: Subject,
    pub(crate) setup: Setup,
    kind: Kind,
    propagator: TextMapCompositePropagator,
    steps: AtomicU64,
}

pub(crate) enum Subject {
    Stock { collector: Collector, _provider: SdkTracerProvider },
    Ours { astracer: Astracer, collector: Collector, clock: ManualClock, bridge: bool, flows: Flows },
    Reference { book: Arc<Mutex<Book>> },
}

impl World {
    /// The layer of this kind that programs check.
    pub(crate) fn of_kind(setup: Setup, kind: Kind) -> World {
        match kind {
            Kind::Layer | Kind::Subscriber => World::ours(setup, kind),
            Kind::Stock => World::stock(setup),
        }
    }

    fn ours(setup: Setup, kind: Kind) -> World {
        let (clock, hand) = Clock::manual(start());
        let collector = Collector::default();
        let sampler = match setup.keep_every {
            0 => "never".to_owned(),
            1 => "always".to_owned(),
            n => format!("every:{n}"),
        };
        let Waiting { open_traces, spans_per_trace, trace_age } = setup.waiting;
        let mut builder = Astracer::builder()
            .with_open_traces_max(open_traces)
            .with_spans_per_trace_max(spans_per_trace)
            .with_trace_age_max(trace_age);
        if let Some(ByteBounds { open_bytes, queue_bytes }) = setup.room {
            builder = builder.with_open_bytes_max(open_bytes).with_queue_bytes_max(queue_bytes);
        }
        if let Some(late) = &setup.late {
            let policies: Vec<&str> = late.policies.iter().map(|policy| policy.text).collect();
            let hold = match (late.holds, late.steps) {
                (false, _) => Nanos::ZERO,
                (true, None) => Nanos::from_secs(2),
                (true, Some(steps)) => Nanos::new((STEP * steps).as_nanos() as u64),
            };
            let tail = policies.join(",").parse::<Tail>().unwrap();
            let tail =
                tail.with_provisional(late.provisional).with_hold(hold).with_ring_bytes(late.ring_bytes);
            builder = builder
                .with_tail(tail)
                .with_own_policy("many", |trace| trace.spans().count() >= 3)
                .with_random_id_generator(UnluckyIds::default());
        }
        let flows = Flows::default();
        if setup.observed {
            builder = builder.with_observer(Arc::new(flows.clone()));
        }
        let astracer = builder
            .with_sampler(sampler.parse().unwrap())
            .with_dropped_spans(setup.dropped_spans)
            .with_context_mode(setup.context)
            .with_start(setup.start)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_clock(clock)
            .with_exporter(collector.clone())
            .build()
            .unwrap();
        let dispatch = |_| match (kind, setup.filter) {
            (Kind::Layer | Kind::Stock, filter) => on_registry!(astracer.layer.clone(), filter),
            (Kind::Subscriber, Filter::None) => Dispatch::new(astracer.subscriber()),
            // The filter is once a setting of the subscriber, and once a filter of its own.
            (Kind::Subscriber, _) if setup.bridge => {
                Dispatch::new(astracer.subscriber().with_max_level(LevelFilter::INFO))
            }
            (Kind::Subscriber, _) => Dispatch::new(astracer.subscriber().with_filter(LevelFilter::INFO)),
        };
        let dispatches = (0..setup.subscribers).map(dispatch).collect();
        let subject = Subject::Ours { astracer, collector, clock: hand, bridge: setup.bridge, flows };
        World::of(setup, kind, dispatches, subject)
    }

    fn of(setup: Setup, kind: Kind, dispatches: Vec<Dispatch>, subject: Subject) -> World {
        World {
            dispatches,
            subject,
            setup,
            kind,
            propagator: Astracer::builder().build().unwrap().propagator(),
            steps: AtomicU64::new(0),
        }
    }

    /// tracing-opentelemetry, with a sampler that decides at the same times as ours.
    fn stock(setup: Setup) -> World {
        let collector = Collector::default();
        let provider = SdkTracerProvider::builder()
            .with_sampler(Every { n: setup.keep_every, asked: Arc::default() })
            .with_simple_exporter(collector.clone())
            .build();
        let dispatches =
            (0..setup.subscribers).map(|_| on_registry!(stock_layer(&provider), setup.filter)).collect();
        World::of(setup, Kind::Stock, dispatches, Subject::Stock { collector, _provider: provider })
    }

    pub(crate) fn reference(setup: Setup, kind: Kind) -> World {
        let (layers, book) = Reference::new(setup, kind);
        let dispatches = layers.into_iter().map(|layer| on_registry!(layer, setup.filter)).collect();
        World::of(setup, kind, dispatches, Subject::Reference { book })
    }

    /// Advances the clock by one step. Returns the number of steps so far.
    pub(crate) fn tick(&self) -> u64 {
        let now = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        match &self.subject {
            Subject::Ours { clock, .. } => clock.advance(STEP),
            Subject::Reference { book } => book.lock().unwrap().now = now,
            // It uses the machine's clock.
            Subject::Stock { .. } => {}
        }
        now
    }

    /// The context as the process sees it, checked against the headers of a call.
    pub(crate) fn seen(&self, context: &Context) -> SeenContext {
        let mut headers = Headers::default();
        self.propagator.inject_context(context, &mut headers);
        let ids = SeenContext::parse(headers.0.get("traceparent").map(String::as_str));
        SeenContext::of(context, (ids, headers.0.remove("tracestate").unwrap_or_default()))
    }

    /// The spans exported since the last call.
    pub(crate) fn take_exported(&self) -> Vec<Record> {
        match &self.subject {
            Subject::Ours { astracer, collector, .. } => {
                astracer.handle.flush(TIMEOUT).unwrap();
                collector.take().iter().map(|span| Record::of(span, start(), STEP)).collect()
            }
            Subject::Stock { collector, .. } => {
                let origin = std::time::SystemTime::UNIX_EPOCH;
                collector
                    .take()
                    .iter()
                    .map(|span| Record::of(span, origin, Duration::from_nanos(1)))
                    .collect()
            }
            Subject::Reference { book } => std::mem::take(&mut book.lock().unwrap().exported),
        }
    }

    /// The counts of spans of kept traces, by the reference.
    pub(crate) fn made(&self) -> Made {
        match &self.subject {
            Subject::Reference { book } => book.lock().unwrap().counts(),
            Subject::Ours { .. } | Subject::Stock { .. } => Made::default(),
        }
    }

    /// The counts of recorded traces, after a check that every span and every trace is counted in
    /// one state. `None` without late keeping.
    pub(crate) fn counts(&self) -> Option<Counts> {
        match &self.subject {
            Subject::Reference { book } => book.lock().unwrap().late.as_ref().map(Late::counts),
            Subject::Stock { .. } => None,
            Subject::Ours { astracer, .. } => {
                let stats = astracer.handle.stats();
                let tail = &stats.tail;
                if tail.policies.is_empty() {
                    return None;
                }
                assert!(sums(&stats).iter().all(|(made, all)| made == all), "{stats:?}");
                let given_up = tail.spans_given_up.iter().zip(tail.traces_given_up.iter());
                let mut reasons = given_up.map(|((_, spans), (_, traces))| (spans, traces));
                Some(Counts {
                    held: (tail.spans_held, tail.traces_held),
                    given_up: std::array::from_fn(|_| reasons.next().unwrap()),
                    policies: tail.policies.iter().map(|policy| (policy.kept, policy.refused)).collect(),
                    kept_by_hand: tail.kept_by_hand,
                    not_there: tail.not_there,
                    traces_open: tail.traces_open,
                })
            }
        }
    }

    /// The observer's calls since the last time, sorted.
    pub(crate) fn calls(&self) -> Vec<Call> {
        match &self.subject {
            Subject::Ours { flows, .. } => flows.take(),
            Subject::Reference { book } => book.lock().unwrap().take_calls(),
            Subject::Stock { .. } => Vec::new(),
        }
    }

    /// The number of open spans, kept or dropped, by the reference.
    pub(crate) fn open_spans(&self) -> u64 {
        match &self.subject {
            Subject::Reference { book } => book.lock().unwrap().open_spans(),
            Subject::Ours { .. } | Subject::Stock { .. } => 0,
        }
    }

    /// Checks that the observer saw each span with its root's number, and none after its end.
    pub(crate) fn account_flows(&self, open: u64) -> Result<(), String> {
        let Subject::Ours { astracer, flows, .. } = &self.subject else { return Ok(()) };
        flows.account(open)?;
        let panics = astracer.handle.stats().observer_panics;
        if panics == 0 { Ok(()) } else { Err(format!("the observer panicked {panics} times")) }
    }

    /// Outcomes by key.
    pub(crate) fn outcomes(&self) -> BTreeMap<String, KeyCounts> {
        match &self.subject {
            Subject::Reference { book } => {
                book.lock().unwrap().late.as_ref().map(Late::outcomes).unwrap_or_default()
            }
            Subject::Stock { .. } => BTreeMap::new(),
            Subject::Ours { astracer, .. } => {
                let all = astracer.handle.outcomes().into_iter();
                all.map(|of| {
                    let counts = KeyCounts {
                        calls: of.calls,
                        errors: of.errors,
                        missed_errors: of.missed_errors,
                        missed_slow: of.missed_slow,
                    };
                    (of.key.unwrap_or_default(), counts)
                })
                .collect()
            }
        }
    }

    /// Calls `Handle::keep`. Returns 1 if the trace was found.
    pub(crate) fn keep(&self, trace: TraceId) -> u64 {
        if trace == TraceId::INVALID {
            return 0;
        }
        match &self.subject {
            Subject::Reference { book } => book.lock().unwrap().keep(trace),
            Subject::Stock { .. } => 0,
            Subject::Ours { astracer, .. } => u64::from(astracer.handle.keep(trace)),
        }
    }

    /// Keeps all held traces with a client's span. Returns their number.
    pub(crate) fn keep_where(&self) -> u64 {
        match &self.subject {
            Subject::Reference { book } => book.lock().unwrap().keep_where("client"),
            Subject::Stock { .. } => 0,
            Subject::Ours { astracer, .. } => {
                astracer.handle.keep_where(|trace| trace.spans().any(|span| span.name() == "client"))
            }
        }
    }

    pub(crate) fn arm_all(&self) {
        match &self.subject {
            Subject::Reference { book } => book.lock().unwrap().late.iter_mut().for_each(Late::arm_all),
            Subject::Stock { .. } => {}
            Subject::Ours { astracer, .. } => astracer.handle.arm_all(Duration::from_secs(60)),
        }
    }

    /// Checks exact accounting after a flush: every span that was made and has ended was exported,
    /// unless the layer was shut down before.
    pub(crate) fn account(&self, expected: Made) -> Result<(), String> {
        let Made { made, open, lost } = expected;
        let Subject::Ours { astracer, .. } = &self.subject else { return Ok(()) };
        let stats = astracer.handle.stats();
        let spans = (stats.spans_made, stats.spans_exported, stats.spans_open);
        let losses = (stats.spans_waiting, stats.spans_lost.total(), stats.spans_lost.shut_down);
        let [_, (_, traces)] = sums(&stats);
        let Stats { tail, .. } = &stats;
        let late = tail.spans_held + tail.spans_given_up.total();
        // Spans of an open recorded trace wait until its root ends.
        let gathered = stats.spans_waiting;
        if tail.traces_open == 0 && gathered > 0 {
            return Err(format!("{gathered} spans wait without an open trace\n{stats:?}"));
        }
        let losses = if tail.traces_open > 0 { (0, losses.1, losses.2) } else { losses };
        let is_exact = spans == (made, made - open - lost - late - gathered, open)
            && losses == (0, lost, lost)
            && stats.traces_made == traces;
        if is_exact && stats.traces_open <= open { Ok(()) } else { Err(format!("{expected:?}\n{stats:?}")) }
    }

    /// Checks the sums of `Stats` even if spans were lost: every span of a kept trace is counted in
    /// one state, and `exported` of them were exported.
    pub(crate) fn account_whatever_was_lost(&self, exported: u64) -> Result<(), String> {
        let Subject::Ours { astracer, .. } = &self.subject else { return Ok(()) };
        let stats = astracer.handle.stats();
        let is_exact = sums(&stats).iter().all(|(made, all)| made == all);
        if is_exact && stats.spans_exported == exported && stats.spans_waiting == 0 && stats.spans_open == 0 {
            Ok(())
        } else {
            Err(format!("{exported} spans were exported\n{stats:?}"))
        }
    }

    /// tracing-opentelemetry deadlocks if a span follows from itself.
    pub(crate) fn may_follow(&self, span: &Span, other: &Span) -> bool {
        self.kind.is_ours() || span.id() != other.id()
    }

    /// Whether a thread may enter a span again from inside another one. A new span then holds the
    /// last span but one in a registry, and the last one in our subscriber, which shows in the end
    /// of a span that was never entered.
    pub(crate) fn may_reenter(&self) -> bool {
        self.kind != Kind::Subscriber
    }

    pub(crate) fn shut_down(&self) {
        match &self.subject {
            Subject::Ours { astracer, .. } => astracer.handle.shutdown(TIMEOUT).unwrap(),
            Subject::Reference { book } => book.lock().unwrap().shut_down(),
            Subject::Stock { .. } => {}
        }
    }

    pub(crate) fn flush(&self) {
        if let Subject::Ours { astracer, .. } = &self.subject {
            astracer.handle.flush(TIMEOUT).unwrap();
        }
    }

    // The methods of the extension trait.

    pub(crate) fn set_parent(&self, span: &Span, parent: Context) -> Result<(), String> {
        match &self.subject {
            Subject::Stock { .. } | Subject::Ours { bridge: true, .. } => {
                tracing_opentelemetry::OpenTelemetrySpanExt::set_parent(span, parent)
                    .map_err(|error| format!("{error:?}"))
            }
            Subject::Ours { .. } => astracer_sdk::OpenTelemetrySpanExt::set_parent(span, parent)
                .map_err(|error| format!("{error:?}")),
            Subject::Reference { .. } => with_reference(span, |layer, id| {
                layer.set_parent(id, parent).map_err(|()| "AlreadyStarted".to_owned())
            })
            .unwrap_or(Err("SpanDisabled".to_owned())),
        }
    }

    pub(crate) fn context(&self, span: &Span) -> Context {
        match &self.subject {
            Subject::Stock { .. } | Subject::Ours { bridge: true, .. } => {
                tracing_opentelemetry::OpenTelemetrySpanExt::context(span)
            }
            Subject::Ours { .. } => astracer_sdk::OpenTelemetrySpanExt::context(span),
            Subject::Reference { .. } => with_reference(span, Reference::context).unwrap_or_default(),
        }
    }

    pub(crate) fn set_attribute(&self, span: &Span, key: &'static str, value: i64) {
        match &self.subject {
            Subject::Stock { .. } | Subject::Ours { bridge: true, .. } => {
                tracing_opentelemetry::OpenTelemetrySpanExt::set_attribute(span, key, value);
            }
            Subject::Ours { .. } => astracer_sdk::OpenTelemetrySpanExt::set_attribute(span, key, value),
            Subject::Reference { .. } => change(span, |record| {
                record.attributes.insert(key.to_owned(), value.to_string());
            }),
        }
    }

    pub(crate) fn set_status(&self, span: &Span, status: Status) {
        match &self.subject {
            Subject::Stock { .. } | Subject::Ours { bridge: true, .. } => {
                tracing_opentelemetry::OpenTelemetrySpanExt::set_status(span, status);
            }
            Subject::Ours { .. } => astracer_sdk::OpenTelemetrySpanExt::set_status(span, status),
            Subject::Reference { .. } => change(span, |record| record.raise(&status)),
        }
    }

    pub(crate) fn add_event(&self, span: &Span, name: &'static str, n: i64) {
        let pairs = vec![KeyValue::new("n", n)];
        match &self.subject {
            Subject::Stock { .. } | Subject::Ours { bridge: true, .. } => {
                tracing_opentelemetry::OpenTelemetrySpanExt::add_event(span, name, pairs);
            }
            Subject::Ours { .. } => astracer_sdk::OpenTelemetrySpanExt::add_event(span, name, pairs),
            Subject::Reference { .. } => change(span, |record| {
                let pairs = [("n".to_owned(), n.to_string())].into();
                record.events.push((name.to_owned(), pairs));
            }),
        }
    }

    pub(crate) fn add_link(&self, span: &Span, to: &SpanContext) {
        match &self.subject {
            Subject::Stock { .. } | Subject::Ours { bridge: true, .. } => {
                tracing_opentelemetry::OpenTelemetrySpanExt::add_link(span, to.clone());
            }
            Subject::Ours { .. } => astracer_sdk::OpenTelemetrySpanExt::add_link(span, to.clone()),
            Subject::Reference { .. } => change(span, |record| {
                record.links.push(Link { to: Mention::of(to), attributes: Default::default() });
            }),
        }
    }
}

fn with_reference<T>(span: &Span, f: impl FnOnce(&Reference, &tracing::Id) -> T) -> Option<T> {
    span.with_subscriber(|(id, dispatch)| Some(f(dispatch.downcast_ref::<Reference>()?, id))).flatten()
}

fn change(span: &Span, f: impl FnOnce(&mut Record)) {
    with_reference(span, |layer, id| layer.change(id, f));
}

/// A subscriber with the layer `$make`, generic over the subscriber type that the filter requires.
macro_rules! on_registry {
    ($make:expr, $filter:expr) => {
        match $filter {
            Filter::None => Dispatch::new(Registry::default().with($make)),
            Filter::OnLayer => {
                Dispatch::new(Registry::default().with(Idle).with($make.with_filter(LevelFilter::INFO)))
            }
            Filter::Beside => Dispatch::new(Registry::default().with($make).with(LevelFilter::INFO)),
        }
    };
}
use on_registry;

/// A layer without a filter: with it, a filter on the other layer alone does not disable spans.
struct Idle;

impl<S: Subscriber> Layer<S> for Idle {}

fn stock_layer<S>(provider: &SdkTracerProvider) -> OpenTelemetryLayer<S, SdkTracer>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    OpenTelemetryLayer::new(provider.tracer("stock"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
}

/// Keeps every nth trace that begins here, and follows parents' decisions.
#[derive(Clone, Debug)]
struct Every {
    n: u64,
    asked: Arc<AtomicU64>,
}

impl ShouldSample for Every {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        _: TraceId,
        _: &str,
        _: &SpanKind,
        _: &[KeyValue],
        _: &[opentelemetry::trace::Link],
    ) -> SamplingResult {
        let parent = parent.map(|parent| parent.span().span_context().clone());
        let (keep, trace_state) = match parent.filter(SpanContext::is_valid) {
            Some(parent) => (parent.is_sampled(), parent.trace_state().clone()),
            None => (
                self.n != 0 && self.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.n),
                decided(self.n),
            ),
        };
        let decision = if keep { SamplingDecision::RecordAndSample } else { SamplingDecision::Drop };
        SamplingResult { decision, attributes: Vec::new(), trace_state }
    }
}

/// The trace state of a trace that a sampler of every nth keeps: only one that keeps all knows its
/// probability.
pub(crate) fn decided(n: u64) -> TraceState {
    let pairs = (n == 1).then_some(("ot", "th:0"));
    TraceState::from_key_value(pairs).expect("a valid pair")
}

#[derive(Default)]
struct Headers(HashMap<String, String>);

impl Injector for Headers {
    fn set(&mut self, key: &str, value: String) {
        self.0.insert(key.to_owned(), value);
    }
}
