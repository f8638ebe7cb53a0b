//! The extension trait for `tracing` spans, with the methods of tracing-opentelemetry's trait.
//!
//! They find the layer through the span's subscriber, and work below any other layers. A `reload`
//! layer hides it.

use std::borrow::Cow;
use std::fmt;
use std::time::SystemTime;

use opentelemetry::trace::{SpanContext, Status};
use opentelemetry::{Context, Key, KeyValue, Value};
use tracing_core::Dispatch;
use tracing_core::span::Id;
use tracing_subscriber::Registry;
use tracing_subscriber::registry::LookupSpan as _;

use crate::above::{EntrylessId, above_lost_on};
use crate::core::Core;
use crate::layer::AstracerLayer;
use crate::record::EventTime;

/// OpenTelemetry's side of a [`tracing::Span`]: the methods of tracing-opentelemetry's trait of the
/// same name, for spans of [`AstracerLayer`].
///
/// A local root is put to the sampler when it is first entered, or asked for its context, or a span
/// begins below it, or it ends. Nothing else here decides: what is set before is recorded if the
/// trace comes to be kept. On a span that is dropped, disabled, or of another subscriber, nothing
/// happens.
///
/// ```
/// use astracer_sdk::OpenTelemetrySpanExt as _;
/// # use opentelemetry::propagation::TextMapPropagator as _;
/// # let astracer = astracer_sdk::Astracer::builder().build().unwrap();
/// # let (propagator, headers) = (astracer.propagator(), std::collections::HashMap::<String, String>::new());
///
/// let span = tracing::info_span!("GET /orders/{id}", otel.kind = "server");
/// // Fails where there is no layer, or the span was entered.
/// let _ = span.set_parent(propagator.extract(&headers));
/// span.set_attribute("http.route", "/orders/{id}");
///
/// let mut outgoing = std::collections::HashMap::<String, String>::new();
/// propagator.inject_context(&span.context(), &mut outgoing);
/// ```
pub trait OpenTelemetrySpanExt: sealed::Sealed {
    /// Makes this span a child of the span that `parent` holds, which is nearly always a remote
    /// one; its decision is respected, unless
    /// [`ParentDecision::Ignore`](crate::ParentDecision::Ignore) says otherwise. What else is in
    /// the context, such as baggage, is current inside of the span.
    ///
    /// To be called before the span is entered. A span that began inside of a recorded one leaves
    /// that one's trace. Below a dropped root, on spans that are declared with a field `otel.kind`.
    ///
    /// # Errors
    ///
    /// [`SetParentError`] says why the parent is not set.
    fn set_parent(&self, parent: Context) -> Result<(), SetParentError>;

    /// Adds a link to another span. One that is not valid is left out.
    fn add_link(&self, to: SpanContext) {
        self.add_link_with_attributes(to, Vec::new());
    }

    /// Adds a link to another span, with attributes.
    fn add_link_with_attributes(&self, to: SpanContext, attributes: Vec<KeyValue>);

    /// The span's context, to be sent along with what it calls: with its ids, and the trace's
    /// decision.
    ///
    /// That of a span below a dropped root is the dropped root's. An empty one if there is no
    /// layer.
    fn context(&self) -> Context;

    /// Sets an attribute, also one that the span was not declared with. Of two values the later
    /// counts.
    fn set_attribute(&self, key: impl Into<Key>, value: impl Into<Value>);

    /// Sets the status, in the order that OpenTelemetry's specification gives ("Set Status"): `Ok`
    /// is final.
    fn set_status(&self, status: Status);

    /// Adds an event that happens now.
    fn add_event(&self, name: impl Into<Cow<'static, str>>, attributes: Vec<KeyValue>);

    /// Adds an event that happened at `timestamp`.
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
            // Switched off, it accepts everything and does nothing.
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
        let context = self.with_subscriber(|(id, dispatch)| {
            let core = dispatch.downcast_ref::<AstracerLayer>()?.core()?;
            Some(context_to_call(core, id, dispatch))
        });
        context.flatten().unwrap_or_default()
    }

    fn set_attribute(&self, key: impl Into<Key>, value: impl Into<Value>) {
        with_core(self, |core, id| {
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
            core.change(id, |body, limits| body.add_event(name, now, attributes, limits));
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
            core.change(id, |body, limits| body.add_event(name, time, attributes, limits));
        });
    }
}

fn context_to_call(core: &Core, id: &Id, dispatch: &Dispatch) -> Context {
    core.context_to_call(id, || above_lost_on(core, id, dispatch))
}

fn with_core(span: &tracing::Span, f: impl FnOnce(&Core, &Id)) {
    span.with_subscriber(|(id, dispatch)| {
        if let Some(core) = dispatch.downcast_ref::<AstracerLayer>().and_then(AstracerLayer::core) {
            f(core, id);
        }
    });
}

/// The context of a span that is known by its id only, for layers that put trace ids on their logs:
/// they get the id in their callbacks, and keep the [`Dispatch`] weakly, from
/// `Layer::on_register_dispatch`.
///
/// A local root that was not entered is decided about. `None` if the subscriber has no
/// [`AstracerLayer`] that is switched on, or no `Registry` that knows the span. The extensions of
/// the span must not be held.
pub fn get_otel_context(id: &Id, dispatch: &Dispatch) -> Option<Context> {
    let core = dispatch.downcast_ref::<AstracerLayer>()?.core()?;
    let is_known = if core.makes_ids() {
        core.find(id).is_some() || EntrylessId::of(id).is_some()
    } else {
        dispatch.downcast_ref::<Registry>()?.span_data(id).is_some()
    };
    if !is_known {
        return None;
    }
    Some(context_to_call(core, id, dispatch))
}

/// Why [`OpenTelemetrySpanExt::set_parent`] did not set the parent. By the names of
/// tracing-opentelemetry's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetParentError {
    /// The span's subscriber has no [`AstracerLayer`], or one that cannot be found: a `reload`
    /// layer hides it.
    LayerNotFound,
    /// The span was entered, or asked for its context, or ended, or another span began below it or
    /// follows from it; or it is below a dropped root, and not declared with a field `otel.kind`.
    AlreadyStarted,
    /// The span does not exist: a filter refused it, or it is below a dropped root, and such
    /// spans are disabled ([`DroppedSpans::Disabled`](crate::DroppedSpans::Disabled)).
    SpanDisabled,
}

impl fmt::Display for SetParentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SetParentError::LayerNotFound => "the span's subscriber has no layer of ours",
            SetParentError::AlreadyStarted => "the span has begun: its parent cannot be set",
            SetParentError::SpanDisabled => "the span is disabled",
        })
    }
}

impl std::error::Error for SetParentError {}
