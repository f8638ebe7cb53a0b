//! Registry of the live layers of a process, which own the items on a thread's stack.
//!
//! Items and contexts may outlive a layer, and are seldom used to reach it. So they hold its number
//! instead of a `Weak`: counting references would make all threads contend for one cache line,
//! twice for each span.

use std::any::Any;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use astracer_spans::reentry::Busy;
use astracer_spans::sync::statics::{AtomicU64, Ordering};
use opentelemetry::SpanId;

/// A layer, one for each subscriber on which it is installed. When it is dropped, its items on the
/// stack become meaningless.
pub(crate) trait Owner: Any + Send + Sync {
    /// Takes back the handles of a span that an exiting thread held for children.
    fn let_go(&self, id: u64, handles: u32);

    fn has_open(&self, span: SpanId) -> bool;
}

struct Known {
    number: u64,
    owner: Weak<dyn Owner>,
    /// The address of its subscriber's base; 0: not known.
    base: usize,
}

/// Sorted by number.
static KNOWN: RwLock<Vec<Known>> = RwLock::new(Vec::new());

fn with<T>(number: u64, f: impl FnOnce(&Known) -> T) -> Option<T> {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    let at = known.binary_search_by_key(&number, |known| known.number).ok()?;
    known.get(at).map(f)
}

#[derive(Debug)]
pub(crate) struct Number(u64);

impl Number {
    pub(crate) fn new() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        // Relaxed: the numbers only have to differ.
        Number(NUMBERS.fetch_add(1, Ordering::Relaxed))
    }

    /// Distinguishes the owners of a process; never 0.
    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0
    }

    pub(crate) fn register(&self, owner: Weak<dyn Owner>) {
        let _busy = Busy::mark();
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        if let Err(at) = known.binary_search_by_key(&self.0, |known| known.number) {
            known.insert(at, Known { number: self.0, owner, base: 0 });
        }
    }

    pub(crate) fn set_base(&self, base: usize) {
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        known.iter_mut().filter(|known| known.number == self.0).for_each(|known| known.base = base);
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        KNOWN.write().unwrap_or_else(PoisonError::into_inner).retain(|known| known.number != self.0);
    }
}

pub(crate) fn find(number: u64) -> Option<Arc<dyn Owner>> {
    // The lock is released before the owner is used or dropped.
    with(number, |known| known.owner.upgrade())?
}

#[cold]
pub(crate) fn with_open(span: SpanId) -> Option<u64> {
    let all: Vec<(u64, Arc<dyn Owner>)> = {
        let _busy = Busy::mark();
        let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().filter_map(|known| Some((known.number, known.owner.upgrade()?))).collect()
    };
    all.iter().find(|(_, owner)| owner.has_open(span)).map(|(number, _)| *number)
}

pub(super) fn is_there(number: u64) -> bool {
    with(number, |_| ()).is_some()
}

/// Whether both owners are installed on the same subscriber, which notifies both of each span.
pub(super) fn are_beside(one: u64, other: u64) -> bool {
    let base = |number| with(number, |known| known.base).filter(|base| *base != 0);
    base(one).is_some_and(|found| base(other) == Some(found))
}

pub(super) fn is_alone(number: u64) -> bool {
    let base = with(number, |known| known.base).unwrap_or(0);
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    base == 0 || !known.iter().any(|other| other.number != number && other.base == base)
}
