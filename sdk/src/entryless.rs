//! Spans that did not fit the memory budget for open spans.
//!
//! Such a span has no entry, but it still has a place in its trace: the entry of its nearest
//! recorded ancestor stands in for it. The registry's parent cannot serve as that ancestor, because
//! it may belong to another trace. So the ancestor's id is stored with the span: in its extensions
//! or, on a subscriber that makes the ids itself, in the id. For a local root it is 0: no entry
//! stands in for it, and its trace is dropped.

use tracing_core::Dispatch;
use tracing_core::span::Id;
use tracing_subscriber::Registry;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use crate::core::Core;
use crate::sync::statics::{AtomicU64, Ordering};

/// Stored in the extensions of a span that did not fit the budget.
struct Entryless {
    stand_in: u64,
}

/// Records that a registry's span has no entry, and the id of the entry that stands in for it.
#[cold]
pub(crate) fn mark_entryless<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>, stand_in: u64) {
    span.extensions_mut().replace(Entryless { stand_in });
}

/// The id of the entry that stands in for a registry's span that did not fit the budget. `None` if
/// the span has no entry for another reason: a filter hides it from the layer, or it began while
/// telemetry was suppressed.
pub(crate) fn stand_in_of<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>) -> Option<u64> {
    span.extensions().get::<Entryless>().map(|entryless| entryless.stand_in)
}

/// The id of a span without an entry, on a subscriber that makes the ids itself. It consists of a
/// mark and the id of the entry that stands in for the span. A span that has no place in traces has
/// a number smaller than all entry ids instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntrylessId(u64);

/// Ids of spans with an entry do not have this bit: see `table/own.rs`.
const MARK: u64 = 1 << 63;

/// The smallest id of an entry: generations start at 1.
const ENTRY_MIN: u64 = 1 << 24;

impl EntrylessId {
    /// Makes an id for a span that has no place in traces because telemetry was suppressed or the
    /// SDK is shut down. Filters identify spans by their ids, so each span gets a different one;
    /// numbers repeat after 16 million spans.
    pub(crate) fn nowhere() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % (ENTRY_MIN - 1) + 1;
        EntrylessId(MARK | number)
    }

    fn is_nowhere(self) -> bool {
        (1..ENTRY_MIN).contains(&(self.0 & !MARK))
    }

    /// Makes an id for a span that did not fit the budget. `stand_in` is the id of the entry that
    /// stands in for it; 0: none.
    pub(crate) fn below(stand_in: u64) -> Self {
        EntrylessId(MARK | stand_in)
    }

    /// `None` if the span has an entry.
    #[inline]
    pub(crate) fn of(id: &Id) -> Option<Self> {
        let id = id.into_u64();
        (id & MARK != 0).then_some(EntrylessId(id))
    }

    /// The id of the entry that stands in for the span; 0: none.
    pub(crate) fn stand_in(self) -> u64 {
        if self.is_nowhere() { 0 } else { self.0 & !MARK }
    }

    /// Like [`stand_in_of`].
    pub(crate) fn stand_in_of(id: &Id) -> Option<u64> {
        Self::of(id).filter(|id| !id.is_nowhere()).map(Self::stand_in)
    }

    pub(crate) fn id(self) -> Id {
        Id::from_u64(self.0)
    }
}

/// Like [`stand_in_of`], for a span on the subscriber of `core`.
pub(crate) fn stand_in_on(core: &Core, id: &Id, dispatch: &Dispatch) -> Option<u64> {
    if core.makes_ids() {
        return EntrylessId::stand_in_of(id);
    }
    stand_in_of(&dispatch.downcast_ref::<Registry>()?.span(id)?)
}
