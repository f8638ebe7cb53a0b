//! Builds the parts, each from those before it, and starts their threads.

use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{fmt, io, mem, thread};

use astracer_model::span::{Resource as ModelResource, Scope};
use astracer_samplers::strata::{Strata, StrataSampler};
use astracer_samplers::tail::{Limits as TailLimits, ProvisionalMode, Tail, TailSampler};
use astracer_samplers::{Nanos, RandomSource, Sampler, Stratified};
use opentelemetry::{KeyValue, TraceFlags};
use opentelemetry_sdk::Resource;

use super::{Astracer, Builder, default_sampler, with_attributes};
use crate::byte_cap::ByteCap;
use crate::core::{Core, Shared};
use crate::decider::Decider;
use crate::fault::{Fault, debug_as_display};
use crate::handle::Handle;
use crate::housekeeping::{self, Chores, Housekeeping};
use crate::layer::AstracerLayer;
use crate::observer::Observer;
use crate::reports::{Reports, Watched};
use crate::rules::Rules;
use crate::sampler::AstracerSampler;
use crate::secret::secret;
use crate::steering::{BudgetControl, Steering};
use crate::why::Why;
use astracer_spans::export::{
    Converter, Queue, SharedDestination, Source, Upkeep, Worker, Workers, own_scope,
};
use astracer_spans::late::LateTraces;
use astracer_spans::memory_budget::MemoryBudget;
use astracer_spans::stats::Counters;
use astracer_spans::sync::AtomicUsize;
use astracer_spans::sync::statics::{AtomicBool, AtomicU64};
use astracer_spans::traces::Traces;

/// # Building
impl Builder {
    /// Builds the parts and starts the exporter's threads.
    ///
    /// # Errors
    ///
    /// If a setting is unusable and [`OnFault`](crate::OnFault) refuses it, or if a thread cannot
    /// be started.
    pub fn build(mut self) -> Result<Astracer, BuildError> {
        self.check_policies();
        // The switch works whatever else is set.
        if self.is_enabled() && self.faults.iter().any(|fault| self.on_fault.refuses(fault)) {
            return Err(BuildError { kind: Kind::Faults(self.faults) });
        }
        if !cfg!(feature = "enabled") || !self.is_enabled() {
            return Ok(self.astracer(None, None));
        }
        let resource = with_own_name(self.resource.take().unwrap_or_else(|| Resource::builder().build()));
        let counters = Arc::new(Counters::default());
        if self.strata.is_some() {
            self.tail = self.tail.beside_strata();
            // Arming records all traces of a key for the policies. Strata alone record their own
            // share.
            if self.tail.rules.is_empty() && self.tail.provisional == ProvisionalMode::Armed {
                self.tail.provisional = ProvisionalMode::Never;
            }
        }
        if let Some(budget) = self.budget.take_if(|_| self.strata.is_some()) {
            let interval = budget.interval().max(Strata::BUDGET_INTERVAL_MIN);
            self.budget = Some(budget.with_interval(interval));
        }
        let tail = self.keeps_late().then(|| Arc::new(TailSampler::new(&self.tail, TailLimits::default())));
        let decider = self.decider(&resource, tail.clone(), counters.clone());
        let (settings, clock) = (self.settings, &decider.clock);
        let queue = Arc::new(Queue::new(settings.bounds, counters.clone()));
        let budget = MemoryBudget::new(settings.bounds.open_bytes);
        let control = self.budget.take().map(|budget| {
            BudgetControl::new((budget, self.own_budget.take()), decider.sampler().config(), decider.now())
        });
        let has_chores = control.is_some() || self.chores != Chores::default();
        let admission = ByteCap::new(decider.clone(), control.as_ref().map(BudgetControl::exported_bytes));
        let shared = Arc::new(Shared {
            trace_age: clock.ticks_of(settings.bounds.trace_age),
            traces: Traces::new(settings.bounds.open_traces, budget.clone()),
            late: tail.clone().map(|tail| self.late_traces(tail, &decider, &queue)),
            settings,
            budget,
            reports: Arc::new(Reports::new(self.reads_variables)),
            dropped_unmarked: AtomicBool::new(self.ids.flags() == TraceFlags::NOT_SAMPLED),
            ids: mem::take(&mut self.ids),
            baggage_attributes: self.baggage_attributes.take(),
            observer: self.observer.take(),
            observer_panics: AtomicU64::new(0),
            destination: self.destination.take().map(|make| make(&resource)),
            housekeeping: has_chores.then(|| Housekeeping::new(mem::take(&mut self.chores), queue.clone())),
            #[cfg(feature = "parameters")]
            poller: self.polled.take().map(crate::polling::Poller::new),
            resource,
            steering: Arc::new(Steering::new(
                decider.clone(),
                control,
                (self.own_cap, self.own_strata.take()),
                self.recorded_kept,
            )),
            decider,
            counters,
            queue,
        });
        shared.reports.add(self.faults.iter().map(|fault| format!("{fault}; using {}", fault.default())));
        match &shared.destination {
            Some(destination) => self.start_workers(&shared, destination, admission, tail)?,
            None => {
                if !self.wants_no_exporter {
                    shared.reports.add([NO_EXPORTER.to_owned()]);
                }
                shared.queue.close();
                shared.queue.ended();
            }
        }
        start_keepers(&shared)?;
        if let Some(observer) = &shared.observer {
            observer.start(&shared.decider.clock, shared.decider.parents);
        }
        let core = shared.destination.is_some().then(|| Core::new(shared.clone(), false));
        Ok(self.astracer(core, Some(shared)))
    }

    /// Without `shared` it is switched off. "This setting has no effect on propagators"
    /// (OpenTelemetry specification, OTEL_SDK_DISABLED).
    fn astracer(self, core: Option<Arc<Core>>, shared: Option<Arc<Shared>>) -> Astracer {
        Astracer {
            layer: AstracerLayer::new(core),
            sampler: AstracerSampler { decider: shared.as_ref().map(|shared| shared.decider.clone()) },
            handle: Handle::new(shared),
            propagators: self.propagators,
        }
    }

    fn keeps_late(&self) -> bool {
        self.tail != Tail::default()
    }

    fn decider(
        &mut self,
        resource: &Resource,
        tail: Option<Arc<TailSampler>>,
        counters: Arc<Counters>,
    ) -> Arc<Decider> {
        let config = self.sampler.take().unwrap_or_else(default_sampler);
        let sampler = Sampler::with_cap(&config, self.sampler_limits, &self.cap);
        let base = match &self.chores.snapshot {
            Some(path) => housekeeping::warm_start(&sampler, path),
            None => Nanos::ZERO,
        };
        let is_stratified = self.random == RandomSource::Stratified;
        let seed = self.seed.unwrap_or_else(secret);
        let stratified = is_stratified.then(|| Stratified::new(seed, self.sampler_limits));
        let mut decider = Decider::new(sampler, self.clock.take().unwrap_or_default(), counters);
        decider.key = mem::take(&mut self.key).with_resource(resource);
        decider.parents = self.parents;
        (decider.base, decider.stratified) = (base, stratified);
        decider.describes = self.sampling_attributes;
        decider.passes_keys = self.observer.as_deref().is_some_and(Observer::reads_keys);
        decider.why = (self.explained > 0).then(|| Why::new(self.explained));
        decider.tail = tail;
        if let Some(strata) = self.strata.take() {
            let strata = StrataSampler::new(strata, &self.cap, seed);
            let mut rules = Rules::clone(&decider.rules.load());
            rules.strata = Some(Arc::new(strata));
            decider.rules.store(rules);
        }
        #[cfg(feature = "parameters")]
        {
            decider.policies = [self.tail.clone(), mem::take(&mut self.file_tail)];
        }
        decider.ready()
    }

    fn late_traces(
        &mut self,
        sampler: Arc<TailSampler>,
        decider: &Decider,
        queue: &Arc<Queue>,
    ) -> LateTraces {
        let own = mem::take(&mut self.own_policies);
        let explains = decider.why.is_some();
        let strata = (Arc::clone(&decider.strata), decider.key.at_end());
        LateTraces::new((&self.tail, sampler), strata, own, explains, decider.clock.clone(), queue.clone())
    }

    fn start_workers(
        &self,
        shared: &Arc<Shared>,
        destination: &Arc<SharedDestination>,
        admission: ByteCap,
        tail: Option<Arc<TailSampler>>,
    ) -> Result<(), BuildError> {
        shared.reports.add(destination.ask(|destination| destination.warnings()));
        let in_flight = self
            .settings
            .bounds
            .in_flight
            .unwrap_or_else(|| destination.ask(|destination| destination.in_flight()));
        let in_flight = in_flight.clamp(1, EXPORTS_MAX);
        let workers = Arc::new(Workers {
            queue: shared.queue.clone(),
            destination: destination.clone(),
            admission: Box::new(admission),
            upkeep: Arc::downgrade(shared) as Weak<dyn Upkeep>,
            idle: self.idle(shared),
            running: AtomicUsize::new(in_flight),
        });
        let reasons = tail.as_deref().map(LateTraces::reasons).unwrap_or_default();
        let looks = (self.settings.extras, &self.settings.limits);
        let resource = &shared.resource;
        let source = Source {
            resource: Arc::new(ModelResource::of_opentelemetry(resource.iter(), resource.schema_url())),
            scope: Arc::new(self.scope.as_ref().map_or_else(own_scope, Scope::from)),
        };
        for _ in 0..in_flight {
            let clock = shared.decider.clock.clone();
            let converter = Converter::new(clock, looks, source.clone(), Arc::clone(&reasons));
            let worker = Worker { workers: workers.clone(), converter };
            // If a later spawn fails, the threads started so far still end: dropping `shared`
            // closes the queue.
            start("astracer-export", move || worker.run())?;
        }
        Ok(())
    }

    fn idle(&self, shared: &Shared) -> Duration {
        if shared.decider.strata.get().is_some() {
            return IDLE_MIN;
        }
        let held =
            if self.keeps_late() { Duration::from_nanos(self.tail.held_for().get()) } else { IDLE_MAX };
        self.settings.bounds.trace_age.min(held).clamp(IDLE_MIN, IDLE_MAX)
    }
}

fn start_keepers(shared: &Shared) -> Result<(), BuildError> {
    let steering = Arc::downgrade(&shared.steering);
    let is_announced = shared.reports.announce();
    if shared.destination.is_some() || !is_announced {
        let (counters, queue) = (shared.counters.clone(), shared.queue.clone());
        let destination = shared.destination.clone();
        let watched = Watched { steering: steering.clone(), counters, queue, destination };
        let reports = shared.reports.clone();
        start("astracer-report", move || reports.run(&watched))?;
    }
    #[cfg(feature = "parameters")]
    if let Some(poller) = shared.poller.clone() {
        let steering = steering.clone();
        start("astracer-poller", move || poller.run(&steering))?;
    }
    if let Some(housekeeping) = shared.housekeeping.clone() {
        // The first comparison, a minute later, needs counts to begin from.
        housekeeping.compare_with_file(&shared.steering);
        start("astracer-keeper", move || housekeeping.run(&steering))?;
    }
    Ok(())
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), BuildError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map(drop).map_err(|error| BuildError { kind: Kind::Thread(error) })
}

const NO_EXPORTER: &str = "no exporter is set, so the layer records nothing; call `with_exporter`";

/// The resource with `telemetry.sdk.*` of this SDK in place of the values that
/// `Resource::builder()` detects: "`opentelemetry`" is reserved for the SDK of OpenTelemetry
/// (semantic conventions, "Telemetry SDK"). Other names are the service's own.
fn with_own_name(resource: Resource) -> Resource {
    const NAME: opentelemetry::Key = opentelemetry::Key::from_static_str("telemetry.sdk.name");
    if resource.get(&NAME).is_some_and(|name| name.as_str() != "opentelemetry") {
        return resource;
    }
    let own = [
        KeyValue::new(NAME, "astracer"),
        KeyValue::new("telemetry.sdk.language", "rust"),
        KeyValue::new("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
    ];
    with_attributes(&resource, own)
}

/// Upper bound on exports in flight. More threads would only contend for the queue.
const EXPORTS_MAX: usize = 64;

/// Bounds on how long an exporter's thread sleeps before it looks for old traces.
const IDLE_MIN: Duration = Duration::from_millis(100);
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The reason why [`Builder::build`] failed.
pub struct BuildError {
    kind: Kind,
}

debug_as_display!(BuildError);

#[derive(Debug)]
enum Kind {
    Faults(Vec<Fault>),
    Thread(io::Error),
}

impl BuildError {
    /// The unusable settings; empty if a thread could not be started.
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
            Kind::Thread(error) => write!(f, "cannot start a thread: {error}"),
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
