//! The spans that a thread is inside, for the layer and the subscriber.
//!
//! Several layers may be active on one thread (a scoped subscriber inside a global one, or a layer
//! on each of two subscribers), so each item names its owner. No user code runs while the stack is
//! borrowed: the caller drops context guards.
//!
//! # Handles for children
//!
//! A span whose id this crate makes is held open by its children. A child nearly always begins and
//! ends while its thread is inside the parent. So the parent's item keeps a stock of handles. The
//! first child takes [`STOCK`] of them in one atomic step; children that begin and end there take
//! and return one without atomic operations. The rest is released when the thread exits the parent,
//! or terminates. A thread that does neither, because a guard was leaked, keeps the span open.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

use opentelemetry::{Context, ContextGuard, SpanId};

use astracer_spans::panics::caught;
use astracer_spans::reentry::Busy;

pub(crate) mod owner;

/// A span that this thread is inside.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(crate) owner: u64,
    pub(crate) id: u64,
    pub(crate) inside: CurrentSpan,
    /// Handles of the span `inside.entry`, for children that begin here.
    pub(crate) stock: u32,
    /// Keeps the span's context current. Dropped by the code that removes the item. A thread that
    /// ends inside a span does not drop it: OpenTelemetry's own thread-local may be gone, and its
    /// guards would panic.
    pub(crate) guard: ManuallyDrop<Option<ContextGuard>>,
}

/// Determines the place of spans that begin inside a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CurrentSpan {
    /// The span's entry; 0: none, because the span has no place in traces.
    pub(crate) entry: u64,
    /// Spans that begin here are dropped.
    pub(crate) is_dropped: bool,
    /// The id of the span in the context that is current here. Invalid if there is none, or
    /// contexts are switched off.
    pub(crate) context: SpanId,
}

impl Entered {
    const NONE: Entered =
        Entered { owner: 0, id: 0, inside: CurrentSpan::NOWHERE, stock: 0, guard: ManuallyDrop::new(None) };
}

impl CurrentSpan {
    /// Inside a span that has no place in traces. Events there belong to no span, and spans begin
    /// as if it did not exist.
    pub(crate) const NOWHERE: CurrentSpan =
        CurrentSpan { entry: 0, is_dropped: false, context: SpanId::INVALID };

    fn is_nowhere(&self) -> bool {
        self.entry == 0 && !self.is_dropped
    }
}

/// The spans that a thread is inside, except the innermost, which is in [`HERE`]. The stack is
/// dropped before OpenTelemetry's current context: a thread's values are dropped in reverse order
/// of first use, and [`Stack::new`] uses the context.
#[derive(Debug)]
struct Stack(RefCell<Vec<Entered>>);

impl Stack {
    #[cold]
    fn new() -> Self {
        // On an exiting thread that never came here before, the context may already be gone;
        // OpenTelemetry then panics.
        let has_contexts = caught(|| Context::map_current(|_| true), |_| false);
        here(|here| here.has_contexts.set(has_contexts));
        Stack(RefCell::default())
    }
}

impl Drop for Stack {
    /// Returns the stocked handles. `tracing` guards of these spans may live in thread-locals that
    /// are dropped later. Those spans are then exited without the stack, and end when their own
    /// handles are dropped.
    fn drop(&mut self) {
        let innermost = here(|here| {
            let innermost = here.take();
            here.put(Entered::NONE);
            here.has_contexts.set(false);
            Some(innermost)
        });
        for entered in self.0.get_mut().drain(..).chain(innermost).filter(|entered| entered.stock != 0) {
            if let Some(owner) = owner::find(entered.owner) {
                owner.let_go(entered.inside.entry, entered.stock);
            }
        }
    }
}

/// The innermost item, one cell per field: most operations on a span need only this item and few of
/// its fields. It has no destructor, so the thread-local is read without a check for its
/// destruction.
struct Here {
    /// Whether the stack exists and the thread has contexts. Readable without touching the stack.
    has_contexts: Cell<bool>,
    /// 0: no item.
    owner: Cell<u64>,
    id: Cell<u64>,
    entry: Cell<u64>,
    context: Cell<SpanId>,
    is_dropped: Cell<bool>,
    stock: Cell<u32>,
    guard: Cell<ManuallyDrop<Option<ContextGuard>>>,
    /// The owner, if spans that begin here are dropped; else 0.
    dropped: Cell<u64>,
    refused: Cell<u64>,
}

thread_local! {
    static STACK: Stack = Stack::new();
    static HERE: Here = const {
        Here {
            has_contexts: Cell::new(false),
            owner: Cell::new(0),
            id: Cell::new(0),
            entry: Cell::new(0),
            context: Cell::new(SpanId::INVALID),
            is_dropped: Cell::new(false),
            stock: Cell::new(0),
            guard: Cell::new(ManuallyDrop::new(None)),
            dropped: Cell::new(0),
            refused: Cell::new(0),
        }
    };
}

/// Lends the innermost item; returns the default if the thread-local is gone.
///
/// The compiler seldom inlines `LocalKey::with`, but does inline `try_with`.
#[inline(always)]
fn here<T: Default>(f: impl FnOnce(&Here) -> T) -> T {
    HERE.try_with(f).unwrap_or_default()
}

impl Here {
    #[inline(always)]
    fn inside(&self) -> CurrentSpan {
        CurrentSpan {
            entry: self.entry.get(),
            is_dropped: self.is_dropped.get(),
            context: self.context.get(),
        }
    }

    #[inline(always)]
    fn is_inside(&self, owner: u64, entry: u64) -> bool {
        self.owner.get() == owner && self.entry.get() == entry
    }

    /// Takes the innermost item out. The caller must `put` another in its place.
    #[inline(always)]
    fn take(&self) -> Entered {
        Entered {
            owner: self.owner.get(),
            id: self.id.get(),
            inside: self.inside(),
            stock: self.stock.get(),
            guard: self.guard.replace(ManuallyDrop::new(None)),
        }
    }

    #[inline(always)]
    fn put(&self, entered: Entered) {
        let Entered { owner, id, inside, stock, guard } = entered;
        self.dropped.set(if inside.is_dropped { owner } else { 0 });
        self.owner.set(owner);
        self.id.set(id);
        self.entry.set(inside.entry);
        self.context.set(inside.context);
        self.is_dropped.set(inside.is_dropped);
        self.stock.set(stock);
        self.guard.set(guard);
    }
}

/// Whether this thread has a current context and a stack. An exiting thread may have lost both: a
/// thread-local value that was first used before all contexts is dropped after them.
/// OpenTelemetry's functions would then panic, which aborts the process.
#[inline]
pub(crate) fn has_contexts() -> bool {
    here(|here| here.has_contexts.get()) || make_stack()
}

/// Makes the stack, unless it exists; returns whether the thread has contexts.
#[cold]
fn make_stack() -> bool {
    let _busy = Busy::mark();
    STACK.try_with(|_| here(|here| here.has_contexts.get())).unwrap_or_default()
}

#[inline]
pub(crate) fn is_inside() -> bool {
    here(|here| here.owner.get()) != 0
}

/// Whether the innermost item is this owner's and spans that begin there are dropped.
#[inline]
pub(crate) fn is_dropped(owner: u64) -> bool {
    here(|here| here.dropped.get() == owner)
}

#[inline]
pub(crate) fn refuse() {
    here(|here| here.refused.set(here.refused.get() + 1));
}

#[inline]
pub(crate) fn take_refused() -> u64 {
    here(|here| here.refused.replace(0))
}

#[inline]
pub(crate) fn innermost(owner: u64) -> Option<CurrentSpan> {
    here(|here| match here.owner.get() {
        0 => None,
        innermost if innermost == owner => Some(here.inside()),
        _ => find_entry(owner, Some),
    })
}

/// The owner's innermost item on this thread that has a place in traces.
#[inline]
pub(crate) fn innermost_place(owner: u64) -> Option<CurrentSpan> {
    match innermost(owner) {
        Some(inside) if inside.is_nowhere() => {
            find_entry(owner, |inside| (!inside.is_nowhere()).then_some(inside))
        }
        innermost => innermost,
    }
}

/// The innermost item of all owners on this thread, if it is this owner's.
#[inline]
pub(crate) fn innermost_of_all(owner: u64) -> Option<CurrentSpan> {
    here(|here| (here.owner.get() == owner).then(|| here.inside()))
}

struct Items<'a> {
    innermost: &'a Entered,
    outer: &'a [Entered],
}

impl Items<'_> {
    fn iter(&self) -> impl Iterator<Item = &Entered> + Clone {
        std::iter::once(self.innermost).chain(self.outer.iter().rev())
    }
}

/// Searches the items on this thread. `f` must not use the stack, which is borrowed.
fn search<T>(f: impl FnOnce(&Items<'_>) -> Option<T>) -> Option<T> {
    here(|here| {
        if here.owner.get() == 0 {
            return None;
        }
        let innermost = here.take();
        let found = STACK.try_with(|stack| f(&Items { innermost: &innermost, outer: &stack.0.borrow() }));
        here.put(innermost);
        found.ok().flatten()
    })
}

/// The first result of `f` over the owner's items, from the innermost outwards. `f` must not use
/// the stack, which is borrowed.
pub(crate) fn find_entry<T>(owner: u64, f: impl Fn(CurrentSpan) -> Option<T>) -> Option<T> {
    search(|items| items.iter().filter(|item| item.owner == owner).find_map(|item| f(item.inside)))
}

pub(crate) fn innermost_id(owner: u64) -> Option<u64> {
    search(|items| items.iter().find(|item| item.owner == owner).map(|item| item.id))
}

/// The context of this item, and whether the item itself attached it.
pub(crate) fn entered(owner: u64, id: u64) -> Option<(SpanId, bool)> {
    let of_item = |item: &Entered| (item.inside.context, item.guard.is_some());
    search(|items| items.iter().find(|item| item.owner == owner && item.id == id).map(of_item))
}

#[cold]
pub(crate) fn has_context(context: SpanId) -> bool {
    search(|items| items.iter().find(|item| item.inside.context == context).map(|_| ())).is_some()
}

/// Finds the current context among those that other owners on the same subscriber attached for
/// their spans, and translates it: `Some(Some(..))` is the owner's own item for that span, or the
/// nearest around it; `Some(None)`: the owner has none there. `None`: code attached the context.
#[cold]
#[inline(never)]
pub(crate) fn beside(owner: u64, context: SpanId) -> Option<Option<CurrentSpan>> {
    if context == SpanId::INVALID {
        return None;
    }
    search(|items| {
        // The search takes as long as spans are nested, and finds nothing for a layer by itself.
        if items.outer.len() > SHALLOW && owner::is_alone(owner) {
            return None;
        }
        let is_of_other = |item: &Entered| {
            item.owner != owner && item.inside.context == context && owner::are_beside(item.owner, owner)
        };
        let (at, other) = items.iter().enumerate().find(|(_, item)| is_of_other(item))?;
        let is_own = |item: &Entered| item.owner == owner && !item.inside.is_nowhere();
        let mut own = items.iter().enumerate().filter(|(_, item)| is_own(item));
        let same = own.clone().find(|(_, item)| item.id == other.id);
        let around = || own.find(|(own_at, _)| *own_at > at);
        Some(same.or_else(around).map(|(_, item)| item.inside))
    })
}

/// Nested spans that are searched in less time than owners are compared.
const SHALLOW: usize = 64;

const STOCK: u32 = 64;

/// Takes a handle of the span `entry` for a child that begins on this thread. `hold` adds handles
/// to that span if it is open. Returns false if the span has ended.
#[inline]
pub(crate) fn take_handle(owner: u64, entry: u64, hold: impl Fn(u32) -> bool) -> bool {
    here(|here| {
        if !here.is_inside(owner, entry) {
            return hold(1);
        }
        if here.stock.get() == 0 {
            if !hold(STOCK) {
                return false;
            }
            here.stock.set(STOCK);
        }
        here.stock.set(here.stock.get() - 1);
        true
    })
}

/// Returns a handle of the span `entry` to the stock if that span is the innermost on this thread.
/// Returns false if it is not.
#[inline]
pub(crate) fn put_handle(owner: u64, entry: u64) -> bool {
    here(|here| {
        let is_inside = here.is_inside(owner, entry);
        if is_inside {
            here.stock.set(here.stock.get().saturating_add(1));
        }
        is_inside
    })
}

/// Enters a span on this thread.
///
/// The item's fields move from registers straight to their cells. Writing the item to memory field
/// by field and reading it back at once in wider pieces would defeat store forwarding, and that
/// stall takes longer than everything else here. So the long part, [`set_aside`], is a function of
/// its own without arguments.
#[inline(always)]
pub(crate) fn push(entered: Entered) {
    if !has_contexts() {
        return;
    }
    if here(|here| here.owner.get()) != 0 {
        set_aside();
    }
    here(|here| here.put(entered));
}

/// Moves the innermost item to the stack, because the thread enters another one.
#[inline(never)]
fn set_aside() {
    let _busy = Busy::mark();
    here(|here| {
        let _ = STACK.try_with(|stack| stack.0.borrow_mut().push(here.take()));
    });
}

/// Exits a span. It is nearly always the innermost, but spans may also be exited out of order.
#[inline]
#[must_use]
pub(crate) fn pop(owner: u64, id: u64) -> Option<Entered> {
    here(|here| {
        if here.owner.get() != owner || here.id.get() != id {
            return pop_outer(here, owner, id);
        }
        let left = here.take();
        let _ = STACK.try_with(|stack| match stack.0.borrow_mut().pop() {
            Some(outer) => here.put(outer),
            None => here.put(Entered::NONE),
        });
        Some(left)
    })
}

/// Takes out the innermost item that has a context attached, if its owner is gone. A layer
/// replaced through `reload` is not notified when its spans are exited, so their contexts would
/// stay current.
///
/// Items without a context, such as those below a dropped root, are skipped. If one of them relies
/// on the context of the item taken out, it takes over that context: see [`take_out`].
pub(crate) fn pop_gone() -> Option<Entered> {
    let attached = |item: &&Entered| item.guard.is_some();
    let (owner, id) = search(|items| items.iter().find(attached).map(|item| (item.owner, item.id)))?;
    if owner::is_there(owner) { None } else { pop(owner, id) }
}

/// Exits a span that is not the innermost, if this thread is inside it at all.
#[cold]
fn pop_outer(here: &Here, owner: u64, id: u64) -> Option<Entered> {
    let _busy = Busy::mark();
    let popped = STACK.try_with(|stack| {
        let mut stack = stack.0.borrow_mut();
        let at = stack.iter().rposition(|entered| entered.owner == owner && entered.id == id)?;
        stack.push(here.take());
        let left = take_out(&mut stack, at);
        here.put(stack.pop().unwrap_or(Entered::NONE));
        Some(left)
    });
    popped.ok().flatten()
}

fn take_out(stack: &mut Vec<Entered>, at: usize) -> Entered {
    let mut entered = stack.remove(at);
    // A span further in, below the same dropped root, may rely on the context that this one has
    // attached. That context must stay current until the inner span is exited, so the guard moves
    // to the inner span. Spans above the next guard rely on that guard and not on this one.
    let relies =
        |above: &&mut Entered| above.owner == entered.owner && above.inside.context == entered.inside.context;
    let mut above = stack[at..].iter_mut().take_while(|above| above.guard.is_none());
    if entered.guard.is_some()
        && let Some(above) = above.find(relies)
    {
        above.guard = ManuallyDrop::new(entered.guard.take());
    }
    entered
}
