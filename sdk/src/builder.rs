//! The builder of a layer, a sampler and a handle.

mod sampling;
mod tail;

pub(crate) use self::sampling::default_sampler;

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use astracer_samplers::tail::{Limits as TailLimits, Tail, TailSampler};
use astracer_samplers::{Budget, Cap, Config, Limits, Nanos, RandomSource, Sampler, Stratified};
use opentelemetry::InstrumentationScope;
use opentelemetry::propagation::TextMapCompositePropagator;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{IdGenerator, SpanExporter};

use crate::byte_cap::ByteCapped;
use crate::clock::Clock;
use crate::core::{Core, Shared};
use crate::decider::{Decider, Extras, ParentDecision};
use crate::export::{
    Converter, Counting, CountingExporter, Export, Plain, Queue, SharedExporter, Upkeep, Worker, Workers,
};
use crate::fault::{Fault, OnFault};
use crate::handle::Handle;
use crate::housekeeping::{self, Chores, Housekeeping};
use crate::ids::Ids;
use crate::key::Key;
use crate::layer::AstracerLayer;
use crate::propagation::Propagator;
use crate::sampler::AstracerSampler;
use crate::settings::{ContextMode, DroppedSpans, Settings, SpanLimits, Start, WhenFull};
use crate::stats::Counters;
use crate::steering::{Spending, Steering};
use crate::subscriber::AstracerSubscriber;
use crate::sync::AtomicUsize;
use crate::tail::{Keeper, Own};
use crate::why::Why;

/// The parts that a service adds: a layer, a sampler and a handle, made by one [`Builder`]. They
/// share one decider.
///
/// A clone has a layer with a table of spans of its own, some 64 KiB: what is cloned for each
/// request is the handle.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Astracer {
    /// For `tracing_subscriber`.
    pub layer: AstracerLayer,
    /// For `SdkTracerProvider`, where code uses the OpenTelemetry API.
    pub sampler: AstracerSampler,
    /// Stats, flush, shutdown.
    pub handle: Handle,
    propagators: Vec<Propagator>,
}

impl Astracer {
    /// A builder with the defaults: bump with lambda 10, minimum 0.01 and a window of a second,
    /// keyed by the template of the root's name.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A base subscriber, which takes the place of a registry with the layer on it.
    pub fn subscriber(&self) -> AstracerSubscriber {
        AstracerSubscriber::new(&self.layer)
    }

    /// The propagator, for `opentelemetry::global::set_text_map_propagator` and for middleware. It
    /// propagates even if recording is switched off.
    pub fn propagator(&self) -> TextMapCompositePropagator {
        Propagator::composite(&self.propagators)
    }
}

/// The settings of an [`Astracer`].
#[must_use]
pub struct Builder {
    enabled: bool,
    sampler: Config,
    sampler_limits: Limits,
    cap: Cap,
    budget: Option<Budget>,
    /// Those of the code, for which a parameters file's may stand.
    own_cap: Cap,
    own_budget: Option<Budget>,
    explained: usize,
    chores: Chores,
    #[cfg(feature = "polling")]
    polled: Option<crate::polling::Client>,
    random: RandomSource,
    key: Key,
    parents: ParentDecision,
    sampling_attributes: bool,
    propagators: Vec<Propagator>,
    on_fault: OnFault,
    faults: Vec<Fault>,
    clock: Option<Clock>,
    ids: Ids,
    resource: Option<Resource>,
    /// `None`: ours.
    scope: Option<InstrumentationScope>,
    settings: Settings,
    exporter: Option<Box<dyn Export>>,
    tail: Tail,
    #[cfg(feature = "parameters")]
    file_tail: Tail,
    own_policies: Vec<Own>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            enabled: true,
            sampler: default_sampler(),
            sampler_limits: Limits::default(),
            cap: Cap::none(),
            budget: None,
            own_cap: Cap::none(),
            own_budget: None,
            explained: 0,
            chores: Chores::default(),
            #[cfg(feature = "polling")]
            polled: None,
            random: RandomSource::default(),
            key: Key::default(),
            parents: ParentDecision::default(),
            sampling_attributes: false,
            propagators: Propagator::DEFAULT.to_vec(),
            on_fault: OnFault::default(),
            faults: Vec::new(),
            clock: None,
            ids: Ids::default(),
            resource: None,
            scope: None,
            settings: Settings::default(),
            exporter: None,
            tail: Tail::default(),
            #[cfg(feature = "parameters")]
            file_tail: Tail::default(),
            own_policies: Vec::new(),
        }
    }
}

impl Builder {
    /// The sampler; `bump:lambda=10,min=0.01,window=1s` by default.
    pub fn with_sampler(mut self, sampler: Config) -> Self {
        self.sampler = sampler;
        self
    }

    /// Whether the decision of a parent in another process holds; it does by default.
    pub fn with_parent_decision(mut self, parents: ParentDecision) -> Self {
        self.parents = parents;
        self
    }

    /// The formats in which context travels from process to process; W3C Trace Context and Baggage
    /// by default. The service has to make them known:
    /// `opentelemetry::global::set_text_map_propagator(astracer.propagator())`.
    pub fn with_propagators(mut self, propagators: impl Into<Vec<Propagator>>) -> Self {
        self.propagators = propagators.into();
        self
    }

    /// The reaction to settings from the environment or a file that cannot be used;
    /// [`OnFault::Refuse`] by default.
    pub fn with_on_fault(mut self, on_fault: OnFault) -> Self {
        self.on_fault = on_fault;
        self
    }

    /// The settings so far that cannot be used. The service should log those that
    /// [`OnFault::UseDefault`] passes over.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    pub(crate) fn current_resource(&self) -> Option<&Resource> {
        self.resource.as_ref()
    }

    pub(crate) fn current_span_limits(&self) -> SpanLimits {
        self.settings.limits
    }

    /// The key by which local roots are counted; the template of the name by default.
    pub fn with_key(mut self, key: impl Into<Key>) -> Self {
        self.key = key.into();
        self
    }

    /// The exporter of kept traces: any of `opentelemetry_sdk`. It is called on a thread of its
    /// own, without an asynchronous runtime. Without an exporter the layer does nothing, and
    /// [`build`](Self::build) warns; the sampler decides all the same.
    pub fn with_exporter(mut self, exporter: impl SpanExporter + 'static) -> Self {
        self.exporter = Some(Box::new(Plain(exporter)));
        self
    }

    /// As [`with_exporter`](Self::with_exporter), for an exporter that tells what became of each
    /// batch: losses are counted by their true reason, rejections in part are seen, and
    /// [`Stats::waiting`](crate::Stats::waiting) has the reason of an outage.
    pub fn with_counting_exporter(mut self, exporter: impl CountingExporter + 'static) -> Self {
        self.exporter = Some(Box::new(Counting(exporter)));
        self
    }

    /// The resource that is exported with every span; by default the one that `Resource::builder()`
    /// finds in the environment.
    pub fn with_resource(mut self, resource: Resource) -> Self {
        self.resource = Some(resource);
        self
    }

    /// The instrumentation scope of every span; `astracer` by default.
    pub fn with_scope(mut self, scope: InstrumentationScope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// Whether other layers see spans below a dropped root; they do by default.
    pub fn with_dropped_spans(mut self, spans: DroppedSpans) -> Self {
        self.settings.dropped_spans = spans;
        self
    }

    /// The content of OpenTelemetry's current context inside spans; the span itself by default.
    pub fn with_context_mode(mut self, mode: ContextMode) -> Self {
        self.settings.context = mode;
        self
    }

    /// The moment at which spans start; as late as their parent may be set, by default.
    pub fn with_start(mut self, start: Start) -> Self {
        self.settings.start = start;
        self
    }

    /// Limits on the parts of a span.
    pub fn with_span_limits(mut self, limits: SpanLimits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Adds the file, module and line to spans and events; on by default.
    pub fn with_location(mut self, with: bool) -> Self {
        self.settings.extras.location = with;
        self
    }

    /// Adds the thread that a span began on; on by default.
    pub fn with_threads(mut self, with: bool) -> Self {
        self.settings.extras.threads = with;
        self
    }

    /// Adds the level to spans; off by default. Events always have it.
    pub fn with_level(mut self, with: bool) -> Self {
        self.settings.extras.level = with;
        self
    }

    /// Adds the target to spans; on by default. Events always have it.
    pub fn with_target(mut self, with: bool) -> Self {
        self.settings.extras.target = with;
        self
    }

    /// Adds the time during which a span was entered (`busy_ns`) and was not (`idle_ns`), but not
    /// to spans that OpenTelemetry's API ended; on by default. Without it, entering and leaving a
    /// kept span is cheaper by two atomic operations and a reading of the clock.
    pub fn with_tracked_inactivity(mut self, with: bool) -> Self {
        self.settings.extras.inactivity = with;
        self
    }

    /// Sets `exception.message` and `exception.stacktrace` beside a field that holds an error; on
    /// by default.
    pub fn with_error_fields_to_exceptions(mut self, with: bool) -> Self {
        self.settings.conventions.error_fields_to_exceptions = with;
        self
    }

    /// Sets the same on the span for an error in a field of an event; on by default.
    pub fn with_error_records_to_exceptions(mut self, with: bool) -> Self {
        self.settings.conventions.error_records_to_exceptions = with;
        self
    }

    /// Names an event `exception` that has no message and a field `error`; on by default.
    pub fn with_error_events_to_exceptions(mut self, with: bool) -> Self {
        self.settings.conventions.error_events_to_exceptions = with;
        self
    }

    /// Makes such an event the description of the span's status; on by default.
    pub fn with_error_events_to_status(mut self, with: bool) -> Self {
        self.settings.conventions.error_events_to_status = with;
        self
    }

    /// The bytes that open spans take: their table, their attributes, and ended spans that wait for
    /// the rest of their trace; 128 MiB by default. That is room for 100,000 open spans, whatever
    /// attributes they have.
    ///
    /// The table grows when it has to, by doubling, and stays: like the registry, it is as large as
    /// the most spans that were ever open at once, 192 bytes for each. It may take all of the
    /// bytes. Spans for which there is no room are lost, and counted in [`Losses::open_spans`].
    /// Attributes, events and links leave a quarter of the bytes to the table; those for which
    /// there is no room are cut, and counted on their span and in [`Stats::parts_cut`]. Ended spans
    /// wait for their trace while less than half of the bytes is taken, and else are exported at
    /// once.
    ///
    /// [`Losses::open_spans`]: crate::Losses::open_spans
    /// [`Stats::parts_cut`]: crate::Stats::parts_cut
    pub fn with_open_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.bounds.open_bytes = bytes;
        self
    }

    /// The age after which a trace's ended spans are exported though its local root is open; 30
    /// seconds by default. From then on its spans are exported one by one as they end.
    pub fn with_trace_age_max(mut self, age: Duration) -> Self {
        self.settings.bounds.trace_age = age;
        self
    }

    /// The number of traces whose ended spans are gathered until the local root ends; 16,384 by
    /// default. Spans of further traces are exported one by one as they end.
    pub fn with_open_traces_max(mut self, traces: u32) -> Self {
        self.settings.bounds.open_traces = traces;
        self
    }

    /// The number of ended spans that a trace gathers; 1,024 by default. At that number they are
    /// exported, ahead of the rest.
    pub fn with_spans_per_trace_max(mut self, spans: u32) -> Self {
        self.settings.bounds.spans_per_trace = spans.max(1);
        self
    }

    /// The bytes that may wait for the exporter; 32 MiB by default. Small traces gather before they
    /// count, which takes a mebibyte or two more.
    pub fn with_queue_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.bounds.queue_bytes = bytes;
        self
    }

    /// The traces that may wait for the exporter; 1,048,576 by default. A part of a trace that
    /// leaves by itself counts as one.
    pub fn with_queue_traces_max(mut self, traces: usize) -> Self {
        self.settings.bounds.queue_traces = traces;
        self
    }

    /// The reaction to ended traces when the queue is full: new ones are shed by default.
    pub fn with_when_full(mut self, when_full: WhenFull) -> Self {
        self.settings.bounds.when_full = when_full;
        self
    }

    /// The exports that may be under way at the same time, each on a thread of its own. By default
    /// 1, because OpenTelemetry allows exporters to rely on it; but what a [`CountingExporter`]
    /// says, which is 4 for the senders of astracer-exporters. One alone waits for each answer, and
    /// sends little while the service floods it. Batches may arrive in another order than they were
    /// made in; after an outage the oldest is sent first.
    pub fn with_exports_in_flight(mut self, exports: usize) -> Self {
        self.settings.bounds.in_flight = Some(exports);
        self
    }

    /// The number of spans with which a batch is exported; 512 by default. A trace is not divided.
    pub fn with_batch_spans(mut self, spans: usize) -> Self {
        self.settings.bounds.batch_spans = spans.max(1);
        self
    }

    /// The longest time that an ended trace waits for a batch to fill; a second by default.
    pub fn with_batch_delay(mut self, delay: Duration) -> Self {
        self.settings.bounds.batch_delay = delay;
        self
    }

    /// The source of trace and span ids; random by default. The low 56 bits of a trace id serve as
    /// the trace's randomness. If it panics or gives an id of zeros, the span gets a random id, and
    /// so does a span that it makes itself.
    ///
    /// Traces with its ids do not have W3C's flag `random`: see
    /// [`with_random_id_generator`](Self::with_random_id_generator).
    pub fn with_id_generator(mut self, ids: impl IdGenerator + 'static) -> Self {
        self.ids = Ids::Custom { ids: Arc::new(ids), is_random: false };
        self
    }

    /// As [`with_id_generator`](Self::with_id_generator), for a generator that promises that the
    /// low 56 bits of its trace ids are random: its traces have W3C's flag `random`, as those with
    /// the default ids do.
    pub fn with_random_id_generator(mut self, ids: impl IdGenerator + 'static) -> Self {
        self.ids = Ids::Custom { ids: Arc::new(ids), is_random: true };
        self
    }

    /// The clock; the machine's by default.
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Switches everything off or on: switched off, the layer, the sampler and the handle are there
    /// and do nothing, and the propagators propagate. Another tracer provider that has the sampler
    /// drops all of its traces then, and says so to those whom it calls: they drop their parts of
    /// traces that callers keep.
    pub fn with_enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Builds, and starts the exporter's thread.
    ///
    /// # Errors
    ///
    /// If a setting from the environment or a file cannot be used, unless [`OnFault::UseDefault`]
    /// was asked for; or if the thread cannot be started.
    pub fn build(mut self) -> Result<Astracer, BuildError> {
        self.check_policies();
        if self.on_fault == OnFault::Refuse && !self.faults.is_empty() {
            return Err(BuildError { kind: Kind::Faults(std::mem::take(&mut self.faults)) });
        }
        if !cfg!(feature = "enabled") || !self.enabled {
            return Ok(Astracer {
                layer: AstracerLayer::new(None),
                sampler: AstracerSampler::new(None),
                handle: Handle::new(None, None),
                // "This setting has no effect on propagators" (OpenTelemetry specification,
                // OTEL_SDK_DISABLED).
                propagators: self.propagators,
            });
        }
        let clock = self.clock.unwrap_or_default();
        let counters = Arc::new(Counters::default());
        let sampler = Sampler::with_cap(&self.sampler, self.sampler_limits, &self.cap);
        let resource = self.resource.unwrap_or_else(|| Resource::builder().build());
        let key = self.key.with_resource(&resource);
        let stratified = (self.random == RandomSource::Stratified).then(|| {
            // The standard library seeds its hashers from the operating system.
            let secret = RandomState::new().hash_one(std::process::id());
            Stratified::new(secret, self.sampler_limits)
        });
        let base = match &self.chores.snapshot {
            Some(path) => housekeeping::warm_start(&sampler, path),
            None => Nanos::ZERO,
        };
        let tail = (self.tail != Tail::default())
            .then(|| Arc::new(TailSampler::new(&self.tail, TailLimits::default())));
        let extras = Extras {
            tail: tail.clone(),
            #[cfg(feature = "parameters")]
            policies: [self.tail.clone(), self.file_tail],
            base,
            stratified,
            describes: self.sampling_attributes,
            why: (self.explained > 0).then(|| Why::new(self.explained)),
        };
        let decider = Arc::new(Decider::new(sampler, key, self.parents, clock.clone(), extras));
        let queue = Arc::new(Queue::new(self.settings.bounds, counters.clone()));
        let held =
            if self.tail == Tail::default() { IDLE_MAX } else { Duration::from_nanos(self.tail.hold.get()) };
        let idle = self.settings.bounds.trace_age.min(held).clamp(IDLE_MIN, IDLE_MAX);
        let settings = self.settings;
        let reasons = tail.as_deref().map(Keeper::reasons).unwrap_or_default();
        let converter = || Converter::new(clock.clone(), &settings, self.scope.clone(), Arc::clone(&reasons));
        let keeper = tail.map(|sampler| {
            let asked = (&settings.bounds, decider.why().is_some());
            let parts = tail::parts(&self.tail, self.own_policies, sampler, &clock, asked);
            Keeper::new(parts, clock.clone(), counters.clone())
        });
        let has_budget = self.budget.is_some();
        let now = decider.now();
        let spending = self.budget.map(|budget| Spending::new((budget, self.own_budget), self.sampler, now));
        let spent = spending.as_ref().map(Spending::spent);
        let steering = Steering::new(spending, self.own_cap);
        let shared = Shared::new(
            settings,
            decider.clone(),
            counters.clone(),
            queue.clone(),
            self.ids,
            keeper,
            steering,
        );
        let exporter = self.exporter.map(|mut exporter| {
            exporter.set_resource(&resource);
            SharedExporter::new(Box::new(ByteCapped::new(exporter, decider.clone(), spent)))
        });
        if let Some(exporter) = exporter.clone() {
            let upkeep: Arc<dyn Upkeep> = shared.clone();
            let in_flight = settings.bounds.in_flight.unwrap_or_else(|| exporter.in_flight());
            let in_flight = in_flight.clamp(1, EXPORTS_MAX);
            let workers = Arc::new(Workers {
                queue: queue.clone(),
                counters: counters.clone(),
                exporter,
                upkeep: Arc::downgrade(&upkeep),
                idle,
                running: AtomicUsize::new(in_flight),
            });
            for _ in 0..in_flight {
                let worker = Worker { workers: workers.clone(), converter: converter() };
                let thread = std::thread::Builder::new().name("astracer-export".to_owned());
                // Threads that were started end with the queue, which closes when `shared` is
                // dropped.
                thread
                    .spawn(move || worker.run())
                    .map_err(|error| BuildError { kind: Kind::Thread(error) })?;
            }
        } else {
            tracing::warn!("astracer has no exporter: the layer records nothing; call `with_exporter`");
            queue.close();
            queue.ended();
        }
        let housekeeping = (has_budget || !self.chores.is_empty()).then(|| Housekeeping::new(self.chores));
        if let Some(housekeeping) = housekeeping.clone() {
            let weak = Arc::downgrade(&shared);
            let thread = std::thread::Builder::new().name("astracer-keeper".to_owned());
            let spawned = thread.spawn(move || housekeeping.run(&weak));
            spawned.map_err(|error| BuildError { kind: Kind::Thread(error) })?;
        }
        let handle = Handle::new(Some(shared.clone()), exporter.clone());
        let handle = handle.with_housekeeping(housekeeping).with_resource(resource);
        #[cfg(feature = "polling")]
        let handle = match self.polled {
            Some(client) => {
                let handle = handle.with_poller(crate::polling::Poller::new(client));
                handle.poll().map_err(|error| BuildError { kind: Kind::Thread(error) })?;
                handle
            }
            None => handle,
        };
        Ok(Astracer {
            layer: AstracerLayer::new(exporter.is_some().then(|| Core::new(shared))),
            sampler: AstracerSampler::new(Some((decider, counters))),
            handle,
            propagators: self.propagators,
        })
    }
}

/// More threads would wait for each other.
const EXPORTS_MAX: usize = 64;

/// The exporter's thread looks for old traces at least, and at most, so often.
const IDLE_MIN: Duration = Duration::from_millis(100);
const IDLE_MAX: Duration = Duration::from_secs(60);

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("enabled", &self.enabled)
            .field("sampler", &self.sampler)
            .field("key", &self.key)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// The reason why nothing could be built.
#[derive(Debug)]
pub struct BuildError {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Faults(Vec<Fault>),
    Thread(io::Error),
}

impl BuildError {
    /// The settings that cannot be used.
    pub fn faults(&self) -> &[Fault] {
        match &self.kind {
            Kind::Faults(faults) => faults,
            Kind::Thread(_) => &[],
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Faults(faults) => {
                for (at, fault) in faults.iter().enumerate() {
                    write!(f, "{}{fault}", if at == 0 { "" } else { "; " })?;
                }
                Ok(())
            }
            Kind::Thread(error) => write!(f, "cannot start the exporter's thread: {error}"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            Kind::Faults(faults) => faults.first().map(|fault| fault as &(dyn std::error::Error + 'static)),
            Kind::Thread(error) => Some(error),
        }
    }
}
