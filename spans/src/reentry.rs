//! Guards against recursion through the user's code: if that code creates a span, it may be called
//! again for this span. A thread-local mark detects the second call.

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

impl Drop for ReentryGuard {
    #[inline]
    fn drop(&mut self) {
        let _ = self.0.try_with(|mark| mark.set(false));
    }
}
