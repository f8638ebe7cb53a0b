//! The wait for a disk that is full or cannot be written. It ends at the shutdown.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The pause after the first failure. It doubles with each further one, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause, after which spans of a full queue can be written again.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The waits of all calls.
#[derive(Debug, Default)]
pub(super) struct Waits {
    is_over: Mutex<bool>,
    changed: Condvar,
}

/// The waits of one call.
pub(super) struct Wait<'w> {
    of: &'w Waits,
    began: Instant,
    max: Duration,
    next: Duration,
}

impl Waits {
    /// Begins a call that waits for at most `max` in all.
    pub(super) fn begin(&self, max: Duration) -> Wait<'_> {
        Wait { of: self, began: Instant::now(), max, next: PAUSE_MIN }
    }

    /// Ends all waits, also later ones.
    pub(super) fn end(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

impl Wait<'_> {
    /// Waits before the next attempt. False if there is to be none.
    pub(super) fn pause(&mut self) -> bool {
        let left = self.max.saturating_sub(self.began.elapsed());
        if left.is_zero() {
            return false;
        }
        let time = self.next.min(left);
        self.next = (self.next * 2).min(PAUSE_MAX);
        let is_over = self.of.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.of.changed.wait_timeout_while(is_over, time, |is_over| !*is_over);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
