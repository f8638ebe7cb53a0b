//! The one place that chooses the atomics and locks: those of std, or those of loom under
//! `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering, fence},
};

/// Always std's: these are set up once, and loom need not explore their interleavings.
pub(crate) use std::sync::{Arc, OnceLock};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering, fence},
};
