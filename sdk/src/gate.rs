//! A gate around tracing-opentelemetry's layer, which hides spans below an unrecorded span from it.
//!
//! The stock layer builds every span, attributes included, before the sampler drops it. When a span
//! is entered, the gate reads the sampler's decision from OpenTelemetry's current context. If the
//! span was dropped, the stock layer sees none of the spans that begin below it until it is exited.
//! The extension trait is the stock layer's own, and so is all handling of kept spans.
//!
//! Like [`AstracerLayer`](crate::AstracerLayer), the gate tracks the spans that a thread is inside
//! in [`stack`]. It keeps the spans hidden from the stock layer in a [`Table`].

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

use crate::memory_budget::MemoryBudget;
use crate::settings::{DroppedSpans, faces_outward};
use crate::stack::{self, CurrentSpan, Entered, Owner};
use crate::table::{Beginning, Entry, Table};

/// Puts a gate around tracing-opentelemetry's layer, with any sampler that its tracer has.
///
/// `spans` sets whether other layers see spans below an unrecorded one.
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
/// - The sampler is not asked about spans below one that it dropped, so a sampler without a parent
///   rule cannot keep some of them.
/// - Below such a span, only spans declared with a field `otel.kind`, as those of clients and
///   servers are, support the extension trait's `context` and `set_parent`. `Context::current()` is
///   right for all of them: it says that the trace is dropped.
/// - The stock layer must keep OpenTelemetry's context current, as it does by default. With
///   `with_context_activation(false)` the gate hides nothing.
/// - A filter on the gate itself, `gate(..).with_filter(..)`, makes dropped spans visible, because
///   `tracing_subscriber` then asks only the filter which spans exist. A filter that is a layer of
///   its own does not. In a `Vec` of layers, another layer that wants all spans also makes them
///   visible.
/// - Hidden spans take entries in a table of 16 MiB. When it is full, they take more memory each,
///   in the registry's extensions.
pub fn gate<L>(layer: L, spans: DroppedSpans) -> Gate<L> {
    Gate { inner: layer, spans, owner: Owner::new(), hidden: Table::new(MemoryBudget::new(TABLE_BYTES)) }
}

/// A layer behind a gate; made by [`gate`].
#[derive(Debug)]
pub struct Gate<L> {
    inner: L,
    spans: DroppedSpans,
    owner: Owner,
    /// The open spans hidden from the layer, each with the id of the dropped span above it, which
    /// is current inside.
    hidden: Table,
}

const TABLE_BYTES: usize = 16 << 20;

/// Stored in the extensions of an unrecorded span: its context, for spans that name it as their
/// parent.
struct Unrecorded(Context);

/// Stored in the extensions of a hidden span that does not fit the table: the context of the
/// dropped span above it.
struct HiddenBelow(Context);

impl<L> Gate<L> {
    #[inline]
    fn hidden(&self, id: &Id) -> Option<&Entry> {
        self.hidden.find(id.into_u64())
    }

    /// The context of the dropped span above a hidden span.
    #[inline]
    fn hidden_context<S>(&self, id: &Id, cx: &LayerContext<'_, S>) -> Option<Context>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        match self.hidden(id) {
            Some(entry) => entry.extra().context.clone(),
            None if self.hidden.has_refused() => {
                cx.span(id)?.extensions().get::<HiddenBelow>().map(|hidden_below| hidden_below.0.clone())
            }
            None => None,
        }
    }

    #[inline]
    fn is_hidden<S>(&self, id: &Id, cx: &LayerContext<'_, S>) -> bool
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        self.hidden(id).is_some() || self.hidden.has_refused() && self.hidden_context(id, cx).is_some()
    }

    /// The context of the dropped span above a new one.
    fn dropped_above<S>(&self, attributes: &Attributes<'_>, cx: &LayerContext<'_, S>) -> Option<Context>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        if attributes.is_contextual() {
            let inside = stack::innermost(self.owner.number()).filter(|inside| inside.is_dropped)?;
            // A context attached in between may hold a parent from elsewhere.
            return (inside.context == current().0).then(Context::current);
        }
        let parent = attributes.parent()?;
        if let Some(above) = self.hidden_context(parent, cx) {
            return Some(above);
        }
        let span = cx.span(parent)?;
        let extensions = span.extensions();
        extensions.get::<Unrecorded>().map(|found| found.0.clone())
    }

    /// Lets the stock layer enter a span, and reads from the resulting context whether the span is
    /// recorded.
    fn enter<S>(&self, id: &Id, cx: LayerContext<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
        L: Layer<S>,
    {
        let (before, was_recording) = current();
        // If the layer attaches nothing, contexts are switched off, and the current one does not
        // describe this span. But the context of this dropped span may also have been attached
        // before by hand; then nothing changes either. To tell the two cases apart, attach an empty
        // context meanwhile.
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
        self.push(id, CurrentSpan { entry: id.into_u64(), is_dropped, is_entryless: false, context }, None);
    }

    fn push(&self, id: &Id, inside: CurrentSpan, guard: Option<opentelemetry::ContextGuard>) {
        let guard = ManuallyDrop::new(guard);
        stack::push(Entered { owner: self.owner.number(), id: id.into_u64(), inside, stock: 0, guard });
    }
}

/// The id of the span in OpenTelemetry's current context, and whether it is recorded.
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
        // A client's span must exist, so that the processes it calls learn that the trace is
        // dropped; a server's span may be given a parent. But if the explicit parent is hidden from
        // the layer, the layer would see no parent and begin a trace. So such a span is hidden too.
        let above = if faces_outward(attributes.metadata()) {
            attributes.parent().and_then(|parent| self.hidden_context(parent, &cx))
        } else {
            self.dropped_above(attributes, &cx)
        };
        let Some(above) = above else { return self.inner.on_new_span(attributes, id, cx) };
        match self.hidden.take(id.into_u64()) {
            Some(entry) => {
                let span_id = above.span().span_context().span_id();
                entry.begin(&Beginning::below_dropped(attributes.metadata(), span_id));
                entry.extra().context = Some(above);
            }
            // Mark it as hidden, or the layer would treat it as the root of a new trace.
            None => {
                cx.span(id).map(|span| span.extensions_mut().replace(HiddenBelow(above)));
            }
        }
    }

    fn on_enter(&self, id: &Id, cx: LayerContext<'_, S>) {
        let Some(above) = self.hidden_context(id, &cx) else { return self.enter(id, cx) };
        // Attach even if that context is already current: the service or the layer may detach it
        // while the thread is inside this span.
        let guard = Some(above.attach());
        self.push(
            id,
            CurrentSpan { entry: 0, is_dropped: true, is_entryless: false, context: current().0 },
            guard,
        );
    }

    fn on_exit(&self, id: &Id, cx: LayerContext<'_, S>) {
        if self.is_hidden(id, &cx) {
            let entered = stack::pop_alone(self.owner.number(), id.into_u64());
            // Context values are the user's, so dropping them runs the user's code. No borrow is
            // held here.
            drop(entered.map(|entered| ManuallyDrop::into_inner(entered.guard)));
            return;
        }
        let _ = stack::pop_alone(self.owner.number(), id.into_u64());
        self.inner.on_exit(id, cx);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, cx: LayerContext<'_, S>) {
        if !self.is_hidden(id, &cx) {
            self.inner.on_record(id, values, cx);
        }
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, cx: LayerContext<'_, S>) {
        if !self.is_hidden(id, &cx) {
            self.inner.on_follows_from(id, follows, cx);
        }
    }

    fn on_event(&self, event: &Event<'_>, cx: LayerContext<'_, S>) {
        let dropped = match event.parent() {
            Some(parent) => self.is_hidden(parent, &cx),
            None => event.is_contextual() && stack::is_dropped(self.owner.number()),
        };
        if !dropped {
            self.inner.on_event(event, cx);
        }
    }

    fn on_close(&self, id: Id, cx: LayerContext<'_, S>) {
        match self.hidden(&id) {
            Some(entry) => {
                let extra = entry.take_extra();
                entry.free();
                // Context values are the user's, so dropping them runs the user's code. Free the
                // entry first.
                drop(extra);
            }
            None if self.is_hidden(&id, &cx) => {
                let hidden_below =
                    cx.span(&id).and_then(|span| span.extensions_mut().remove::<HiddenBelow>());
                drop(hidden_below);
            }
            None => self.inner.on_close(id, cx),
        }
    }

    fn on_id_change(&self, old: &Id, new: &Id, cx: LayerContext<'_, S>) {
        self.inner.on_id_change(old, new, cx);
    }

    // The trait's method is unsafe because callers read through the returned pointer. It points to
    // `self`, or comes from the inner layer, which lives as long.
    #[allow(unsafe_code)]
    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Self>() {
            return Some((&raw const *self).cast());
        }
        unsafe { self.inner.downcast_raw(id) }
    }
}
