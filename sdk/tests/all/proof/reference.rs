//! The reference: the layer's documented behaviour, written to be read.
//!
//! Every span that ever began has an entry in one list, behind one lock. Entries are never reused.
//! Each entry stores the context that it began in, which alone determines its parent, its trace and
//! its decision:
//!
//! - A span's parent is the span of the context that it begins in: the current one, that of an
//!   explicit parent, the one given to `set_parent`, or none. (With [`ContextMode::Off`] the
//!   current one is that of the span entered last.)
//! - Until a span starts, its parent may change. It starts when it is entered, when its context is
//!   read, when another span follows from it, when a span begins below it, or when it ends. Then it
//!   takes its parent's decision; without a parent the sampler decides.
//! - While a thread is inside a span, the span's own context is current, whatever is current around
//!   it.
//! - The flow of a local root is its own, from its decision on. That of another span is its
//!   parent's.
//! - Kept spans are exported when they end. Their end time is their last exit.
//!
//! It is slow, and allocates for everything.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;

use astracer_sdk::{ContextMode, DroppedSpans, Start};
use opentelemetry::trace::{SpanContext, Status, TraceContextExt as _, TraceFlags, TraceState};
use opentelemetry::{Context, ContextGuard, SpanId, TraceId};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context as LayerContext;

use super::compare::{Link, Mention, Record};
use super::flows::Call;
use super::late::Late;
use super::recording::{Fields, Recording};
use super::setup::{Kind, Made, Setup, is_outward};
use super::world;

/// The reference layer on one subscriber.
#[derive(Clone)]
pub(crate) struct Reference {
    book: Shared,
    subscriber: usize,
}

type Shared = Arc<Mutex<Book>>;

pub(crate) struct Book {
    pub(crate) setup: Setup,
    kind: Kind,
    /// The time, in steps.
    pub(crate) now: u64,
    entries: Vec<Entry>,
    /// Open spans, by subscriber and id.
    open: HashMap<(usize, u64), usize>,
    /// The spans that each thread has entered, each with its subscriber.
    inside: HashMap<ThreadId, Vec<(usize, usize)>>,
    asked: u64,
    last_id: u64,
    pub(crate) exported: Vec<Record>,
    /// Nothing more is recorded, and spans that end are lost.
    pub(crate) is_shut_down: bool,
    lost: u64,
    /// `None` without late keeping.
    pub(crate) late: Option<Late>,
    /// The number of the last root that was decided.
    last_flow: u32,
    /// The calls of the observer since they were last taken.
    calls: Vec<Call>,
}

struct Entry {
    place: TracePlace,
    /// The context that the span begins in.
    base: Context,
    /// The span is below a dropped root and stays in that root's trace.
    bound: bool,
    /// The kept span of this layer that it began below, unless it was given another parent. With
    /// it, the span counts as made even before it starts.
    below: Option<usize>,
    /// The number of its root, or of its parent's: `None` for a root that is not decided.
    flow: Option<u32>,
    /// The parent is a dropped span of ours, unless the span is given another one.
    below_dropped: bool,
    /// The key of a local root whose end is counted.
    key: Option<String>,
    /// With late keeping: the part of its trace, if that is kept or recorded, and whether it is
    /// recorded.
    part: Option<(usize, bool)>,
    /// An error was seen below this dropped root.
    failed: bool,
    last_left: Option<u64>,
    record: Record,
}

impl Entry {
    /// Whether it is a span of a kept trace.
    fn is_made(&self) -> bool {
        match self.place {
            TracePlace::Kept(_) => true,
            TracePlace::NotStarted => self.below.is_some(),
            TracePlace::Dropped(_) => false,
        }
    }
}

/// The span of the layer that a new one begins below.
enum ParentSpan {
    None,
    Kept(usize),
    /// A dropped span that binds the new one to its trace.
    Binding(usize),
    /// A dropped span that does not bind the new one.
    Dropped,
}

/// The span to which a current context belongs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Owner {
    Entry(usize),
    /// tracing-opentelemetry identifies the span by the id alone, and mistakes a span of another
    /// subscriber with the same id for this one.
    Id(u64),
}

/// The trace that a span belongs to, as far as it is decided.
#[derive(Clone)]
enum TracePlace {
    NotStarted,
    /// With the span's own context.
    Kept(Context),
    Dropped(Context),
}

thread_local! {
    static GUARDS: RefCell<Vec<(Owner, ContextGuard)>> = const { RefCell::new(Vec::new()) };
}

impl Reference {
    /// Creates one layer for each subscriber.
    pub(crate) fn new(setup: Setup, kind: Kind) -> (Vec<Reference>, Shared) {
        let book = Arc::new(Mutex::new(Book {
            setup,
            kind,
            now: 0,
            entries: Vec::new(),
            open: HashMap::new(),
            inside: HashMap::new(),
            asked: 0,
            last_id: 1 << 32,
            exported: Vec::new(),
            is_shut_down: false,
            lost: 0,
            late: setup.late.map(Late::new),
            last_flow: 0,
            calls: Vec::new(),
        }));
        (
            (0..setup.subscribers).map(|subscriber| Reference { book: book.clone(), subscriber }).collect(),
            book,
        )
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    fn find(&self, id: &tracing::Id) -> Option<usize> {
        self.lock().open.get(&(self.subscriber, id.into_u64())).copied()
    }

    // The methods of the extension trait.

    pub(crate) fn set_parent(&self, id: &tracing::Id, parent: Context) -> Result<(), ()> {
        let kind = self.lock().kind;
        let Some(at) = self.find(id) else {
            // A filter hides the span.
            return if kind.is_ours() { Err(()) } else { Ok(()) };
        };
        let mut book = self.lock();
        let entry = &mut book.entries[at];
        if entry.bound || !matches!(entry.place, TracePlace::NotStarted) {
            return Err(());
        }
        entry.base = parent;
        entry.below = None;
        entry.below_dropped = false;
        Ok(())
    }

    pub(crate) fn context(&self, id: &tracing::Id) -> Context {
        let Some(at) = self.find(id) else { return Context::new() };
        self.start(at);
        let book = self.lock();
        match (&book.entries[at].place, book.setup.context) {
            (TracePlace::NotStarted, _) | (TracePlace::Dropped(_), ContextMode::Off) => Context::new(),
            (TracePlace::Kept(_), ContextMode::Off)
                if book.entries[at].part.is_some_and(|(_, recorded)| recorded) =>
            {
                Context::new()
            }
            (TracePlace::Kept(context), ContextMode::Off) => {
                Context::new().with_remote_span_context(context.span().span_context().clone())
            }
            (TracePlace::Kept(context) | TracePlace::Dropped(context), _) => context.clone(),
        }
    }

    pub(crate) fn change(&self, id: &tracing::Id, f: impl FnOnce(&mut Record)) {
        if let Some(at) = self.find(id) {
            self.lock().change(at, f);
        }
    }

    /// Starts the span: settles its trace and decision.
    fn start(&self, at: usize) {
        let mut book = self.lock();
        let entry = &book.entries[at];
        if !matches!(entry.place, TracePlace::NotStarted) {
            return;
        }
        let base = entry.base.clone();
        let parent = base.span().span_context().clone();
        let is_late = book.is_shut_down && book.entries[at].below.is_none();
        if book.entries[at].below.is_none() && !book.entries[at].bound {
            book.last_flow += 1;
            let flow = book.last_flow;
            let left = book.entries[at].flow.replace(flow);
            book.called(Call::Root, Some(flow));
            book.called(Call::Release, left);
        }
        let keep = !is_late && if parent.is_valid() { parent.is_sampled() } else { book.ask() };
        let trace = if parent.is_valid() { parent.trace_id() } else { TraceId::from(u128::from(book.id())) };
        // A span bound to a dropped root has that root's context.
        let is_bound = book.entries[at].bound;
        let is_recorded = !is_late && book.place_in_part((self.subscriber, at), trace, keep);
        let span = if is_bound { parent.span_id() } else { SpanId::from(book.id()) };
        let flags = if keep { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
        let state = match (is_late && !is_bound, parent.is_valid()) {
            (true, _) => TraceState::NONE,
            (false, false) if keep => world::decided(book.setup.keep_every),
            (false, _) => parent.trace_state().clone(),
        };
        let own = SpanContext::new(trace, span, flags, false, state);
        let place = match (keep || is_recorded, book.setup.context) {
            (false, _) => TracePlace::Dropped(base.with_remote_span_context(own.clone())),
            (true, ContextMode::Recording) => {
                let span = Recording { book: Arc::downgrade(&self.book), at, context: own.clone() };
                TracePlace::Kept(base.with_span(span))
            }
            (true, _) => TracePlace::Kept(base.with_remote_span_context(own.clone())),
        };
        let entry = &mut book.entries[at];
        entry.place = place;
        entry.record.ids = Mention::of(&own);
        entry.record.state = own.trace_state().header();
        entry.record.parent = parent.is_valid().then(|| Mention::of(&parent));
        entry.record.parent_is_remote = parent.is_remote();
    }

    /// The context that a new span begins in, and the span of this layer that it begins below.
    fn surroundings(&self, attributes: &tracing::span::Attributes<'_>) -> (Context, ParentSpan) {
        if let Some(parent) = attributes.parent() {
            // A parent that a filter hides from the layer counts as none.
            let Some(at) = self.find(parent) else { return (Context::new(), ParentSpan::None) };
            self.start(at);
            let book = self.lock();
            return match &book.entries[at].place {
                TracePlace::NotStarted => (Context::new(), ParentSpan::None),
                TracePlace::Kept(context) => (context.clone(), ParentSpan::Kept(at)),
                TracePlace::Dropped(context) => {
                    let is_bound = book.kind.binds(attributes);
                    (context.clone(), if is_bound { ParentSpan::Binding(at) } else { ParentSpan::None })
                }
            };
        }
        if !attributes.is_contextual() {
            return (Context::new(), ParentSpan::None);
        }
        let current = Context::current();
        let book = self.lock();
        let innermost = book.innermost(self.subscriber);
        let above = ParentSpan::Kept(innermost.unwrap_or_default());
        let binding = ParentSpan::Binding(innermost.unwrap_or_default());
        let innermost = innermost.map(|at| book.entries[at].place.clone());
        match (innermost, book.setup.context) {
            (Some(TracePlace::Kept(context)), ContextMode::Off) => (context, above),
            (Some(TracePlace::Dropped(context)), ContextMode::Off) => (context, binding),
            (Some(TracePlace::Kept(context) | TracePlace::Dropped(context)), _)
                if context.span().span_context().span_id() != current.span().span_context().span_id() =>
            {
                (current, ParentSpan::None)
            }
            (Some(TracePlace::Kept(_)), _) => (current, above),
            (Some(TracePlace::Dropped(_)), _) if book.kind.binds(attributes) => (current, binding),
            (Some(TracePlace::Dropped(_)), _) => (current, ParentSpan::Dropped),
            _ => (current, ParentSpan::None),
        }
    }
}

impl Book {
    fn ask(&mut self) -> bool {
        self.asked += 1;
        self.setup.keep_every != 0 && (self.asked - 1).is_multiple_of(self.setup.keep_every)
    }

    fn id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn innermost(&self, subscriber: usize) -> Option<usize> {
        let inside = self.inside.get(&std::thread::current().id())?;
        inside.iter().rev().find(|(owner, _)| *owner == subscriber).map(|(_, at)| *at)
    }

    fn called(&mut self, call: fn(u32) -> Call, flow: Option<u32>) {
        if let Some(flow) = flow.filter(|_| self.setup.observed) {
            self.calls.push(call(flow));
        }
    }

    pub(crate) fn take_calls(&mut self) -> Vec<Call> {
        let mut calls = std::mem::take(&mut self.calls);
        calls.sort();
        calls
    }

    pub(crate) fn open_spans(&self) -> u64 {
        self.open.len() as u64
    }

    /// The number of spans of kept traces that began.
    fn made(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.is_made()).count() as u64
    }

    /// As [`World::made`](super::world::World::made).
    pub(crate) fn counts(&self) -> Made {
        Made { made: self.made(), open: self.open(), lost: self.lost }
    }

    /// The number of spans of kept traces that have not ended.
    fn open(&self) -> u64 {
        self.open.values().filter(|at| self.entries[**at].is_made()).count() as u64
    }

    fn owner(&self, at: usize, id: &tracing::Id) -> Owner {
        match self.kind {
            Kind::Stock => Owner::Id(id.into_u64()),
            Kind::Layer | Kind::Subscriber => Owner::Entry(at),
        }
    }

    /// Changes the record of a span that is open and not dropped.
    pub(crate) fn change(&mut self, at: usize, f: impl FnOnce(&mut Record)) {
        let entry = &mut self.entries[at];
        if entry.record.end.is_none() && !matches!(entry.place, TracePlace::Dropped(_)) {
            f(&mut entry.record);
            // An error marks its trace at once if the span has started.
            if let (Some((part, _)), Some(late)) = (entry.part, &mut self.late)
                && entry.record.failed()
            {
                late.mark(part);
            }
        }
    }

    /// With late keeping, assigns a span that starts to a part. Returns whether it is recorded.
    fn place_in_part(&mut self, (subscriber, at): (usize, usize), trace: TraceId, keep: bool) -> bool {
        let Some(late) = &mut self.late else { return false };
        let entry = &self.entries[at];
        let part = match entry.below {
            Some(above) => self.entries[above].part,
            // The span is not a local root, or its parent was dropped here and that parent's end is
            // counted.
            None if entry.bound || entry.below_dropped => None,
            None => {
                let key = key_of(&entry.record.name);
                let part = late.decided(&key, trace, entry.record.start, keep);
                self.entries[at].key = Some(key);
                part
            }
        };
        // An error from before the start is seen at the start.
        if self.entries[at].record.failed() {
            match part {
                Some((part, _)) => late.mark(part),
                None if self.entries[at].key.is_some() => self.entries[at].failed = true,
                None if self.entries[at].bound => {}
                None => self.fail_dropped_root(subscriber, trace),
            }
        }
        self.entries[at].part = part;
        part.is_some_and(|(_, is_recorded)| is_recorded)
    }

    /// Marks the dropped root of this trace as failed. An error below it is seen only if the thread
    /// is inside the root.
    fn fail_dropped_root(&mut self, subscriber: usize, trace: TraceId) {
        let inside = self.inside.get(&std::thread::current().id()).into_iter().flatten().rev();
        let is_root = |entry: &Entry| entry.key.is_some() && matches!(entry.place, TracePlace::Dropped(_));
        let root = inside
            .filter(|(owner, _)| *owner == subscriber)
            .map(|(_, at)| *at)
            .find(|at| is_root(&self.entries[*at]) && self.entries[*at].record.ids.trace == trace);
        if let Some(root) = root {
            self.entries[root].failed = true;
        }
    }

    /// With late keeping, ends a span. Returns the exported spans.
    fn end_late(&mut self, at: usize) -> Vec<Record> {
        let Some(late) = &mut self.late else { return Vec::new() };
        let entry = &self.entries[at];
        let (record, is_root) = (entry.record.clone(), entry.below.is_none());
        match (entry.part, &entry.key) {
            (Some((part, true)), _) => return late.end_recorded(part, record, is_root),
            (Some((part, false)), _) => late.end_kept(part, &record, is_root),
            (None, Some(key)) => late.count(key, record.duration(record.start), entry.failed, false),
            (None, None) => {}
        }
        Vec::new()
    }

    pub(crate) fn keep(&mut self, trace: TraceId) -> u64 {
        let Some(late) = &mut self.late else { return 0 };
        let (was_there, exported) = late.keep(trace);
        self.exported.extend(exported);
        u64::from(was_there)
    }

    pub(crate) fn keep_where(&mut self, name: &str) -> u64 {
        let Some(late) = &mut self.late else { return 0 };
        let (number, exported) = late.keep_where(name);
        self.exported.extend(exported);
        number
    }

    pub(crate) fn shut_down(&mut self) {
        if let Some(late) = &mut self.late
            && !self.is_shut_down
        {
            let exported = late.shut_down(self.now);
            self.exported.extend(exported);
        }
        self.is_shut_down = true;
    }
}

/// The key of a root: its name, with a star in place of a number of three or more digits.
fn key_of(name: &str) -> String {
    let number = name.strip_prefix("renamed ").filter(|number| number.len() >= 3);
    number.map_or(name.to_owned(), |_| "renamed *".to_owned())
}

impl<S: tracing::Subscriber> Layer<S> for Reference {
    fn register_callsite(&self, _: &'static tracing::Metadata<'static>) -> tracing::subscriber::Interest {
        if self.lock().setup.dropped_spans == DroppedSpans::Disabled {
            tracing::subscriber::Interest::sometimes()
        } else {
            tracing::subscriber::Interest::always()
        }
    }

    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: LayerContext<'_, S>) -> bool {
        let book = self.lock();
        // An observer gets errors below a dropped root, too.
        let is_reported = book.setup.observed && *metadata.level() == tracing::Level::ERROR;
        let is_known = metadata.is_event() && (book.kind != Kind::Subscriber || is_reported);
        let refuses = book.setup.dropped_spans == DroppedSpans::Disabled;
        if !refuses || is_known || (metadata.is_span() && is_outward(metadata)) {
            return true;
        }
        // The span that the thread entered last, over all subscribers.
        let last = book.inside.get(&std::thread::current().id()).and_then(|inside| inside.last());
        !last.is_some_and(|(owner, at)| {
            *owner == self.subscriber && matches!(book.entries[*at].place, TracePlace::Dropped(_))
        })
    }

    fn on_new_span(
        &self,
        attributes: &tracing::span::Attributes<'_>,
        id: &tracing::Id,
        _: LayerContext<'_, S>,
    ) {
        if self.lock().is_shut_down {
            return;
        }
        let (base, above) = self.surroundings(attributes);
        let mut book = self.lock();
        let mut record = Record::new(attributes.metadata().name(), book.now);
        attributes.record(&mut Fields { record: &mut record });
        let at = book.entries.len();
        let flow = match above {
            ParentSpan::Kept(above) | ParentSpan::Binding(above) => book.entries[above].flow,
            ParentSpan::None | ParentSpan::Dropped => None,
        };
        book.called(Call::Begin, flow);
        book.entries.push(Entry {
            flow,
            place: TracePlace::NotStarted,
            base,
            bound: matches!(above, ParentSpan::Binding(_)),
            below: if let ParentSpan::Kept(above) = above { Some(above) } else { None },
            below_dropped: matches!(above, ParentSpan::Dropped),
            key: None,
            part: None,
            failed: false,
            last_left: None,
            record,
        });
        book.open.insert((self.subscriber, id.into_u64()), at);
        let at_once = book.setup.start == Start::AtOnce;
        drop(book);
        if at_once {
            self.start(at);
        }
    }

    fn on_enter(&self, id: &tracing::Id, _: LayerContext<'_, S>) {
        let Some(at) = self.find(id) else { return };
        self.start(at);
        let mut book = self.lock();
        book.inside.entry(std::thread::current().id()).or_default().push((self.subscriber, at));
        let flow = book.entries[at].flow;
        book.called(Call::Enter, flow);
        let context = match &book.entries[at].place {
            TracePlace::Kept(context) | TracePlace::Dropped(context)
                if book.setup.context != ContextMode::Off =>
            {
                Some(context.clone())
            }
            _ => None,
        };
        let owner = book.owner(at, id);
        drop(book);
        if let Some(context) = context {
            let guard = context.attach();
            GUARDS.with_borrow_mut(|guards| guards.push((owner, guard)));
        }
    }

    fn on_exit(&self, id: &tracing::Id, _: LayerContext<'_, S>) {
        let Some(at) = self.find(id) else { return };
        let owner = self.lock().owner(at, id);
        let guard = GUARDS.with_borrow_mut(|guards| {
            let place = guards.iter().rposition(|(own, _)| *own == owner)?;
            Some(guards.remove(place))
        });
        drop(guard);
        let mut book = self.lock();
        let now = book.now;
        book.entries[at].last_left = Some(now);
        let flow = book.entries[at].flow;
        book.called(Call::Exit, flow);
        if let Some(inside) = book.inside.get_mut(&std::thread::current().id())
            && let Some(place) = inside.iter().rposition(|own| *own == (self.subscriber, at))
        {
            inside.remove(place);
        }
    }

    fn on_record(&self, id: &tracing::Id, values: &tracing::span::Record<'_>, _: LayerContext<'_, S>) {
        self.change(id, |record| values.record(&mut Fields { record }));
    }

    fn on_follows_from(&self, id: &tracing::Id, follows: &tracing::Id, _: LayerContext<'_, S>) {
        let (Some(at), Some(from)) = (self.find(id), self.find(follows)) else { return };
        self.start(from);
        let mut book = self.lock();
        let to = book.entries[from].record.ids;
        book.change(at, |record| record.links.push(Link { to, attributes: BTreeMap::new() }));
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: LayerContext<'_, S>) {
        let at = if event.is_contextual() {
            self.lock().innermost(self.subscriber)
        } else {
            event.parent().and_then(|parent| self.find(parent))
        };
        let Some(at) = at else { return };
        let mut book = self.lock();
        let flow = book.entries[at].flow;
        book.called(Call::Event, flow);
        drop(book);
        let is_error = *event.metadata().level() == tracing::Level::ERROR;
        if is_error
            && event.is_contextual()
            && matches!(self.lock().entries[at].place, TracePlace::Dropped(_))
        {
            let mut book = self.lock();
            let trace = book.entries[at].record.ids.trace;
            return book.fail_dropped_root(self.subscriber, trace);
        }
        let mut fields = Record::new("", 0);
        event.record(&mut Fields { record: &mut fields });
        self.lock().change(at, |record| {
            if is_error {
                record.raise(&Status::error(""));
                record.error_events.0 = true;
            }
            record.events.push((fields.name, fields.attributes));
        });
    }

    fn on_close(&self, id: tracing::Id, _: LayerContext<'_, S>) {
        let Some(at) = self.find(&id) else { return };
        self.start(at);
        let mut book = self.lock();
        book.open.remove(&(self.subscriber, id.into_u64()));
        let flow = book.entries[at].flow;
        book.called(Call::End, flow);
        let now = book.now;
        let entry = &mut book.entries[at];
        entry.record.end = Some(entry.last_left.unwrap_or(now));
        let is_kept =
            matches!(entry.place, TracePlace::Kept(_)) && entry.part.is_none_or(|(_, recorded)| !recorded);
        let late = book.end_late(at);
        book.exported.extend(late);
        if is_kept {
            let record = book.entries[at].record.clone();
            if book.is_shut_down {
                book.lost += 1;
            } else {
                book.exported.push(record);
            }
        }
    }
}
