//! The parts of an entry that most spans do not need, behind its lock.

use std::ops::{Deref, DerefMut};

use opentelemetry::Context;

use super::{BODY, CONTEXT, EXPOSED, Entry, PENDING, PHASE_BITS, Phase, STATE};
use astracer_spans::record::Body;
use astracer_spans::sync::{MutexGuard, Ordering, lock};
use astracer_spans::trace_state::State;

/// The [`HELD`](super::HELD) flags say which of these are present.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    pub(crate) body: Option<Box<Body>>,
    pub(crate) context: Option<Context>,
    pub(crate) state: State,
    pub(crate) pending: Option<Box<Pending>>,
}

impl Extra {
    fn held(&self) -> u8 {
        let flag = |there: bool, flag| if there { flag } else { 0 };
        flag(self.body.is_some(), BODY)
            | flag(self.context.is_some(), CONTEXT)
            | flag(!self.state.is_empty(), STATE)
            | flag(self.pending.is_some(), PENDING)
    }
}

/// The inputs of a local root's decision besides its name and fields.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The context from which the root's context is derived: it has the parent, if there is one,
    /// and values such as baggage.
    pub(crate) base: Context,
    /// The parent is one of our dropped spans, and `set_parent` was not called.
    pub(crate) below_dropped: bool,
}

impl Entry {
    pub(crate) fn expose(&self) {
        if !self.has(EXPOSED) {
            let _locked = lock(&self.extra);
            self.set_flags(EXPOSED, 0);
        }
    }

    /// Locks the entry's extra parts for a holder of the span.
    pub(crate) fn extra(&self) -> ExtraGuard<'_> {
        ExtraGuard { entry: self, extra: lock(&self.extra) }
    }

    /// Runs `f` on the extra parts of the span with this sequence number, if it is still open.
    /// Unlike [`Entry::extra`], the caller need not be a holder.
    pub(crate) fn with_extra<T>(&self, sequence: u64, f: impl FnOnce(&mut Extra) -> T) -> Option<T> {
        let extra = lock(&self.extra);
        let state = self.state.load(Ordering::Acquire);
        let is_open = !matches!(Phase::of(state), Phase::Free | Phase::Dropped);
        // If the entry now belongs to another span, `f` and the guard's write to the flags must not
        // run: that span may be about to begin, which takes no lock. If the sequence number
        // matches, the span cannot end before the lock is released, because an exposed span ends in
        // `take_extra`.
        (is_open && state >> PHASE_BITS == sequence).then(|| f(&mut ExtraGuard { entry: self, extra }))
    }

    /// Takes the extra parts out of a span that ends, so that no other thread changes them
    /// afterwards.
    pub(crate) fn take_extra(&self) -> Extra {
        let mut extra = lock(&self.extra);
        // Published under the lock so that `with_extra` sees it; see the module documentation. The
        // flags stay: the next span begins with its own.
        self.publish(Phase::Free);
        std::mem::take(&mut *extra)
    }
}

/// The extra parts of an entry, locked. Dropping the guard updates the flags that say what is held.
pub(crate) struct ExtraGuard<'a> {
    entry: &'a Entry,
    extra: MutexGuard<'a, Extra>,
}

impl ExtraGuard<'_> {
    pub(crate) fn is_recordable(&self) -> bool {
        !matches!(self.entry.phase(), Phase::Free | Phase::Dropped)
    }
}

impl Deref for ExtraGuard<'_> {
    type Target = Extra;

    fn deref(&self) -> &Extra {
        &self.extra
    }
}

impl DerefMut for ExtraGuard<'_> {
    fn deref_mut(&mut self) -> &mut Extra {
        &mut self.extra
    }
}

impl Drop for ExtraGuard<'_> {
    fn drop(&mut self) {
        self.entry.set_flags(self.extra.held(), BODY | CONTEXT | STATE | PENDING);
    }
}
