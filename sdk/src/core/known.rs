//! The cores of a process by number, for contexts, which may outlive a core.
//!
//! A context is made for each kept span, but seldom used to write to it. So it holds the number of
//! its core instead of a `Weak`: counting references would make all threads contend for one cache
//! line, twice for each span.

use std::cell::Cell;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use opentelemetry::SpanId;

use super::Core;

/// Sorted by number: one core for each subscriber, and for each clone of a layer.
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

/// The core with this number, if it still exists.
pub(super) fn find(number: u64) -> Option<Arc<Core>> {
    // The lock is released before the core is used or dropped.
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    let at = position(&known, number).ok()?;
    known.get(at)?.1.upgrade()
}

/// The number of the core that has an open span with this id.
#[cold]
pub(super) fn with_open(span: SpanId) -> Option<u64> {
    let cores: Vec<Arc<Core>> = {
        let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().filter_map(|(_, core)| core.upgrade()).collect()
    };
    let has_it = |core: &&Arc<Core>| {
        let found = Cell::new(false);
        core.table.each_open(|entry| found.set(found.get() || entry.span_id() == span));
        found.get()
    };
    cores.iter().find(has_it).map(|core| core.number())
}

/// Releases the handles that an ending thread held for children. The last handle stays: if there
/// are no others, a guard of the span was leaked, and the span stays open.
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
