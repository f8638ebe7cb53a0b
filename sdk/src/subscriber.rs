//! The subscriber: adapts `tracing::Subscriber` to [`Core`] without a registry.
//!
//! The table of entries generates the span ids, and each entry counts the handles of its span. A
//! span holds a handle of its parent, as in a registry: a parent ends after its children, and the
//! trace is exported whole.

use std::any::TypeId;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

use tracing_core::dispatcher::WeakDispatch;
use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Dispatch, Event, Level, LevelFilter, Metadata, Subscriber};
use tracing_subscriber::layer::{Layered, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry};

use crate::core::{Core, Placement, parent_here, place_elsewhere};
use crate::layer::AstracerLayer;
use crate::settings::{DroppedSpans, faces_outward};
use crate::stack;
use crate::table::{Entry, LetGo, UNRECORDED, is_unrecorded, unrecorded_id};
use astracer_spans::reentry::Busy;

/// A subscriber that replaces [`tracing_subscriber::registry()`] with an [`AstracerLayer`] on it.
///
/// Made by [`Astracer::subscriber`](crate::Astracer::subscriber). It needs no registry when used
/// alone or under filters that do not look up spans ([`with_max_level`](Self::with_max_level),
/// [`with_filter`](Self::with_filter)): a span costs only its own entry, and a dropped local root
/// keeps only its ids. With other layers ([`with`](Self::with)) it becomes an [`AstracerLayer`] on
/// a registry, so that those layers can look up spans as usual.
///
/// ```
/// use astracer_sdk::Astracer;
/// use tracing::level_filters::LevelFilter;
///
/// let astracer = Astracer::builder().build()?;
/// let subscriber = astracer.subscriber().with_max_level(LevelFilter::INFO);
/// tracing::subscriber::with_default(subscriber, || {
///     tracing::info_span!("GET /orders/{id}").in_scope(|| ());
/// });
/// # Ok::<(), astracer_sdk::BuildError>(())
/// ```
///
/// It differs from the layer on a registry in two ways:
///
/// - With [`DroppedSpans::Disabled`], events below a dropped root are disabled too, since no other
///   layer could see them. `tracing` does not reveal an event's parent when it asks whether the
///   event is enabled, so an event with an explicit parent in a kept trace is also disabled there.
/// - Ids are never reused, except those of spans that are not recorded because telemetry is
///   suppressed or the memory of open spans is used up, which repeat after 16 million. A handle
///   or id used after its span has ended does nothing; a registry panics.
#[derive(Debug)]
pub struct AstracerSubscriber {
    /// Its core generates the ids. The extension traits find the layer by its type.
    layer: AstracerLayer,
    /// This subscriber together with the filters on it.
    dispatch: OnceLock<WeakDispatch>,
}

impl AstracerSubscriber {
    pub(crate) fn new(layer: &AstracerLayer) -> Self {
        let layer = AstracerLayer::new(layer.core().map(|core| core.beside(true)));
        AstracerSubscriber { layer, dispatch: OnceLock::new() }
    }

    /// Disables spans and events above this level; all are enabled by default.
    #[must_use]
    pub fn with_max_level(mut self, level: LevelFilter) -> Self {
        self.layer = self.layer.with_max_level(level);
        self
    }

    /// Puts a global filter on the subscriber, such as `EnvFilter`, or any layer that does not look
    /// up spans.
    pub fn with_filter<F>(self, filter: F) -> Layered<F, Self>
    where
        F: Layer<Self>,
    {
        filter.with_subscriber(self)
    }

    /// Adds a layer that may look up spans: the subscriber becomes an [`AstracerLayer`] on a
    /// registry.
    pub fn with<L>(self, layer: L) -> Layered<L, Layered<AstracerLayer, Registry>>
    where
        L: Layer<Layered<AstracerLayer, Registry>>,
    {
        Registry::default().with(self.layer.clone()).with(layer)
    }

    #[inline]
    fn core(&self) -> Option<&Core> {
        self.layer.core()
    }

    /// Begins a span that has no parent, or whose parent is not simply this thread's current span.
    fn begin_elsewhere(&self, core: &Core, attributes: &Attributes<'_>) -> Id {
        let placement = place_elsewhere(core, attributes);
        let above = match &placement {
            Placement::Nowhere => return unrecorded_id(None),
            Placement::Child { parent: above, .. } | Placement::BelowDropped { above } => Some(*above),
            Placement::LocalRoot { .. } if attributes.is_contextual() => {
                stack::innermost(core.number()).and_then(|inside| core.find_id(inside.entry))
            }
            Placement::LocalRoot { .. } => attributes.parent().and_then(|parent| core.find(parent)),
        };
        let above = self.hold(core, above);
        above.pass_to(core.begin(attributes, None, placement))
    }

    /// Takes a handle of the parent of a span that begins.
    ///
    /// It is taken before the span begins: formatting the span's fields runs the service's code,
    /// which may exit and drop the parent.
    #[inline]
    fn hold<'a>(&'a self, core: &'a Core, above: Option<&Entry>) -> ParentHandle<'a> {
        let id = above.map_or(0, |above| {
            let id = above.id();
            let is_held = stack::take_handle(core.number(), id, |handles| above.handles.hold(id, handles));
            if is_held { id } else { 0 }
        });
        ParentHandle { subscriber: self, core, id }
    }

    /// Releases handles of a span. If that ends it, the end goes through the filters on this
    /// subscriber, as any other end does.
    fn let_go(&self, core: &Core, id: u64, handles: u32) {
        let Some(entry) = core.find_id(id) else { return };
        if !entry.handles.let_go_unless_last(id, handles) {
            self.close_held(core.number(), id);
        }
    }

    #[cold]
    fn close_held(&self, owner: u64, id: u64) {
        let is_left_to_outer = closing(|(closed, list)| {
            let is_outer = *closed == owner;
            list.extend(is_outer.then_some(id));
            is_outer
        });
        if is_left_to_outer == Some(true) {
            return;
        }
        let dispatch = self.with_filters();
        let outer =
            Outer(closing(|current| std::mem::replace(current, (owner, Vec::new()))).unwrap_or_default());
        let mut next = Some(id);
        let mut panic = None;
        while let Some(id) = next {
            let close = || match &dispatch {
                Some(dispatch) => dispatch.try_close(Id::from_u64(id)),
                None => self.try_close(Id::from_u64(id)),
            };
            // A filter is the service's code and may panic. The spans above must end all the same.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(close)) {
                // Rethrow the first panic only. Dropping the second payload could panic again, so
                // it is leaked.
                match panic {
                    None => panic = Some(payload),
                    Some(_) => std::mem::forget(payload),
                }
            }
            next = closing(|(_, list)| list.pop()).flatten();
        }
        drop(outer);
        match panic {
            // A second panic that leaves a destructor aborts the process.
            Some(payload) if std::thread::panicking() => std::mem::forget(payload),
            Some(payload) => resume_unwind(payload),
            None => {}
        }
    }

    /// This subscriber with the filters on it. A boxed subscriber is not notified which stack it
    /// became part of; it learns that on a thread whose default dispatcher contains it.
    fn with_filters(&self) -> Option<Dispatch> {
        if let Some(known) = self.dispatch.get().and_then(WeakDispatch::upgrade) {
            return Some(known);
        }
        let is_own = |dispatch: &Dispatch| {
            dispatch.downcast_ref::<Self>().is_some_and(|subscriber| std::ptr::eq(subscriber, self))
        };
        let current = tracing_core::dispatcher::get_default(Clone::clone);
        let current = Some(current).filter(is_own)?;
        let _ = self.dispatch.set(current.downgrade());
        Some(current)
    }

    #[inline]
    fn close(&self, core: &Core, id: &Id) -> bool {
        let number = id.into_u64();
        // A span without an entry has no handle count: filters see an end for each of its handles.
        let Some(entry) = core.entry_of(id) else { return is_unrecorded(id) };
        if entry.handles.let_go(number) != LetGo::Last {
            return false;
        }
        // Releases the parent after the end, even if the end panics: it drops context values, which
        // are the user's code.
        let _above = ParentHandle { subscriber: self, core, id: entry.above() };
        core.end_entry(entry);
        true
    }
}

/// Whether events or spans of this callsite may be disabled below a dropped root. An observer gets
/// errors in any case.
#[inline]
fn is_refusable(metadata: &Metadata<'_>, core: &Core) -> bool {
    match metadata.is_event() {
        true => *metadata.level() != Level::ERROR || !core.is_observed(),
        false => !faces_outward(metadata),
    }
}

/// A handle of the parent of a span that begins or ends. Dropping this releases it, unless a span
/// that has begun took it over.
struct ParentHandle<'a> {
    subscriber: &'a AstracerSubscriber,
    core: &'a Core,
    /// 0: no handle is held.
    id: u64,
}

impl ParentHandle<'_> {
    /// Passes the handle to the span that has begun, if it has an entry to itself. Returns its id.
    #[inline]
    fn pass_to(mut self, entry: Option<&Entry>) -> Id {
        match entry {
            Some(entry) if entry.refusal().is_none() => {
                entry.set_above(std::mem::take(&mut self.id));
                Id::from_u64(entry.id())
            }
            unrecorded => unrecorded_id(unrecorded.and_then(Entry::refusal)),
        }
    }
}

impl Drop for ParentHandle<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.id != 0 && !stack::put_handle(self.core.number(), self.id) {
            self.subscriber.let_go(self.core, self.id, 1);
        }
    }
}

thread_local! {
    /// The number of the core whose spans this thread is closing because their last handle was
    /// released (0: none), and further ones found meanwhile: a list, so that a long chain of spans
    /// does not recurse.
    static CLOSING: RefCell<(u64, Vec<u64>)> = const { RefCell::new((0, Vec::new())) };
}

/// Lends the spans that are being closed; `None` if they are gone, because the thread is exiting.
fn closing<T>(f: impl FnOnce(&mut (u64, Vec<u64>)) -> T) -> Option<T> {
    let _busy = Busy::mark();
    CLOSING.try_with(|closing| f(&mut closing.borrow_mut())).ok()
}

/// Keeps the spans that an enclosing call closes, for another subscriber.
struct Outer((u64, Vec<u64>));

impl Drop for Outer {
    fn drop(&mut self) {
        closing(|current| std::mem::swap(current, &mut self.0));
    }
}

impl Subscriber for AstracerSubscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match self.core() {
            Some(core) if self.layer.is_level_enabled(metadata) => match core.settings().dropped_spans {
                DroppedSpans::Disabled if is_refusable(metadata, core) => Interest::sometimes(),
                _ => Interest::always(),
            },
            _ => Interest::never(),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(if self.core().is_some() { self.layer.max_level() } else { LevelFilter::OFF })
    }

    /// Below a dropped root, a span or an event is refused by reading one thread-local word.
    #[inline]
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let Some(core) = self.core().filter(|_| self.layer.is_level_enabled(metadata)) else { return false };
        let refused = self.layer.refuses_here() && is_refusable(metadata, core);
        if refused && metadata.is_span() {
            stack::refuse();
        }
        !refused
    }

    #[inline]
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let Some(core) = self.core() else { return unrecorded_id(None) };
        match parent_here(core, attributes) {
            // A child of this thread's current span, which belongs to a kept trace.
            Some((parent, base)) => {
                let above = self.hold(core, Some(parent));
                above.pass_to(Some(core.begin_child(attributes, None, parent, base)))
            }
            None => self.begin_elsewhere(core, attributes),
        }
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        if let Some(core) = self.core() {
            core.record(id, values);
        }
    }

    fn record_follows_from(&self, id: &Id, follows: &Id) {
        if let Some(core) = self.core() {
            core.follows(id, follows);
        }
    }

    fn event(&self, event: &Event<'_>) {
        if let Some(core) = self.core() {
            core.event(event);
        }
    }

    #[inline]
    fn enter(&self, id: &Id) {
        if let Some(core) = self.core() {
            core.enter(id);
        }
    }

    #[inline]
    fn exit(&self, id: &Id) {
        if let Some(core) = self.core() {
            core.exit(id, |span, handles| self.let_go(core, span, handles));
        }
    }

    #[inline]
    fn clone_span(&self, id: &Id) -> Id {
        if let Some(core) = self.core() {
            let _ = core.hold(id.into_u64());
        }
        id.clone()
    }

    #[inline]
    fn try_close(&self, id: Id) -> bool {
        self.core().is_some_and(|core| self.close(core, &id))
    }

    fn current_span(&self) -> Current {
        let current = self.core().and_then(|core| {
            let id = Id::from_u64(stack::innermost_id(core.number())?);
            let known = core.find(&id).and_then(Entry::metadata);
            let unrecorded = is_unrecorded(&id).then_some(&UNRECORDED);
            Some(Current::new(id, known.or(unrecorded)?))
        });
        current.unwrap_or_else(Current::none)
    }

    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        let _ = self.dispatch.set(dispatch.downgrade());
        if let Some(core) = self.core() {
            core.set_base(std::ptr::from_ref(self).addr());
        }
    }

    // The trait's method is unsafe because callers read through the returned pointer. Ours points
    // into `self`, and has the requested type.
    #[allow(unsafe_code)]
    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Self>() {
            return Some((&raw const *self).cast());
        }
        unsafe { Layer::<Registry>::downcast_raw(&self.layer, id) }
    }
}
