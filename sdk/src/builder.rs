//! Builds a layer, a sampler and a handle from settings.

mod build;
mod environment;
mod late;
mod sampling;

pub use self::build::BuildError;
use self::sampling::default_sampler;

use std::any::type_name;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use astracer_model::Destination;
use astracer_samplers::strata::Strata;
use astracer_samplers::tail::Tail;
use astracer_samplers::{Budget, Cap, Config, Limits, Probability, RandomSource};
use opentelemetry::propagation::TextMapCompositePropagator;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{IdGenerator, SpanExporter};

use crate::baggage_attributes::BaggageAttributes;
use crate::decider::ParentDecision;
use crate::fault::{Fault, OnFault, Origin};
use crate::foreign::Foreign;
use crate::handle::Handle;
use crate::housekeeping::Chores;
use crate::ids::Ids;
use crate::key::Key;
use crate::layer::AstracerLayer;
use crate::observer::Observer;
#[cfg(feature = "parameters")]
use crate::polling::Client;
use crate::propagation::{Propagator, Propagators};
use crate::sampler::AstracerSampler;
use crate::settings::{ContextMode, DroppedSpans, Settings, Start};
use crate::subscriber::AstracerSubscriber;
use astracer_spans::bounds::WhenQueueFull;
use astracer_spans::clock::Clock;
use astracer_spans::export::SharedDestination;
use astracer_spans::late::OwnPolicy;
use astracer_spans::record::SpanLimits;

/// The three parts that a service uses: a layer, a sampler and a handle. One [`Builder`] makes
/// them, and they share one decider.
///
/// Cloning this clones the layer, which allocates a span table of about 64 KiB. Code that needs a
/// copy per request should clone the handle.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Astracer {
    /// The layer for a `tracing_subscriber::Registry`.
    pub layer: AstracerLayer,
    /// The sampler for an `SdkTracerProvider`, if code uses the OpenTelemetry API.
    pub sampler: AstracerSampler,
    /// Counts, flush, shutdown, and changes while the service runs.
    pub handle: Handle,
    propagators: Propagators,
}

impl Astracer {
    /// Returns a builder with the defaults: the bump sampler with lambda 10, minimum rate 0.01 and
    /// a window of one second, keyed by the template of the root's name.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns a subscriber that replaces a registry with the layer on it. It shares this decider
    /// and exporter.
    pub fn subscriber(&self) -> AstracerSubscriber {
        AstracerSubscriber::new(&self.layer)
    }

    /// Returns the propagator, for `opentelemetry::global::set_text_map_propagator` and for
    /// middleware. It propagates even when recording is switched off.
    pub fn propagator(&self) -> TextMapCompositePropagator {
        self.propagators.composite()
    }
}

type MakeDestination = Box<dyn FnOnce(&Resource) -> Arc<SharedDestination> + Send + Sync>;

/// Settings of an [`Astracer`]; see [`Astracer::builder`].
#[derive(Default)]
#[must_use]
pub struct Builder {
    is_off: bool,
    reads_variables: bool,
    wants_no_exporter: bool,
    sampler: Option<Config>,
    sampler_limits: Limits,
    cap: Cap,
    budget: Option<Budget>,
    /// The cap and the budget set in code. A parameters file replaces them; they apply again if a
    /// later file has none.
    own_cap: Cap,
    own_budget: Option<Budget>,
    explained: usize,
    chores: Chores,
    /// The share of roots that was kept of the recording of the parameters file.
    recorded_kept: Option<Probability>,
    #[cfg(feature = "parameters")]
    polled: Option<Client>,
    random: RandomSource,
    seed: Option<u64>,
    key: Key,
    parents: ParentDecision,
    sampling_attributes: bool,
    propagators: Propagators,
    on_fault: OnFault,
    faults: Vec<Fault>,
    clock: Option<Clock>,
    ids: Ids,
    resource: Option<Resource>,
    scope: Option<InstrumentationScope>,
    settings: Settings,
    destination: Option<MakeDestination>,
    tail: Tail,
    #[cfg(feature = "parameters")]
    file_tail: Tail,
    own_policies: Vec<OwnPolicy>,
    /// The strata in effect, and those set in code.
    strata: Option<Strata>,
    own_strata: Option<Strata>,
    baggage_attributes: Option<BaggageAttributes>,
    observer: Option<Arc<dyn Observer>>,
}

/// # Sampling
impl Builder {
    /// Sets the sampler; `bump:lambda=10,min=0.01,window=1s` by default.
    pub fn with_sampler(mut self, sampler: Config) -> Self {
        self.sampler = Some(sampler);
        self
    }

    /// Sets whether the decision of a parent in another process holds; it does by default.
    pub fn with_parent_decision(mut self, parents: ParentDecision) -> Self {
        self.parents = parents;
        self
    }

    /// Sets the formats in which context travels between processes; W3C Trace Context and Baggage
    /// by default. The service must install them:
    /// `opentelemetry::global::set_text_map_propagator(astracer.propagator())`.
    pub fn with_propagators(mut self, propagators: impl Into<Vec<Propagator>>) -> Self {
        self.propagators = Propagators(propagators.into());
        self
    }

    /// Sets the key by which local roots are counted; the template of the root's name by default.
    pub fn with_key(mut self, key: impl Into<Key>) -> Self {
        self.key = key.into();
        self
    }
}

/// # Export
impl Builder {
    /// Sets the exporter of kept traces: any `SpanExporter` of `opentelemetry_sdk`. It is called on
    /// a thread of its own, without an asynchronous runtime. Without an exporter the layer records
    /// nothing and [`build`](Self::build) warns; the sampler still decides.
    pub fn with_exporter<E: SpanExporter + 'static>(mut self, mut exporter: E) -> Self {
        self.destination = Some(Box::new(move |resource| {
            exporter.set_resource(resource);
            SharedDestination::new(Box::new(Foreign::new(exporter)), type_name::<E>())
        }));
        self
    }

    /// Exports kept traces to a destination: one of `astracer-exporters`, or your own. Unlike an
    /// [exporter](Self::with_exporter), it reports the outcome of each span:
    /// [`Stats`](crate::Stats) counts losses by their reason, and shows why exports wait.
    pub fn with_destination<D: Destination + 'static>(mut self, destination: D) -> Self {
        self.destination =
            Some(Box::new(move |_| SharedDestination::new(Box::new(destination), type_name::<D>())));
        self
    }

    /// Sets the resource exported with every span; by default the one that `Resource::builder()`
    /// detects from the environment.
    pub fn with_resource(mut self, resource: Resource) -> Self {
        self.resource = Some(resource);
        self
    }

    /// Sets `service.name`.
    pub fn with_service_name(self, name: impl Into<String>) -> Self {
        self.with_resource_attribute("service.name", name.into())
    }

    /// Sets `service.version`.
    pub fn with_service_version(self, version: impl Into<String>) -> Self {
        self.with_resource_attribute("service.version", version.into())
    }

    fn with_resource_attribute(mut self, key: &'static str, value: String) -> Self {
        let resource = self.resource.take().unwrap_or_else(|| Resource::builder().build());
        self.resource = Some(with_attributes(&resource, [KeyValue::new(key, value)]));
        self
    }

    /// Sets the instrumentation scope of every span; `astracer` by default.
    pub fn with_scope(mut self, scope: InstrumentationScope) -> Self {
        self.scope = Some(scope);
        self
    }
}

/// # Visibility to other code
impl Builder {
    /// Sets whether other layers see spans below a dropped root; they do by default.
    pub fn with_dropped_spans(mut self, spans: DroppedSpans) -> Self {
        self.settings.dropped_spans = spans;
        self
    }

    /// Returns the setting of [`with_dropped_spans`](Self::with_dropped_spans).
    pub fn dropped_spans(&self) -> DroppedSpans {
        self.settings.dropped_spans
    }

    /// Whether spans of h2, hyper, hyper-util, tonic and tower below level INFO may begin traces of
    /// their own; they do not by default.
    ///
    /// Such spans belong to connections, not to requests. An exporter over gRPC has a connection
    /// too, so its spans would be exported, which makes further spans, for ever. Below a span of
    /// the service they are recorded in any case.
    pub fn with_transport_roots(mut self, may_begin: bool) -> Self {
        self.settings.transport_roots = may_begin;
        self
    }

    /// Sets the content of OpenTelemetry's current context inside spans; the span itself by
    /// default.
    pub fn with_context_mode(mut self, mode: ContextMode) -> Self {
        self.settings.context = mode;
        self
    }

    /// Sets when a span starts, which settles its parent and decides a local root; by default as
    /// late as possible, so that `set_parent` still works.
    pub fn with_start(mut self, start: Start) -> Self {
        self.settings.start = start;
        self
    }
}

/// # Recorded data
///
/// The switches have the names and defaults of tracing-opentelemetry's layer.
impl Builder {
    /// Sets limits on the attributes, events and links of a span.
    pub fn with_span_limits(mut self, limits: SpanLimits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Adds the file, module and line to spans and events; on by default.
    pub fn with_location(mut self, with: bool) -> Self {
        self.settings.extras.location = with;
        self
    }

    /// Adds the thread on which a span began; on by default.
    pub fn with_threads(mut self, with: bool) -> Self {
        self.settings.extras.threads = with;
        self
    }

    /// Adds the level to spans; off by default. Events always carry it.
    pub fn with_level(mut self, with: bool) -> Self {
        self.settings.extras.level = with;
        self
    }

    /// Adds the target to spans; on by default. Events always carry it.
    pub fn with_target(mut self, with: bool) -> Self {
        self.settings.extras.target = with;
        self
    }

    /// Adds the time for which a span was entered (`busy_ns`) and not entered (`idle_ns`), except
    /// to spans ended through the OpenTelemetry API; on by default. Switching it off saves two
    /// atomic operations and a clock reading each time a kept span is entered and exited.
    pub fn with_tracked_inactivity(mut self, with: bool) -> Self {
        self.settings.extras.inactivity = with;
        self
    }

    /// Adds `exception.message` and `exception.stacktrace` beside a field that holds an error; on
    /// by default.
    pub fn with_error_fields_to_exceptions(mut self, with: bool) -> Self {
        self.settings.conventions.error_fields_to_exceptions = with;
        self
    }

    /// Adds `exception.message` and `exception.stacktrace` to the span as well when a field of one
    /// of its events holds an error; on by default.
    pub fn with_error_records_to_exceptions(mut self, with: bool) -> Self {
        self.settings.conventions.error_records_to_exceptions = with;
        self
    }

    /// Names an event `exception` if it has a field `error` and no message; on by default.
    pub fn with_error_events_to_exceptions(mut self, with: bool) -> Self {
        self.settings.conventions.error_events_to_exceptions = with;
        self
    }

    /// Sets the span's status to an error if it gets an event with a field `error` and no message,
    /// and describes the status by that field; on by default.
    pub fn with_error_events_to_status(mut self, with: bool) -> Self {
        self.settings.conventions.error_events_to_status = with;
        self
    }
}

/// # Requests
impl Builder {
    /// Adds members of the caller's baggage to spans, as attributes. `tenant.*` means each member
    /// that begins with `tenant.`. Further calls add names; none by default.
    ///
    /// ```
    /// # use astracer_sdk::{Astracer, Key};
    /// let builder = Astracer::builder()
    ///     .with_baggage_attributes(["tenant.id"])
    ///     .with_key(Key::default().with_attribute("tenant.id"));
    /// # let _ = builder;
    /// ```
    ///
    /// Kept spans get those of the context in which they begin. A local root has them before it is
    /// decided, so a key, a parameters file and the tuner count by them. A field of the span's own
    /// with the same name takes precedence.
    ///
    /// Callers outside of the service's control may send any value, so each of them may claim to be
    /// any tenant, and keys made up by one share the sampler's limit on keys with all others.
    /// Values are cut at 256 bytes. OpenTelemetry's context holds 64 members; further ones are
    /// passed on, but become no attributes.
    pub fn with_baggage_attributes<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        let known = self.baggage_attributes.get_or_insert_default();
        names.into_iter().for_each(|name| known.add(name.into()));
        self
    }

    /// Follows each request from its local root on, such as to carry baggage along it. None by
    /// default: then it costs one predicted branch where a span begins, ends, is entered or exited.
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }
}

/// # Bounds on open spans
impl Builder {
    /// Bounds the bytes that open spans take: their table, their attributes, and ended spans that
    /// wait for the rest of their trace. The default is 128 MiB, enough for 100,000 open spans
    /// whatever their attributes.
    ///
    /// Three uses share this bound:
    ///
    /// - The table takes 192 bytes per span and may use all of the bytes, but only nine tenths for
    ///   local roots. It doubles when it must grow and never shrinks: like the registry's, its size
    ///   follows the most spans that were ever open at once. A span that does not fit is
    ///   lost with everything below it, and counted in [`Losses::open_spans`].
    /// - Attributes, events and links may use three quarters. Those that do not fit are cut, and
    ///   counted on their span and in [`Stats::parts_cut`].
    /// - Ended spans wait for their trace while less than half of the bytes is in use; otherwise
    ///   they are exported at once.
    ///
    /// [`Losses::open_spans`]: crate::Losses::open_spans
    /// [`Stats::parts_cut`]: crate::Stats::parts_cut
    pub fn with_open_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.bounds.open_bytes = bytes;
        self
    }

    /// Sets the age at which a trace's ended spans are exported although its local root is still
    /// open; 30 seconds by default. After that its spans are exported one by one as they end.
    pub fn with_trace_age_max(mut self, age: Duration) -> Self {
        self.settings.bounds.trace_age = age;
        self
    }

    /// Bounds the number of traces whose ended spans are gathered until the local root ends; 16,384
    /// by default. Spans of further traces are exported one by one as they end.
    pub fn with_open_traces_max(mut self, traces: u32) -> Self {
        self.settings.bounds.open_traces = traces;
        self
    }

    /// Sets the number of ended spans at which a trace is exported in part, before its local root
    /// ends; 1,024 by default.
    pub fn with_spans_per_trace_max(mut self, spans: u32) -> Self {
        self.settings.bounds.spans_per_trace = spans.max(1);
        self
    }
}

/// # The queue to the exporter
impl Builder {
    /// Bounds the bytes that wait for the exporter; 32 MiB by default. Small traces are batched
    /// before they count, which takes another mebibyte or two.
    pub fn with_queue_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.bounds.queue_bytes = bytes;
        self
    }

    /// Bounds the traces that wait for the exporter; 1,048,576 by default. A part of a trace that
    /// is exported separately counts as one.
    pub fn with_queue_traces_max(mut self, traces: usize) -> Self {
        self.settings.bounds.queue_traces = traces;
        self
    }

    /// Sets the reaction to ended traces when the queue is full; by default new ones are shed.
    pub fn with_when_full(mut self, when_full: WhenQueueFull) -> Self {
        self.settings.bounds.when_full = when_full;
        self
    }

    /// Sets how many exports may be in flight at once, each on its own thread (at most 64). The
    /// default is 1, because OpenTelemetry lets exporters rely on that. A
    /// [destination](Self::with_destination) states its own default: 4 for those of
    /// astracer-exporters that send over a network.
    ///
    /// With one export in flight, each waits for the response to the one before, so the round trip
    /// limits throughput. With several, batches may arrive in a different order than they were
    /// made; after an outage the oldest is sent first.
    pub fn with_exports_in_flight(mut self, exports: usize) -> Self {
        self.settings.bounds.in_flight = Some(exports);
        self
    }

    /// Sets the number of spans at which a batch is exported; 512 by default. A trace is not split
    /// to meet it.
    pub fn with_batch_spans(mut self, spans: usize) -> Self {
        self.settings.bounds.batch_spans = spans.max(1);
        self
    }

    /// Sets the longest time that an ended trace waits for its batch to fill; one second by
    /// default.
    pub fn with_batch_delay(mut self, delay: Duration) -> Self {
        self.settings.bounds.batch_delay = delay;
        self
    }
}

/// # Ids and time
impl Builder {
    /// Sets the source of trace and span ids; random by default. The low 56 bits of a trace id
    /// serve as the trace's randomness. If the generator panics or returns an all-zero id, the span
    /// gets a random id. So does a span that the generator itself creates.
    ///
    /// Traces with its ids do not carry W3C's `random` flag: see
    /// [`with_random_id_generator`](Self::with_random_id_generator).
    pub fn with_id_generator(mut self, ids: impl IdGenerator + 'static) -> Self {
        self.ids = Ids { custom: Some(Arc::new(ids)), is_random: false };
        self
    }

    /// Like [`with_id_generator`](Self::with_id_generator), for a generator that promises random
    /// low 56 bits in its trace ids. Its traces carry W3C's `random` flag, as traces with the
    /// default ids do.
    pub fn with_random_id_generator(mut self, ids: impl IdGenerator + 'static) -> Self {
        self.ids = Ids { custom: Some(Arc::new(ids)), is_random: true };
        self
    }

    /// Sets the clock; the machine's by default.
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }
}

/// # Faults and building
impl Builder {
    /// Sets the reaction to unusable settings from the environment or a file;
    /// [`OnFault::IgnoreVariables`] by default.
    pub fn with_on_fault(mut self, on_fault: OnFault) -> Self {
        self.on_fault = on_fault;
        self
    }

    /// Notes a variable that other code has read and cannot use, to be treated as those of
    /// [`with_environment`](Self::with_environment).
    pub fn with_unusable_variable(self, name: &'static str, message: impl Into<String>) -> Self {
        self.with_fault(Origin::Variable(name), message.into())
    }

    /// Returns the unusable settings found so far.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Returns false if recording is switched off, by `OTEL_SDK_DISABLED` or in code.
    pub fn is_enabled(&self) -> bool {
        !self.is_off
    }

    /// Switches recording on or off; on by default. When it is off, the layer, the sampler and the
    /// handle exist and do nothing, and the propagators still propagate.
    ///
    /// A sampler that is switched off drops every trace of the `SdkTracerProvider` it is given to.
    /// It propagates that decision, so the services called drop their parts of traces that the
    /// caller keeps.
    pub fn with_enabled(mut self, enabled: bool) -> Self {
        self.is_off = !enabled;
        self
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("enabled", &self.is_enabled())
            .field("sampler", &self.sampler)
            .field("key", &self.key)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// The resource with attributes that replace others of the same keys.
fn with_attributes(resource: &Resource, own: impl IntoIterator<Item = KeyValue>) -> Resource {
    let known = resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let pairs = known.chain(own);
    match resource.schema_url() {
        Some(url) => Resource::builder_empty().with_schema_url(pairs, url.to_owned()).build(),
        None => Resource::builder_empty().with_attributes(pairs).build(),
    }
}
