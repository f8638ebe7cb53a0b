//! Span ids that our own table makes, and the handle counts of their spans.
//!
//! ```text
//! bit 63   62                        24   23                 0
//!    +---+-------------------------------+--------------------+
//!    | 0 | generation, from 1            | place              |
//!    +---+-------------------------------+--------------------+
//! ```
//!
//! A place is the index of an entry; its generation changes with each span. Bit 63 marks the ids of
//! spans without an entry: see `unrecorded.rs`.

use astracer_spans::sync::{AtomicU64, Ordering};

pub(super) const PLACE_BITS: u32 = 24;
pub(super) const GENERATION_MAX: u64 = (1 << (63 - PLACE_BITS)) - 1;

#[inline]
pub(super) fn generation(id: u64) -> u64 {
    id >> PLACE_BITS
}

/// The low 32 bits count the handles of a span, including those that its open children hold. The
/// high 32 bits are the low half of the span's generation. One word holds both, so a stale id never
/// changes the count of the entry's next span. The word is 0 for a registry's span.
///
/// A thread inside a span holds it for the children that begin there, many handles at a time: see
/// [`stack`](crate::stack).
#[derive(Debug, Default)]
pub(crate) struct Handles(AtomicU64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LetGo {
    Stale,
    HeldStill,
    Last,
}

#[inline]
fn one(id: u64) -> u64 {
    generation(id) << 32 | 1
}

/// Adds `by` to the handle count if `id` still refers to this span and it has handles left.
#[inline]
fn changed(handles: u64, id: u64, by: i64) -> Option<u64> {
    let count = i64::from(handles as u32);
    let is_own = handles >> 32 == one(id) >> 32 && count != 0;
    // A handle beyond `u32::MAX` is not counted. The span then ends before the last handle is
    // released, and that release finds a stale id.
    let is_possible = is_own && (0..=i64::from(u32::MAX)).contains(&(count + by));
    is_possible.then(|| handles.wrapping_add_signed(by))
}

impl Handles {
    /// Starts a span with one handle. Relaxed: no other thread knows its id yet.
    #[inline]
    pub(super) fn start(&self, id: u64) {
        self.0.store(one(id), Ordering::Relaxed);
    }

    /// Adds handles to the span `id`. `false` if it has ended.
    #[inline]
    pub(crate) fn hold(&self, id: u64, handles: u32) -> bool {
        // As in `Arc::clone`, Relaxed is enough: the caller has a handle, so the span cannot end
        // meanwhile.
        let more = |word| changed(word, id, i64::from(handles));
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    #[inline]
    pub(crate) fn let_go(&self, id: u64) -> LetGo {
        // As in `Arc::drop`: the Release of each earlier handle pairs with the Acquire of the last
        // one, so everything done through other handles happens before the end. The last handle
        // needs an exchange too: with a plain store, the loom model in which an id is used without
        // a handle fails.
        let less = |word| changed(word, id, -1);
        match self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less) {
            Err(_) => LetGo::Stale,
            Ok(before) if before == one(id) => LetGo::Last,
            Ok(_) => LetGo::HeldStill,
        }
    }

    /// Releases `handles` handles of the span `id`, but never the last one: if none would be left,
    /// it leaves one and returns `false`.
    #[inline]
    pub(crate) fn let_go_unless_last(&self, id: u64, handles: u32) -> bool {
        let mut is_last = false;
        let less = |word| {
            let less = changed(word, id, -i64::from(handles))?;
            is_last = less as u32 == 0;
            Some(if is_last { one(id) } else { less })
        };
        // A stale id also returns `false`; the caller then tries to end the span and finds it gone.
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).is_ok() && !is_last
    }
}
