//! The cores of a process by their numbers, for contexts, which may live for longer than a core.
//!
//! A context is made for each kept span and seldom written through. So it has the number of its
//! core, and not a `Weak`: to count one up and down would make all threads meet on one line of
//! memory, twice for each span.

use std::sync::{Arc, PoisonError, RwLock, Weak};

use super::Core;

/// By their numbers, in order: one for each subscriber, and for each clone of a layer.
static KNOWN: RwLock<Vec<(u64, Weak<Core>)>> = RwLock::new(Vec::new());

fn position(known: &[(u64, Weak<Core>)], number: u64) -> Result<usize, usize> {
    known.binary_search_by_key(&number, |(known, _)| *known)
}

pub(super) fn add(core: &Arc<Core>) {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    if let Err(at) = position(&known, core.number()) {
        known.insert(at, (core.number(), Arc::downgrade(core)));
    }
}

/// The core of this number, if it is still there.
pub(super) fn find(number: u64) -> Option<Arc<Core>> {
    // The lock is let go of before the core is used, or dropped.
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    let at = position(&known, number).ok()?;
    known.get(at)?.1.upgrade()
}

/// A thread that ends lets go of handles that it had for children. If there are no others, one
/// stays: a guard of the span was leaked, and the span stays open.
pub(super) fn let_go_on(number: u64, id: u64, handles: u32) {
    if let Some(core) = find(number)
        && let Some(entry) = core.find_id(id)
    {
        entry.handles().let_go_unless_last(id, handles);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        if let Ok(at) = position(&known, self.number()) {
            known.remove(at);
        }
        drop(known);
        self.lose_open_spans();
    }
}
