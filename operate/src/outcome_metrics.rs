//! The totals of all local roots as metrics, sent over OTLP.
//!
//! They are sent directly, because OpenTelemetry's metrics SDK cannot accept a finished histogram
//! and makes no exemplars (in 0.33 its exemplar lists are always empty).

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use astracer_exporters::OtlpMetrics;
use astracer_exporters::metrics::{
    Attribute, HistogramPoint, Metric, MetricData, MetricExemplar, Resource, Scope, SpanId, SumPoint,
    TraceId, UnixNanos, Value,
};
use astracer_samplers::tail::{Exemplar, Histogram, KeyOutcomes};
use astracer_sdk::Handle;

/// Sends calls, errors and durations of all local roots by key, including dropped ones, as
/// OpenTelemetry metrics.
///
/// The figures come from [`Handle::outcomes`], which counts while policies are set
/// ([`Builder::with_tail`](astracer_sdk::Builder::with_tail)):
///
/// - a duration, named `astracer.root.duration` by default: an exponential histogram in seconds by
///   key, whose count is the number of roots, with exemplars that name kept traces;
/// - `astracer.root.errors`: roots below which an error was seen, and
///   `astracer.root.errors.missed`, the subset of them in traces that were not recorded.
///
/// Keys without a record form one point with the attribute `otel.metric.overflow`. All values are
/// cumulative, so the next request makes up for one that failed.
///
/// ```no_run
/// # fn run(astracer: astracer_sdk::Astracer) -> Result<(), Box<dyn std::error::Error>> {
/// use astracer_exporters::OtlpMetrics;
/// use astracer_operate::OutcomeMetrics;
///
/// let sender = OtlpMetrics::builder().with_environment().build()?;
/// let metrics = OutcomeMetrics::new(&astracer.handle, sender)
///     .with_duration_name("http.server.request.duration")
///     .with_key_attribute("http.route")
///     .start()?;
/// // At the end of the service, before the handle's shutdown: sends once more.
/// metrics.stop();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct OutcomeMetrics {
    handle: Handle,
    sender: OtlpMetrics,
    duration: String,
    errors: String,
    key: String,
    interval: Duration,
}

/// The default interval between requests, as in OpenTelemetry's periodic reader.
const INTERVAL: Duration = Duration::from_secs(60);

impl OutcomeMetrics {
    /// Creates metrics from this handle, to be sent with `sender`.
    pub fn new(handle: &Handle, sender: OtlpMetrics) -> Self {
        OutcomeMetrics {
            handle: handle.clone(),
            sender,
            duration: "astracer.root.duration".to_owned(),
            errors: "astracer.root.errors".to_owned(),
            key: "key".to_owned(),
            interval: INTERVAL,
        }
    }

    /// Sets the name of the duration histogram, such as `http.server.request.duration`.
    pub fn with_duration_name(self, name: impl Into<String>) -> Self {
        OutcomeMetrics { duration: name.into(), ..self }
    }

    /// Sets the name of the error count. With `.missed` appended, it is the name of the count of
    /// errors in traces that were not recorded.
    pub fn with_errors_name(self, name: impl Into<String>) -> Self {
        OutcomeMetrics { errors: name.into(), ..self }
    }

    /// Sets the name of the attribute that holds the key, such as `http.route`; `key` by default.
    pub fn with_key_attribute(self, name: impl Into<String>) -> Self {
        OutcomeMetrics { key: name.into(), ..self }
    }

    /// Sets the interval between requests; 60 s by default, at least 100 ms.
    pub fn with_interval(self, interval: Duration) -> Self {
        OutcomeMetrics { interval: interval.max(Duration::from_millis(100)), ..self }
    }

    /// Sends the metrics from a new thread until the result is stopped or dropped.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn start(self) -> io::Result<RunningOutcomeMetrics> {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("astracer-metrics".to_owned());
        let thread = thread.spawn(move || self.run(&shared))?;
        Ok(RunningOutcomeMetrics { state, thread: Some(thread) })
    }

    fn run(self, state: &State) {
        let _suppressed = opentelemetry::Context::enter_telemetry_suppressed_scope();
        loop {
            let guard = state.lock();
            let wait = state.changed.wait_timeout_while(guard, self.interval, |inner| !inner.is_over);
            let is_over = wait.unwrap_or_else(PoisonError::into_inner).0.is_over;
            // `None`: no root has been counted yet, or tracing is disabled, so there is nothing to
            // send.
            if let Some(sent) = self.send(SystemTime::now()) {
                let mut inner = state.lock();
                *if sent.is_ok() { &mut inner.sent } else { &mut inner.failed } += 1;
                inner.last_error = sent.err();
            }
            if is_over {
                return;
            }
        }
    }

    fn send(&self, now: SystemTime) -> Option<Result<(), String>> {
        let (resource, start) = (self.handle.resource()?, self.handle.counted_since()?);
        let outcomes = Some(self.handle.outcomes()).filter(|outcomes| !outcomes.is_empty())?;
        let scope = Scope {
            name: "astracer".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Scope::default()
        };
        let resource: Resource = astracer_exporters::resource(resource);
        let times = (start.into(), now.into());
        Some(match self.sender.send((&resource, &scope), times, &self.metrics(&outcomes)) {
            Ok(delivery) if delivery.rejected > 0 => {
                let (target, message) = (self.sender.target(), delivery.message);
                Err(format!("{target} rejected {} points: {message}", delivery.rejected))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        })
    }

    fn metrics(&self, outcomes: &[KeyOutcomes]) -> Vec<Metric> {
        let sum = |name: String, description: &str, of: fn(&KeyOutcomes) -> u64| Metric {
            name,
            description: description.to_owned(),
            unit: "{root}".to_owned(),
            data: MetricData::Sum(
                outcomes
                    .iter()
                    .map(|key| SumPoint { attributes: self.attributes(key), value: of(key) })
                    .collect(),
            ),
        };
        vec![
            Metric {
                name: self.duration.clone(),
                description: "Durations of all local roots, kept or dropped.".to_owned(),
                unit: "s".to_owned(),
                data: MetricData::Histogram(outcomes.iter().map(|key| self.histogram(key)).collect()),
            },
            sum(self.errors.clone(), "Local roots below which an error was seen.", |key| key.errors),
            sum(
                format!("{}.missed", self.errors),
                "Local roots with an error, in traces that were not recorded.",
                |key| key.missed_errors,
            ),
        ]
    }

    fn attributes(&self, key: &KeyOutcomes) -> Vec<Attribute<'static>> {
        let (name, value) = match &key.key {
            Some(text) => (self.key.clone(), Value::String(text.clone().into())),
            None => ("otel.metric.overflow".to_owned(), Value::Bool(true)),
        };
        vec![Attribute { key: name.into(), value }]
    }

    fn histogram(&self, key: &KeyOutcomes) -> HistogramPoint {
        let durations: &Histogram = &key.durations;
        let (offset, buckets) = durations.buckets();
        HistogramPoint {
            attributes: self.attributes(key),
            count: durations.count(),
            sum: durations.sum_seconds(),
            min: durations.min().map(|min| min.as_secs_f64()),
            max: durations.max().map(|max| max.as_secs_f64()),
            scale: durations.scale(),
            zeros: durations.zeros(),
            offset,
            buckets: buckets.to_vec(),
            exemplars: key.exemplars.iter().map(exemplar).collect(),
        }
    }
}

fn exemplar(of: &Exemplar) -> MetricExemplar {
    MetricExemplar {
        value: of.duration.as_secs_f64(),
        time: UnixNanos(of.unix_nanos),
        trace_id: TraceId(of.trace_id),
        span_id: SpanId(of.span_id),
    }
}

#[derive(Debug, Default)]
struct State {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    is_over: bool,
    sent: u64,
    failed: u64,
    last_error: Option<String>,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Running [`OutcomeMetrics`].
#[derive(Debug)]
pub struct RunningOutcomeMetrics {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl RunningOutcomeMetrics {
    /// The number of requests that succeeded, and of those that failed.
    pub fn requests(&self) -> (u64, u64) {
        let inner = self.state.lock();
        (inner.sent, inner.failed)
    }

    /// The failure of the last request; `None` if it succeeded.
    pub fn last_error(&self) -> Option<String> {
        self.state.lock().last_error.clone()
    }

    /// Sends once more, and stops. Returns the failure of that request, if it failed.
    pub fn stop(self) -> Option<String> {
        let state = Arc::clone(&self.state);
        drop(self);
        state.lock().last_error.take()
    }
}

impl Drop for RunningOutcomeMetrics {
    fn drop(&mut self) {
        self.state.lock().is_over = true;
        self.state.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
