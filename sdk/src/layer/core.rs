//! The state of a layer, and what happens to a span: it begins, it is decided about, it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::{SpanContext, TraceState};
use opentelemetry::{Context, SpanId};
use opentelemetry_sdk::trace::IdGenerator;
use tracing_core::Metadata;
use tracing_core::span::{self, Attributes};

use super::buffer::{Buffer, Pending};
use super::context;
use super::fields::{Fields, OfRoot, Visitor};
use super::memory::Memory;
use super::pool::{Pool, Slot};
use super::record::{Detail, Record};
use super::table::{Handle, Lane, Table};
use super::thread::{self, ThreadName};
use crate::clock::Ticks;
use crate::decider::{Decider, Verdict};
use crate::key::{Lookup, Root};
use crate::queue::Queue;
use crate::settings::{ContextMode, Settings};
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
    closed: Arc<AtomicBool>,
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
    ) -> Self {
        Core {
            number: next_number(),
            settings,
            decider,
            counters,
            queue,
            table: Table::new(TABLE_ROWS),
            pool: Arc::new(Pool::new(settings.bounds.open_traces, settings.limits)),
            ids,
            closed: Arc::default(),
            placed: AtomicBool::new(false),
        }
    }

    /// The layer's state on a subscriber: this, or if this is on another one already, a new one. Subscribers number
    /// their spans alike.
    pub(crate) fn place(self: &Arc<Self>) -> Arc<Self> {
        if !self.placed.swap(true, Ordering::Relaxed) {
            return self.clone();
        }
        Arc::new(Core {
            number: next_number(),
            settings: self.settings,
            decider: self.decider.clone(),
            counters: self.counters.clone(),
            queue: self.queue.clone(),
            table: Table::new(TABLE_ROWS),
            pool: self.pool.clone(),
            ids: self.ids.clone(),
            closed: self.closed.clone(),
            placed: AtomicBool::new(true),
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn ticks(&self) -> Ticks {
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
        match self.table.insert(id.into_u64(), Handle::Fresh, self.ticks(), plain.origin()) {
            Some(lane) => lane.set_metadata(attributes.metadata()),
            None => self.counters.lose(Loss::OpenSpans, 1),
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
            if self.table.insert(id.into_u64(), pending, 0, origin).is_none() {
                self.pool.release(slot.number);
                self.counters.lose(Loss::OpenSpans, 1);
                return;
            }
            let record = Record::new(id, self.ids.new_span_id(), SpanId::INVALID, metadata, now);
            let mut buffer = slot.lock();
            buffer.pending = Some(Pending { parent: around.parent, base: around.base });
            self.fill(&mut buffer, record, Some(fields));
        });
    }

    /// Adds a record, with the thread and the fields.
    #[inline(always)]
    fn fill(&self, buffer: &mut Buffer, mut record: Record, fields: Option<&mut Fields>) -> u32 {
        if self.settings.extras.threads {
            record.thread = ThreadName::with(|thread| buffer.thread(thread)).unwrap_or(u16::MAX);
        }
        let start = record.start;
        let index = buffer.push(record);
        if self.settings.extras.inactivity {
            buffer.track(index, start);
        }
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
            // Nothing is borrowed for a span without fields.
            return self.add_child(attributes.metadata(), id, below, now, None);
        }
        Fields::borrow(|fields| {
            attributes.record(&mut self.visit(fields));
            self.add_child(attributes.metadata(), id, below, now, Some(fields));
        });
    }

    #[inline]
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
        let Some(lane) = self.table.insert(id.into_u64(), Handle::Dropped, 0, origin) else {
            return self.counters.lose(Loss::OpenSpans, 1);
        };
        let span_id = self.ids.new_span_id();
        let mut buffer = slot.lock();
        let mut parted = None;
        if buffer.open == 0 {
            // The trace was taken away by a shutdown.
            drop(buffer);
            return self.counters.lose(Loss::ShutDown, 1);
        }
        if !buffer.has_room(self.settings.bounds.spans_per_trace) {
            parted = Some(buffer.part());
            if !buffer.has_room(self.settings.bounds.spans_per_trace) {
                drop(buffer);
                return self.counters.lose(Loss::TraceFull, 1);
            }
        }
        let record = Record::new(id, span_id, parent, metadata, now);
        let index = self.fill(&mut buffer, record, fields);
        lane.set_ids(buffer.trace_id, span_id, buffer.has_state());
        drop(buffer);
        if let Some(mut parted) = parted {
            self.queue.push(&mut parted);
        }
        let handle = Handle::Record { slot: slot.number, index };
        if let Base::Of(base) = base {
            self.keep_context(lane, handle, base);
        }
        lane.set_handle(handle);
    }

    // --- A local root is decided about.

    /// The span's handle, once it is decided about.
    #[inline]
    pub(crate) fn decided(&self, id: &span::Id, lane: &Lane) -> Handle {
        match lane.handle() {
            handle @ (Handle::Record { .. } | Handle::Dropped) => return handle,
            Handle::Fresh if lane.claim(Handle::Fresh) => self.decide_fresh(id, lane),
            Handle::Pending { slot } => self.decide_pending(lane, slot),
            Handle::Fresh | Handle::Deciding => {}
        }
        loop {
            match lane.handle() {
                // Another thread entered the same new root at the same time. It runs no code of the user's.
                Handle::Deciding => std::thread::yield_now(),
                handle => return handle,
            }
        }
    }

    fn decide_fresh(&self, id: &span::Id, lane: &Lane) {
        let Some(metadata) = lane.metadata() else { return lane.set_handle(Handle::Dropped) };
        let began = lane.time();
        lane.set_time(0);
        let trace_id = self.ids.new_trace_id();
        let verdict = self.decider.ask_by_name(metadata, trace_id, began, &self.counters);
        let slot = if verdict.keep && !self.is_closed() { self.pool.take() } else { None };
        let Some(slot) = slot else {
            if verdict.keep {
                self.counters.lose(if self.is_closed() { Loss::ShutDown } else { Loss::OpenTraces }, 1);
            }
            if self.settings.context != ContextMode::Off {
                lane.set_ids(trace_id, self.ids.new_span_id(), false);
            }
            return lane.set_handle(Handle::Dropped);
        };
        let span_id = self.ids.new_span_id();
        let mut buffer = slot.lock();
        buffer.trace_id = trace_id;
        buffer.trace_state = verdict.trace_state;
        let record = Record::new(id, span_id, SpanId::INVALID, metadata, began);
        let index = self.fill(&mut buffer, record, None);
        lane.set_ids(trace_id, span_id, buffer.has_state());
        drop(buffer);
        lane.set_handle(Handle::Record { slot: slot.number, index });
    }

    /// Under the trace's lock, so that of two threads one decides. The sampler is ours; a key of the user's making is
    /// made before.
    fn decide_pending(&self, lane: &Lane, number: u32) {
        let Some(slot) = self.pool.slot(number) else { return };
        let custom = self.decider.key().is_custom().then(|| self.custom_key(slot));
        let mut buffer = slot.lock();
        if lane.handle() != (Handle::Pending { slot: number }) {
            return;
        }
        let (Some(pending), Some((began, span_id))) =
            (buffer.pending.take(), buffer.records.first().map(|root| (root.start, root.span_id)))
        else {
            return lane.set_handle(Handle::Dropped);
        };
        let Pending { parent, base } = &pending;
        let trace_id = if parent.is_valid() { parent.trace_id() } else { self.ids.new_trace_id() };
        let Verdict { keep, trace_state } = if self.decider.honours(parent) {
            self.decider.honour(parent, &self.counters)
        } else {
            let Buffer { key, records, details, attributes, memory, .. } = &mut **buffer;
            let attributes = OfRoot { attributes, memory };
            let key = match &custom {
                Some(key) => key,
                None => self.decider.key_of(&root_of(records, details, memory, &attributes), key),
            };
            self.decider.ask(key, trace_id, parent.trace_state(), began, &self.counters)
        };
        // A base without a parent or baggage need not be kept: see [`Surroundings`].
        let plain = !parent.is_valid() && base.baggage().is_empty();
        if !keep || self.is_closed() {
            if keep {
                self.counters.lose(Loss::ShutDown, 1);
            }
            let mut old = None;
            if self.settings.context != ContextMode::Off {
                lane.set_ids(trace_id, span_id, false);
                if !plain || trace_state != TraceState::NONE {
                    old = lane.keep_context(context::of_dropped(base, trace_id, span_id, trace_state));
                }
            }
            buffer.clear();
            lane.set_handle(Handle::Dropped);
            drop(buffer);
            self.pool.release(number);
            drop((old, pending));
            return;
        }
        buffer.trace_id = trace_id;
        buffer.trace_state = trace_state;
        if let (Some(root), true) = (buffer.records.first_mut(), parent.is_valid()) {
            root.parent = parent.span_id();
            if parent.is_remote() {
                buffer.detail(0).parent_is_remote = true;
            }
        }
        lane.set_ids(trace_id, span_id, buffer.has_state());
        let handle = Handle::Record { slot: number, index: 0 };
        let own = (!plain).then(|| buffer.span_context(span_id));
        let context = own.and_then(|own| self.context_of_record(base, own, slot, 0));
        let old = context.and_then(|context| lane.keep_context(context));
        lane.set_handle(handle);
        drop(buffer);
        // Values of contexts are the user's, and so is what runs when they are dropped.
        drop((old, pending));
    }

    /// The user's code sees copies: no lock is held. A root that it traces itself is counted by its name.
    #[cold]
    fn custom_key(&self, slot: &Slot) -> String {
        let buffer = slot.lock();
        let Buffer { records, details, attributes, memory, .. } = &**buffer;
        let attributes = OfRoot { attributes, memory }.to_texts();
        let name = root_of(records, details, memory, &()).name().to_owned();
        drop(buffer);
        let Some(_inside) = thread::enter_key() else { return name };
        let mut key = String::new();
        self.decider.key_of(&Root::new(&name, &attributes), &mut key);
        key
    }

    // --- Something is recorded.

    /// Does something with an open record, under its trace's lock.
    pub(crate) fn with_record<T>(
        &self,
        id: &span::Id,
        handle: Handle,
        f: impl FnOnce(&mut Buffer, u32) -> T,
    ) -> Option<T> {
        let (slot, index) = handle.place()?;
        let mut buffer = self.pool.slot(slot)?.lock();
        buffer.record(index, id)?;
        Some(f(&mut buffer, index))
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
        let record = Record::new(id, self.ids.new_span_id(), SpanId::INVALID, metadata, lane.time());
        lane.set_time(0);
        let mut buffer = slot.lock();
        buffer.pending = Some(pending);
        self.fill(&mut buffer, record, None);
        drop(buffer);
        let pending = Handle::Pending { slot: slot.number };
        lane.set_handle(pending);
        pending
    }

    // --- A span ends.

    #[inline]
    pub(crate) fn end(&self, id: &span::Id) {
        let Some(lane) = self.table.find(id.into_u64()) else { return };
        // A root that nobody entered has not been decided about.
        let (handle, last_exit) = (self.decided(id, lane), lane.time());
        let context = lane.take_context();
        self.table.remove(id.into_u64(), lane);
        if let Handle::Record { slot, index } = handle {
            self.end_record(id, slot, index, last_exit);
        }
        // Values of contexts are the user's, and so is what runs when they are dropped.
        drop(context);
    }

    #[inline]
    fn end_record(&self, id: &span::Id, slot: u32, index: u32, last_exit: Ticks) {
        let Some(slot) = self.pool.slot(slot) else { return };
        // As in tracing-opentelemetry, a span ends when it is last left: what holds it longer does not work in it.
        let end = if last_exit != 0 { last_exit } else { self.ticks() };
        let mut buffer = slot.lock();
        if buffer.close(index, id, end) {
            self.queue.push(&mut buffer);
            drop(buffer);
            self.pool.release(slot.number);
        }
    }

    /// Hands over what has ended of the traces that are open, and takes nothing more.
    pub(crate) fn close(&self) {
        if self.closed.swap(true, Ordering::Relaxed) {
            return;
        }
        for slot in self.pool.used() {
            let mut buffer = slot.lock();
            if buffer.pending.is_some() || buffer.records.is_empty() {
                continue;
            }
            self.counters.lose(Loss::ShutDown, u64::from(buffer.open));
            // What is open is not exported; who holds it will find that its record is gone.
            self.queue.push(&mut buffer);
        }
        self.queue.close();
    }
}

fn next_number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// The local root in a trace's memory.
fn root_of<'a>(
    records: &[Record],
    details: &[Detail],
    memory: &'a Memory,
    attributes: &'a dyn Lookup,
) -> Root<'a> {
    let Some(root) = records.first() else { return Root::new("", attributes) };
    let given = details.get(root.detail as usize).and_then(|detail| detail.name);
    Root::new(given.map_or(root.metadata.name(), |name| memory.text(name)), attributes)
}
