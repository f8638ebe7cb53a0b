//! Guards against recursion. If the user's code creates a span, it may be called again for this
//! span. And a global allocator that traces may make a span while its thread holds a lock of ours,
//! which the span would need. Thread-local marks detect the second call.

use std::cell::Cell;
use std::thread::LocalKey;

/// Marks this thread as running a function of the user's, until dropped.
pub struct ReentryGuard(&'static LocalKey<Cell<bool>>);

impl ReentryGuard {
    /// `None` if this thread already runs a function with this mark.
    #[inline]
    pub fn enter(mark: &'static LocalKey<Cell<bool>>) -> Option<Self> {
        // A thread whose marks are gone is exiting; treat it as inside.
        let is_inside = mark.try_with(|mark| mark.replace(true)).unwrap_or(true);
        // Construct the guard only when it is returned: dropping an extra one would clear the outer
        // mark.
        (!is_inside).then(|| ReentryGuard(mark))
    }
}

// The number of `Busy` that this thread holds.
thread_local!(static BUSY: Cell<u32> = const { Cell::new(0) });

/// Marks this thread as holding a lock of ours, or as changing what a nested call would read, until
/// dropped. None of the user's code runs inside, except for a global allocator that traces.
#[derive(Debug)]
pub struct Busy(());

impl Busy {
    #[inline(always)]
    pub fn mark() -> Self {
        let _ = BUSY.try_with(|busy| busy.set(busy.get().wrapping_add(1)));
        Busy(())
    }
}

impl Drop for Busy {
    #[inline(always)]
    fn drop(&mut self) {
        let _ = BUSY.try_with(|busy| busy.set(busy.get().wrapping_sub(1)));
    }
}

/// Lifts all marks of this thread, until dropped, for a call of the user's code from inside.
pub struct NotBusy(u32);

impl NotBusy {
    pub fn lift() -> Self {
        NotBusy(BUSY.try_with(|busy| busy.replace(0)).unwrap_or(0))
    }
}

impl Drop for NotBusy {
    fn drop(&mut self) {
        let _ = BUSY.try_with(|busy| busy.set(self.0));
    }
}

/// Whether this thread is [`Busy`], so that the span or event at hand comes from an allocator.
#[inline(always)]
pub fn is_busy() -> bool {
    // loom runs all threads of a model on one thread of the system.
    cfg!(not(loom)) && BUSY.try_with(Cell::get).is_ok_and(|busy| busy != 0)
}

impl Drop for ReentryGuard {
    #[inline]
    fn drop(&mut self) {
        let _ = self.0.try_with(|mark| mark.set(false));
    }
}
