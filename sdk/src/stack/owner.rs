//! The layers and gates of a process that are there, as owners of a stack's items.

use std::sync::{PoisonError, RwLock};

use crate::sync::statics::{AtomicU64, Ordering};

/// The numbers of all owners, in order.
static THERE: RwLock<Vec<u64>> = RwLock::new(Vec::new());

/// A layer or a gate, one for each subscriber that it is on. When it is dropped, it is gone: its
/// items say nothing any more.
#[derive(Debug)]
pub(crate) struct Owner(u64);

impl Owner {
    pub(crate) fn new() -> Self {
        static OWNERS: AtomicU64 = AtomicU64::new(1);
        let number = OWNERS.fetch_add(1, Ordering::Relaxed);
        let mut there = THERE.write().unwrap_or_else(PoisonError::into_inner);
        if let Err(at) = there.binary_search(&number) {
            there.insert(at, number);
        }
        Owner(number)
    }

    /// Tells the owners of a process apart; never 0.
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

/// Whether the owner of this number is there.
pub(super) fn is_there(number: u64) -> bool {
    THERE.read().unwrap_or_else(PoisonError::into_inner).binary_search(&number).is_ok()
}
