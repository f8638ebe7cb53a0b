//! The spans that a thread is inside of, for the layer and for the gate.
//!
//! More than one layer may be at work on a thread (a scoped subscriber inside a global one, a layer on each of two
//! subscribers), so each item names its owner. No user code runs while the stack is borrowed: context guards are dropped
//! by the caller.
//!
//! # Handles for children
//!
//! A span with an id of ours is held by its children. A child nearly always begins and ends while its thread is inside of
//! the parent. So the parent's item has a stock of handles: the first child takes [`STOCK`] of them with one atomic step,
//! and children that begin and end there take one and put it back by plain moves. The rest is let go of when the thread
//! leaves the parent. A thread that never does, because a guard was leaked, keeps the span open, as on a registry.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

use opentelemetry::{Context, ContextGuard, SpanId};

use crate::panics::caught;
use crate::sync::statics::{AtomicU64, Ordering};

/// A number that tells the owners of a process apart; never 0.
pub(crate) fn next_owner() -> u64 {
    static OWNERS: AtomicU64 = AtomicU64::new(1);
    OWNERS.fetch_add(1, Ordering::Relaxed)
}

/// A span that this thread is inside of.
#[derive(Debug)]
pub(crate) struct Entered {
    /// The number of the layer or gate, one for each subscriber that it is on.
    pub(crate) owner: u64,
    /// The span's id in the subscriber.
    pub(crate) id: u64,
    pub(crate) inside: Inside,
    /// Handles of the span `inside.entry`, for children that begin here.
    pub(crate) stock: u32,
    /// Keeps the span's context current. Dropped by the thread that takes the item out; not with a thread that ends
    /// inside a span, where OpenTelemetry's own thread-local may be gone, and its guards would panic.
    pub(crate) guard: ManuallyDrop<Option<ContextGuard>>,
}

/// The meaning of being inside a span for spans that begin there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inside {
    /// The span whose entry answers: the span itself, or the nearest one above it that has an entry; 0: none.
    pub(crate) entry: u64,
    /// The spans that begin here are dropped.
    pub(crate) is_dropped: bool,
    /// The span has no entry because there was no room: nothing is recorded on it, nor on the one that answers for it.
    pub(crate) is_lost: bool,
    /// The id of the span in the context that is current here; not valid if there is none, or contexts are off.
    pub(crate) context: SpanId,
}

impl Inside {
    const NONE: Inside = Inside { entry: 0, is_dropped: false, is_lost: false, context: SpanId::INVALID };
}

/// A thread's spans. It ends before OpenTelemetry's current context does: a thread's values are dropped in the reverse of
/// the order in which they were first used, and this one uses the context when it is made.
#[derive(Debug)]
struct Stack(RefCell<Vec<Entered>>);

impl Stack {
    #[cold]
    fn new() -> Self {
        // On a thread that ends, the context may be gone before this thread first comes here; OpenTelemetry panics then.
        HAS_CONTEXTS.set(caught(|| Context::map_current(|_| true), |_| false));
        Stack(RefCell::default())
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        set_innermost(0, Inside::NONE);
        HAS_CONTEXTS.set(false);
    }
}

thread_local! {
    static STACK: Stack = Stack::new();
    /// Whether the stack is there, and the thread has contexts: to be read without asking for the stack.
    static HAS_CONTEXTS: Cell<bool> = const { Cell::new(false) };
    /// The innermost item: its owner (0: none) and meaning.
    static INNERMOST: Cell<(u64, Inside)> =
        const { Cell::new((0, Inside::NONE)) };
    /// The owner of the innermost item, if spans that begin there are dropped; else 0.
    static DROPPED: Cell<u64> = const { Cell::new(0) };
    static REFUSED: Cell<u64> = const { Cell::new(0) };
}

/// Whether this thread has a current context, and a stack. It has none any more when a thread-local value that was first used before
/// all contexts is dropped while the thread ends; OpenTelemetry's functions would panic, which then ends the process.
#[inline]
pub(crate) fn has_contexts() -> bool {
    HAS_CONTEXTS.get() || make_stack()
}

/// Makes the stack, if it was not made before; returns whether the thread has contexts.
#[cold]
fn make_stack() -> bool {
    STACK.try_with(|_| HAS_CONTEXTS.get()).unwrap_or(false)
}

/// Whether the innermost item is this owner's, and spans that begin there are dropped.
#[inline]
pub(crate) fn is_dropped(owner: u64) -> bool {
    DROPPED.get() == owner
}

/// Counts a span that was refused on this thread.
#[inline]
pub(crate) fn refuse() {
    REFUSED.set(REFUSED.get() + 1);
}

/// The number of spans refused on this thread since the last call.
#[inline]
pub(crate) fn take_refused() -> u64 {
    REFUSED.replace(0)
}

#[inline]
fn set_innermost(owner: u64, inside: Inside) {
    INNERMOST.set((owner, inside));
    DROPPED.set(if inside.is_dropped { owner } else { 0 });
}

/// The owner's innermost item on this thread.
#[inline]
pub(crate) fn innermost(owner: u64) -> Option<Inside> {
    match INNERMOST.get() {
        (0, _) => None,
        (innermost, inside) if innermost == owner => Some(inside),
        _ => find(owner),
    }
}

/// The innermost item of all on this thread, if it is this owner's.
#[inline]
pub(crate) fn innermost_of_all(owner: u64) -> Option<Inside> {
    let (innermost, inside) = INNERMOST.get();
    (innermost == owner).then_some(inside)
}

#[cold]
fn find(owner: u64) -> Option<Inside> {
    let find = |stack: &Stack| {
        stack.0.borrow().iter().rev().find(|entered| entered.owner == owner).map(|entered| entered.inside)
    };
    STACK.try_with(find).ok().flatten()
}

/// The first of the owner's items, from the innermost on, about which `f` says something. It must not use the stack.
pub(crate) fn find_entry<T>(owner: u64, f: impl Fn(Inside) -> Option<T>) -> Option<T> {
    let find = |stack: &Stack| {
        let stack = stack.0.borrow();
        let mut own = stack.iter().rev().filter(|entered| entered.owner == owner);
        own.find_map(|entered| f(entered.inside))
    };
    STACK.try_with(find).ok().flatten()
}

/// The id of the span that this thread has entered last, of the owner's.
pub(crate) fn innermost_id(owner: u64) -> Option<u64> {
    let find = |stack: &Stack| {
        stack.0.borrow().iter().rev().find(|entered| entered.owner == owner).map(|entered| entered.id)
    };
    STACK.try_with(find).ok().flatten()
}

/// Handles that are taken for children at once.
const STOCK: u32 = 64;

/// A handle of the span `entry` for a child that begins on this thread. `hold` counts more handles of that span, if it is open.
/// `false` if it has ended.
#[inline]
pub(crate) fn take_handle(owner: u64, entry: u64, hold: impl Fn(u32) -> bool) -> bool {
    let (innermost, inside) = INNERMOST.get();
    if innermost != owner || inside.entry != entry {
        return hold(1);
    }
    let take = |stack: &Stack| {
        let mut stack = stack.0.borrow_mut();
        let stock = &mut stack.last_mut()?.stock;
        if *stock == 0 {
            if !hold(STOCK) {
                return Some(false);
            }
            *stock = STOCK;
        }
        *stock -= 1;
        Some(true)
    };
    STACK.try_with(take).ok().flatten().unwrap_or_else(|| hold(1))
}

/// Puts a handle of the span `entry` back, if this thread is inside of that span, innermost. `false` if it is not.
#[inline]
pub(crate) fn put_handle(owner: u64, entry: u64) -> bool {
    let (innermost, inside) = INNERMOST.get();
    if innermost != owner || inside.entry != entry {
        return false;
    }
    let put = |stack: &Stack| {
        let mut stack = stack.0.borrow_mut();
        let Some(stock) = stack.last_mut().map(|innermost| &mut innermost.stock) else { return false };
        *stock = stock.saturating_add(1);
        true
    };
    STACK.try_with(put).unwrap_or(false)
}

#[inline]
pub(crate) fn push(entered: Entered) {
    let (owner, inside) = (entered.owner, entered.inside);
    if has_contexts() && STACK.try_with(|stack| stack.0.borrow_mut().push(entered)).is_ok() {
        set_innermost(owner, inside);
    }
}

/// The span is left. It is nearly always the innermost; spans may also be left out of order.
#[inline]
#[must_use]
pub(crate) fn pop(owner: u64, id: u64) -> Option<Entered> {
    pop_by(owner, id, take_out)
}

/// The same for an owner whose items rely on no other item's guard.
#[inline]
#[must_use]
pub(crate) fn pop_alone(owner: u64, id: u64) -> Option<Entered> {
    pop_by(owner, id, |stack, owner, id| {
        let at = stack.iter().rposition(|entered| entered.owner == owner && entered.id == id)?;
        Some(stack.remove(at))
    })
}

#[inline]
fn pop_by(
    owner: u64,
    id: u64,
    take_out: impl FnOnce(&mut Vec<Entered>, u64, u64) -> Option<Entered>,
) -> Option<Entered> {
    let popped = STACK.try_with(|stack| {
        let mut stack = stack.0.borrow_mut();
        let innermost = stack.last()?;
        let entered = if innermost.owner == owner && innermost.id == id {
            stack.pop()?
        } else {
            take_out(&mut stack, owner, id)?
        };
        match stack.last() {
            Some(last) => set_innermost(last.owner, last.inside),
            None => set_innermost(0, Inside::NONE),
        }
        Some(entered)
    });
    popped.ok().flatten()
}

/// Takes a span out from below others.
#[cold]
fn take_out(stack: &mut Vec<Entered>, owner: u64, id: u64) -> Option<Entered> {
    let at = stack.iter().rposition(|entered| entered.owner == owner && entered.id == id)?;
    let mut entered = stack.remove(at);
    // A span further in, below the same dropped root, may rely on the context that this one has attached. It stays
    // current until that one is left. Spans above the next guard rely on that guard, not on this one.
    let relies =
        |above: &&mut Entered| above.owner == owner && above.inside.context == entered.inside.context;
    let mut above = stack[at..].iter_mut().take_while(|above| above.guard.is_none());
    if entered.guard.is_some()
        && let Some(above) = above.find(relies)
    {
        above.guard = ManuallyDrop::new(entered.guard.take());
    }
    Some(entered)
}
