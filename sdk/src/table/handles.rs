//! Ids of our own, and the handles of the spans that have them.
//!
//! ```text
//! bit 63   62                        24   23                 0
//!    +---+-------------------------------+--------------------+
//!    | 0 | generation, from 1            | place              |
//!    +---+-------------------------------+--------------------+
//! ```
//!
//! A place is the number of an entry; its generation changes with each span. Bit 63 marks ids of
//! spans without an entry: see [`above`](crate::above).

use crate::sync::{AtomicU64, Ordering};

pub(super) const PLACE_BITS: u32 = 24;
pub(super) const GENERATION_MAX: u64 = (1 << (63 - PLACE_BITS)) - 1;

/// The generation of an id.
#[inline]
pub(super) fn generation(id: u64) -> u64 {
    id >> PLACE_BITS
}

/// The number of handles of a span, and of the open spans that hold it, below the low half of the
/// span's generation. Both change together: a stale id never counts for the span that has the entry
/// next. Of a registry's span it is 0.
///
/// A thread that is inside of a span holds it for the children that begin there, many at a time:
/// see [`stack`](crate::stack).
#[derive(Debug, Default)]
pub(crate) struct Handles(AtomicU64);

/// The outcome of [`Handles::let_go`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LetGo {
    /// The span has ended before.
    Stale,
    HeldStill,
    /// The caller, and nobody else, ends the span.
    Last,
}

#[inline]
fn one(id: u64) -> u64 {
    generation(id) << 32 | 1
}

/// If these are handles of this span, and not all gone, some more or less.
#[inline]
fn changed(handles: u64, id: u64, by: i64) -> Option<u64> {
    let count = i64::from(handles as u32);
    let is_own = handles >> 32 == one(id) >> 32 && count != 0;
    // After four billion the next handle is not counted, and is a stale one when it is dropped.
    let is_possible = is_own && (0..=i64::from(u32::MAX)).contains(&(count + by));
    is_possible.then(|| handles.wrapping_add_signed(by))
}

impl Handles {
    /// The one handle of a span that begins. Nobody else knows its id yet.
    #[inline]
    pub(super) fn start(&self, id: u64) {
        self.0.store(one(id), Ordering::Relaxed);
    }

    /// Counts more handles of the span `id`. `false` if it has ended.
    #[inline]
    pub(crate) fn hold(&self, id: u64, handles: u32) -> bool {
        // The caller has a handle, so there is nothing to synchronise with, as with `Arc`.
        let more = |word| changed(word, id, i64::from(handles));
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Counts one handle of the span `id` less.
    #[inline]
    pub(crate) fn let_go(&self, id: u64) -> LetGo {
        // Everything that was done with other handles comes before the end. The last one goes by an
        // exchange too: the loom model of ids that are used without a handle fails with a plain
        // store.
        let less = |word| changed(word, id, -1);
        match self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less) {
            Err(_) => LetGo::Stale,
            Ok(before) if before == one(id) => LetGo::Last,
            Ok(_) => LetGo::HeldStill,
        }
    }

    /// Counts handles of the span `id` less, unless none would be left; then it is `false`, and one
    /// is left.
    #[inline]
    pub(crate) fn let_go_unless_last(&self, id: u64, handles: u32) -> bool {
        let mut is_last = false;
        let less = |word| {
            let less = changed(word, id, -i64::from(handles))?;
            is_last = less as u32 == 0;
            Some(if is_last { one(id) } else { less })
        };
        // A stale id says `false` too: the end that follows finds nothing.
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).is_ok() && !is_last
    }
}
