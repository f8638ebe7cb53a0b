//! The layer: what `tracing` tells it, and where it goes from there.

mod ask;
mod buffer;
mod context;
mod convert;
mod core;
mod fields;
mod pool;
mod record;
mod table;
mod thread;

#[cfg(feature = "bridge")]
use std::any::TypeId;
use std::sync::Arc;

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

pub(crate) use self::ask::Meta;
#[cfg(feature = "bridge")]
pub(crate) use self::ask::View;
pub(crate) use self::buffer::{EventTime, Parcel};
#[cfg(feature = "bridge")]
pub(crate) use self::context::LiveSpan;
pub(crate) use self::convert::Converter;
pub(crate) use self::core::Core;
pub(crate) use self::thread::number as thread_number;

use self::core::{Below, Plain, Surroundings};
use self::fields::Fields;
use self::table::Handle;
use self::thread::{Entered, State};
#[cfg(feature = "bridge")]
use crate::bridge::Bridge;
use crate::settings::{ContextMode, Presence, faces_outward};

/// The layer for `tracing_subscriber`: put it on a `Registry`, with other layers as you like.
///
/// Built by [`Builder`](crate::Builder). It may be cloned; the clones are one layer in all respects, for two
/// subscribers that report to one exporter.
#[derive(Clone, Debug)]
pub struct AstracerLayer {
    /// `None`: switched off.
    core: Option<Arc<Core>>,
    #[cfg(feature = "bridge")]
    bridge: Option<Arc<Bridge>>,
}

impl AstracerLayer {
    pub(crate) fn new(core: Option<Arc<Core>>) -> Self {
        AstracerLayer {
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
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match self.core() {
            Some(core) if core.settings.presence.refuses(metadata) => Interest::sometimes(),
            _ => Interest::always(),
        }
    }

    #[inline]
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        let Some(core) = self.core() else { return true };
        if core.settings.presence == Presence::Shared
            || !thread::is_dropped(core.number)
            || !core.settings.presence.refuses(metadata)
        {
            return true;
        }
        thread::refuse();
        false
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let Some(core) = self.core() else { return };
        if attributes.is_contextual() {
            begin_contextual(core, attributes, id);
        } else {
            begin_explicit(core, attributes, id, &cx);
        }
    }

    fn on_enter(&self, id: &Id, cx: Context<'_, S>) {
        let Some(core) = self.core() else { return };
        let number = id.into_u64();
        let (state, context) = match core.table.find(number) {
            None => unknown(core, id, &cx),
            Some(lane) => match core.decided(id, &lane, || cx.metadata(id)) {
                Handle::Record { slot, index } => {
                    let context =
                        if core.settings.context == ContextMode::Off { None } else { lane.context() };
                    if core.settings.extras.inactivity {
                        let now = core.decider.clock().ticks();
                        core.with_record(id, Handle::Record { slot, index }, |buffer, index| {
                            buffer.records[index as usize].activity.enter(now);
                        });
                    }
                    (State::Recorded { slot, index, span_id: lane.span_id() }, context)
                }
                _ => dropped(lane.context()),
            },
        };
        let guard = context.map(OtelContext::attach);
        thread::push(Entered { layer: core.number, id: number, state, guard });
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        let Some(core) = self.core() else { return };
        let Some(entered) = thread::pop(core.number, id.into_u64()) else { return };
        match entered.state {
            State::Recorded { slot, index, .. } => {
                let now = core.decider.clock().ticks();
                if let Some(lane) = core.table.find(id.into_u64()) {
                    lane.set_time(now);
                }
                if core.settings.extras.inactivity {
                    core.with_record(id, Handle::Record { slot, index }, |buffer, index| {
                        buffer.records[index as usize].activity.exit(now);
                    });
                }
            }
            State::Dropped { .. } => core.counters.refused(thread::take_refused()),
        }
        // The guard goes last: what its context holds may be the user's, and trace.
        drop(entered.guard);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, cx: Context<'_, S>) {
        let Some(core) = self.core() else { return };
        let Some(lane) = core.table.find(id.into_u64()) else { return };
        let handle = core.settle(id, &lane, || cx.metadata(id));
        if handle.place().is_none() {
            return;
        }
        Fields::borrow(|fields| {
            values.record(&mut core.visit(fields));
            let bounds = &core.settings.bounds;
            core.with_record(id, handle, |buffer, index| {
                buffer.absorb(index, fields, &core.settings.limits, bounds.text_per_trace);
            });
        });
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, cx: Context<'_, S>) {
        let Some(core) = self.core() else { return };
        let Some(to) = span_context(core, follows, &cx) else { return };
        let Some(lane) = core.table.find(id.into_u64()) else { return };
        let handle = core.settle(id, &lane, || cx.metadata(id));
        core.with_record(id, handle, |buffer, index| {
            let span_id = buffer.records[index as usize].span_id;
            if let Some(mut open) = context::Open::of(buffer, index, span_id, &core.settings.limits) {
                open.add_link(to, Vec::new());
            }
        });
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let Some(core) = self.core() else { return };
        let (id, handle) = if event.is_contextual() {
            match thread::innermost_id(core.number) {
                Some((id, State::Recorded { slot, index, .. })) => {
                    (Id::from_u64(id), Handle::Record { slot, index })
                }
                _ => return,
            }
        } else {
            let Some(id) = event.parent() else { return };
            let Some(lane) = core.table.find(id.into_u64()) else { return };
            (id.clone(), core.settle(id, &lane, || cx.metadata(id)))
        };
        if handle.place().is_none() {
            return;
        }
        let now = core.decider.clock().ticks();
        Fields::borrow(|fields| {
            event.record(&mut core.visit_event(fields));
            let (limits, text_max) = (&core.settings.limits, core.settings.bounds.text_per_trace);
            core.with_record(&id, handle, |buffer, index| {
                buffer.absorb_event(index, fields, event.metadata(), now, limits, text_max);
            });
        });
    }

    fn on_close(&self, id: Id, cx: Context<'_, S>) {
        let Some(core) = self.core() else { return };
        // A root that nobody entered has not been decided about.
        if let Some(lane) = core.table.find(id.into_u64()) {
            core.decided(&id, &lane, || cx.metadata(&id));
            drop(lane);
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
fn current(context: ContextMode) -> Option<(bool, SpanId)> {
    (context != ContextMode::Off).then(|| {
        OtelContext::map_current(|cx| (cx.is_telemetry_suppressed(), cx.span().span_context().span_id()))
    })
}

fn begin_contextual(core: &Core, attributes: &Attributes<'_>, id: &Id) {
    match thread::innermost(core.number) {
        Some(State::Dropped { context }) => match current(core.settings.context) {
            // A context that someone attached in between may hold a parent from elsewhere; and a server's span may
            // be given one. If it is not, the parent is the dropped root.
            Some((false, now))
                if now != SpanId::INVALID && (now != context || faces_outward(attributes.metadata())) =>
            {
                begin_root(core, attributes, id)
            }
            _ => {}
        },
        Some(State::Recorded { slot, span_id, .. }) => match current(core.settings.context) {
            Some((true, _)) => {}
            Some((false, now)) if now != span_id => begin_root(core, attributes, id),
            _ => core.begin_child(attributes, id, Below { slot, span_id, base: None }),
        },
        None => begin_root(core, attributes, id),
    }
}

fn begin_root(core: &Core, attributes: &Attributes<'_>, id: &Id) {
    if core.is_closed() {
        return;
    }
    let around = OtelContext::map_current(|cx| {
        if cx.is_telemetry_suppressed() {
            return None;
        }
        let parent = cx.span().span_context().clone();
        let baggage = opentelemetry::baggage::BaggageExt::baggage(cx);
        let plain = !parent.is_valid() && baggage.is_empty();
        let base = if plain { OtelContext::new() } else { cx.clone() };
        Some(Surroundings { parent, base, plain: plain.then_some(Plain::Current) })
    });
    if let Some(around) = around {
        core.begin_root(attributes, id, around);
    }
}

/// A span with an explicit parent, or with none.
fn begin_explicit<S>(core: &Core, attributes: &Attributes<'_>, id: &Id, cx: &Context<'_, S>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let parent = attributes.parent().and_then(|parent| Some((parent, core.table.find(parent.into_u64())?)));
    match parent {
        Some((parent, lane)) => {
            let handle = core.decided(parent, &lane, || cx.metadata(parent));
            if let Handle::Record { slot, .. } = handle {
                let base = lane.context().unwrap_or_default();
                core.begin_child(attributes, id, Below { slot, span_id: lane.span_id(), base: Some(&base) });
            }
        }
        // A parent that is there, and that we know nothing of, was dropped. One that is not was filtered away.
        None if attributes.parent().is_some_and(|parent| cx.span(parent).is_some()) => {}
        None if core.is_closed() || OtelContext::is_current_telemetry_suppressed() => {}
        None => {
            let around = Surroundings {
                parent: SpanContext::NONE,
                base: OtelContext::new(),
                plain: Some(Plain::Empty),
            };
            core.begin_root(attributes, id, around);
        }
    }
}

/// The ids of a span that another one follows from. If it was not decided about yet, it is now.
fn span_context<S>(core: &Core, id: &Id, cx: &Context<'_, S>) -> Option<SpanContext>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let lane = core.table.find(id.into_u64())?;
    let handle = core.decided(id, &lane, || cx.metadata(id));
    core.with_record(id, handle, |buffer, index| buffer.span_context(buffer.records[index as usize].span_id))
}

fn dropped(context: Option<OtelContext>) -> (State, Option<OtelContext>) {
    let span_id = match &context {
        Some(context) => context.span().span_context().span_id(),
        None => OtelContext::map_current(|cx| cx.span().span_context().span_id()),
    };
    (State::Dropped { context: span_id }, context)
}

/// A span that is not in the table lies below a dropped root (or there was no room). On another thread than the root's,
/// its context is not current yet.
#[inline]
fn unknown<S>(core: &Core, id: &Id, cx: &Context<'_, S>) -> (State, Option<OtelContext>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    if core.settings.context == ContextMode::Off {
        return (State::Dropped { context: SpanId::INVALID }, None);
    }
    let inside = thread::innermost(core.number).is_some();
    let context = if inside { None } else { context_of_ancestors(core, id, cx) };
    dropped(context)
}

#[cold]
fn context_of_ancestors<S>(core: &Core, id: &Id, cx: &Context<'_, S>) -> Option<OtelContext>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let span = cx.span(id)?;
    span.scope().skip(1).find_map(|ancestor| core.context_of(ancestor.id().into_u64()))
}
