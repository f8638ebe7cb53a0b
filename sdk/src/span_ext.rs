//! The extension trait for `tracing` spans, with the methods of tracing-opentelemetry's trait.
//!
//! The methods find the layer through the span's subscriber, whatever other layers are above it. A
//! `reload` layer hides it.

use std::borrow::Cow;
use std::fmt;
use std::time::SystemTime;

use opentelemetry::trace::{SpanContext, Status};
use opentelemetry::{Context, Key, KeyValue, TraceId, Value};
use tracing_core::Dispatch;
use tracing_core::span::Id;
use tracing_subscriber::Registry;
use tracing_subscriber::registry::LookupSpan as _;

use crate::core::Core;
use crate::layer::AstracerLayer;
use crate::observer::Recorded as _;
use crate::table::is_unrecorded;
use astracer_spans::record::EventTime;

/// OpenTelemetry's side of a [`tracing::Span`]: the methods of tracing-opentelemetry's trait of the
/// same name, for spans of [`AstracerLayer`].
///
/// A local root is decided when it is first entered, when its context is requested, when a span
/// begins below it, or when it ends. Among these methods only [`context`](Self::context) triggers
/// the decision. Attributes and events set before it are recorded if the trace is then kept. On a
/// span that is dropped, disabled, or of another subscriber, the methods do nothing.
///
/// ```
/// use astracer_sdk::OpenTelemetrySpanExt as _;
/// # use opentelemetry::propagation::TextMapPropagator as _;
/// # let astracer = astracer_sdk::Astracer::builder().build().unwrap();
/// # let (propagator, headers) = (astracer.propagator(), std::collections::HashMap::<String, String>::new());
///
/// let span = tracing::info_span!("GET /orders/{id}", otel.kind = "server");
/// // Fails without a layer, or after the span was entered.
/// let _ = span.set_parent(propagator.extract(&headers));
/// span.set_attribute("http.route", "/orders/{id}");
///
/// let mut outgoing = std::collections::HashMap::<String, String>::new();
/// propagator.inject_context(&span.context(), &mut outgoing);
/// ```
pub trait OpenTelemetrySpanExt: sealed::Sealed {
    /// Makes this span a child of the span in `parent`, usually a remote one. The parent's decision
    /// holds, unless [`ParentDecision::Ignore`](crate::ParentDecision::Ignore) is set. Other values
    /// of the context, such as baggage, are current inside this span.
    ///
    /// Call it before the span is entered. A span that began inside a recorded one leaves that
    /// trace. Below a dropped root it works only on spans declared with a field `otel.kind`.
    ///
    /// # Errors
    ///
    /// [`SetParentError`] gives the reason why the parent was not set.
    fn set_parent(&self, parent: Context) -> Result<(), SetParentError>;

    /// Adds a link to another span. An invalid span context is ignored.
    fn add_link(&self, to: SpanContext) {
        self.add_link_with_attributes(to, Vec::new());
    }

    /// Adds a link to another span, with attributes.
    fn add_link_with_attributes(&self, to: SpanContext, attributes: Vec<KeyValue>);

    /// The span's context, with its ids and the trace's decision, to propagate to the services it
    /// calls.
    ///
    /// A span below a dropped root returns the dropped root's context. Without a layer the context
    /// is empty.
    fn context(&self) -> Context;

    /// Sets an attribute, which need not be a declared field. Setting it again replaces the value.
    fn set_attribute(&self, key: impl Into<Key>, value: impl Into<Value>);

    /// Sets the status by the rules of OpenTelemetry's specification ("Set Status"): `Ok` is final.
    fn set_status(&self, status: Status);

    /// Adds an event with the current time.
    fn add_event(&self, name: impl Into<Cow<'static, str>>, attributes: Vec<KeyValue>);

    /// Adds an event with the given time.
    fn add_event_with_timestamp(
        &self,
        name: impl Into<Cow<'static, str>>,
        timestamp: SystemTime,
        attributes: Vec<KeyValue>,
    );
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for tracing::Span {}
}

impl OpenTelemetrySpanExt for tracing::Span {
    fn set_parent(&self, parent: Context) -> Result<(), SetParentError> {
        let set = self.with_subscriber(|(id, dispatch)| {
            let layer = dispatch.downcast_ref::<AstracerLayer>().ok_or(SetParentError::LayerNotFound)?;
            // A layer that is switched off accepts every parent and ignores it.
            let Some(core) = layer.core() else { return Ok(()) };
            core.set_parent(id, parent).map_err(|_| SetParentError::AlreadyStarted)
        });
        set.unwrap_or(Err(SetParentError::SpanDisabled))
    }

    fn add_link_with_attributes(&self, to: SpanContext, attributes: Vec<KeyValue>) {
        if to.is_valid() {
            with_core(self, |core, id| {
                core.change(id, |body, limits| body.add_link(to, attributes, limits));
            });
        }
    }

    fn context(&self) -> Context {
        with_core(self, |core, id| core.context_to_call(id)).unwrap_or_default()
    }

    fn set_attribute(&self, key: impl Into<Key>, value: impl Into<Value>) {
        with_core(self, |core, id| {
            // Before the change, which locks the span: the conversions may be the user's code.
            let attribute = KeyValue::new(key, value);
            core.change(id, |body, limits| body.set_attribute(attribute, limits));
        });
    }

    fn set_status(&self, status: Status) {
        with_core(self, |core, id| core.change(id, |body, limits| body.set_status(status, limits)));
    }

    fn add_event(&self, name: impl Into<Cow<'static, str>>, attributes: Vec<KeyValue>) {
        with_core(self, |core, id| {
            let (name, now) = (name.into(), core.event_time());
            core.change(id, |body, limits| _ = body.add_event(name, now, attributes, limits));
        });
    }

    fn add_event_with_timestamp(
        &self,
        name: impl Into<Cow<'static, str>>,
        timestamp: SystemTime,
        attributes: Vec<KeyValue>,
    ) {
        with_core(self, |core, id| {
            let (name, time) = (name.into(), EventTime::Date(timestamp));
            core.change(id, |body, limits| _ = body.add_event(name, time, attributes, limits));
        });
    }
}

/// Returns the context to propagate to the processes that are called from here, whatever carries
/// it: the current one. With [`ContextMode::Off`](crate::ContextMode::Off) our spans are not in it,
/// so the current span's ids are added, unless another layer's span is current.
pub fn outgoing_context() -> Context {
    use opentelemetry::trace::TraceContextExt as _;

    let current = Context::current();
    let is_ours = |span: &SpanContext| span.is_valid() && !span.is_remote();
    if is_ours(current.span().span_context()) {
        return current;
    }
    let own = with_core(&tracing::Span::current(), |core, id| {
        let is_off = core.context_mode() == crate::settings::ContextMode::Off;
        is_off.then(|| core.context_to_call(id))
    });
    let own = own.flatten().map(|context| context.span().span_context().clone()).filter(is_ours);
    own.map_or(current.clone(), |own| current.with_remote_span_context(own))
}

/// Adds an event to a recorded span of a trace: to the current one, or else to the one with this
/// [`key`](crate::ObservedSpan::key). Returns whether the span's limits keep the event; `None` if
/// neither is a recorded span of the trace.
pub fn add_event_in(
    trace: TraceId,
    key: (u64, u64),
    name: &'static str,
    attributes: Vec<KeyValue>,
) -> Option<bool> {
    let mut attributes = Some(attributes);
    let mut add = |core: &Core, id: &Id| {
        let entry = core.find_recorded(id).filter(|entry| entry.trace_id() == trace)?;
        Some(core.add_event(entry, name.into(), attributes.take()?))
    };
    let here = with_core(&tracing::Span::current(), &mut add).flatten();
    here.or_else(|| add(&*Core::known(key.0)?, &Id::from_non_zero_u64(key.1.try_into().ok()?)))
}

fn with_core<T>(span: &tracing::Span, f: impl FnOnce(&Core, &Id) -> T) -> Option<T> {
    let call = |(id, dispatch): (&Id, &Dispatch)| Some(f(core_of(dispatch)?, id));
    span.with_subscriber(call).flatten()
}

fn core_of(dispatch: &Dispatch) -> Option<&Core> {
    dispatch.downcast_ref::<AstracerLayer>()?.core()
}

/// Notes that a called process reports that this trace went wrong there, for the local root that
/// this thread is inside.
pub(crate) fn note_callee_trouble(trace_id: opentelemetry::TraceId) {
    with_core(&tracing::Span::current(), |core, _| core.note_callee_trouble(trace_id));
}

/// Returns the context of a span known only by its id, for layers that add trace ids to logs. Such
/// a layer gets the id in its callbacks, and keeps the [`Dispatch`] weakly from
/// `Layer::on_register_dispatch`.
///
/// This call decides a local root that was not entered yet. Returns `None` if the subscriber has no
/// active [`AstracerLayer`], or no `Registry` that knows the span. The caller must not hold the
/// span's extensions.
pub fn get_otel_context(id: &Id, dispatch: &Dispatch) -> Option<Context> {
    let core = core_of(dispatch)?;
    let is_known = if core.makes_ids() {
        core.find(id).is_some() || is_unrecorded(id)
    } else {
        dispatch.downcast_ref::<Registry>()?.span_data(id).is_some()
    };
    if !is_known {
        return None;
    }
    Some(core.context_to_call(id))
}

/// The reason why [`OpenTelemetrySpanExt::set_parent`] did not set the parent. The variants are
/// named as in tracing-opentelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetParentError {
    /// The span's subscriber has no [`AstracerLayer`], or a `reload` layer hides it.
    LayerNotFound,
    /// The span has already started: it was entered, its context was requested, it ended, or
    /// another span began below it or follows from it. Or it is below a dropped root and was not
    /// declared with a field `otel.kind`.
    AlreadyStarted,
    /// The span does not exist: a filter refused it, or it is below a dropped root and such spans
    /// are disabled ([`DroppedSpans::Disabled`](crate::DroppedSpans::Disabled)).
    SpanDisabled,
}

impl fmt::Display for SetParentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SetParentError::LayerNotFound => {
                "no AstracerLayer on the span's subscriber, or `reload` hides it"
            }
            SetParentError::AlreadyStarted => "the span has already started, so its parent cannot be set",
            SetParentError::SpanDisabled => "the span is disabled, so its parent cannot be set",
        })
    }
}

impl std::error::Error for SetParentError {}
