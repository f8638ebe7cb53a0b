//! The layer's state and the lifecycle of a span, independent of the adapter that drives it.

mod baggage;
mod begin;
mod change;
mod context;
mod contexts;
mod end;
mod enter;
mod log_decision;
mod observe;
mod outcome;
mod place;
mod root;
mod wanted;

use std::any::Any;
use std::cell::Cell;
use std::sync::{Arc, Weak};

use opentelemetry::SpanId;
use opentelemetry_sdk::Resource;
use tracing_core::span::Id;

#[cfg(feature = "bridge")]
pub(crate) use self::context::{CALLS, LiveSpan};
use self::contexts::Contexts;
pub(crate) use self::log_decision::LogDecision;
pub(crate) use self::place::{Placement, parent_here, place, place_elsewhere};
use crate::baggage_attributes::BaggageAttributes;
use crate::decider::Decider;
use crate::housekeeping::Housekeeping;
use crate::ids::Ids;
use crate::observer::{Observer, Observing};
#[cfg(feature = "parameters")]
use crate::polling::Poller;
use crate::reports::Reports;
use crate::settings::{ContextMode, Settings};
use crate::stack::owner::{self, Number, Owner};
use crate::steering::Steering;
use crate::table::{Entry, Table};
use astracer_spans::clock::Ticks;
use astracer_spans::export::{Patience, Queue, SharedDestination, Upkeep};
use astracer_spans::late::{LateTraces, RootEnd};
use astracer_spans::memory_budget::MemoryBudget;
use astracer_spans::record::{Body, Fields};
use astracer_spans::stats::{Counters, Stats, TailStats, Tally};
use astracer_spans::sync::statics::{AtomicBool, AtomicU64, Ordering};
use astracer_spans::traces::Traces;
use astracer_spans::weight::Weighing;

/// State shared by all layers and handles of one builder, across subscribers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) decider: Arc<Decider>,
    pub(crate) steering: Arc<Steering>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) traces: Traces,
    pub(crate) ids: Ids,
    pub(crate) settings: Settings,
    /// The age at which a trace's ended spans are exported without waiting for its root, in ticks.
    pub(crate) trace_age: Ticks,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) late: Option<LateTraces>,
    pub(crate) destination: Option<Arc<SharedDestination>>,
    pub(crate) resource: Resource,
    pub(crate) reports: Arc<Reports>,
    pub(crate) baggage_attributes: Option<BaggageAttributes>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) observer_panics: AtomicU64,
    /// A trace was dropped whose contexts look like another layer's: see
    /// [`contexts`](self::contexts).
    pub(crate) dropped_unmarked: AtomicBool,
    pub(crate) housekeeping: Option<Arc<Housekeeping>>,
    #[cfg(feature = "parameters")]
    pub(crate) poller: Option<Arc<Poller>>,
}

#[derive(Debug)]
pub(crate) struct Core {
    number: Number,
    shared: Arc<Shared>,
    table: Table,
    contexts: Contexts,
    observing: Option<Observing>,
    /// There is an observer, or members of baggage become attributes.
    is_followed: bool,
}

impl Shared {
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.counters.read();
        stats.tail = match &self.late {
            Some(late) => late.stats(stats.tail, &self.traces),
            None => TailStats::default(),
        };
        stats.open_bytes = self.budget.used() as u64;
        stats.parts_cut = self.budget.parts_cut();
        stats.last_error = self.queue.last_error().or_else(|| self.queue.last_note());
        stats.waiting = self.destination.as_ref().and_then(|destination| destination.waiting());
        let fit = || self.housekeeping.as_ref()?.file_fit()?.hint();
        stats.hint = self.reports.hint().or_else(fit);
        stats.observer_panics = self.observer_panics.load(Ordering::Relaxed);
        stats
    }

    /// Whether no server was ever reached, as on a developer's machine.
    pub(crate) fn is_absent(&self) -> bool {
        self.destination.as_ref().is_some_and(|destination| destination.is_absent())
    }

    /// Queues the ended spans of open traces and stops recording. Spans that are still open are
    /// lost when they end.
    pub(crate) fn close(&self, patience: Patience) {
        if let Some(late) = &self.late {
            // Close the ring first, so that traces that no policy keeps stop evicting others from
            // it.
            late.close();
        }
        // Provisional traces whose root is still open are submitted to the policies. Otherwise what
        // they recorded so far, such as an error, would be given up.
        let end_all = || {
            self.end_old(Ticks::MAX, patience, || {
                self.queue.wait_for_space(patience);
                true
            });
        };
        if !self.queue.is_closed() {
            end_all();
            self.queue.close();
        }
        // Spans that ended between the first time and the close are lost, and counted. No thread
        // waits on a closed queue, so patience has no effect here.
        end_all();
        if let Some(late) = &self.late {
            late.give_up_all();
            self.counters.tally(Tally::Unannounced, late.announced.end());
        }
    }

    fn root_end(&self, nanos: u64, weighing: Weighing) -> RootEnd {
        let at = self.decider.clock.ticks();
        RootEnd { at, now: self.decider.time_of(at), nanos, weighing }
    }

    /// Queues the ended spans of the traces that began before `before`, although their root is
    /// still open, or submits them to the policies.
    fn end_old(&self, before: Ticks, patience: Patience, goes_on: impl Fn() -> bool) {
        let clock = &self.decider.clock;
        self.traces.expire(before, &self.queue, goes_on, |whole| {
            let Some(late) = &self.late else { return };
            let root = self.root_end(clock.nanos_between(whole.opened, clock.ticks()), Weighing::Never);
            late.end_trace(whole, root, &self.traces, patience);
        });
    }
}

impl Upkeep for Shared {
    fn run(&self) {
        self.steering.forget_expired();
        let before = self.decider.clock.ticks().saturating_sub(self.trace_age);
        // This thread frees the queue's space, so it must not wait for it. The rest is done next
        // time.
        self.end_old(before, Patience::None, || !self.queue.makes_wait());
        if let Some(late) = &self.late {
            late.expire();
        }
    }
}

impl Drop for Shared {
    /// Closing the queue ends the exporter's threads. The poller could otherwise sleep for as long
    /// as its interval.
    fn drop(&mut self) {
        self.close(Patience::None);
        #[cfg(feature = "parameters")]
        if let Some(poller) = &self.poller {
            poller.finish();
        }
        self.reports.end();
    }
}

impl Core {
    /// Makes a layer's state for one registry, or for a subscriber, whose table makes the span ids.
    pub(crate) fn new(shared: Arc<Shared>, makes_ids: bool) -> Arc<Self> {
        let number = Number::new();
        let observing = shared.observer.clone().map(|observer| Observing {
            observer,
            layer: number.get(),
            clock: shared.decider.clock.clone(),
        });
        let core = Arc::new(Core {
            number,
            table: Table::new(shared.budget.clone(), makes_ids),
            contexts: Contexts::new(shared.settings.context),
            is_followed: observing.is_some() || shared.baggage_attributes.is_some(),
            observing,
            shared,
        });
        core.number.register(Arc::downgrade(&core) as Weak<dyn Owner>);
        core
    }

    /// Makes the layer's state for another registry or subscriber. It needs a table of its own,
    /// because registries number their spans alike.
    pub(crate) fn beside(&self, makes_ids: bool) -> Arc<Self> {
        Self::new(self.shared.clone(), makes_ids)
    }

    #[inline]
    pub(crate) fn context_mode(&self) -> ContextMode {
        self.contexts.mode()
    }

    pub(crate) fn known(number: u64) -> Option<Arc<Self>> {
        let owner: Arc<dyn Any + Send + Sync> = owner::find(number)?;
        owner.downcast().ok()
    }

    /// Stores the address of the subscriber on which the layer is installed, so that layers on the
    /// same one distinguish their contexts from those that code attaches.
    pub(crate) fn set_base(&self, base: usize) {
        self.number.set_base(base);
    }

    pub(crate) fn makes_ids(&self) -> bool {
        self.table.makes_ids()
    }

    /// Identifies this layer on its subscriber among all in the process; never 0.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.number.get()
    }

    #[inline]
    pub(crate) fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.queue.is_closed()
    }

    #[inline]
    pub(crate) fn find(&self, id: &Id) -> Option<&Entry> {
        self.table.find(id.into_u64())
    }

    /// The entry that an open span has to itself.
    #[inline]
    pub(crate) fn entry_of(&self, id: &Id) -> Option<&Entry> {
        self.table.entry_of(id.into_u64())
    }

    /// Like [`Core::find`], for a stored id; 0 means no span.
    #[inline]
    pub(crate) fn find_id(&self, id: u64) -> Option<&Entry> {
        if id == 0 { None } else { self.table.find(id) }
    }

    /// Adds one handle to the span with this id, which our own table made; 0 means no span. Returns
    /// false if the span has ended.
    #[inline]
    pub(crate) fn hold(&self, id: u64) -> bool {
        self.find_id(id).is_some_and(|entry| entry.handles.hold(id, 1))
    }

    #[inline]
    fn ticks(&self) -> Ticks {
        self.shared.decider.clock.ticks()
    }

    fn new_body(&self) -> Box<Body> {
        Body::take(&self.shared.budget)
    }

    /// Fills thread-local scratch memory with the fields of a span by `record`, and lends it to
    /// `f`.
    fn with_fields<T>(
        &self,
        record: impl FnOnce(&mut dyn tracing_core::field::Visit),
        f: impl FnOnce(&mut Fields) -> T,
    ) -> T {
        Fields::borrow(|fields| {
            let settings = self.settings();
            record(&mut fields.of_span(settings.conventions, settings.limits.text_length));
            f(fields)
        })
    }
}

impl Owner for Core {
    /// The last handle stays: if there are no others, a guard of the span was leaked, and the span
    /// stays open.
    fn let_go(&self, id: u64, handles: u32) {
        if let Some(entry) = self.find_id(id) {
            entry.handles.let_go_unless_last(id, handles);
        }
    }

    fn has_open(&self, span: SpanId) -> bool {
        let found = Cell::new(false);
        self.table.each_open(|entry| found.set(found.get() || entry.span_id() == span));
        found.get()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.lose_open_spans();
    }
}
