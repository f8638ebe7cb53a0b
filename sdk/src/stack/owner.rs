//! Registry of the live layers and gates of a process, which own the items on a thread's stack.

use std::sync::{PoisonError, RwLock};

use crate::sync::statics::{AtomicU64, Ordering};

/// The numbers of all live owners, sorted.
static THERE: RwLock<Vec<u64>> = RwLock::new(Vec::new());

/// A layer or a gate, one for each subscriber on which it is installed. When it is dropped, its
/// items on the stack become meaningless.
#[derive(Debug)]
pub(crate) struct Owner(u64);

impl Owner {
    pub(crate) fn new() -> Self {
        static OWNERS: AtomicU64 = AtomicU64::new(1);
        // Relaxed: the numbers only have to differ.
        let number = OWNERS.fetch_add(1, Ordering::Relaxed);
        let mut there = THERE.write().unwrap_or_else(PoisonError::into_inner);
        if let Err(at) = there.binary_search(&number) {
            there.insert(at, number);
        }
        Owner(number)
    }

    /// Distinguishes the owners of a process; never 0.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut there = THERE.write().unwrap_or_else(PoisonError::into_inner);
        if let Ok(at) = there.binary_search(&self.0) {
            there.remove(at);
        }
    }
}

/// Whether the owner with this number is still alive.
pub(super) fn is_there(number: u64) -> bool {
    THERE.read().unwrap_or_else(PoisonError::into_inner).binary_search(&number).is_ok()
}
