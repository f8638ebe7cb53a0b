//! What a thread knows: which spans it is inside of, and whether the innermost was dropped.
//!
//! More than one layer may be at work on a thread (a scoped subscriber inside a global one), so each entry names its
//! layer. No code of the user's runs while the stack is borrowed: context guards are dropped by the caller.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use opentelemetry::{ContextGuard, SpanId};

/// A span that this thread is inside of.
#[derive(Debug)]
pub(crate) struct Entered {
    /// The layer's number.
    pub(crate) layer: u64,
    /// The span's id in the subscriber; 0 if it was left before the spans below it.
    pub(crate) id: u64,
    /// Its place in the layer's table.
    pub(crate) place: u32,
    /// How many spans further in this thread is inside of that differ in nothing from this one, a dropped one: they are
    /// in no table, and nothing is known of them but their number.
    pub(crate) below: u32,
    pub(crate) state: State,
    /// Keeps the span's context current. Dropped by whoever takes the entry out; not with a thread that ends inside of a
    /// span, where OpenTelemetry's own thread-local may be gone, and its guards would panic.
    pub(crate) guard: ManuallyDrop<Option<ContextGuard>>,
}

/// What the innermost span says about those that begin inside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// They are dropped too. With the id of the context that is current, if one is.
    Dropped { context: SpanId },
    /// They belong to this trace, below this span.
    Recorded { slot: u32, span_id: SpanId },
}

thread_local! {
    static STACK: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
    /// The layer of the innermost span of all, 0 outside of all; and what that span says.
    static INNERMOST: Cell<(u64, State)> = const { Cell::new((0, State::Dropped { context: SpanId::INVALID })) };
    /// The layer of the innermost span, if that is a dropped one; else 0.
    static DROPPED: Cell<u64> = const { Cell::new(0) };
    static REFUSED: Cell<u64> = const { Cell::new(0) };
    static IN_KEY: Cell<bool> = const { Cell::new(false) };
    static NUMBER: Cell<u32> = const { Cell::new(0) };
    static NAME: RefCell<Option<ThreadName>> = const { RefCell::new(None) };
}

/// Whether this thread is below a dropped root of the layer, and no span of another layer lies further in.
#[inline]
pub(crate) fn is_dropped(layer: u64) -> bool {
    DROPPED.get() == layer
}

#[inline]
fn set_innermost(layer: u64, state: State) {
    INNERMOST.set((layer, state));
    DROPPED.set(if matches!(state, State::Dropped { .. }) { layer } else { 0 });
}

/// Counts a span that was refused.
#[inline]
pub(crate) fn refuse() {
    REFUSED.set(REFUSED.get() + 1);
}

/// How many spans were refused on this thread since this was last asked.
#[inline]
pub(crate) fn take_refused() -> u64 {
    REFUSED.replace(0)
}

/// Whether this thread is inside of a span of the layer.
#[inline]
pub(crate) fn is_inside(layer: u64) -> bool {
    innermost(layer).is_some()
}

/// What the innermost span of the layer says.
#[inline]
pub(crate) fn innermost(layer: u64) -> Option<State> {
    match INNERMOST.get() {
        (0, _) => None,
        (innermost, state) if innermost == layer => Some(state),
        _ => innermost_span(layer).map(|(_, _, state)| state),
    }
}

/// The id in the subscriber of the innermost span of the layer, its place in the table, and what it says.
pub(crate) fn innermost_span(layer: u64) -> Option<(u64, u32, State)> {
    let find = |stack: &RefCell<Vec<Entered>>| {
        let stack = stack.borrow();
        let innermost = stack.iter().rev().find(|entered| entered.layer == layer)?;
        Some((innermost.id, innermost.place, innermost.state))
    };
    STACK.try_with(find).ok().flatten()
}

#[inline]
pub(crate) fn push(entered: Entered) {
    let (layer, state) = (entered.layer, entered.state);
    if STACK.try_with(|stack| stack.borrow_mut().push(entered)).is_ok() {
        set_innermost(layer, state);
    }
}

/// A span is entered that is in no table. Says whether this thread is inside of a dropped span that it is like, and it
/// was counted there.
#[inline]
pub(crate) fn enter_below(layer: u64, context: SpanId) -> bool {
    if INNERMOST.get() != (layer, State::Dropped { context }) {
        return false;
    }
    let count = |stack: &RefCell<Vec<Entered>>| {
        stack.borrow_mut().last_mut().map(|innermost| innermost.below += 1).is_some()
    };
    STACK.try_with(count) == Ok(true)
}

/// The span is left. Nearly always it is the innermost; spans may also be left out of order.
#[inline]
#[must_use]
pub(crate) fn pop(layer: u64, id: u64) -> Option<Entered> {
    let popped = STACK.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        let innermost = stack.last_mut()?;
        let entered = if innermost.layer == layer && innermost.id == id && innermost.below == 0 {
            stack.pop()?
        } else if innermost.below > 0 && innermost.id != 0 && innermost.id != id && stack.len() == 1 {
            // Nothing else that this thread is inside of has the id, so it is one that was counted.
            stack[0].below -= 1;
            return None;
        } else {
            take_out(&mut stack, layer, id)?
        };
        match stack.last() {
            Some(last) => set_innermost(last.layer, last.state),
            None => set_innermost(0, entered.state),
        }
        Some(entered)
    });
    popped.ok().flatten()
}

/// As [`pop`], for a span that may lie anywhere.
fn take_out(stack: &mut Vec<Entered>, layer: u64, id: u64) -> Option<Entered> {
    let named = |entered: &Entered| entered.layer == layer && entered.id == id;
    if let Some(at) = stack.iter().rposition(named) {
        let entered = &mut stack[at];
        if entered.below == 0 {
            return Some(stack.remove(at));
        }
        // It stays for those that this thread is still inside of.
        entered.id = 0;
        let guard = ManuallyDrop::new(entered.guard.take());
        return Some(Entered { guard, below: 0, ..*entered });
    }
    // One that was only counted. Which one does not matter.
    let at = stack.iter().rposition(|entered| entered.layer == layer && entered.below > 0)?;
    let above = &mut stack[at];
    above.below -= 1;
    (above.below == 0 && above.id == 0).then(|| stack.remove(at))
}

/// This thread is inside of a key function of the user's, until it is dropped.
pub(crate) struct InKey;

impl Drop for InKey {
    fn drop(&mut self) {
        let _ = IN_KEY.try_with(|inside| inside.set(false));
    }
}

/// `None` if this thread is inside of one already: what the function traces would need keys again.
pub(crate) fn enter_key() -> Option<InKey> {
    let inside = IN_KEY.try_with(|inside| inside.replace(true)).unwrap_or(true);
    (!inside).then_some(InKey)
}

/// A small number of this thread's own; threads that live at the same time may share one.
#[inline]
pub(crate) fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NUMBER.get();
    if number != 0 {
        return number;
    }
    NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed).max(1));
    NUMBER.get()
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
