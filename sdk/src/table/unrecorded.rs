//! Spans without an entry of their own.
//!
//! A span for which the memory of open spans has no room is refused, and with it everything below.
//! Two entries, those of dropped spans, are shared by all refused spans: one by those that are
//! lost, since their trace is kept, and the other by those of dropped traces. So nothing is
//! recorded on refused spans or below them. The ids of a registry's refused spans are stored, in
//! some 20 bytes while a span is open; the registry takes more than 100 for it. Ids that the table
//! makes are marked.
//!
//! Spans that begin while telemetry is suppressed are not known at all.

use std::collections::HashMap;
use std::sync::OnceLock;

use tracing_core::callsite::DefaultCallsite;
use tracing_core::metadata::Kind;
use tracing_core::span::Id;
use tracing_core::{Level, Metadata};

use super::entry::{Beginning, Entry};
use astracer_spans::reentry::Busy;
use astracer_spans::sync::statics::{AtomicU64, Ordering};
use astracer_spans::sync::{Mutex, lock};

/// Set in the ids that a table makes for spans without an entry: see `handles.rs`.
const UNRECORDED: u64 = 1 << 63;
/// Set in those of refused spans, too.
const REFUSED: u64 = UNRECORDED | 1 << 62;
/// The smallest id of a shared entry. No registry's id: it would be one of the last of 2^38 spans
/// that are open at once.
const SHARED: u64 = u64::MAX - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Refusal {
    Dropped,
    Lost,
}

/// Makes an id for a span without an entry. Filters identify spans by their ids, so each span gets
/// a different one; numbers repeat after 16 million spans.
#[cold]
pub(crate) fn unrecorded_id(refusal: Option<Refusal>) -> Id {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = (NEXT.fetch_add(1, Ordering::Relaxed) % (1 << 24) + 1) << 1;
    Id::from_u64(refusal.map_or(UNRECORDED | number, |refusal| REFUSED | number | refusal as u64))
}

pub(crate) fn is_unrecorded(id: &Id) -> bool {
    id.into_u64() & UNRECORDED != 0
}

/// Metadata shown for spans without an entry, whose own metadata is not stored: `tracing` requires
/// some with the current span's id.
pub(crate) static METADATA: Metadata<'static> = tracing_core::metadata! {
    name: "astracer.unrecorded",
    target: module_path!(),
    level: Level::TRACE,
    fields: &[],
    callsite: &CALLSITE,
    kind: Kind::SPAN
};

static CALLSITE: DefaultCallsite = DefaultCallsite::new(&METADATA);

#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// By [`Refusal`]; made for the first span.
    shared: [OnceLock<Box<Entry>>; 2],
    ids: Mutex<HashMap<u64, Refusal>>,
}

impl Refused {
    /// Refuses a span that got no entry; `None`: its id is marked. Returns the entry that such
    /// spans share, which begins with `beginning`. That may run the user's code.
    #[cold]
    pub(crate) fn add(
        &self,
        id: Option<u64>,
        refusal: Refusal,
        beginning: impl FnOnce() -> Beginning,
    ) -> &Entry {
        if let Some(id) = id {
            lock(&self.ids).insert(id, refusal);
        }
        let shared = &self.shared[refusal as usize];
        if let Some(entry) = shared.get() {
            return entry;
        }
        let beginning = beginning();
        let _busy = Busy::mark();
        shared.get_or_init(|| {
            let entry = Box::<Entry>::default();
            entry.take(SHARED | refusal as u64);
            entry.begin(&beginning);
            entry
        })
    }

    pub(super) fn shared(&self) -> impl Iterator<Item = &Entry> {
        self.shared.iter().filter_map(OnceLock::get).map(|entry| &**entry)
    }

    /// The entry of a refused span. `makes_ids`: the table makes the ids.
    #[cold]
    pub(super) fn find(&self, id: u64, makes_ids: bool) -> Option<&Entry> {
        self.shared().next()?;
        let refusal = match id {
            _ if id >= SHARED || makes_ids && id >= REFUSED => id as usize & 1,
            _ if makes_ids => return None,
            _ => *lock(&self.ids).get(&id)? as usize,
        };
        self.shared[refusal].get().map(|entry| &**entry)
    }

    #[cold]
    pub(crate) fn forget(&self, id: u64) {
        if self.shared().next().is_some() {
            lock(&self.ids).remove(&id);
        }
    }
}

impl Entry {
    /// Set if this entry is shared by refused spans.
    #[inline]
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self.id() {
            id if id < SHARED => None,
            SHARED => Some(Refusal::Dropped),
            _ => Some(Refusal::Lost),
        }
    }
}
