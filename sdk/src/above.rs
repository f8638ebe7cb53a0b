//! Spans for which there was no room.
//!
//! Such a span has no entry, but it has a place: the entry of the nearest span above it in its
//! trace answers for it. The registry's parent would not do: it may be of another trace. So the id
//! of that entry is kept with the span, in its extensions or, on a subscriber that makes the ids
//! itself, in the id. It is 0 for a local root, for which nothing answers: its trace is dropped.

use tracing_core::Dispatch;
use tracing_core::span::Id;
use tracing_subscriber::Registry;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use crate::core::Core;
use crate::sync::statics::{AtomicU64, Ordering};

/// In the extensions of a span without room.
struct Lost {
    above: u64,
}

/// Notes that a registry's span has no entry, and which answers for it.
#[cold]
pub(crate) fn mark_lost<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>, above: u64) {
    span.extensions_mut().replace(Lost { above });
}

/// The id of the entry that answers for a registry's span without room. `None` if the span is not
/// such a one: a filter hides it from the layer, or it began where telemetry was suppressed.
pub(crate) fn above_lost<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>) -> Option<u64> {
    span.extensions().get::<Lost>().map(|lost| lost.above)
}

/// The id of a span without an entry, on a subscriber that makes the ids itself: a mark, and the id
/// of the entry that answers for it, or a number below all of these for a span that has no place in
/// traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntrylessId(u64);

/// Ids of spans with an entry are below: see `table/own.rs`.
const MARK: u64 = 1 << 63;

/// The ids of entries are no less: they have a generation, from 1.
const ENTRY_MIN: u64 = 1 << 24;

impl EntrylessId {
    /// The id of a span that has no place in traces: telemetry was suppressed, or the SDK is shut
    /// down. Filters know spans by their ids, so each has another one, until millions have begun.
    pub(crate) fn nowhere() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % (ENTRY_MIN - 1) + 1;
        EntrylessId(MARK | number)
    }

    fn is_nowhere(self) -> bool {
        (1..ENTRY_MIN).contains(&(self.0 & !MARK))
    }

    /// A span for which there was no room. `above` is the id of the entry that answers for it; 0:
    /// none.
    pub(crate) fn below(above: u64) -> Self {
        EntrylessId(MARK | above)
    }

    /// `None` if the span has an entry.
    #[inline]
    pub(crate) fn of(id: &Id) -> Option<Self> {
        let id = id.into_u64();
        (id & MARK != 0).then_some(EntrylessId(id))
    }

    /// The id of the entry that answers for it; 0: none.
    pub(crate) fn above(self) -> u64 {
        if self.is_nowhere() { 0 } else { self.0 & !MARK }
    }

    /// As [`above_lost`].
    pub(crate) fn above_lost(id: &Id) -> Option<u64> {
        Self::of(id).filter(|id| !id.is_nowhere()).map(Self::above)
    }

    pub(crate) fn id(self) -> Id {
        Id::from_u64(self.0)
    }
}

/// As [`above_lost`], on the subscriber of `core`.
pub(crate) fn above_lost_on(core: &Core, id: &Id, dispatch: &Dispatch) -> Option<u64> {
    if core.makes_ids() {
        return EntrylessId::above_lost(id);
    }
    above_lost(&dispatch.downcast_ref::<Registry>()?.span(id)?)
}
