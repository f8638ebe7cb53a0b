//! The only place from which the SDK takes atomics and locks: std's, or loom's when its models are
//! built.
//!
//! Only what a model runs uses the names exported here directly. Statics, which loom cannot make,
//! use [`statics`].

#[cfg(not(loom))]
mod imp {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

    /// Lets other threads run while this one waits for a state that another is about to change.
    pub(crate) fn wait_a_moment() {
        std::thread::yield_now();
    }
}

#[cfg(loom)]
mod imp {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::PoisonError;

    pub(crate) fn wait_a_moment() {
        loom::thread::yield_now();
    }
}

pub(crate) use imp::*;

/// Atomics of statics and of counters that no model runs.
pub(crate) mod statics {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
}

/// Locks, also after a panic: no code that can panic runs under the SDK's locks, so what they guard
/// is whole.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the condition is notified or the time is up.
pub(crate) fn wait_for<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: std::time::Duration,
) -> MutexGuard<'a, T> {
    // loom has no time: a model waits until it is notified.
    #[cfg(loom)]
    return {
        let _ = timeout;
        condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
    };
    #[cfg(not(loom))]
    condition.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
}
