//! Builds the parts, each from those before it, and starts their threads.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{fmt, io, mem, thread};

use astracer_model::span::{Resource as ModelResource, Scope};
use astracer_samplers::tail::{Limits as TailLimits, Tail, TailSampler};
use astracer_samplers::{Nanos, RandomSource, Sampler, Stratified};
use opentelemetry_sdk::Resource;

use super::{Astracer, Builder, late, with_attributes};
use crate::byte_cap::ByteCap;
use crate::core::{Core, Shared};
use crate::decider::{Decider, Extras};
use crate::fault::Fault;
use crate::handle::Handle;
use crate::housekeeping::{self, Housekeeping};
use crate::layer::AstracerLayer;
use crate::reports::Watched;
use crate::sampler::AstracerSampler;
use crate::steering::{BudgetControl, ExportedBytes, Steering};
use crate::why::Why;
use astracer_spans::export::{
    Converter, Queue, SharedDestination, Source, Upkeep, Worker, Workers, own_scope,
};
use astracer_spans::late::LateTraces;
use astracer_spans::stats::Counters;
use astracer_spans::sync::AtomicUsize;

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
        if self.enabled && self.faults.iter().any(|fault| self.on_fault.refuses(fault)) {
            return Err(BuildError { kind: Kind::Faults(mem::take(&mut self.faults)) });
        }
        if !cfg!(feature = "enabled") || !self.enabled {
            return Ok(self.switched_off());
        }
        let counters = Arc::new(Counters::default());
        let resource = with_own_name(self.resource.take().unwrap_or_else(|| Resource::builder().build()));
        let tail = self.tail_sampler();
        let decider = Arc::new(self.decider(&resource, tail.clone()));
        let queue = Arc::new(Queue::new(self.settings.bounds, counters.clone()));
        let late = tail.clone().map(|sampler| self.late_traces(sampler, &decider, &counters));
        let (steering, exported_bytes) = self.steering(decider.now());
        let ids = mem::take(&mut self.ids);
        let shared =
            Shared::new(self.settings, decider.clone(), counters.clone(), queue.clone(), ids, late, steering);
        shared.reports().add(self.faults.iter().map(|fault| format!("{fault}; using {}", fault.default())));
        let destination = self.destination.take().map(|make| make(&resource));
        match destination.clone() {
            Some(destination) => {
                let cap = ByteCap::new(decider.clone(), exported_bytes);
                let workers = Workers {
                    queue,
                    counters: counters.clone(),
                    destination,
                    admission: Box::new(cap),
                    upkeep: Arc::downgrade(&shared) as Weak<dyn Upkeep>,
                    idle: self.idle(),
                    running: AtomicUsize::new(0),
                };
                self.start_workers(&shared, workers, &resource, tail)?;
            }
            None => {
                if !self.wants_no_exporter {
                    shared.reports().add([NO_EXPORTER.to_owned()]);
                }
                queue.close();
                queue.ended();
            }
        }
        start_reports(&shared, destination.clone())?;
        let housekeeping = self.start_housekeeping(&shared)?;
        let handle = Handle::new(Some(shared.clone()), destination.clone());
        let handle = handle.with_housekeeping(housekeeping).with_resource(resource);
        #[cfg(feature = "parameters")]
        let handle = self.start_polling(handle)?;
        Ok(Astracer {
            layer: AstracerLayer::new(destination.is_some().then(|| Core::new(shared))),
            sampler: AstracerSampler::new(Some((decider, counters))),
            handle,
            propagators: self.propagators,
        })
    }

    /// "This setting has no effect on propagators" (OpenTelemetry specification,
    /// OTEL_SDK_DISABLED).
    fn switched_off(self) -> Astracer {
        Astracer {
            layer: AstracerLayer::new(None),
            sampler: AstracerSampler::new(None),
            handle: Handle::new(None, None),
            propagators: self.propagators,
        }
    }

    fn keeps_late(&self) -> bool {
        self.tail != Tail::default()
    }

    fn tail_sampler(&self) -> Option<Arc<TailSampler>> {
        self.keeps_late().then(|| Arc::new(TailSampler::new(&self.tail, TailLimits::default())))
    }

    fn decider(&mut self, resource: &Resource, tail: Option<Arc<TailSampler>>) -> Decider {
        let sampler = Sampler::with_cap(&self.sampler, self.sampler_limits, &self.cap);
        let base = match &self.chores.snapshot {
            Some(path) => housekeeping::warm_start(&sampler, path),
            None => Nanos::ZERO,
        };
        let stratified = (self.random == RandomSource::Stratified).then(|| {
            // `RandomState` is seeded by the operating system: a secret without another dependency.
            let secret = RandomState::new().hash_one(std::process::id());
            Stratified::new(secret, self.sampler_limits)
        });
        let extras = Extras {
            tail,
            #[cfg(feature = "parameters")]
            policies: [self.tail.clone(), mem::take(&mut self.file_tail)],
            base,
            stratified,
            describes: self.sampling_attributes,
            why: (self.explained > 0).then(|| Why::new(self.explained)),
        };
        let key = mem::take(&mut self.key).with_resource(resource);
        Decider::new(sampler, key, self.parents, self.clock.take().unwrap_or_default(), extras)
    }

    fn late_traces(
        &mut self,
        sampler: Arc<TailSampler>,
        decider: &Decider,
        counters: &Arc<Counters>,
    ) -> LateTraces {
        let own = mem::take(&mut self.own_policies);
        let asked = (&self.settings.bounds, decider.why().is_some());
        let parts = late::parts(&self.tail, own, sampler, decider.clock(), asked);
        LateTraces::new(parts, decider.clock().clone(), counters.clone())
    }

    /// The steering, and the counter of exported bytes that a budget needs.
    fn steering(&mut self, now: Nanos) -> (Steering, Option<Arc<ExportedBytes>>) {
        let (sampler, own) = (self.sampler.clone(), self.own_budget.take());
        let control = self.budget.clone().map(|budget| BudgetControl::new((budget, own), sampler, now));
        let exported_bytes = control.as_ref().map(BudgetControl::exported_bytes);
        (Steering::new(control, self.own_cap), exported_bytes)
    }

    /// Starts the exporter's threads.
    fn start_workers(
        &self,
        shared: &Arc<Shared>,
        mut workers: Workers,
        resource: &Resource,
        tail: Option<Arc<TailSampler>>,
    ) -> Result<(), BuildError> {
        shared.reports().add(workers.destination.warnings());
        let in_flight = self.settings.bounds.in_flight.unwrap_or_else(|| workers.destination.in_flight());
        let in_flight = in_flight.clamp(1, EXPORTS_MAX);
        workers.running = AtomicUsize::new(in_flight);
        let workers = Arc::new(workers);
        let reasons = tail.as_deref().map(LateTraces::reasons).unwrap_or_default();
        let looks = (self.settings.extras, &self.settings.limits);
        let source = Source {
            resource: Arc::new(ModelResource::of_opentelemetry(resource.iter(), resource.schema_url())),
            scope: Arc::new(self.scope.as_ref().map_or_else(own_scope, Scope::from)),
        };
        for _ in 0..in_flight {
            let clock = shared.decider().clock().clone();
            let converter = Converter::new(clock, looks, source.clone(), Arc::clone(&reasons));
            let worker = Worker { workers: workers.clone(), converter };
            // If a later spawn fails, the threads started so far still end: dropping `shared`
            // closes the queue.
            start("astracer-export", move || worker.run())?;
        }
        Ok(())
    }

    /// The longest sleep of an exporter's thread before it looks for old traces.
    fn idle(&self) -> Duration {
        let held = if self.keeps_late() { Duration::from_nanos(self.tail.hold.get()) } else { IDLE_MAX };
        self.settings.bounds.trace_age.min(held).clamp(IDLE_MIN, IDLE_MAX)
    }

    fn start_housekeeping(&mut self, shared: &Arc<Shared>) -> Result<Option<Arc<Housekeeping>>, BuildError> {
        if self.budget.is_none() && self.chores.is_empty() {
            return Ok(None);
        }
        let housekeeping = Housekeeping::new(mem::take(&mut self.chores));
        let (runs, weak) = (housekeeping.clone(), Arc::downgrade(shared));
        start("astracer-keeper", move || runs.run(&weak))?;
        Ok(Some(housekeeping))
    }

    #[cfg(feature = "parameters")]
    fn start_polling(&mut self, handle: Handle) -> Result<Handle, BuildError> {
        let Some(client) = self.polled.take() else { return Ok(handle) };
        let handle = handle.with_poller(crate::polling::Poller::new(client));
        handle.poll().map_err(BuildError::thread)?;
        Ok(handle)
    }
}

/// Starts the thread that tells the operator of failures and losses, unless there is nothing to
/// tell.
fn start_reports(
    shared: &Arc<Shared>,
    destination: Option<Arc<SharedDestination>>,
) -> Result<(), BuildError> {
    let is_announced = shared.reports().announce();
    if destination.is_none() && is_announced {
        return Ok(());
    }
    let watched: Arc<dyn Watched> = shared.clone();
    let watched: Weak<dyn Watched> = Arc::downgrade(&watched);
    shared.reports().start(watched, destination).map_err(BuildError::thread)
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), BuildError> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(BuildError::thread)?;
    Ok(())
}

/// The warning of a layer without an exporter.
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
        opentelemetry::KeyValue::new(NAME, "astracer"),
        opentelemetry::KeyValue::new("telemetry.sdk.language", "rust"),
        opentelemetry::KeyValue::new("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
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

/// The same text as `Display`: a `main` that returns the error prints it with `Debug`.
impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug)]
enum Kind {
    Faults(Vec<Fault>),
    Thread(io::Error),
}

impl BuildError {
    fn thread(error: io::Error) -> Self {
        BuildError { kind: Kind::Thread(error) }
    }

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
