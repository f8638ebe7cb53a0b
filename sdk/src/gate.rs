//! A gate around tracing-opentelemetry's layer: below a span that is not recorded, nothing is built.
//!
//! The stock layer builds every span, attributes formatted, and then has the sampler drop it. When a span is entered the
//! gate sees in OpenTelemetry's current context what the sampler said; until the span is left, the layer hears of
//! nothing that begins below it. The extension trait is the stock layer's own, and so is everything about kept spans.

mod stack;

use std::any::TypeId;
use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, SpanId};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Dispatch, Event, LevelFilter, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context as LayerContext;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use self::stack::Entered;
use crate::layer::{Handle, Table};
use crate::settings::{DroppedSpans, faces_outward};

/// Puts a gate around tracing-opentelemetry's layer, with whatever sampler its tracer has.
///
/// `presence` says what becomes of spans below one that is not recorded, see [`DroppedSpans`]: shared, they exist for other
/// layers; exclusive, they do not exist.
///
/// ```
/// use astracer_sdk::{Astracer, DroppedSpans, gate};
/// use opentelemetry::trace::TracerProvider as _;
/// use opentelemetry_sdk::trace::SdkTracerProvider;
/// use tracing_subscriber::layer::SubscriberExt as _;
///
/// let astracer = Astracer::builder().build()?;
/// let provider = SdkTracerProvider::builder().with_sampler(astracer.sampler.clone()).build();
/// let stock = tracing_opentelemetry::layer().with_tracer(provider.tracer("service"));
/// let subscriber = tracing_subscriber::registry().with(gate(stock, DroppedSpans::Disabled));
/// # drop(subscriber);
/// # Ok::<(), astracer_sdk::BuildError>(())
/// ```
///
/// What is different from the layer without a gate:
///
/// - A sampler is not asked about spans below one that it did not keep. One that would keep them nevertheless (a sampler
///   without a parent rule) makes no spans there.
/// - Below such a span, only spans that are declared with a field `otel.kind`, as those of clients and servers are, have
///   a context that the extension trait gives, and a parent that it sets. For all, `Context::current()` is right: it
///   says that the trace is dropped.
/// - The stock layer must keep OpenTelemetry's context current, as it does unless `with_context_activation(false)`
///   forbids it; the gate stays open otherwise.
/// - A filter on the gate itself, `gate(..).with_filter(..)`, makes exclusive mode shared: `tracing_subscriber` then no
///   longer asks the layer, only the filter, which spans exist. A filter that is a layer of its own does not.
pub fn gate<L>(layer: L, presence: DroppedSpans) -> Gate<L> {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    Gate { inner: layer, presence, number, unseen: Table::new(TABLE_ROWS) }
}

/// A layer behind a gate; made by [`gate`].
#[derive(Debug)]
pub struct Gate<L> {
    inner: L,
    presence: DroppedSpans,
    /// Tells the gates of a process apart; never 0.
    number: u64,
    /// The open spans that the layer was not told of.
    unseen: Table,
}

/// Rows of eight spans; as many spans again find room beside them.
const TABLE_ROWS: usize = 256;

/// In the extensions of a span that is not recorded, and that spans below may ask for its context: in shared mode.
struct Unrecorded(Context);

impl<L> Gate<L> {
    #[inline]
    fn is_unseen(&self, id: &Id) -> bool {
        self.unseen.find(id.into_u64()).is_some()
    }

    /// Whether a new span is below one that is not recorded.
    fn is_below<S>(&self, attributes: &Attributes<'_>, cx: &LayerContext<'_, S>) -> bool
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        if attributes.is_contextual() {
            // A context that someone attached in between may hold a parent from elsewhere.
            return stack::is_dropped(self.number)
                && stack::innermost(self.number).is_some_and(|innermost| innermost.context == current().0);
        }
        attributes.parent().is_some_and(|parent| {
            let unrecorded = |span: SpanRef<'_, S>| span.extensions().get::<Unrecorded>().is_some();
            self.is_unseen(parent) || cx.span(parent).is_some_and(unrecorded)
        })
    }

    /// The stock layer enters a span: what does its context say?
    fn enter<S>(&self, id: &Id, cx: LayerContext<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
        L: Layer<S>,
    {
        let (before, _) = current();
        self.inner.on_enter(id, cx.clone());
        let (context, recording) = current();
        // If nothing was attached, it is as it was: the span was entered already, or contexts are switched off.
        let is_dropped =
            cfg!(feature = "enabled") && !recording && (context != before || stack::is_dropped(self.number));
        if is_dropped && self.presence == DroppedSpans::Visible {
            mark_unrecorded(id, &cx);
        }
        let entered = Entered { gate: self.number, id: id.into_u64(), seen: true, is_dropped, context };
        stack::push(entered, None);
    }
}

/// The id of the span that is current in OpenTelemetry's context, and whether it is recorded.
fn current() -> (SpanId, bool) {
    Context::map_current(|cx| {
        let span = cx.span();
        (span.span_context().span_id(), span.is_recording())
    })
}

fn mark_unrecorded<S>(id: &Id, cx: &LayerContext<'_, S>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let Some(span) = cx.span(id) else { return };
    let mut extensions = span.extensions_mut();
    if extensions.get_mut::<Unrecorded>().is_none() {
        extensions.insert(Unrecorded(Context::current()));
    }
}

/// The context of the span that is not recorded, above one that the layer was not told of.
#[cold]
fn context_above<'a, S: LookupSpan<'a>>(span: &SpanRef<'a, S>) -> Option<Context> {
    span.scope().skip(1).find_map(|above| above.extensions().get::<Unrecorded>().map(|found| found.0.clone()))
}

impl<S, L> Layer<S> for Gate<L>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    L: Layer<S>,
{
    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        self.inner.on_register_dispatch(dispatch);
    }

    fn on_layer(&mut self, subscriber: &mut S) {
        self.inner.on_layer(subscriber);
    }

    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        let interest = self.inner.register_callsite(metadata);
        if self.presence.refuses(metadata) && interest.is_always() {
            return Interest::sometimes();
        }
        interest
    }

    #[inline]
    fn enabled(&self, metadata: &Metadata<'_>, cx: LayerContext<'_, S>) -> bool {
        let refused =
            self.presence == DroppedSpans::Disabled && stack::is_dropped(self.number) && metadata.is_span();
        !refused && self.inner.enabled(metadata, cx)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.inner.max_level_hint()
    }

    fn event_enabled(&self, event: &Event<'_>, cx: LayerContext<'_, S>) -> bool {
        self.inner.event_enabled(event, cx)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: LayerContext<'_, S>) {
        // What a client's span calls is to know that the trace is dropped, and a server's may be given a parent.
        let is_unseen = !faces_outward(attributes.metadata())
            && self.is_below(attributes, &cx)
            && self.unseen.insert(id.into_u64(), Handle::Dropped, 0, 0).is_some();
        // If there is no room to remember that the layer was not told, it is.
        if !is_unseen {
            self.inner.on_new_span(attributes, id, cx);
        }
    }

    fn on_enter(&self, id: &Id, cx: LayerContext<'_, S>) {
        if !self.is_unseen(id) {
            return self.enter(id, cx);
        }
        // On another thread than that of the span above, its context is not current yet.
        let inside = stack::is_dropped(self.number);
        let context = if inside { None } else { cx.span(id).as_ref().and_then(context_above) };
        let guard = context.map(Context::attach);
        let (context, _) = current();
        let entered =
            Entered { gate: self.number, id: id.into_u64(), seen: false, is_dropped: true, context };
        stack::push(entered, guard);
    }

    fn on_exit(&self, id: &Id, cx: LayerContext<'_, S>) {
        match stack::pop(self.number, id.into_u64()) {
            Some((Entered { seen: false, .. }, guard)) => drop(guard),
            _ => self.inner.on_exit(id, cx),
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, cx: LayerContext<'_, S>) {
        if !self.is_unseen(id) {
            self.inner.on_record(id, values, cx);
        }
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, cx: LayerContext<'_, S>) {
        if !self.is_unseen(id) {
            self.inner.on_follows_from(id, follows, cx);
        }
    }

    fn on_event(&self, event: &Event<'_>, cx: LayerContext<'_, S>) {
        let dropped = match event.parent() {
            Some(parent) => self.is_unseen(parent),
            None => event.is_contextual() && stack::is_dropped(self.number),
        };
        if !dropped {
            self.inner.on_event(event, cx);
        }
    }

    fn on_close(&self, id: Id, cx: LayerContext<'_, S>) {
        if !self.unseen.take(id.into_u64()) {
            self.inner.on_close(id, cx);
        }
    }

    fn on_id_change(&self, old: &Id, new: &Id, cx: LayerContext<'_, S>) {
        self.inner.on_id_change(old, new, cx);
    }

    // The trait's method is unsafe for what its callers do with the pointer: it points to `self`, or to where the inner
    // layer, which lives as long, says.
    #[allow(unsafe_code)]
    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Self>() {
            return Some((&raw const *self).cast());
        }
        unsafe { self.inner.downcast_raw(id) }
    }
}
