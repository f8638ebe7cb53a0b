//! The state of a layer, and what happens to a span: it begins, and something is recorded.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use opentelemetry::trace::SpanContext;
use opentelemetry::{Context, SpanId};
use opentelemetry_sdk::trace::IdGenerator;
use tracing_core::Metadata;
use tracing_core::span::{self, Attributes};

use super::buffer::{Buffer, Pending};
use super::fields::{Fields, Visitor};
use super::pool::{Pool, Slot};
use super::record::Record;
use super::table::{Handle, Lane, Table};
use super::thread::{self, ThreadName};
use crate::clock::Ticks;
use crate::decider::Decider;
use crate::queue::Queue;
use crate::settings::Settings;
use crate::stats::{Counters, Loss};

/// A layer's state on one subscriber.
#[derive(Debug)]
pub(crate) struct Core {
    /// Tells the layers of a process apart, and what one layer is on different subscribers; never 0.
    pub(crate) number: u64,
    pub(crate) settings: Settings,
    pub(crate) decider: Arc<Decider>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) queue: Arc<Queue>,
    /// The spans of one subscriber, by their ids there; all else is shared with what is on other subscribers.
    pub(crate) table: Table,
    pub(crate) pool: Arc<Pool>,
    pub(crate) ids: Arc<dyn IdGenerator>,
    /// Itself, for contexts: they may live for longer.
    pub(crate) own: Weak<Core>,
    pub(super) closed: Arc<AtomicBool>,
    /// Whether it is on a subscriber.
    placed: AtomicBool,
}

/// Rows of four spans; as many spans again find room beside them.
const TABLE_ROWS: usize = 2048;

/// Where a new local root stands.
pub(crate) struct Surroundings {
    /// Valid if there is a parent outside of our layer.
    pub(crate) parent: SpanContext,
    pub(crate) base: Context,
    /// The base is the context that is current, and holds nothing that must be kept until the decision.
    pub(crate) plain: Option<Plain>,
}

/// Where a span is that begins below a record.
pub(crate) struct Below<'a> {
    pub(crate) slot: u32,
    pub(crate) span_id: SpanId,
    pub(crate) base: Base<'a>,
}

/// What the context of a span below a record is made from, and when.
pub(crate) enum Base<'a> {
    /// When it is first entered: from the context that is current then.
    Current,
    /// When it is first entered: from an empty one.
    Empty,
    /// Now: from one that holds what the span is to take with it, wherever it is entered.
    Of(&'a Context),
}

/// A base that need not be kept.
#[derive(Clone, Copy)]
pub(crate) enum Plain {
    Current,
    Empty,
}

impl Plain {
    /// See [`Lane::origin`].
    fn origin(self) -> u32 {
        match self {
            Plain::Current => thread::number(),
            Plain::Empty => 0,
        }
    }
}

impl Core {
    pub(crate) fn new(
        settings: Settings,
        decider: Arc<Decider>,
        counters: Arc<Counters>,
        queue: Arc<Queue>,
        ids: Arc<dyn IdGenerator>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|own| Core {
            number: next_number(),
            settings,
            decider,
            counters,
            queue,
            table: Table::new(TABLE_ROWS),
            pool: Arc::new(Pool::new(settings.bounds.open_traces)),
            ids,
            own: own.clone(),
            closed: Arc::default(),
            placed: AtomicBool::new(false),
        })
    }

    /// The layer's state on a subscriber: this, or if this is on another one already, a new one. Subscribers number
    /// their spans alike.
    pub(crate) fn place(self: &Arc<Self>) -> Arc<Self> {
        if !self.placed.swap(true, Ordering::Relaxed) {
            return self.clone();
        }
        Arc::new_cyclic(|own| Core {
            number: next_number(),
            settings: self.settings,
            decider: self.decider.clone(),
            counters: self.counters.clone(),
            queue: self.queue.clone(),
            table: Table::new(TABLE_ROWS),
            pool: self.pool.clone(),
            ids: self.ids.clone(),
            own: own.clone(),
            closed: self.closed.clone(),
            placed: AtomicBool::new(true),
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(super) fn ticks(&self) -> Ticks {
        self.decider.clock().ticks()
    }

    pub(crate) fn visit<'a>(&self, fields: &'a mut Fields) -> Visitor<'a> {
        Visitor::of_span(fields, self.settings.conventions, self.settings.limits.text_length as usize)
    }

    pub(crate) fn visit_event<'a>(&self, fields: &'a mut Fields) -> Visitor<'a> {
        Visitor::of_event(fields, self.settings.conventions, self.settings.limits.text_length as usize)
    }

    // --- A span begins.

    /// A local root begins. Nothing is decided yet: its parent may still be set.
    pub(crate) fn begin_root(&self, attributes: &Attributes<'_>, id: &span::Id, around: Surroundings) {
        let now = self.ticks();
        self.begin_pending(attributes, id, now, around);
    }

    /// As [`Core::begin_root`], where there is nothing around. What has no fields needs no record yet.
    #[inline]
    pub(crate) fn begin_plain_root(&self, attributes: &Attributes<'_>, id: &span::Id, plain: Plain) {
        if !attributes.fields().is_empty() || !self.decider.key().is_name_only() {
            let (parent, base) = (SpanContext::NONE, Context::new());
            return self.begin_root(attributes, id, Surroundings { parent, base, plain: Some(plain) });
        }
        if let Some(lane) = self.insert(id, Handle::Fresh, self.ticks(), plain.origin()) {
            lane.set_metadata(attributes.metadata());
        }
    }

    fn begin_pending(&self, attributes: &Attributes<'_>, id: &span::Id, now: Ticks, around: Surroundings) {
        Fields::borrow(|fields| {
            attributes.record(&mut self.visit(fields));
            let metadata = attributes.metadata();
            let Some(slot) = self.pool.take() else {
                self.counters.lose(Loss::OpenTraces, 1);
                return;
            };
            let origin = around.plain.map_or(0, Plain::origin);
            let pending = Handle::Pending { slot: slot.number };
            if self.insert(id, pending, 0, origin).is_none() {
                return self.pool.release(slot.number);
            }
            let record = Record::new(id, self.ids.new_span_id(), SpanId::INVALID, metadata, now);
            let mut buffer = slot.lock();
            buffer.pending = Some(Pending { parent: around.parent, base: around.base });
            self.fill(&mut buffer, record, Some(fields));
        });
    }

    /// Adds a span to the table, if there is room.
    #[inline(always)]
    fn insert(&self, id: &span::Id, handle: Handle, began: Ticks, origin: u32) -> Option<&Lane> {
        let lane = self.table.insert(id.into_u64(), handle, began, origin);
        match lane {
            Some(lane) if self.settings.extras.inactivity => lane.track(),
            Some(_) => {}
            None => self.counters.lose(Loss::OpenSpans, 1),
        }
        lane
    }

    /// Adds a record, with the thread and the fields.
    #[inline(always)]
    pub(super) fn fill(&self, buffer: &mut Buffer, mut record: Record, fields: Option<&mut Fields>) -> u32 {
        if self.settings.extras.threads {
            if buffer.threads.is_empty() {
                buffer.first_thread = thread::number();
            }
            record.thread = ThreadName::with(|thread| buffer.thread(thread)).unwrap_or(u16::MAX);
        }
        let index = buffer.push(record);
        if let Some(fields) = fields.filter(|fields| !fields.is_empty()) {
            buffer.absorb(index, fields, &self.settings.limits, self.settings.bounds.text_per_trace);
        }
        index
    }

    /// A span begins below a record.
    #[inline]
    pub(crate) fn begin_child(&self, attributes: &Attributes<'_>, id: &span::Id, below: Below<'_>) {
        let now = self.ticks();
        if attributes.fields().is_empty() {
            if !self.begin_unwritten(attributes.metadata(), id, &below, now) {
                self.add_child(attributes.metadata(), id, below, now, None);
            }
            return;
        }
        Fields::borrow(|fields| {
            attributes.record(&mut self.visit(fields));
            self.add_child(attributes.metadata(), id, below, now, Some(fields));
        });
    }

    /// As [`Core::add_child`], without a lock: a span of which there is nothing to record yet but that it began gets its
    /// record when it ends, or when there is more. `false` if there is more now.
    #[inline]
    fn begin_unwritten(
        &self,
        metadata: &'static Metadata<'static>,
        id: &span::Id,
        below: &Below<'_>,
        now: Ticks,
    ) -> bool {
        let Some(slot) = self.pool.slot(below.slot) else { return false };
        let here = thread::number();
        if self.settings.extras.threads && slot.thread() != here {
            return false;
        }
        let origin = match below.base {
            Base::Current => here,
            Base::Empty => 0,
            Base::Of(_) => return false,
        };
        // The handle comes last: what holds on to the id of a span that was here before sees all of this, or nothing.
        let Some(lane) = self.insert(id, Handle::Dropped, now, origin) else { return true };
        lane.set_metadata(metadata);
        lane.set_parent(below.span_id);
        lane.set_span_id(self.ids.new_span_id());
        lane.set_handle(Handle::Unwritten { slot: slot.number, turn: slot.turn() });
        true
    }

    fn add_child(
        &self,
        metadata: &'static Metadata<'static>,
        id: &span::Id,
        Below { slot, span_id: parent, base }: Below<'_>,
        now: Ticks,
        fields: Option<&mut Fields>,
    ) {
        let Some(slot) = self.pool.slot(slot) else { return };
        // Nobody else knows the id yet: the handle becomes that of the record when there is one.
        let origin = if matches!(base, Base::Current) { thread::number() } else { 0 };
        let Some(lane) = self.insert(id, Handle::Dropped, 0, origin) else { return };
        let span_id = self.ids.new_span_id();
        let mut buffer = slot.lock();
        if !self.make_room(&mut buffer) {
            return;
        }
        let record = Record::new(id, span_id, parent, metadata, now);
        let index = self.fill(&mut buffer, record, fields);
        lane.set_span_id(span_id);
        drop(buffer);
        let handle = Handle::Record { slot: slot.number, index };
        if let Base::Of(base) = base {
            self.keep_context(id, lane, Some(slot.number), base);
        }
        lane.set_handle(handle);
    }

    /// Whether there is room for one more record of the trace; if not, the record is lost.
    #[inline]
    pub(super) fn make_room(&self, buffer: &mut Buffer) -> bool {
        let max = self.settings.bounds.spans_per_trace;
        let loss = if buffer.open == 0 {
            // The trace was taken away by a shutdown.
            Loss::ShutDown
        } else if buffer.has_room(max) {
            return true;
        } else {
            self.queue.push(&mut buffer.part());
            if buffer.has_room(max) {
                return true;
            }
            Loss::TraceFull
        };
        self.counters.lose(loss, 1);
        false
    }

    // --- Something is recorded.

    /// Does something with the record of a span that is open, under its trace's lock. A span that has none yet gets one.
    pub(crate) fn with_record<T>(
        &self,
        id: &span::Id,
        lane: &Lane,
        f: impl FnOnce(&mut Buffer, u32) -> T,
    ) -> Option<T> {
        let slot = self.pool.slot(lane.handle().slot()?)?;
        let mut buffer = slot.lock();
        let index = match lane.handle() {
            Handle::Record { slot: own, index } if own == slot.number => index,
            Handle::Pending { slot: own } if own == slot.number => 0,
            Handle::Unwritten { .. } => self.write(id, lane, slot, &mut buffer)?,
            _ => return None,
        };
        buffer.record(index, id)?;
        Some(f(&mut buffer, index))
    }

    /// Writes the record of a span that has none yet. `None` if the span was another, or its trace is gone.
    fn write(&self, id: &span::Id, lane: &Lane, slot: &Slot, buffer: &mut Buffer) -> Option<u32> {
        // Whoever holds a context may ask when the span has ended, and its place has become another's. While the trace is
        // locked, a span of it that has no record does not end.
        let is_unwritten = lane.is(Handle::Unwritten { slot: slot.number, turn: slot.turn() });
        let is_own = self.table.find(id.into_u64()).is_some_and(|own| std::ptr::eq(own, lane));
        if !is_unwritten || !is_own {
            return None;
        }
        if !self.make_room(buffer) {
            lane.set_handle(Handle::Dropped);
            return None;
        }
        let index = buffer.push(self.record_of(id, lane, lane.metadata()?));
        lane.set_handle(Handle::Record { slot: slot.number, index });
        Some(index)
    }

    /// What a span's lane knows of it.
    #[inline]
    pub(super) fn record_of(
        &self,
        id: &span::Id,
        lane: &Lane,
        metadata: &'static Metadata<'static>,
    ) -> Record {
        let mut record = Record::new(id, lane.span_id(), lane.parent(), metadata, lane.began());
        if self.settings.extras.threads {
            // It began on the thread that is the trace's first: see `begin_unwritten`.
            record.thread = 0;
        }
        record
    }

    /// A fresh root gets a record, to hold what is recorded before the decision.
    pub(crate) fn settle(&self, id: &span::Id, lane: &Lane) -> Handle {
        let handle = lane.handle();
        if handle != Handle::Fresh {
            return handle;
        }
        if !lane.claim(handle) {
            return self.decided(id, lane);
        }
        let (Some(metadata), Some(slot)) = (lane.metadata(), self.pool.take()) else {
            self.counters.lose(Loss::OpenTraces, 1);
            lane.set_handle(Handle::Dropped);
            return Handle::Dropped;
        };
        let pending = Pending { parent: SpanContext::NONE, base: Context::new() };
        let record = Record::new(id, self.ids.new_span_id(), SpanId::INVALID, metadata, lane.began());
        let mut buffer = slot.lock();
        buffer.pending = Some(pending);
        self.fill(&mut buffer, record, None);
        drop(buffer);
        let pending = Handle::Pending { slot: slot.number };
        lane.set_handle(pending);
        pending
    }
}

fn next_number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}
