//! Registry of the live layers of a process, which own the items on a thread's stack.

use std::sync::{PoisonError, RwLock};

use astracer_spans::sync::statics::{AtomicU64, Ordering};

/// The numbers of all live owners, sorted, each with the address of its subscriber's base; 0: not
/// known.
static THERE: RwLock<Vec<(u64, usize)>> = RwLock::new(Vec::new());

fn position(there: &[(u64, usize)], number: u64) -> Result<usize, usize> {
    there.binary_search_by_key(&number, |(number, _)| *number)
}

/// A layer, one for each subscriber on which it is installed. When it is dropped, its items on the
/// stack become meaningless.
#[derive(Debug)]
pub(crate) struct Owner(u64);

impl Owner {
    pub(crate) fn new() -> Self {
        static OWNERS: AtomicU64 = AtomicU64::new(1);
        // Relaxed: the numbers only have to differ.
        let number = OWNERS.fetch_add(1, Ordering::Relaxed);
        let mut there = THERE.write().unwrap_or_else(PoisonError::into_inner);
        if let Err(at) = position(&there, number) {
            there.insert(at, (number, 0));
        }
        Owner(number)
    }

    /// Stores the address of the registry, or of our subscriber, on which the owner is installed.
    pub(crate) fn set_base(&self, base: usize) {
        let mut there = THERE.write().unwrap_or_else(PoisonError::into_inner);
        if let Ok(at) = position(&there, self.0) {
            there[at].1 = base;
        }
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
        if let Ok(at) = position(&there, self.0) {
            there.remove(at);
        }
    }
}

/// Whether the owner with this number is still alive.
pub(super) fn is_there(number: u64) -> bool {
    position(&THERE.read().unwrap_or_else(PoisonError::into_inner), number).is_ok()
}

/// Whether both owners are installed on the same subscriber, which notifies both of each span.
pub(super) fn are_beside(one: u64, other: u64) -> bool {
    let there = THERE.read().unwrap_or_else(PoisonError::into_inner);
    let base = |number| position(&there, number).ok().map(|at| there[at].1).filter(|base| *base != 0);
    base(one).is_some_and(|found| base(other) == Some(found))
}

/// Whether no other owner is installed on this owner's subscriber.
pub(super) fn is_alone(number: u64) -> bool {
    let there = THERE.read().unwrap_or_else(PoisonError::into_inner);
    let base = position(&there, number).map_or(0, |at| there[at].1);
    base == 0 || !there.iter().any(|(other, own)| *other != number && *own == base)
}
