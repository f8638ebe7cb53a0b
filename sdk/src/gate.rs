//! A gate around tracing-opentelemetry's layer: below a span that is not recorded, nothing is
//! built.
//!
//! The stock layer builds every span, attributes formatted, and then has the sampler drop it. When
//! a span is entered, the gate reads the sampler's answer in OpenTelemetry's current context; until
//! the span is left, the layer hears nothing of spans that begin below it. The extension trait is
//! the stock layer's own, and so is everything about kept spans.
//!
//! Like our layer, it keeps the spans that a thread is inside of in [`stack`], and those that the
//! stock layer was not told of in a [`Table`].

use std::any::TypeId;
use std::mem::ManuallyDrop;

use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use opentelemetry::{Context, SpanId};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Dispatch, Event, LevelFilter, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context as LayerContext;
use tracing_subscriber::registry::LookupSpan;

use crate::budget::Budget;
use crate::settings::{DroppedSpans, faces_outward};
use crate::stack::{self, Entered, Inside, Owner};
use crate::table::{Beginning, Entry, Table};

/// Puts a gate around tracing-opentelemetry's layer, with whatever sampler its tracer has.
///
/// `spans` says whether other layers see spans below one that is not recorded.
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
/// Differences from the layer without a gate:
///
/// - A sampler is not asked about spans below one that it did not keep. One that would still keep
///   them (a sampler without a parent rule) makes no spans there.
/// - Below such a span, only spans that are declared with a field `otel.kind`, as those of clients
///   and servers are, have a context that the extension trait gives, and a parent that it sets. For
///   all, `Context::current()` is right: it says that the trace is dropped.
/// - The stock layer must keep OpenTelemetry's context current, as it does unless
///   `with_context_activation(false)` forbids it; else the gate stays open.
/// - A filter on the gate itself, `gate(..).with_filter(..)`, makes dropped spans visible:
///   `tracing_subscriber` then no longer asks the layer, only the filter, which spans exist. A
///   filter that is a layer of its own does not. A `Vec` of layers does so as well, if another one
///   in it wants all spans.
/// - Spans that the stock layer is not told of take room in a table of 16 MiB. When it is full,
///   they take more, in the registry's extensions.
pub fn gate<L>(layer: L, spans: DroppedSpans) -> Gate<L> {
    Gate { inner: layer, spans, owner: Owner::new(), unseen: Table::new(Budget::new(TABLE_BYTES)) }
}

/// A layer behind a gate; made by [`gate`].
#[derive(Debug)]
pub struct Gate<L> {
    inner: L,
    spans: DroppedSpans,
    owner: Owner,
    /// The open spans that the layer was not told of, with the id of the dropped span above, which
    /// is current inside.
    unseen: Table,
}

const TABLE_BYTES: usize = 16 << 20;

/// In the extensions of a span that is not recorded: its context, for spans that name it as their
/// parent.
struct Unrecorded(Context);

/// In the extensions of a span that the layer was not told of and for which the table has no room:
/// the context of the dropped span above.
struct Untold(Context);

impl<L> Gate<L> {
    #[inline]
    fn unseen(&self, id: &Id) -> Option<&Entry> {
        self.unseen.find(id.into_u64())
    }

    /// The context of the dropped span above a span that the layer was not told of.
    #[inline]
    fn unseen_context<S>(&self, id: &Id, cx: &LayerContext<'_, S>) -> Option<Context>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        match self.unseen(id) {
            Some(entry) => entry.extra().context.clone(),
            None if self.unseen.has_refused() => {
                cx.span(id)?.extensions().get::<Untold>().map(|untold| untold.0.clone())
            }
            None => None,
        }
    }

    #[inline]
    fn is_unseen<S>(&self, id: &Id, cx: &LayerContext<'_, S>) -> bool
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        self.unseen(id).is_some() || self.unseen.has_refused() && self.unseen_context(id, cx).is_some()
    }

    /// The context of the dropped span above a new one.
    fn dropped_above<S>(&self, attributes: &Attributes<'_>, cx: &LayerContext<'_, S>) -> Option<Context>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        if attributes.is_contextual() {
            let inside = stack::innermost(self.owner.number()).filter(|inside| inside.is_dropped)?;
            // A context that someone attached in between may hold a parent from elsewhere.
            return (inside.context == current().0).then(Context::current);
        }
        let parent = attributes.parent()?;
        if let Some(above) = self.unseen_context(parent, cx) {
            return Some(above);
        }
        let span = cx.span(parent)?;
        let extensions = span.extensions();
        extensions.get::<Unrecorded>().map(|found| found.0.clone())
    }

    /// The stock layer enters a span; its context tells whether the span is recorded.
    fn enter<S>(&self, id: &Id, cx: LayerContext<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
        L: Layer<S>,
    {
        let (before, was_recording) = current();
        // If nothing is attached, contexts are switched off, and the current one says nothing of
        // this span. It may also be current already that this span is dropped: someone has attached
        // its context. To tell the two apart, another one is current meanwhile.
        let is_ambiguous =
            before != SpanId::INVALID && !was_recording && !stack::is_dropped(self.owner.number());
        let other =
            is_ambiguous.then(|| Context::current().with_remote_span_context(SpanContext::NONE).attach());
        let before = if is_ambiguous { SpanId::INVALID } else { before };
        self.inner.on_enter(id, cx.clone());
        let (attached, recording) = current();
        drop(other);
        let is_dropped = cfg!(feature = "enabled")
            && !recording
            && (attached != before || stack::is_dropped(self.owner.number()));
        let (context, _) = current();
        if is_dropped && self.spans == DroppedSpans::Visible {
            mark_unrecorded(id, &cx);
        }
        self.push(id, Inside { entry: id.into_u64(), is_dropped, is_lost: false, context }, None);
    }

    fn push(&self, id: &Id, inside: Inside, guard: Option<opentelemetry::ContextGuard>) {
        let guard = ManuallyDrop::new(guard);
        stack::push(Entered { owner: self.owner.number(), id: id.into_u64(), inside, stock: 0, guard });
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
        if self.spans.refuses(metadata) && interest.is_always() {
            return Interest::sometimes();
        }
        interest
    }

    #[inline]
    fn enabled(&self, metadata: &Metadata<'_>, cx: LayerContext<'_, S>) -> bool {
        let refused = self.spans == DroppedSpans::Disabled
            && stack::is_dropped(self.owner.number())
            && self.spans.refuses(metadata);
        !refused && self.inner.enabled(metadata, cx)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.inner.max_level_hint()
    }

    fn event_enabled(&self, event: &Event<'_>, cx: LayerContext<'_, S>) -> bool {
        self.inner.event_enabled(event, cx)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: LayerContext<'_, S>) {
        // The processes that a client's span calls have to know that the trace is dropped, and a
        // server's span may be given a parent. But an explicit parent that the layer was not told
        // of is none to it: it would begin a trace.
        let above = if faces_outward(attributes.metadata()) {
            attributes.parent().and_then(|parent| self.unseen_context(parent, &cx))
        } else {
            self.dropped_above(attributes, &cx)
        };
        let Some(above) = above else { return self.inner.on_new_span(attributes, id, cx) };
        match self.unseen.take(id.into_u64()) {
            Some(entry) => {
                let span_id = above.span().span_context().span_id();
                entry.begin(&Beginning::below_dropped(attributes.metadata(), span_id));
                entry.extra().context = Some(above);
            }
            // The layer would take it for the root of a new trace.
            None => {
                cx.span(id).map(|span| span.extensions_mut().replace(Untold(above)));
            }
        }
    }

    fn on_enter(&self, id: &Id, cx: LayerContext<'_, S>) {
        let Some(above) = self.unseen_context(id, &cx) else { return self.enter(id, cx) };
        // Always, also where that context is current already: whoever attached it, the service or
        // the layer, may detach it while the thread is inside this span.
        let guard = Some(above.attach());
        self.push(id, Inside { entry: 0, is_dropped: true, is_lost: false, context: current().0 }, guard);
    }

    fn on_exit(&self, id: &Id, cx: LayerContext<'_, S>) {
        if self.is_unseen(id, &cx) {
            let entered = stack::pop_alone(self.owner.number(), id.into_u64());
            // Values of contexts are the user's, and so is the code that runs when they are
            // dropped.
            drop(entered.map(|entered| ManuallyDrop::into_inner(entered.guard)));
            return;
        }
        let _ = stack::pop_alone(self.owner.number(), id.into_u64());
        self.inner.on_exit(id, cx);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, cx: LayerContext<'_, S>) {
        if !self.is_unseen(id, &cx) {
            self.inner.on_record(id, values, cx);
        }
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, cx: LayerContext<'_, S>) {
        if !self.is_unseen(id, &cx) {
            self.inner.on_follows_from(id, follows, cx);
        }
    }

    fn on_event(&self, event: &Event<'_>, cx: LayerContext<'_, S>) {
        let dropped = match event.parent() {
            Some(parent) => self.is_unseen(parent, &cx),
            None => event.is_contextual() && stack::is_dropped(self.owner.number()),
        };
        if !dropped {
            self.inner.on_event(event, cx);
        }
    }

    fn on_close(&self, id: Id, cx: LayerContext<'_, S>) {
        match self.unseen(&id) {
            Some(entry) => {
                let extra = entry.take_extra();
                entry.free();
                // Values of contexts are the user's, and so is the code that runs when they are
                // dropped.
                drop(extra);
            }
            None if self.is_unseen(&id, &cx) => {
                let untold = cx.span(&id).and_then(|span| span.extensions_mut().remove::<Untold>());
                drop(untold);
            }
            None => self.inner.on_close(id, cx),
        }
    }

    fn on_id_change(&self, old: &Id, new: &Id, cx: LayerContext<'_, S>) {
        self.inner.on_id_change(old, new, cx);
    }

    // The trait's method is unsafe because its callers read through the pointer: it points to
    // `self`, or is the inner layer's, which lives as long.
    #[allow(unsafe_code)]
    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Self>() {
            return Some((&raw const *self).cast());
        }
        unsafe { self.inner.downcast_raw(id) }
    }
}
