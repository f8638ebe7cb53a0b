//! The only place from which the SDK imports atomics and locks: from std, or from loom when its
//! models are built.
//!
//! Only code that a loom model runs uses these names directly. Statics and counters use
//! [`statics`], because loom's types cannot be statics.

#[cfg(loom)]
use loom as base;
#[cfg(not(loom))]
use std as base;

pub use base::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub use base::sync::{Condvar, Mutex};
pub use std::sync::PoisonError;

use std::ops::{Deref, DerefMut};

use crate::reentry::Busy;

/// Lets other threads run while this one waits for another to change a state.
pub fn wait_a_moment() {
    base::thread::yield_now();
}

/// Atomics for statics, and for counters that no model runs.
pub mod statics {
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
}

/// A held lock. While there is one, its thread is [`Busy`].
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    /// Released before the mark is.
    guard: base::sync::MutexGuard<'a, T>,
    busy: Busy,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Locks, ignoring poison: code that can panic does not run under the SDK's locks, so the guarded
/// data is consistent.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let busy = Busy::mark();
    MutexGuard { guard: mutex.lock().unwrap_or_else(PoisonError::into_inner), busy }
}

pub fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    let MutexGuard { guard, busy } = guard;
    MutexGuard { guard: condition.wait(guard).unwrap_or_else(PoisonError::into_inner), busy }
}

pub fn wait_for<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: std::time::Duration,
) -> MutexGuard<'a, T> {
    let MutexGuard { guard, busy } = guard;
    // loom has no time: in a model this waits for the notification.
    #[cfg(loom)]
    let guard = {
        let _ = timeout;
        condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
    };
    #[cfg(not(loom))]
    let guard = condition.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0;
    MutexGuard { guard, busy }
}
