//! What is asked about a span from outside of the layer's own callbacks: by the extension trait.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use tracing_core::Dispatch;
use tracing_core::span::Id;
use tracing_subscriber::Registry;
use tracing_subscriber::registry::LookupSpan as _;

use super::buffer::{EventTime, Pending};
#[cfg(feature = "bridge")]
use super::context::LiveSpan;
use super::context::Open;
use super::core::Core;
use super::table::{Handle, Lane};
use super::thread::{self, State};
use crate::stats::Loss;

/// The parent of this span can no longer be set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AlreadyStarted;

/// How a span stands.
#[cfg(feature = "bridge")]
pub(crate) enum View {
    /// It may still get another parent. With what its context is to be made from.
    Undecided(Context),
    /// With its context, or that of the dropped root above it.
    Decided(Context),
}

impl Core {
    /// Sets the parent of a span that has not started. What else is in the context, baggage, goes with it.
    pub(crate) fn set_parent(&self, id: &Id, parent: Context) -> Result<(), AlreadyStarted> {
        let lane = self.table.find(id.into_u64()).ok_or(AlreadyStarted)?;
        let slot = match self.settle(id, lane) {
            Handle::Pending { slot } => slot,
            Handle::Record { slot, .. } | Handle::Unwritten { slot, .. } if !lane.is_started() => {
                let index = self.with_record(id, lane, |_, index| index).ok_or(AlreadyStarted)?;
                self.take_out(id, lane, slot, index)?
            }
            _ => return Err(AlreadyStarted),
        };
        let slot = self.pool.slot(slot).ok_or(AlreadyStarted)?;
        let pending = Pending { parent: parent.span().span_context().clone(), base: parent };
        let mut buffer = slot.lock();
        // The place may have become another trace's meanwhile.
        if lane.handle() != (Handle::Pending { slot: slot.number }) {
            return Err(AlreadyStarted);
        }
        lane.set_origin(0);
        let old = buffer.pending.replace(pending);
        drop(buffer);
        // Values of contexts are the user's, and so is what runs when they are dropped.
        drop(old);
        Ok(())
    }

    /// Makes a local root of a span that began inside of a recorded one, and has not started. It takes what was recorded
    /// of it along.
    #[cold]
    fn take_out(&self, id: &Id, lane: &Lane, slot: u32, index: u32) -> Result<u32, AlreadyStarted> {
        let from = self.pool.slot(slot).ok_or(AlreadyStarted)?;
        let Some(to) = self.pool.take() else {
            self.counters.lose(Loss::OpenTraces, 1);
            return Err(AlreadyStarted);
        };
        // Nobody else knows of this place yet, so both locks can be held.
        let (mut root, mut rest) = (to.lock(), from.lock());
        if rest.record(index, id).is_none() {
            drop(root);
            self.pool.release(to.number);
            return Err(AlreadyStarted);
        }
        rest.take_out(index, &mut root);
        root.pending = Some(Pending { parent: SpanContext::NONE, base: Context::new() });
        let kept = lane.take_context();
        lane.set_handle(Handle::Pending { slot: to.number });
        drop(root);
        // The registry keeps what is above a span open; another subscriber may not.
        let was_last = rest.open == 0;
        if was_last {
            from.end_turn();
            self.queue.push(&mut rest);
        }
        drop(rest);
        if was_last {
            self.pool.release(slot);
        }
        drop(kept);
        Ok(to.number)
    }

    /// Changes a span that is recorded, or may come to be. It is not decided about for this.
    pub(crate) fn change(&self, id: &Id, f: impl FnOnce(&mut Open<'_>)) {
        let Some(lane) = self.table.find(id.into_u64()) else { return };
        self.settle(id, lane);
        self.with_record(id, lane, |buffer, index| {
            let span_id = buffer.records[index as usize].span_id;
            if let Some(mut open) = Open::of(buffer, index, span_id, &self.settings.limits) {
                f(&mut open);
            }
        });
    }

    /// The time of an event that is added now.
    pub(crate) fn event_time(&self) -> EventTime {
        EventTime::Ticks(self.decider.clock().ticks())
    }

    /// The context of a span, for what it calls. A local root is decided about if it was not.
    pub(crate) fn context_to_call(&self, id: &Id, dispatch: &Dispatch) -> Context {
        let Some(lane) = self.table.find(id.into_u64()) else {
            return self.context_around(id, dispatch).unwrap_or_default();
        };
        let handle = self.decided(id, lane);
        lane.start();
        self.context(id, lane, handle.slot()).unwrap_or_else(|| {
            // Contexts are switched off; the ids are asked for nevertheless.
            let ids = self.with_record(id, lane, |buffer, index| {
                buffer.span_context(buffer.records[index as usize].span_id)
            });
            ids.map(|ids| Context::new().with_remote_span_context(ids)).unwrap_or_default()
        })
    }

    /// How a span stands, for who is going to ask more. A fresh local root gets a record for what is asked.
    #[cfg(feature = "bridge")]
    pub(crate) fn view(&self, id: &Id, dispatch: &Dispatch) -> View {
        if let Some(lane) = self.table.find(id.into_u64()) {
            self.settle(id, lane);
        }
        match self.base_of_unstarted(id) {
            Some(base) => View::Undecided(base),
            None => View::Decided(self.context_to_call(id, dispatch)),
        }
    }

    /// What the context of a span that has not started, and has a record, will be made from.
    #[cfg(feature = "bridge")]
    pub(crate) fn base_of_unstarted(&self, id: &Id) -> Option<Context> {
        let lane = self.table.find(id.into_u64())?;
        match lane.handle() {
            Handle::Pending { slot } => {
                let buffer = self.pool.slot(slot)?.lock();
                let pending = buffer.pending.as_ref().filter(|_| lane.handle() == Handle::Pending { slot });
                pending.map(|pending| pending.base.clone())
            }
            // Its own context, where contexts are made, has the values of the one it will be made from.
            handle @ (Handle::Record { .. } | Handle::Unwritten { .. }) if !lane.is_started() => {
                Some(self.context(id, lane, handle.slot()).unwrap_or_default())
            }
            _ => None,
        }
    }

    /// Starts a span: a local root is decided about.
    #[cfg(feature = "bridge")]
    pub(crate) fn start(&self, id: &Id) {
        if let Some(lane) = self.table.find(id.into_u64()) {
            self.decided(id, lane);
            lane.start();
        }
    }

    /// The span as the OpenTelemetry API sees it, if it has a record, whatever the context mode.
    #[cfg(feature = "bridge")]
    pub(crate) fn live_span(&self, id: &Id) -> Option<LiveSpan> {
        let lane = self.table.find(id.into_u64())?;
        let context = self.with_record(id, lane, |buffer, index| {
            buffer.span_context(buffer.records[index as usize].span_id)
        });
        Some(self.live(id, context?))
    }

    /// The context of a span that we do not know: it lies below a dropped root, or a filter keeps it from us.
    #[cold]
    fn context_around(&self, id: &Id, dispatch: &Dispatch) -> Option<Context> {
        match dispatch.downcast_ref::<Registry>() {
            Some(registry) => self.context_above(&registry.span(id)?),
            // A subscriber of another make: it is nearly always this thread that is below the dropped root.
            None => {
                matches!(thread::innermost(self.number), Some(State::Dropped { .. })).then(Context::current)
            }
        }
    }
}
