//! The spans that a thread is inside of, for the layer and for the gate.
//!
//! More than one layer may be at work on a thread (a scoped subscriber inside a global one, a layer
//! on each of two subscribers), so each item names its owner. No user code runs while the stack is
//! borrowed: context guards are dropped by the caller.
//!
//! # Handles for children
//!
//! A span with an id of ours is held by its children. A child nearly always begins and ends while
//! its thread is inside of the parent. So the parent's item has a stock of handles: the first child
//! takes [`STOCK`] of them with one atomic step, and children that begin and end there take one and
//! put it back by plain moves. The rest is let go of when the thread leaves the parent, or ends. A
//! thread that does neither, because a guard was leaked, keeps the span open.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

use opentelemetry::{Context, ContextGuard, SpanId};

use crate::panics::caught;

mod owner;

pub(crate) use owner::Owner;

/// A span that this thread is inside of.
#[derive(Debug)]
pub(crate) struct Entered {
    /// The number of the [`Owner`].
    pub(crate) owner: u64,
    /// The span's id in the subscriber.
    pub(crate) id: u64,
    pub(crate) inside: Inside,
    /// Handles of the span `inside.entry`, for children that begin here.
    pub(crate) stock: u32,
    /// Keeps the span's context current. Dropped by the thread that takes the item out; not with a
    /// thread that ends inside a span, where OpenTelemetry's own thread-local may be gone, and its
    /// guards would panic.
    pub(crate) guard: ManuallyDrop<Option<ContextGuard>>,
}

/// The meaning of being inside a span for spans that begin there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inside {
    /// The span whose entry answers: the span itself, or the nearest one above it that has an
    /// entry; 0: none.
    pub(crate) entry: u64,
    /// The spans that begin here are dropped.
    pub(crate) is_dropped: bool,
    /// The span has no entry, because there was no room or because it has no place in traces:
    /// nothing is recorded on it, nor on the one that answers for it.
    pub(crate) is_lost: bool,
    /// The id of the span in the context that is current here; not valid if there is none, or
    /// contexts are off.
    pub(crate) context: SpanId,
}

impl Entered {
    /// No item.
    const NONE: Entered =
        Entered { owner: 0, id: 0, inside: Inside::NONE, stock: 0, guard: ManuallyDrop::new(None) };
}

impl Inside {
    const NONE: Inside = Inside { entry: 0, is_dropped: false, is_lost: false, context: SpanId::INVALID };

    /// A span that has no place in traces: events there are nobody's, and spans begin as if it was
    /// not there.
    pub(crate) const NOWHERE: Inside = Inside { is_lost: true, ..Inside::NONE };

    fn is_nowhere(&self) -> bool {
        self.entry == 0 && !self.is_dropped
    }
}

/// The spans that a thread is inside of, but the innermost, which is in [`HERE`]. It ends before
/// OpenTelemetry's current context does: a thread's values are dropped in the reverse of the order
/// in which they were first used, and this one uses the context when it is made.
#[derive(Debug)]
struct Stack(RefCell<Vec<Entered>>);

impl Stack {
    #[cold]
    fn new() -> Self {
        // On a thread that ends, the context may be gone before this thread first comes here;
        // OpenTelemetry panics then.
        let has_contexts = caught(|| Context::map_current(|_| true), |_| false);
        here(|here| here.has_contexts.set(has_contexts));
        Stack(RefCell::default())
    }
}

impl Drop for Stack {
    /// The guards of these spans may be in thread-local values that are dropped later: the spans
    /// are then left without the stack, and end with their own handles.
    fn drop(&mut self) {
        let innermost = here(|here| {
            let innermost = here.take();
            here.put(Entered::NONE);
            here.has_contexts.set(false);
            Some(innermost)
        });
        let Some(give_back) = GIVE_BACK.get() else { return };
        for entered in self.0.get_mut().drain(..).chain(innermost).filter(|entered| entered.stock != 0) {
            give_back(entered.owner, entered.inside.entry, entered.stock);
        }
    }
}

/// Takes handles of a span back from a thread that ends: those of this owner, for this entry, and
/// their number.
pub(crate) type GiveBack = fn(u64, u64, u32);

static GIVE_BACK: OnceLock<GiveBack> = OnceLock::new();

/// The function to which threads that end give the handles that they have for children.
pub(crate) fn give_back_to(give_back: GiveBack) {
    let _ = GIVE_BACK.set(give_back);
}

/// The innermost item, field by field: most steps of a span need no other item, and few fields of
/// it. It has no destructor, so it is read without a check.
struct Here {
    /// Whether the stack is there, and the thread has contexts: to be read without asking for the
    /// stack.
    has_contexts: Cell<bool>,
    /// 0: there is no item.
    owner: Cell<u64>,
    id: Cell<u64>,
    entry: Cell<u64>,
    context: Cell<SpanId>,
    is_dropped: Cell<bool>,
    is_lost: Cell<bool>,
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
            is_lost: Cell::new(false),
            stock: Cell::new(0),
            guard: Cell::new(ManuallyDrop::new(None)),
            dropped: Cell::new(0),
            refused: Cell::new(0),
        }
    };
}

/// Looks at the innermost item. The default stands for a thread without one.
///
/// `LocalKey::with` is seldom inlined by the compiler, `try_with` is.
#[inline(always)]
fn here<T: Default>(f: impl FnOnce(&Here) -> T) -> T {
    HERE.try_with(f).unwrap_or_default()
}

impl Here {
    #[inline(always)]
    fn inside(&self) -> Inside {
        Inside {
            entry: self.entry.get(),
            is_dropped: self.is_dropped.get(),
            is_lost: self.is_lost.get(),
            context: self.context.get(),
        }
    }

    /// Whether the innermost item is this owner's, and answered for by this entry.
    #[inline(always)]
    fn is_inside(&self, owner: u64, entry: u64) -> bool {
        self.owner.get() == owner && self.entry.get() == entry
    }

    /// Takes the innermost item out; another has to be put in its place.
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
        self.is_lost.set(inside.is_lost);
        self.stock.set(stock);
        self.guard.set(guard);
    }
}

/// Whether this thread has a current context, and a stack. It has none any more when a thread-local
/// value that was first used before all contexts is dropped while the thread ends; OpenTelemetry's
/// functions would panic, which then ends the process.
#[inline]
pub(crate) fn has_contexts() -> bool {
    here(|here| here.has_contexts.get()) || make_stack()
}

/// Makes the stack, if it was not made before; returns whether the thread has contexts.
#[cold]
fn make_stack() -> bool {
    STACK.try_with(|_| here(|here| here.has_contexts.get())).unwrap_or_default()
}

/// Whether this thread is inside of any span, of any owner.
#[inline]
pub(crate) fn is_inside() -> bool {
    here(|here| here.owner.get()) != 0
}

/// Whether the innermost item is this owner's, and spans that begin there are dropped.
#[inline]
pub(crate) fn is_dropped(owner: u64) -> bool {
    here(|here| here.dropped.get() == owner)
}

/// Counts a span that was refused on this thread.
#[inline]
pub(crate) fn refuse() {
    here(|here| here.refused.set(here.refused.get() + 1));
}

/// The number of spans refused on this thread since the last call.
#[inline]
pub(crate) fn take_refused() -> u64 {
    here(|here| here.refused.replace(0))
}

/// The owner's innermost item on this thread.
#[inline]
pub(crate) fn innermost(owner: u64) -> Option<Inside> {
    here(|here| match here.owner.get() {
        0 => None,
        innermost if innermost == owner => Some(here.inside()),
        _ => find(owner),
    })
}

/// The owner's innermost item on this thread that has a place in traces.
#[inline]
pub(crate) fn innermost_place(owner: u64) -> Option<Inside> {
    match innermost(owner) {
        Some(inside) if inside.is_nowhere() => find_place(owner),
        innermost => innermost,
    }
}

#[cold]
#[inline(never)]
fn find_place(owner: u64) -> Option<Inside> {
    find_entry(owner, |inside| (!inside.is_nowhere()).then_some(inside))
}

/// The innermost item of all on this thread, if it is this owner's.
#[inline]
pub(crate) fn innermost_of_all(owner: u64) -> Option<Inside> {
    here(|here| (here.owner.get() == owner).then(|| here.inside()))
}

/// The entry and the context of the innermost item of all, if it is this owner's and its trace is
/// kept.
#[inline]
pub(crate) fn kept_here(owner: u64) -> Option<(u64, SpanId)> {
    here(|here| {
        let is_kept = here.owner.get() == owner && !here.is_dropped.get();
        is_kept.then(|| (here.entry.get(), here.context.get()))
    })
}

#[cold]
fn find(owner: u64) -> Option<Inside> {
    find_item(owner, |_, inside| Some(inside))
}

/// The first of the owner's items, from the innermost on, about which `f` says something. It must
/// not use the stack.
pub(crate) fn find_entry<T>(owner: u64, f: impl Fn(Inside) -> Option<T>) -> Option<T> {
    find_item(owner, |_, inside| f(inside))
}

/// The id of the span that this thread has entered last, of the owner's.
pub(crate) fn innermost_id(owner: u64) -> Option<u64> {
    find_item(owner, |id, _| Some(id))
}

fn find_item<T>(owner: u64, f: impl Fn(u64, Inside) -> Option<T>) -> Option<T> {
    let (innermost, id, inside) = here(|here| Some((here.owner.get(), here.id.get(), here.inside())))?;
    if innermost == owner
        && let Some(found) = f(id, inside)
    {
        return Some(found);
    }
    let find = |stack: &Stack| {
        let stack = stack.0.borrow();
        let mut own = stack.iter().rev().filter(|entered| entered.owner == owner);
        own.find_map(|entered| f(entered.id, entered.inside))
    };
    STACK.try_with(find).ok().flatten()
}

/// Handles that are taken for children at once.
const STOCK: u32 = 64;

/// A handle of the span `entry` for a child that begins on this thread. `hold` counts more handles
/// of that span, if it is open. `false` if it has ended.
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

/// Puts a handle of the span `entry` back, if this thread is inside of that span, innermost.
/// `false` if it is not.
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

/// A thread enters a span.
///
/// The item's parts go from registers to their places. One that is written to memory part by part,
/// and read there at once in pieces of another size, stalls the processor for longer than all the
/// rest takes: so what is long is a function of its own, without arguments.
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

/// Moves the innermost item to the others, since the thread enters another one.
#[inline(never)]
fn set_aside() {
    here(|here| {
        let _ = STACK.try_with(|stack| stack.0.borrow_mut().push(here.take()));
    });
}

/// A span that was left.
#[derive(Debug)]
pub(crate) struct Left {
    /// As in [`Inside`].
    pub(crate) entry: u64,
    pub(crate) is_dropped: bool,
    /// As in [`Entered`].
    pub(crate) stock: u32,
    pub(crate) guard: ManuallyDrop<Option<ContextGuard>>,
}

/// The span is left. It is nearly always the innermost; spans may also be left out of order.
#[inline]
#[must_use]
pub(crate) fn pop(owner: u64, id: u64) -> Option<Left> {
    pop_by(owner, id, take_out)
}

/// The same for an owner whose items rely on no other item's guard.
#[inline]
#[must_use]
pub(crate) fn pop_alone(owner: u64, id: u64) -> Option<Left> {
    pop_by(owner, id, |stack, at| stack.remove(at))
}

/// Takes the innermost item that has a context attached out, if its owner is gone: a layer or gate
/// that went by `reload` is not told that its spans are left. That context is what lives on. Items
/// without one, such as those below a dropped root, say nothing of it, but one may rely on the
/// context of the item that is taken out: then it has that context from then on.
pub(crate) fn pop_gone() -> Option<Left> {
    let innermost = here(|here| {
        let guard = here.guard.replace(ManuallyDrop::new(None));
        let has_guard = guard.is_some();
        here.guard.set(guard);
        has_guard.then(|| (here.owner.get(), here.id.get()))
    });
    let (owner, id) = innermost.or_else(outer_attached)?;
    if owner::is_there(owner) { None } else { pop(owner, id) }
}

/// The owner and the id of the innermost item with a context, but for the innermost of all.
fn outer_attached() -> Option<(u64, u64)> {
    let find = |stack: &Stack| {
        let stack = stack.0.borrow();
        let attached = stack.iter().rev().find(|entered| entered.guard.is_some())?;
        Some((attached.owner, attached.id))
    };
    STACK.try_with(find).ok().flatten()
}

/// Takes an item off the stack, at this place.
type TakeOut = fn(&mut Vec<Entered>, usize) -> Entered;

#[inline]
fn pop_by(owner: u64, id: u64, take_out: TakeOut) -> Option<Left> {
    here(|here| {
        if here.owner.get() != owner || here.id.get() != id {
            return pop_outer(here, owner, id, take_out);
        }
        let left = Left {
            entry: here.entry.get(),
            is_dropped: here.is_dropped.get(),
            stock: here.stock.get(),
            guard: here.guard.replace(ManuallyDrop::new(None)),
        };
        let _ = STACK.try_with(|stack| match stack.0.borrow_mut().pop() {
            Some(outer) => here.put(outer),
            None => here.put(Entered::NONE),
        });
        Some(left)
    })
}

/// A span is left that is not the innermost, if this thread is inside of it at all.
#[cold]
fn pop_outer(here: &Here, owner: u64, id: u64, take_out: TakeOut) -> Option<Left> {
    let popped = STACK.try_with(|stack| {
        let mut stack = stack.0.borrow_mut();
        let at = stack.iter().rposition(|entered| entered.owner == owner && entered.id == id)?;
        stack.push(here.take());
        let Entered { inside, stock, guard, .. } = take_out(&mut stack, at);
        here.put(stack.pop().unwrap_or(Entered::NONE));
        Some(Left { entry: inside.entry, is_dropped: inside.is_dropped, stock, guard })
    });
    popped.ok().flatten()
}

/// Takes a span out from below others.
fn take_out(stack: &mut Vec<Entered>, at: usize) -> Entered {
    let mut entered = stack.remove(at);
    // A span further in, below the same dropped root, may rely on the context that this one has
    // attached. It stays current until that one is left. Spans above the next guard rely on that
    // guard, not on this one.
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
