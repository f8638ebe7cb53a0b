//! The builder: from settings to a layer, a sampler and a handle.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use astracer_samplers::{Config, Limits, Sampler};
use opentelemetry::InstrumentationScope;
use opentelemetry::propagation::TextMapCompositePropagator;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{IdGenerator, SpanExporter};

use crate::clock::Clock;
use crate::config::{Fault, OnFault};
use crate::decider::{Decider, ParentDecision};
use crate::handle::Handle;
use crate::ids::RandomIds;
use crate::key::Key;
use crate::layer::{AstracerLayer, Converter, Core};
use crate::propagation::Propagator;
use crate::queue::Queue;
use crate::sampler::{AstracerSampler, Judge};
use crate::settings::{ContextMode, DroppedSpans, Settings, SpanLimits};
use crate::stats::Counters;
use crate::worker::{Export, Worker};

/// What a service adds: a layer, a sampler and a handle, made by one [`Builder`]. They share one judge.
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
    /// A builder with the defaults: bump with lambda 10, minimum 0.01 and a window of a second, keyed by the template of
    /// the root's name.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The propagator, for `opentelemetry::global::set_text_map_propagator` and for middleware; one that does nothing if
    /// switched off.
    pub fn propagator(&self) -> TextMapCompositePropagator {
        Propagator::composite(&self.propagators)
    }
}

/// Settings, to become an [`Astracer`].
#[must_use]
pub struct Builder {
    enabled: bool,
    sampler: Config,
    sampler_limits: Limits,
    key: Key,
    parents: ParentDecision,
    propagators: Vec<Propagator>,
    on_fault: OnFault,
    faults: Vec<Fault>,
    clock: Option<Clock>,
    ids: Arc<dyn IdGenerator>,
    resource: Option<Resource>,
    scope: InstrumentationScope,
    settings: Settings,
    exporter: Option<Box<dyn Export>>,
}

/// The text of the default sampler.
const DEFAULT_SAMPLER: &str = "bump:lambda=10,min=0.01,window=1s";

impl Default for Builder {
    fn default() -> Self {
        Builder {
            enabled: true,
            // A constant that a test reads; what else could be kept is everything.
            sampler: DEFAULT_SAMPLER.parse().unwrap_or(Config::Always),
            sampler_limits: Limits::default(),
            key: Key::default(),
            parents: ParentDecision::default(),
            propagators: Propagator::DEFAULT.to_vec(),
            on_fault: OnFault::default(),
            faults: Vec::new(),
            clock: None,
            ids: Arc::new(RandomIds),
            resource: None,
            scope: InstrumentationScope::builder("astracer").with_version(env!("CARGO_PKG_VERSION")).build(),
            settings: Settings::default(),
            exporter: None,
        }
    }
}

impl Builder {
    /// Which sampler decides.
    pub fn with_sampler(mut self, sampler: Config) -> Self {
        self.sampler = sampler;
        self
    }

    /// How much the sampler may remember.
    pub fn with_sampler_limits(mut self, limits: Limits) -> Self {
        self.sampler_limits = limits;
        self
    }

    /// Whether a remote parent's decision is respected; it is by default.
    pub fn with_parent_decision(mut self, parents: ParentDecision) -> Self {
        self.parents = parents;
        self
    }

    /// How context travels from process to process; W3C Trace Context and Baggage if it is not given. It is for the
    /// service to make it known: `opentelemetry::global::set_text_map_propagator(astracer.propagator())`.
    pub fn with_propagators(mut self, propagators: impl Into<Vec<Propagator>>) -> Self {
        self.propagators = propagators.into();
        self
    }

    /// What is done about settings from the environment or a file that cannot be used.
    pub fn with_on_fault(mut self, on_fault: OnFault) -> Self {
        self.on_fault = on_fault;
        self
    }

    /// The settings so far that cannot be used. Those that [`OnFault::UseDefault`] passes over are for the service to
    /// log.
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

    /// What local roots are counted by.
    pub fn with_key(mut self, key: impl Into<Key>) -> Self {
        self.key = key.into();
        self
    }

    /// Where kept traces go: any exporter of `opentelemetry_sdk`. It is called on a thread of ours, without an
    /// asynchronous runtime. Without an exporter the layer does nothing; the sampler decides nevertheless.
    pub fn with_exporter(mut self, exporter: impl SpanExporter + 'static) -> Self {
        self.exporter = Some(Box::new(exporter));
        self
    }

    /// What is exported with every span; if it is not given, what `Resource::builder()` finds in the environment.
    pub fn with_resource(mut self, resource: Resource) -> Self {
        self.resource = Some(resource);
        self
    }

    /// The instrumentation scope of every span; `astracer` if it is not given.
    pub fn with_scope(mut self, scope: InstrumentationScope) -> Self {
        self.scope = scope;
        self
    }

    /// Whether other layers see spans below a dropped root; they do by default.
    pub fn with_dropped_spans(mut self, presence: DroppedSpans) -> Self {
        self.settings.presence = presence;
        self
    }

    /// What OpenTelemetry's current context is inside of spans.
    pub fn with_context_mode(mut self, mode: ContextMode) -> Self {
        self.settings.context = mode;
        self
    }

    /// Limits on what a span holds.
    pub fn with_span_limits(mut self, limits: SpanLimits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Whether spans and events say the file, module and line they come from; they do if this is not given.
    pub fn with_location(mut self, with: bool) -> Self {
        self.settings.extras.location = with;
        self
    }

    /// Whether spans say the thread they began on; they do if this is not given.
    pub fn with_threads(mut self, with: bool) -> Self {
        self.settings.extras.threads = with;
        self
    }

    /// Whether spans say their level; they do not if this is not given. Events always do.
    pub fn with_level(mut self, with: bool) -> Self {
        self.settings.extras.level = with;
        self
    }

    /// Whether spans say their target; they do if this is not given. Events always do.
    pub fn with_target(mut self, with: bool) -> Self {
        self.settings.extras.target = with;
        self
    }

    /// Whether spans say for how long they were entered (`busy_ns`) and not (`idle_ns`); they do if this is not given.
    /// Without it, entering and leaving a kept span is cheaper by a lock and a reading of the clock.
    pub fn with_tracked_inactivity(mut self, with: bool) -> Self {
        self.settings.extras.inactivity = with;
        self
    }

    /// Whether an error in a field also sets `exception.message` and `exception.stacktrace` beside it.
    pub fn with_error_fields_to_exceptions(mut self, with: bool) -> Self {
        self.settings.conventions.error_fields_to_exceptions = with;
        self
    }

    /// Whether an error in a field of an event also sets them on the span.
    pub fn with_error_records_to_exceptions(mut self, with: bool) -> Self {
        self.settings.conventions.error_records_to_exceptions = with;
        self
    }

    /// Whether an event without a message that has a field `error` is named `exception`.
    pub fn with_error_events_to_exceptions(mut self, with: bool) -> Self {
        self.settings.conventions.error_events_to_exceptions = with;
        self
    }

    /// Whether such an event gives the span's status its description.
    pub fn with_error_events_to_status(mut self, with: bool) -> Self {
        self.settings.conventions.error_events_to_status = with;
        self
    }

    /// How many kept traces may be open at once; 16,384 if it is not given.
    pub fn with_open_traces_max(mut self, traces: u32) -> Self {
        self.settings.bounds.open_traces = traces;
        self
    }

    /// How many spans one trace may hold in this process before some leave; 1,024 if it is not given.
    pub fn with_spans_per_trace_max(mut self, spans: u32) -> Self {
        self.settings.bounds.spans_per_trace = spans.max(1);
        self
    }

    /// How many bytes may wait for the exporter; 32 MiB if it is not given. Small traces gather before they are passed on
    /// to where they wait, which takes a mebibyte or two more.
    pub fn with_queue_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.bounds.queue_bytes = bytes;
        self
    }

    /// After how many spans a batch is exported, whole traces; 512 if it is not given.
    pub fn with_batch_spans(mut self, spans: usize) -> Self {
        self.settings.bounds.batch_spans = spans.max(1);
        self
    }

    /// How long a trace waits for others to make a batch with; a second if it is not given.
    pub fn with_batch_delay(mut self, delay: Duration) -> Self {
        self.settings.bounds.batch_delay = delay;
        self
    }

    /// Where trace and span ids come from; random ones if it is not given. The low 56 bits of a trace id serve as the
    /// trace's randomness.
    pub fn with_id_generator(mut self, ids: impl IdGenerator + 'static) -> Self {
        self.ids = Arc::new(ids);
        self
    }

    /// The clock; the machine's if it is not given.
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Switches everything off: the layer, the sampler and the handle are there and do nothing.
    pub fn with_enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Builds, and starts the exporter's thread.
    ///
    /// # Errors
    ///
    /// If a setting from the environment or a file cannot be used, unless [`OnFault::UseDefault`] was asked for; or if
    /// the thread cannot be started.
    pub fn build(mut self) -> Result<Astracer, BuildError> {
        if self.on_fault == OnFault::Refuse && !self.faults.is_empty() {
            return Err(BuildError { kind: Kind::Faults(std::mem::take(&mut self.faults)) });
        }
        if !cfg!(feature = "enabled") || !self.enabled {
            return Ok(Astracer {
                layer: AstracerLayer::new(None),
                sampler: AstracerSampler::new(None),
                handle: Handle::new(None),
                propagators: Vec::new(),
            });
        }
        let clock = self.clock.unwrap_or_default();
        let counters = Arc::new(Counters::default());
        let sampler = Sampler::with_limits(&self.sampler, self.sampler_limits);
        let resource = self.resource.unwrap_or_else(|| Resource::builder().build());
        let key = self.key.with_resource(&resource);
        let decider = Arc::new(Decider::new(sampler, key, self.parents, clock.clone()));
        let queue = Arc::new(Queue::new(self.settings.bounds, counters.clone()));
        let judge = Judge { decider: decider.clone(), counters: counters.clone() };
        let converter = Converter::new(clock, &self.settings, self.scope);
        let core = Core::new(self.settings, decider, counters.clone(), queue.clone(), self.ids);
        let exports = self.exporter.is_some();
        if let Some(mut exporter) = self.exporter {
            exporter.set_resource(&resource);
            let worker = Worker { queue, counters, converter, exporter };
            let thread = std::thread::Builder::new().name("astracer-export".to_owned());
            thread.spawn(move || worker.run()).map_err(|error| BuildError { kind: Kind::Thread(error) })?;
        } else {
            queue.close();
            queue.ended();
        }
        Ok(Astracer {
            layer: AstracerLayer::new(exports.then(|| core.clone())),
            sampler: AstracerSampler::new(Some(judge)),
            handle: Handle::new(Some(core)),
            propagators: self.propagators,
        })
    }
}

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

/// Why nothing could be built.
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
