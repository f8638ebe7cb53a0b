//! The current flow of each thread.
//!
//! A flow becomes current when its span or wrapper is entered, and is looked up by that one's key
//! when it is left. Spans may be exited out of order, and a span may be entered several times.

use std::cell::{Cell, RefCell};

use super::slots::Key;

#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    /// The [`Flows`](super::Flows) that the number is from; 0 without a flow.
    pub(super) owner: u32,
    pub(super) number: u32,
    pub(super) id: u64,
    /// Flows around it on the thread, most often none.
    around: u32,
    key: Key,
    /// The times that the thread has entered the span and not exited it.
    depth: u32,
    /// The ticks since which it is the innermost, for the sums of tenants; 0 without them.
    pub(super) since: u64,
}

/// Nested flows of a thread up to which they are followed. More are guards that were leaked.
const NESTED_MAX: usize = 4096;
/// The first half of a wrapper's key. Layers have smaller numbers.
const WRAPPER: u64 = u64::MAX;

impl Current {
    const NONE: Current = Current { owner: 0, number: 0, id: 0, around: 0, key: (0, 0), depth: 0, since: 0 };

    pub(super) fn new((owner, number): (u32, u32), id: u64, key: Key, since: u64) -> Self {
        Current { owner, number, id, around: 0, key, depth: 1, since }
    }

    /// Whether it is current because of a wrapper, and not of a span.
    pub(super) fn is_wrapped(&self) -> bool {
        self.key.0 == WRAPPER
    }
}

thread_local! {
    static CURRENT: Cell<Current> = const { Cell::new(Current::NONE) };
    static BEFORE: RefCell<Vec<Current>> = const { RefCell::new(Vec::new()) };
    static WRAPPERS: Cell<u64> = const { Cell::new(0) };
}

/// The current flow.
#[inline]
pub(super) fn get() -> Current {
    CURRENT.get()
}

/// The innermost flow of an owner. Others may be inside it, if there are two SDKs.
#[inline]
pub(super) fn of(owner: u32) -> Current {
    let current = CURRENT.get();
    if current.owner == owner || current.owner == 0 { current } else { search(owner) }
}

#[cold]
fn search(owner: u32) -> Current {
    let found = BEFORE.try_with(|before| before.borrow().iter().rfind(|one| one.owner == owner).copied());
    found.ok().flatten().unwrap_or(Current::NONE)
}

/// A key that no other wrapper of this thread has.
pub(super) fn wrapper_key() -> Key {
    let number = WRAPPERS.get() + 1;
    WRAPPERS.set(number);
    (WRAPPER, number)
}

/// Notes that a span is entered that changes no flow. The thread may be inside it already.
#[inline]
pub(super) fn enter_again(key: Key) {
    if may_be_inside(key) {
        count_again(key);
    }
}

/// Whether a flow may have become current at this key. Nearly always there is one flow, and the
/// answer takes a comparison.
#[inline]
pub(super) fn may_be_inside(key: Key) -> bool {
    let current = CURRENT.get();
    current.key == key || current.around > 0
}

#[inline(never)]
fn count_again(key: Key) {
    let current = CURRENT.get();
    if current.key == key {
        CURRENT.set(Current { depth: current.depth + 1, ..current });
        return;
    }
    let _ = BEFORE.try_with(|before| {
        if let Some(before) = before.borrow_mut().iter_mut().rfind(|before| before.key == key) {
            before.depth += 1;
        }
    });
}

/// Makes a flow current. Returns whether it is.
pub(super) fn push(new: Current) -> bool {
    let pushed = BEFORE.try_with(|before| {
        let mut before = before.borrow_mut();
        let fits = before.len() < NESTED_MAX;
        if fits {
            let around = before.len() as u32;
            before.push(CURRENT.replace(Current { around, ..new }));
        }
        fits
    });
    pushed.unwrap_or(false)
}

/// Leaves a span or a wrapper. Returns the flow that is no longer current, if it was at this key
/// that it became so.
pub(super) fn pop(key: Key) -> Option<Current> {
    let current = CURRENT.get();
    if current.key != key {
        let _ = BEFORE.try_with(|before| leave_before(&mut before.borrow_mut(), key));
        return None;
    }
    if current.depth > 1 {
        CURRENT.set(Current { depth: current.depth - 1, ..current });
        return None;
    }
    let before = BEFORE.try_with(|before| before.borrow_mut().pop()).ok().flatten();
    CURRENT.set(before.unwrap_or(Current::NONE));
    Some(current)
}

/// Lets the time of the current flow begin again.
pub(super) fn restart(since: u64) {
    CURRENT.set(Current { since, ..CURRENT.get() });
}

/// Leaves a span that was entered before others in which the thread still is.
#[inline]
fn leave_before(before: &mut Vec<Current>, key: Key) {
    let Some(index) = before.iter().rposition(|other| other.key == key) else { return };
    if before[index].depth > 1 {
        before[index].depth -= 1;
    } else {
        before.remove(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(number: u32) -> Current {
        Current::new((1, number), number.into(), (1, number.into()), 0)
    }

    #[test]
    fn flows_are_left_in_any_order() {
        assert!(push(flow(1)) && push(flow(2)) && push(flow(3)));
        assert!(pop((1, 2)).is_none());
        assert_eq!(get().number, 3);
        assert_eq!(pop((1, 3)).unwrap().number, 3);
        assert_eq!(get().number, 1);
        enter_again((1, 1));
        enter_again((1, 7));
        assert!(pop((1, 7)).is_none() && pop((1, 1)).is_none());
        assert_eq!(pop((1, 1)).unwrap().number, 1);
        assert_eq!(get().owner, 0);
        assert!(pop((1, 1)).is_none());
    }

    #[test]
    fn a_span_may_be_entered_again_below_another_flow() {
        assert!(push(flow(1)) && push(flow(2)));
        enter_again((1, 1));
        assert!(pop((1, 1)).is_none());
        assert_eq!(pop((1, 2)).unwrap().number, 2);
        assert_eq!(pop((1, 1)).unwrap().number, 1);
    }

    #[test]
    fn leaked_guards_are_followed_up_to_a_bound() {
        assert!((0..NESTED_MAX as u32).all(|number| push(flow(number))));
        assert!(!push(flow(9)));
        assert_eq!(get().number, NESTED_MAX as u32 - 1);
    }
}
