//! The layer's state, and what happens to a span, apart from how `tracing` tells of it.
//!
//! | file | question |
//! |---|---|
//! | `place.rs` | Where does a new span belong? |
//! | `begin.rs` | A span begins at its place. |
//! | `decide.rs` | Is a local root's trace kept? |
//! | `outcome.rs` | Did a local root go well, and is its trace kept late? |
//! | `root.rs` | A local root begins that is decided at once. |
//! | `enter.rs` | A thread enters or leaves a span. |
//! | `end.rs` | A span ends. |
//! | `change.rs` | Something is recorded on an open span, or its parent is set. |
//! | `context.rs` | OpenTelemetry's context of a span. |
//! | `known.rs` | Which core does a context belong to? |

mod begin;
mod change;
mod context;
mod decide;
mod end;
mod enter;
mod known;
mod outcome;
mod place;
mod root;

use std::sync::Arc;

use tracing_core::span::Id;

pub(crate) use self::begin::NewId;
#[cfg(feature = "bridge")]
pub(crate) use self::change::View;
#[cfg(feature = "bridge")]
pub(crate) use self::context::LiveSpan;
pub(crate) use self::place::{Placement, parent_here, place, place_elsewhere};
use crate::budget::Budget;
use crate::clock::Ticks;
use crate::decider::Decider;
use crate::export::{Patience, Queue, Upkeep};
use crate::ids::Ids;
use crate::record::{Body, Fields};
use crate::settings::Settings;
use crate::stack::{self, Owner};
use crate::stats::{Counters, Stats, TailStats};
use crate::steering::Steering;
use crate::table::{Entry, Table};
use crate::tail::{Keeper, OpenRing, RootEnd};
use crate::traces::Traces;

/// The state that the layers of one builder share, on all subscribers.
#[derive(Debug)]
pub(crate) struct Shared {
    decider: Arc<Decider>,
    steering: Steering,
    counters: Arc<Counters>,
    queue: Arc<Queue>,
    traces: Traces,
    ids: Ids,
    settings: Settings,
    /// The age after which a trace's ended spans leave, in ticks.
    trace_age: Ticks,
    /// The bytes of open spans, on all subscribers.
    budget: Arc<Budget>,
    /// `None` unless traces are kept late.
    tail: Option<Keeper>,
}

/// A layer's state on one subscriber.
#[derive(Debug)]
pub(crate) struct Core {
    owner: Owner,
    shared: Arc<Shared>,
    /// The spans of one subscriber, by their ids there.
    table: Table,
}

impl Shared {
    pub(crate) fn new(
        settings: Settings,
        decider: Arc<Decider>,
        counters: Arc<Counters>,
        queue: Arc<Queue>,
        ids: Ids,
        tail: Option<Keeper>,
        steering: Steering,
    ) -> Arc<Self> {
        let trace_age = decider.clock().ticks_of(settings.bounds.trace_age);
        let budget = Budget::new(settings.bounds.open_bytes);
        Arc::new(Shared {
            decider,
            steering,
            counters,
            queue,
            traces: Traces::new(settings.bounds.open_traces, budget.clone()),
            ids,
            settings,
            trace_age,
            budget,
            tail,
        })
    }

    pub(crate) fn decider(&self) -> &Decider {
        &self.decider
    }

    pub(crate) fn steering(&self) -> &Steering {
        &self.steering
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(crate) fn tail(&self) -> Option<&Keeper> {
        self.tail.as_ref()
    }

    pub(crate) fn stats(&self) -> Stats {
        let counted = self.counters.read();
        Stats {
            tail: match &self.tail {
                Some(keeper) => keeper.stats(counted.tail.clone(), &self.traces),
                None => TailStats::default(),
            },
            open_bytes: self.budget.used() as u64,
            parts_cut: self.budget.parts_cut(),
            last_error: self.queue.last_error(),
            ..counted
        }
    }

    /// Passes the ended spans of all open traces on.
    pub(crate) fn flush_traces(&self, patience: Patience) {
        self.traces.flush(&self.queue, patience);
    }

    /// Hands over the spans of open traces that have ended, and takes nothing more. Spans that are
    /// still open are lost when they end.
    pub(crate) fn close(&self, patience: Patience) {
        if let Some(keeper) = &self.tail {
            // Nobody makes room any more for a trace that no policy keeps.
            keeper.hold_no_more();
        }
        if !self.queue.is_closed() {
            self.flush_traces(patience);
            // In which something was seen so far may be worth more than what comes.
            self.end_old(Ticks::MAX, patience, || true);
            self.queue.close();
        }
        // Spans that ended in between are lost, and counted.
        self.flush_traces(Patience::None);
        // A queue that is closed makes nobody wait.
        self.end_old(Ticks::MAX, patience, || true);
        if let Some(keeper) = &self.tail {
            keeper.give_up_all();
        }
    }

    /// Puts recorded traces that began before this to the policies, though their root is open.
    fn end_old(&self, before: Ticks, patience: Patience, goes_on: impl Fn() -> bool) {
        let Some(keeper) = &self.tail else { return };
        let room = OpenRing { keeper, traces: &self.traces };
        let clock = self.decider.clock();
        self.traces.take_old(before, &room, goes_on, |whole| {
            let root = RootEnd::now(&self.decider, clock.nanos_between(whole.opened, clock.ticks()));
            keeper.end_trace(whole, root, &self.traces, (&self.queue, patience));
        });
    }
}

impl Upkeep for Shared {
    /// Passes the ended spans of old traces on, and removes overrides whose time is over.
    fn run(&self) {
        self.steering.forget_expired(&self.decider);
        let before = self.decider.clock().ticks().saturating_sub(self.trace_age);
        self.traces.expire(before, &self.queue);
        // This thread makes the space in the queue: it cannot wait for it, and comes again.
        self.end_old(before, Patience::None, || !self.queue.makes_wait());
        if let Some(keeper) = &self.tail {
            keeper.expire();
        }
    }
}

impl Drop for Shared {
    /// The exporter's thread ends when the queue is closed.
    fn drop(&mut self) {
        self.close(Patience::None);
    }
}

impl Core {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Self::with_table(Table::new(shared.budget.clone()), shared)
    }

    /// The layer's state on another registry. Registries number their spans alike.
    pub(crate) fn beside(&self) -> Arc<Self> {
        Self::new(self.shared.clone())
    }

    /// The state of a subscriber that makes the spans' ids itself.
    pub(crate) fn with_own_ids(&self) -> Arc<Self> {
        let shared = self.shared.clone();
        Self::with_table(Table::with_own_ids(shared.budget.clone()), shared)
    }

    fn with_table(table: Table, shared: Arc<Shared>) -> Arc<Self> {
        let core = Arc::new(Core { owner: Owner::new(), table, shared });
        known::add(&core);
        stack::give_back_to(known::let_go_on);
        core
    }

    /// Whether ids of spans are ours, and not a registry's.
    pub(crate) fn makes_ids(&self) -> bool {
        self.table.makes_ids()
    }

    /// Tells the layers of a process apart, and one layer on different subscribers; never 0.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.owner.number()
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

    /// As [`Core::find`], with an id as it is remembered; 0 is no span's.
    #[inline]
    pub(crate) fn find_id(&self, id: u64) -> Option<&Entry> {
        if id == 0 { None } else { self.table.find(id) }
    }

    /// Counts one more handle of a span with an id of ours; 0 is no span's. `false` if it has
    /// ended.
    #[inline]
    pub(crate) fn hold(&self, id: u64) -> bool {
        self.find_id(id).is_some_and(|entry| entry.handles().hold(id, 1))
    }

    #[inline]
    fn ticks(&self) -> Ticks {
        self.shared.decider.clock().ticks()
    }

    /// Whether there may be open spans without an entry because there was no room. `above_lost` is
    /// asked about a span only then: it looks into the span's extensions.
    pub(crate) fn has_refused(&self) -> bool {
        self.table.has_refused()
    }

    /// An empty body for an open span.
    fn new_body(&self) -> Box<Body> {
        Body::take(&self.shared.budget)
    }

    /// Lends scratch memory, filled by `record` with the fields of a span.
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
