//! The cores of a process by their numbers, for contexts, which may live for longer than a core.
//!
//! A context is made for each kept span and seldom written through. So it has the number of its core, and not a `Weak`: to
//! count one up and down would make all threads meet on one line of memory, twice for each span.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock, Weak};

use super::Core;

static KNOWN: LazyLock<RwLock<HashMap<u64, Weak<Core>>>> = LazyLock::new(RwLock::default);

pub(super) fn add(core: &Arc<Core>) {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    known.insert(core.number, Arc::downgrade(core));
}

/// The core of this number, if it is still there.
pub(super) fn find(number: u64) -> Option<Arc<Core>> {
    // The lock is let go of before the core is used, or dropped.
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    known.get(&number)?.upgrade()
}

impl Drop for Core {
    fn drop(&mut self) {
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        known.remove(&self.number);
    }
}
