//! What a thread knows: which spans it is inside of, and whether the innermost was dropped.
//!
//! More than one layer may be at work on a thread (a scoped subscriber inside a global one), so each entry names its
//! layer. No code of the user's runs while the stack is borrowed: context guards are dropped by the caller.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use opentelemetry::{ContextGuard, SpanId};

/// A span that this thread is inside of.
#[derive(Debug)]
pub(crate) struct Entered {
    /// The layer's number.
    pub(crate) layer: u64,
    /// The span's id in the subscriber.
    pub(crate) id: u64,
    pub(crate) state: State,
    /// Keeps the span's context current.
    pub(crate) guard: Option<ContextGuard>,
}

/// What the innermost span says about those that begin inside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// They are dropped too. With the id of the context that is current, if one is.
    Dropped { context: SpanId },
    /// They belong to this trace, below this record.
    Recorded { slot: u32, index: u32, span_id: SpanId },
}

#[derive(Debug, Default)]
struct Stack(Vec<Entered>);

impl Drop for Stack {
    /// A thread that ends inside of a span: OpenTelemetry's own thread-local may be gone, and its guards would panic.
    fn drop(&mut self) {
        for entered in self.0.drain(..) {
            std::mem::forget(entered.guard);
        }
    }
}

thread_local! {
    static STACK: RefCell<Stack> = const { RefCell::new(Stack(Vec::new())) };
    /// The layer whose innermost span on this thread was dropped; 0 if it was not, or if a span of another
    /// layer lies further in.
    static DROPPED: Cell<u64> = const { Cell::new(0) };
    static REFUSED: Cell<u64> = const { Cell::new(0) };
    static NUMBER: Cell<u32> = const { Cell::new(0) };
    static NAME: RefCell<Option<ThreadName>> = const { RefCell::new(None) };
}

/// Whether this thread is below a dropped root of the layer.
#[inline]
pub(crate) fn is_dropped(layer: u64) -> bool {
    DROPPED.try_with(Cell::get).unwrap_or(0) == layer
}

/// Counts a span that was refused.
#[inline]
pub(crate) fn refuse() {
    let _ = REFUSED.try_with(|refused| refused.set(refused.get() + 1));
}

/// How many spans were refused on this thread since this was last asked.
pub(crate) fn take_refused() -> u64 {
    REFUSED.try_with(|refused| refused.replace(0)).unwrap_or(0)
}

/// What the innermost span of the layer says.
#[inline]
pub(crate) fn innermost(layer: u64) -> Option<State> {
    STACK.try_with(|stack| innermost_in(&stack.borrow().0, layer)).ok().flatten()
}

fn innermost_in(stack: &[Entered], layer: u64) -> Option<State> {
    stack.iter().rev().find(|entered| entered.layer == layer).map(|entered| entered.state)
}

/// The id in the subscriber of the innermost span of the layer, and what it says.
pub(crate) fn innermost_id(layer: u64) -> Option<(u64, State)> {
    let find = |stack: &Stack| {
        stack.0.iter().rev().find(|entered| entered.layer == layer).map(|entered| (entered.id, entered.state))
    };
    STACK.try_with(|stack| find(&stack.borrow())).ok().flatten()
}

#[inline]
pub(crate) fn push(entered: Entered) {
    let dropped = matches!(entered.state, State::Dropped { .. });
    let layer = entered.layer;
    let mut entered = Some(entered);
    let pushed = STACK.try_with(|stack| stack.borrow_mut().0.extend(entered.take()));
    if pushed.is_err() {
        // The thread ends; see above.
        std::mem::forget(entered);
        return;
    }
    let _ = DROPPED.try_with(|cell| cell.set(if dropped { layer } else { 0 }));
}

/// The span is left. Nearly always it is the innermost; spans may also be left out of order.
#[inline]
#[must_use]
pub(crate) fn pop(layer: u64, id: u64) -> Option<Entered> {
    let popped = STACK.try_with(|stack| {
        let stack = &mut stack.borrow_mut().0;
        let at = stack.iter().rposition(|entered| entered.layer == layer && entered.id == id)?;
        let entered = stack.remove(at);
        // Whichever layer the innermost of all is of: for that layer it is the innermost too.
        let dropped = match stack.last() {
            Some(Entered { layer, state: State::Dropped { .. }, .. }) => *layer,
            _ => 0,
        };
        Some((entered, dropped))
    });
    let (entered, dropped) = popped.ok().flatten()?;
    let _ = DROPPED.try_with(|cell| cell.set(dropped));
    Some(entered)
}

/// A small number of this thread's own; threads that live at the same time may share one.
#[inline]
pub(crate) fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NUMBER.try_with(Cell::get).unwrap_or(1);
    if number != 0 {
        return number;
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed).max(1);
    let _ = NUMBER.try_with(|cell| cell.set(number));
    number
}

/// A thread, as OpenTelemetry's conventions name it.
#[derive(Clone, Debug)]
pub(crate) struct ThreadName {
    pub(crate) id: u64,
    pub(crate) name: Option<Arc<str>>,
}

impl ThreadName {
    /// Lends this thread's.
    pub(crate) fn with<T>(f: impl FnOnce(&ThreadName) -> T) -> Option<T> {
        let mut f = Some(f);
        NAME.try_with(|name| {
            let mut name = name.borrow_mut();
            let f = f.take()?;
            Some(f(name.get_or_insert_with(Self::of_this_thread)))
        })
        .ok()
        .flatten()
    }

    #[cold]
    fn of_this_thread() -> Self {
        let thread = std::thread::current();
        // `ThreadId` tells its number only by its `Debug` text: `ThreadId(7)`.
        let text = format!("{:?}", thread.id());
        let digits = text.trim_matches(|c: char| !c.is_ascii_digit());
        ThreadName { id: digits.parse().unwrap_or(0), name: thread.name().map(Arc::from) }
    }
}
