//! Makes tracing-opentelemetry's own `OpenTelemetrySpanExt` work on spans of
//! [`AstracerLayer`](crate::AstracerLayer), so that middleware written for the stock layer runs
//! unchanged.
//!
//! The stock trait downcasts the subscriber to a type private to its crate. Functions found through
//! that type then look up two more types, and the stock layer's data in the span's extensions. So
//! our layer owns a stock layer that is never put on a subscriber, and forwards to it the downcasts
//! that it does not handle itself. The span lookup leads here:
//!
//! ```text
//! span.set_parent(..) -> stock trait -> Adapter::span_data(id) -> a span in a private registry
//!                             |                                   with stock data, for this call
//!                             |
//!                             +-- changes the data --> the lookup's result is dropped
//!                                                         -> RecordTracer: writes to our record
//! ```
//!
//! Each call is self-contained. No stock data outlives it, so a span has only one state, ours,
//! whichever trait is called first. A decided span is presented as started, with a context that
//! writes to our record; an undecided one as a builder. Spans on which the trait is never called
//! pay nothing.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use opentelemetry::trace::{SpanBuilder, SpanContext, TraceContextExt as _, TraceState, Tracer};
use opentelemetry::{Context, KeyValue, SpanId, TraceFlags, TraceId, Value};
use tracing_core::callsite::DefaultCallsite;
use tracing_core::field::Value as Field;
use tracing_core::metadata::Kind;
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Level, Metadata, Subscriber};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::layer::{Context as LayerContext, Layered, SubscriberExt as _};
use tracing_subscriber::registry::{Extensions, ExtensionsMut, LookupSpan, SpanData};
use tracing_subscriber::{Layer, Registry};

use crate::core::{CALLS, Core, LiveSpan};
use crate::settings::ContextMode;
use astracer_spans::record::EventTime;

pub(crate) struct Bridge {
    adapter: Adapter,
    /// Never sees a span. The stock trait finds its functions through it, and its tracer when a
    /// context is requested.
    asked: OpenTelemetryLayer<Adapter, RecordTracer>,
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge").finish_non_exhaustive()
    }
}

impl Bridge {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        let asked = OpenTelemetryLayer::new(RecordTracer { core: core.clone(), decides: true });
        let stock = OpenTelemetryLayer::new(RecordTracer { core: core.clone(), decides: false })
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false);
        let adapter = Adapter { core, stock: Registry::default().with(Quiet(stock)) };
        Bridge { adapter, asked }
    }

    pub(crate) fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Adapter>() {
            return Some((&raw const self.adapter).cast());
        }
        // SAFETY: for types that only its crate can name, the stock layer returns pointers into
        // itself. It is a field of `self`, so they stay valid as long as `self`, as `downcast_raw`
        // requires.
        #[allow(unsafe_code)]
        unsafe {
            self.asked.downcast_raw(id)
        }
    }
}

/// The subscriber in which the stock trait looks up spans, by their ids in the real subscriber.
struct Adapter {
    core: Arc<Core>,
    stock: Layered<Quiet, Registry>,
}

impl<'a> LookupSpan<'a> for Adapter {
    type Data = StockSpan<'a>;

    fn span_data(&'a self, id: &Id) -> Option<StockSpan<'a>> {
        let base = self.core.base_of_unstarted(id);
        let decided = base.is_none();
        let around = match base {
            Some(base) => base.with_remote_span_context(untouched(id)),
            // For a span below a dropped root, that root's.
            None => self.core.context_to_call(id),
        };
        let guard = around.attach();
        let made = with_attributes(id, |attributes| self.stock.new_span(attributes));
        if decided {
            start(&self.stock, &made);
        }
        drop(guard);
        let registry = self.stock.downcast_ref::<Registry>()?;
        let data = registry.span_data(&made)?;
        CALLS.set(CALLS.get() + 1);
        Some(StockSpan { data, stock: &self.stock, decided })
    }
}

struct StockSpan<'a> {
    data: <Registry as LookupSpan<'a>>::Data,
    stock: &'a Layered<Quiet, Registry>,
    decided: bool,
}

impl<'a> SpanData<'a> for StockSpan<'a> {
    fn id(&self) -> Id {
        self.data.id()
    }

    fn metadata(&self) -> &'static Metadata<'static> {
        self.data.metadata()
    }

    fn parent(&self) -> Option<&Id> {
        None
    }

    fn extensions(&self) -> Extensions<'_> {
        self.data.extensions()
    }

    fn extensions_mut(&self) -> ExtensionsMut<'_> {
        self.data.extensions_mut()
    }
}

impl Drop for StockSpan<'_> {
    /// Ends the call: its changes to a builder are written to our record.
    fn drop(&mut self) {
        let id = self.data.id();
        // A call that panicked has poisoned the data's lock.
        if !self.decided && !std::thread::panicking() {
            start(self.stock, &id);
        }
        self.stock.try_close(id);
        CALLS.set(CALLS.get().saturating_sub(1));
    }
}

/// Makes the stock layer start a span. It passes the builder, with the call's changes, to its
/// tracer, the [`RecordTracer`]. Does nothing if the span has already started.
fn start(stock: &Layered<Quiet, Registry>, id: &Id) {
    stock.record_follows_from(id, id);
}

/// A stock layer that builds and starts spans but never ends one: the ends are ours.
struct Quiet(OpenTelemetryLayer<Registry, RecordTracer>);

impl Layer<Registry> for Quiet {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: LayerContext<'_, Registry>) {
        self.0.on_new_span(attributes, id, cx);
    }

    /// Means "start", not "follows from": see [`start`]. The registry itself must not see an enter,
    /// because on the matching exit it would notify the thread's subscriber.
    fn on_follows_from(&self, id: &Id, _: &Id, cx: LayerContext<'_, Registry>) {
        self.0.on_enter(id, cx.clone());
        self.0.on_exit(id, cx);
    }
}

#[derive(Clone, Debug)]
struct RecordTracer {
    core: Arc<Core>,
    /// Whether building a span means that its context was requested, which decides it.
    decides: bool,
}

impl Tracer for RecordTracer {
    type Span = LiveSpan;

    fn build_with_context(&self, mut builder: SpanBuilder, parent: &Context) -> LiveSpan {
        let ids = parent.span().span_context().clone();
        let mut attributes = builder.attributes.take().unwrap_or_default();
        let Some(id) = take_id(&mut attributes) else { return LiveSpan::dropped(ids) };
        let core = &self.core;
        if core.base_of_unstarted(&id).is_some() {
            if ids != untouched(&id) {
                // The span was undecided a moment ago. If another thread has entered it since, that
                // thread wins.
                let _ = core.set_parent(&id, parent.clone());
            }
            if let Some(entry) = core.find(&id).filter(|_| self.decides) {
                core.started(entry);
            }
        }
        let (links, events) = (builder.links.unwrap_or_default(), builder.events.unwrap_or_default());
        if !(attributes.is_empty() && links.is_empty() && events.is_empty()) {
            core.change(&id, |body, limits| {
                attributes.into_iter().for_each(|attribute| body.set_attribute(attribute, limits));
                links.into_iter().for_each(|link| body.add_link(link.span_context, link.attributes, limits));
                for event in events {
                    let time = EventTime::Date(event.timestamp);
                    _ = body.add_event(event.name, time, event.attributes, limits);
                }
            });
        }
        match core.live_span(&id) {
            Some(span) if core.context_mode() == ContextMode::Recording => span,
            // Contexts that outlive the call do not record.
            Some(span) => span.only_in_calls(),
            // Where contexts are off, a dropped span has no ids to show.
            None => {
                let context = core.find(&id).and_then(|entry| core.context(entry));
                LiveSpan::dropped(context.map_or(ids, |context| context.span().span_context().clone()))
            }
        }
    }
}

/// Marks a builder whose parent was never set: an invalid parent that no other code would use.
fn untouched(id: &Id) -> SpanContext {
    let span_id = SpanId::from(id.into_u64());
    SpanContext::new(TraceId::INVALID, span_id, TraceFlags::NOT_SAMPLED, false, TraceState::NONE)
}

/// The attribute that carries the span's id in the real subscriber. It is the only data that
/// reaches the tracer whichever method is called.
const ID: &str = "astracer.id";

static METADATA: Metadata<'static> = tracing_core::metadata! {
    name: "astracer.asked",
    target: module_path!(),
    level: Level::INFO,
    fields: &[ID],
    callsite: &CALLSITE,
    kind: Kind::SPAN
};

static CALLSITE: DefaultCallsite = DefaultCallsite::new(&METADATA);

fn with_attributes<T>(id: &Id, f: impl FnOnce(&Attributes<'_>) -> T) -> T {
    let number = id.into_u64() as i64;
    let values = [Some(&number as &dyn Field)];
    f(&Attributes::new(&METADATA, &METADATA.fields().value_set_all(&values)))
}

fn take_id(attributes: &mut Vec<KeyValue>) -> Option<Id> {
    let at = attributes.iter().position(|attribute| attribute.key.as_str() == ID)?;
    match attributes.remove(at).value {
        Value::I64(number) if number != 0 => Some(Id::from_u64(number as u64)),
        _ => None,
    }
}

/// A span lookup must be a `Subscriber`, but this one is never installed.
impl Subscriber for Adapter {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
