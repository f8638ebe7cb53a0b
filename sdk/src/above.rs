//! The spans above one that has no entry.
//!
//! A registry knows a span's parents. Without a registry the id of a span without an entry says which span is above it.

use tracing_core::Dispatch;
use tracing_core::span::Id;
use tracing_subscriber::Registry;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use crate::core::{Ancestors, Core};

/// The spans above one, in a registry.
pub(crate) struct Scope<'a, R: LookupSpan<'a>>(pub(crate) SpanRef<'a, R>);

impl<'a, R: LookupSpan<'a>> Ancestors for Scope<'a, R> {
    fn find(&self, f: &mut dyn FnMut(&Id) -> bool) {
        let _ = self.0.scope().skip(1).any(|span| f(&span.id()));
    }
}

/// The id of a span without an entry, on a subscriber that makes the ids itself: a mark, and the id of the nearest span
/// above it that has an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntrylessId(u64);

/// Ids of spans with an entry are below: see `table/own.rs`.
const MARK: u64 = 1 << 63;

impl EntrylessId {
    /// The id of spans that have no place in traces: telemetry was suppressed, or the SDK is shut down.
    pub(crate) const NOWHERE: EntrylessId = EntrylessId(u64::MAX);

    /// A span for which there was no room. `above` is the id of the span above it that has an entry; 0: none.
    pub(crate) fn below(above: u64) -> Self {
        EntrylessId(MARK | above)
    }

    /// `None` if the span has an entry.
    #[inline]
    pub(crate) fn of(id: &Id) -> Option<Self> {
        let id = id.into_u64();
        (id & MARK != 0).then_some(EntrylessId(id))
    }

    /// The id of the span above that has an entry; 0: none.
    pub(crate) fn above(self) -> u64 {
        if self == Self::NOWHERE { 0 } else { self.0 & !MARK }
    }

    pub(crate) fn id(self) -> Id {
        Id::from_u64(self.0)
    }
}

impl Ancestors for EntrylessId {
    fn find(&self, f: &mut dyn FnMut(&Id) -> bool) {
        if self.above() != 0 {
            f(&Id::from_u64(self.above()));
        }
    }
}

/// The spans above one, wherever the subscriber keeps them.
enum Either<'a> {
    Registry(Scope<'a, Registry>),
    Own(EntrylessId),
}

impl Ancestors for Either<'_> {
    fn find(&self, f: &mut dyn FnMut(&Id) -> bool) {
        match self {
            Either::Registry(scope) => scope.find(f),
            Either::Own(id) => id.find(f),
        }
    }
}

/// Finds the spans above one, on the subscriber of `core`. `None` if it knows no such span.
pub(crate) fn above<'a>(core: &Core, id: &Id, dispatch: &'a Dispatch) -> Option<impl Ancestors + 'a> {
    if core.makes_ids() {
        return EntrylessId::of(id).map(Either::Own);
    }
    dispatch.downcast_ref::<Registry>()?.span(id).map(|span| Either::Registry(Scope(span)))
}
