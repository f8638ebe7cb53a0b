//! What a thread knows: which spans it is inside of, and whether the innermost is dropped.
//!
//! As the layer's own (`layer/thread.rs`), for gates: there may be several on a thread, each in a subscriber of its own.

use std::cell::{Cell, RefCell};

use opentelemetry::{ContextGuard, SpanId};

/// A span that this thread is inside of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entered {
    pub(super) gate: u64,
    /// The span's id in the subscriber.
    pub(super) id: u64,
    /// Whether the gate's layer was told of it.
    pub(super) seen: bool,
    /// Whether what begins inside of it is dropped.
    pub(super) is_dropped: bool,
    /// The span that is current in OpenTelemetry's context.
    pub(super) context: SpanId,
}

#[derive(Default)]
struct Stack(Vec<(Entered, Option<ContextGuard>)>);

impl Drop for Stack {
    /// A thread that ends inside of a span: OpenTelemetry's own thread-local may be gone, and its guards would panic.
    fn drop(&mut self) {
        for (_, guard) in self.0.drain(..) {
            std::mem::forget(guard);
        }
    }
}

thread_local! {
    static STACK: RefCell<Stack> = const { RefCell::new(Stack(Vec::new())) };
    /// The gate whose innermost span on this thread is dropped; 0 if it is not, or if a span of another gate lies
    /// further in.
    static DROPPED: Cell<u64> = const { Cell::new(0) };
}

/// Whether the innermost span on this thread is a dropped one of this gate.
#[inline]
pub(super) fn is_dropped(gate: u64) -> bool {
    DROPPED.try_with(Cell::get).unwrap_or(0) == gate
}

pub(super) fn innermost(gate: u64) -> Option<Entered> {
    let find = |stack: &Stack| stack.0.iter().rev().map(|(entered, _)| *entered).find(|e| e.gate == gate);
    STACK.try_with(|stack| find(&stack.borrow())).ok().flatten()
}

#[inline]
pub(super) fn push(entered: Entered, guard: Option<ContextGuard>) {
    let mut item = Some((entered, guard));
    if STACK.try_with(|stack| stack.borrow_mut().0.extend(item.take())).is_err() {
        // The thread ends; see above.
        return std::mem::forget(item);
    }
    let _ = DROPPED.try_with(|cell| cell.set(if entered.is_dropped { entered.gate } else { 0 }));
}

/// The span is left, nearly always the innermost. The guard is to be dropped where nothing is borrowed.
#[inline]
#[must_use]
pub(super) fn pop(gate: u64, id: u64) -> Option<(Entered, Option<ContextGuard>)> {
    let popped = STACK.try_with(|stack| {
        let stack = &mut stack.borrow_mut().0;
        let at = stack.iter().rposition(|(entered, _)| entered.gate == gate && entered.id == id)?;
        let item = stack.remove(at);
        let dropped = stack.last().filter(|(innermost, _)| innermost.is_dropped);
        Some((item, dropped.map_or(0, |(innermost, _)| innermost.gate)))
    });
    let (item, dropped) = popped.ok().flatten()?;
    let _ = DROPPED.try_with(|cell| cell.set(dropped));
    Some(item)
}
