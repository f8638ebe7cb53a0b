//! Code that is the user's may trace, and would be asked again about what it makes itself. A mark
//! of its thread tells.

use std::cell::Cell;
use std::thread::LocalKey;

/// This thread runs a function of the user's, until it is dropped.
pub(crate) struct Inside(&'static LocalKey<Cell<bool>>);

impl Inside {
    /// `None` if this thread runs one with this mark already.
    #[inline]
    pub(crate) fn enter(mark: &'static LocalKey<Cell<bool>>) -> Option<Self> {
        // A thread that has no marks any more is ending.
        let is_inside = mark.try_with(|mark| mark.replace(true)).unwrap_or(true);
        // Made only where none is there: one that is dropped at once would end the other.
        (!is_inside).then(|| Inside(mark))
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        let _ = self.0.try_with(|mark| mark.set(false));
    }
}
