//! Logs that follow the decision about their trace.

use std::any::TypeId;
use std::sync::{Arc, OnceLock, Weak};

use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt as _;
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Dispatch, Event, Level, LevelFilter, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context as LayerContext;

use crate::core::{Core, LogDecision};
use crate::layer::AstracerLayer;
use crate::stack;
use astracer_spans::held_logs::{Held, Holds, OwnedEvent};
use astracer_spans::sync::statics::Ordering;

/// A layer around one that writes logs, such as OpenTelemetry's appender bridge. It passes on the
/// events of kept traces, those outside of traces, and from WARN on those of all traces, so that
/// the logs shrink with the traces. Spans pass unchanged.
///
/// With [late keeping](crate::Tail) the events of an undecided trace are held in memory, at most
/// 4 MiB of them ([`LogLayer::with_held_bytes_max`]). They are passed on when the trace is kept:
/// outside of any span of `tracing`, but with the trace's ids in OpenTelemetry's current context,
/// from which the bridge takes them. A layer that takes the time itself sees the later time.
/// [`LogCounts`] has the number of events held, passed late, and dropped.
///
/// It finds astracer's layer when the subscriber is installed. tracing-core 0.1.36 does not notify
/// a subscriber inside an `Arc`, so put none around this layer: the decision would be read from
/// OpenTelemetry's current context, in which an undecided trace looks dropped.
///
/// Put it on the subscriber after astracer's layer, and filters around it:
/// `LogLayer::new(bridge).with_filter(..)`. Where no layer of astracer is on the subscriber,
/// it reads the decision from OpenTelemetry's current context.
///
/// ```
/// use astracer_sdk::{Astracer, LogLayer};
/// use tracing_subscriber::layer::SubscriberExt as _;
/// # let bridge = tracing_subscriber::layer::Identity::new();
///
/// let astracer = Astracer::builder().build()?;
/// // bridge: OpenTelemetryTracingBridge::new(&logger_provider), or a layer of fmt
/// let logs = LogLayer::new(bridge);
/// let counts = logs.counts();
/// let subscriber = tracing_subscriber::registry().with(astracer.layer.clone()).with(logs);
/// # drop(subscriber);
/// // ... and later:
/// println!("{} events dropped", counts.dropped());
/// # Ok::<(), astracer_sdk::BuildError>(())
/// ```
#[derive(Debug)]
pub struct LogLayer<L> {
    inner: L,
    always: Level,
    holds: Arc<Holds>,
    core: OnceLock<Weak<Core>>,
}

/// The counts of a [`LogLayer`].
#[derive(Clone, Debug)]
pub struct LogCounts(Arc<Holds>);

impl LogCounts {
    /// The number of events that were not passed on: their trace was dropped, or they did not fit
    /// the memory for held events.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// The number of events that are held now, because their trace is undecided.
    pub fn held(&self) -> u64 {
        self.0.held()
    }

    /// The number of events that were passed on when their trace was kept.
    pub fn passed_late(&self) -> u64 {
        self.0.passed_late.load(Ordering::Relaxed)
    }
}

impl<L> LogLayer<L> {
    /// Wraps a layer. Events of level WARN and ERROR always pass.
    pub fn new(inner: L) -> Self {
        let layer = LogLayer { inner, always: Level::WARN, holds: Arc::default(), core: OnceLock::new() };
        layer.with_held_bytes_max(4 << 20)
    }

    /// Sets the least important level whose events always pass.
    #[must_use]
    pub fn with_always(self, always: Level) -> Self {
        LogLayer { always, ..self }
    }

    /// Sets the most bytes of events that are held while their traces are undecided; 4 MiB by
    /// default. If more come, the events of the oldest trace are dropped.
    #[must_use]
    pub fn with_held_bytes_max(self, bytes: usize) -> Self {
        self.holds.bytes_max.store(bytes as u64, Ordering::Relaxed);
        self
    }

    /// The counts, which stay readable after the layer is installed.
    pub fn counts(&self) -> LogCounts {
        LogCounts(self.holds.clone())
    }

    fn decision(&self, event: &Event<'_>) -> LogDecision {
        let core = self.core.get().and_then(Weak::upgrade);
        core.and_then(|core| core.log_decision(event)).unwrap_or_else(decision_here)
    }

    /// Holds an event of an undecided trace. Returns false if the event has to be passed on at
    /// once.
    fn hold(&self, event: &Event<'_>, ids: &opentelemetry::trace::SpanContext) -> bool {
        let Some(owned) = OwnedEvent::of(event) else { return false };
        self.holds.hold(Held { event: owned, ids: ids.clone() });
        // The trace may have been kept since it was looked up, or its root has ended and this span
        // outlives it.
        if let Some(core) = self.core.get().and_then(Weak::upgrade)
            && core.late().is_some_and(|late| late.was_kept(ids.trace_id()))
        {
            self.holds.note_kept(ids.trace_id());
        }
        true
    }
}

fn decision_here() -> LogDecision {
    if !stack::has_contexts() {
        return LogDecision::Kept;
    }
    let is_dropped = Context::map_current(|context| {
        let span = context.span();
        let ids = span.span_context();
        ids.is_valid() && !ids.is_sampled()
    });
    if is_dropped { LogDecision::Dropped } else { LogDecision::Kept }
}

impl<L> LogLayer<L> {
    fn pass_ready<S: Subscriber>(&self, cx: &LayerContext<'_, S>)
    where
        L: Layer<S>,
    {
        if !self.holds.has_ready() {
            return;
        }
        for Held { event, ids } in self.holds.take_ready() {
            let _context =
                stack::has_contexts().then(|| Context::current().with_remote_span_context(ids).attach());
            event.lend(|event| self.inner.on_event(event, cx.clone()));
        }
    }
}

impl<S: Subscriber, L: Layer<S> + 'static> Layer<S> for LogLayer<L> {
    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        if let Some(core) = dispatch.downcast_ref::<AstracerLayer>().and_then(AstracerLayer::shared_core) {
            if let Some(late) = core.late() {
                late.logs.add(&self.holds);
            }
            let _ = self.core.set(Arc::downgrade(&core));
        }
        self.inner.on_register_dispatch(dispatch);
    }

    fn on_event(&self, event: &Event<'_>, cx: LayerContext<'_, S>) {
        let passes = *event.metadata().level() <= self.always
            || match self.decision(event) {
                LogDecision::Kept => true,
                LogDecision::Dropped => {
                    self.holds.drop_events(1);
                    false
                }
                LogDecision::Undecided(ids) => !self.hold(event, &ids),
            };
        if passes {
            self.inner.on_event(event, cx.clone());
        }
        self.pass_ready(&cx);
    }

    fn on_close(&self, id: Id, cx: LayerContext<'_, S>) {
        self.inner.on_close(id, cx.clone());
        self.pass_ready(&cx);
    }

    fn on_layer(&mut self, subscriber: &mut S) {
        self.inner.on_layer(subscriber);
    }

    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.inner.register_callsite(metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>, cx: LayerContext<'_, S>) -> bool {
        self.inner.enabled(metadata, cx)
    }

    fn event_enabled(&self, event: &Event<'_>, cx: LayerContext<'_, S>) -> bool {
        self.inner.event_enabled(event, cx)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.inner.max_level_hint()
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: LayerContext<'_, S>) {
        self.inner.on_new_span(attributes, id, cx);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, cx: LayerContext<'_, S>) {
        self.inner.on_record(id, values, cx);
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, cx: LayerContext<'_, S>) {
        self.inner.on_follows_from(id, follows, cx);
    }

    fn on_enter(&self, id: &Id, cx: LayerContext<'_, S>) {
        self.inner.on_enter(id, cx);
    }

    fn on_exit(&self, id: &Id, cx: LayerContext<'_, S>) {
        self.inner.on_exit(id, cx);
    }

    fn on_id_change(&self, old: &Id, new: &Id, cx: LayerContext<'_, S>) {
        self.inner.on_id_change(old, new, cx);
    }

    // The trait's method is unsafe because callers read through the returned pointer. Ours points
    // into `self`, and has the requested type.
    #[allow(unsafe_code)]
    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Self>() {
            return Some((&raw const *self).cast());
        }
        unsafe { self.inner.downcast_raw(id) }
    }
}
