//! The layer: what `tracing` tells it, and where it goes from there.

mod ask;
mod atomic_id;
mod attribute;
mod buffer;
mod bundle;
mod context;
mod convert;
mod core;
mod decide;
mod end;
mod enter;
mod fields;
mod memory;
mod pool;
mod record;
mod table;
mod thread;

#[cfg(feature = "bridge")]
use std::any::TypeId;
use std::sync::Arc;

use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::{SpanContext, TraceContextExt};
use opentelemetry::{Context as OtelContext, SpanId};
#[cfg(feature = "bridge")]
use tracing_core::Dispatch;
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

#[cfg(feature = "bridge")]
pub(crate) use self::ask::View;
pub(crate) use self::buffer::{Buffer, EventTime};
pub(crate) use self::bundle::{Bundle, Parcel};
#[cfg(feature = "bridge")]
pub(crate) use self::context::LiveSpan;
pub(crate) use self::convert::{Converter, Scratch};
pub(crate) use self::core::Core;
#[cfg(test)]
pub(crate) use self::record::Record as SpanRecord;
pub(crate) use self::table::{Handle, Table};
pub(crate) use self::thread::number as thread_number;

use self::core::{Base, Below, Plain, Surroundings};
use self::enter::Entry;
use self::fields::Fields;
use self::thread::State;
#[cfg(feature = "bridge")]
use crate::bridge::Bridge;
use crate::settings::{ContextMode, DroppedSpans, faces_outward};

/// The layer for `tracing_subscriber`: put it on a `Registry`, with other layers as you like.
///
/// Built by [`Builder`](crate::Builder). It may be cloned, and the clones put on several subscribers: they share the
/// sampler, the exporter, the bounds and the counts, and each knows the spans of its own subscriber.
#[derive(Clone, Debug)]
pub struct AstracerLayer {
    /// `None`: switched off.
    core: Option<Arc<Core>>,
    /// The core's number, if spans below a dropped root are refused; else 0.
    refusing: u64,
    #[cfg(feature = "bridge")]
    bridge: Option<Arc<Bridge>>,
}

impl AstracerLayer {
    pub(crate) fn new(core: Option<Arc<Core>>) -> Self {
        let refuses = |core: &&Arc<Core>| core.settings.presence == DroppedSpans::Disabled;
        AstracerLayer {
            refusing: core.as_ref().filter(refuses).map_or(0, |core| core.number),
            #[cfg(feature = "bridge")]
            bridge: core.clone().map(|core| Arc::new(Bridge::new(core))),
            core,
        }
    }

    pub(crate) fn core(&self) -> Option<&Core> {
        if cfg!(feature = "enabled") { self.core.as_deref() } else { None }
    }
}

impl<S> Layer<S> for AstracerLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_layer(&mut self, _: &mut S) {
        if let Some(core) = &self.core {
            *self = AstracerLayer::new(Some(core.place()));
        }
    }

    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match self.core() {
            Some(core) if core.settings.presence.refuses(metadata) => Interest::sometimes(),
            _ => Interest::always(),
        }
    }

    #[inline]
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        let refused = cfg!(feature = "enabled")
            && self.refusing != 0
            && thread::is_dropped(self.refusing)
            && DroppedSpans::Disabled.refuses(metadata);
        if refused {
            thread::refuse();
        }
        !refused
    }

    #[inline(always)]
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let Some(core) = self.core() else { return };
        if attributes.is_contextual() {
            begin_contextual(core, attributes, id);
        } else {
            begin_explicit(core, attributes, id, &cx);
        }
    }

    #[inline(always)]
    fn on_enter(&self, id: &Id, cx: Context<'_, S>) {
        let Some(core) = self.core() else { return };
        if let Entry::Unknown = core.enter(id) {
            enter_unknown(core, id, &cx);
        }
    }

    #[inline(always)]
    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        if let Some(core) = self.core() {
            core.exit(id);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let Some(core) = self.core() else { return };
        let Some(lane) = core.table.find(id.into_u64()) else { return };
        if core.settle(id, lane).slot().is_none() {
            return;
        }
        Fields::borrow(|fields| {
            values.record(&mut core.visit(fields));
            let bounds = &core.settings.bounds;
            core.with_record(id, lane, |buffer, index| {
                buffer.absorb(index, fields, &core.settings.limits, bounds.text_per_trace);
            });
        });
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, _: Context<'_, S>) {
        let Some(core) = self.core() else { return };
        let Some(to) = span_context(core, follows) else { return };
        let Some(lane) = core.table.find(id.into_u64()) else { return };
        core.settle(id, lane);
        core.with_record(id, lane, |buffer, index| {
            let span_id = buffer.records[index as usize].span_id;
            if let Some(mut open) = context::Open::of(buffer, index, span_id, &core.settings.limits) {
                open.add_link(to, Vec::new());
            }
        });
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(core) = self.core() else { return };
        let (id, lane) = if event.is_contextual() {
            let Some((id, place, State::Recorded { .. })) = thread::innermost_span(core.number) else {
                return;
            };
            // 0: it was left already.
            let lane = if id == 0 { None } else { core.table.find_at(place, id) };
            let Some(lane) = lane else { return };
            (Id::from_u64(id), lane)
        } else {
            let Some(id) = event.parent() else { return };
            let Some(lane) = core.table.find(id.into_u64()) else { return };
            (id.clone(), lane)
        };
        if core.settle(&id, lane).slot().is_none() {
            return;
        }
        let now = core.decider.clock().ticks();
        Fields::borrow(|fields| {
            event.record(&mut core.visit_event(fields));
            let (limits, text_max) = (&core.settings.limits, core.settings.bounds.text_per_trace);
            core.with_record(&id, lane, |buffer, index| {
                buffer.absorb_event(index, fields, event.metadata(), now, limits, text_max);
            });
        });
    }

    #[inline(always)]
    fn on_close(&self, id: Id, _: Context<'_, S>) {
        if let Some(core) = self.core() {
            core.end(&id);
        }
    }

    #[cfg(feature = "bridge")]
    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        if let Some(bridge) = &self.bridge {
            bridge.register(dispatch);
        }
    }

    // The trait's method is unsafe for what its callers do with the pointers; these point into what `self` owns, and
    // are of the types asked for.
    #[cfg(feature = "bridge")]
    #[allow(unsafe_code)]
    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Self>() {
            return Some((&raw const *self).cast());
        }
        self.bridge.as_ref()?.downcast_raw(id)
    }
}

/// What is current, as far as a new span needs to know.
struct Around {
    suppressed: bool,
    span_id: SpanId,
    /// Whether there is baggage, which the span takes with it wherever it is entered.
    loaded: bool,
}

fn around() -> Around {
    OtelContext::map_current(|cx| Around {
        suppressed: cx.is_telemetry_suppressed(),
        span_id: cx.span().span_context().span_id(),
        loaded: !cx.baggage().is_empty(),
    })
}

#[inline]
fn begin_contextual(core: &Core, attributes: &Attributes<'_>, id: &Id) {
    let off = core.settings.context == ContextMode::Off;
    match thread::innermost(core.number) {
        Some(State::Dropped { .. }) if off => {}
        Some(State::Dropped { context }) => begin_below_dropped(core, attributes, id, context),
        Some(State::Recorded { slot, span_id, .. }) => {
            let below = Below { slot, span_id, base: Base::Current };
            if off {
                return core.begin_child(attributes, id, below);
            }
            match around() {
                Around { suppressed: true, .. } => {}
                around if around.span_id != span_id => begin_root(core, attributes, id),
                Around { loaded: true, .. } => {
                    let base = &OtelContext::current();
                    core.begin_child(attributes, id, Below { base: Base::Of(base), ..below });
                }
                _ => core.begin_child(attributes, id, below),
            }
        }
        None => begin_root(core, attributes, id),
    }
}

#[inline]
fn begin_below_dropped(core: &Core, attributes: &Attributes<'_>, id: &Id, context: SpanId) {
    let found = OtelContext::map_current(|cx| cx.span().span_context().span_id());
    // A context that someone attached in between may hold a parent from elsewhere; and a server's span may be given one.
    // If it is not, the parent is the dropped root.
    if found != SpanId::INVALID && (found != context || faces_outward(attributes.metadata())) {
        begin_root(core, attributes, id);
    }
}

fn begin_root(core: &Core, attributes: &Attributes<'_>, id: &Id) {
    if core.is_closed() {
        return;
    }
    let plain = OtelContext::map_current(|cx| {
        !cx.has_active_span() && !cx.is_telemetry_suppressed() && cx.baggage().is_empty()
    });
    if plain {
        return core.begin_plain_root(attributes, id, Plain::Current);
    }
    let base = OtelContext::current();
    if base.is_telemetry_suppressed() {
        return;
    }
    let parent = base.span().span_context().clone();
    core.begin_root(attributes, id, Surroundings { parent, base, plain: None });
}

/// A span with an explicit parent, or with none.
fn begin_explicit<S>(core: &Core, attributes: &Attributes<'_>, id: &Id, cx: &Context<'_, S>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let parent = attributes.parent().and_then(|parent| Some((parent, core.table.find(parent.into_u64())?)));
    match parent {
        Some((parent, lane)) => {
            let handle = core.decided(parent, lane);
            lane.start();
            if let Some(slot) = handle.slot() {
                let kept = lane.kept_context();
                let base = kept.as_ref().map_or(Base::Empty, Base::Of);
                core.begin_child(attributes, id, Below { slot, span_id: lane.span_id(), base });
            }
        }
        // A parent that is there, and that we know nothing of, was dropped. One that is not was filtered away.
        None if attributes.parent().is_some_and(|parent| cx.span(parent).is_some()) => {}
        None if core.is_closed() || OtelContext::is_current_telemetry_suppressed() => {}
        None => core.begin_plain_root(attributes, id, Plain::Empty),
    }
}

/// The ids of a span that another one follows from. If it was not decided about yet, it is now.
fn span_context(core: &Core, id: &Id) -> Option<SpanContext> {
    let lane = core.table.find(id.into_u64())?;
    core.decided(id, lane);
    lane.start();
    core.with_record(id, lane, |buffer, index| buffer.span_context(buffer.records[index as usize].span_id))
}

/// A span that is not in the table lies below a dropped root (or there was no room). On another thread than the root's,
/// its context is not current yet.
#[cold]
fn enter_unknown<S>(core: &Core, id: &Id, cx: &Context<'_, S>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    core.enter_dropped(id, cx.span(id).and_then(|span| core.context_above(&span)));
}
