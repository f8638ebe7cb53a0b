//! A thread enters a span, and leaves it.

use std::mem::ManuallyDrop;

use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, SpanId};
use tracing_core::span::Id;

use super::core::Core;
use super::table::Lane;
use super::thread::{self, Entered, State};
use crate::settings::ContextMode;

/// What became of entering a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Done,
    /// It lies below a dropped root whose context is not current on this thread: see [`Core::enter_dropped`].
    Unknown,
}

impl Core {
    /// A thread enters a span. A local root is decided about.
    #[inline]
    pub(crate) fn enter(&self, id: &Id) -> Entry {
        match self.table.find(id.into_u64()) {
            Some(lane) => match lane.kept_slot() {
                Some(slot) => self.enter_kept(id, lane, slot),
                None => self.enter_root(id, lane),
            },
            // Below a dropped root.
            None if thread::enter_below(self.number, self.current()) => {}
            None if thread::is_inside(self.number) || self.settings.context == ContextMode::Off => {
                self.enter_dropped(id, None);
            }
            None => return Entry::Unknown,
        }
        Entry::Done
    }

    /// A local root is decided about, if it was not.
    fn enter_root(&self, id: &Id, lane: &Lane) {
        let handle = self.decided(id, lane);
        match handle.slot() {
            Some(slot) => self.enter_kept(id, lane, slot),
            None => self.enter_dropped(id, self.context_to_enter(id, lane, None)),
        }
    }

    #[inline]
    fn enter_kept(&self, id: &Id, lane: &Lane, slot: u32) {
        let guard = ManuallyDrop::new(self.context_to_enter(id, lane, Some(slot)).map(Context::attach));
        if self.settings.extras.inactivity {
            lane.resume(self.decider.clock().ticks());
        }
        let state = State::Recorded { slot, span_id: lane.span_id() };
        let (id, place) = (id.into_u64(), self.table.place(lane));
        thread::push(Entered { layer: self.number, id, place, below: 0, state, guard });
    }

    /// The id of the context that is current, as far as it matters.
    #[inline]
    fn current(&self) -> SpanId {
        match self.settings.context {
            ContextMode::Off => SpanId::INVALID,
            _ => Context::map_current(|cx| cx.span().span_context().span_id()),
        }
    }

    /// A thread enters a dropped root, or what lies below; `context` is to be current there, if not the one that is.
    #[inline]
    pub(crate) fn enter_dropped(&self, id: &Id, context: Option<Context>) {
        let guard = ManuallyDrop::new(context.map(Context::attach));
        let state = State::Dropped { context: self.current() };
        let (layer, id) = (self.number, id.into_u64());
        thread::push(Entered { layer, id, place: u32::MAX, below: 0, state, guard });
    }

    /// A thread leaves a span.
    #[inline]
    pub(crate) fn exit(&self, id: &Id) {
        let Some(entered) = thread::pop(self.number, id.into_u64()) else { return };
        match entered.state {
            State::Recorded { .. } => {
                let now = self.decider.clock().ticks();
                if let Some(lane) = self.table.find_at(entered.place, id.into_u64()) {
                    lane.set_last_exit(now);
                    if self.settings.extras.inactivity {
                        lane.pause(now);
                    }
                }
            }
            State::Dropped { .. } => self.counters.refused(thread::take_refused()),
        }
        // The guard goes last: what its context holds may be the user's, and trace.
        drop(ManuallyDrop::into_inner(entered.guard));
    }
}
