//! Pages of entries: each has as many as all before it, and is allocated when first needed.

use std::sync::OnceLock;

use super::entry::Entry;
use astracer_spans::memory_budget::{MemoryBudget, Use};
use astracer_spans::reentry::Busy;

pub(super) const FIRST_PAGE: u64 = 32;

/// By the highest bit of the places in it, plus [`FIRST_PAGE`]: lower ones are unused.
#[derive(Debug)]
pub(super) struct Pages([OnceLock<Box<[Entry]>>; u64::BITS as usize]);

impl Default for Pages {
    fn default() -> Self {
        Pages([const { OnceLock::new() }; u64::BITS as usize])
    }
}

impl Pages {
    #[inline]
    fn locate(place: u64) -> (u32, usize) {
        let shifted = place + FIRST_PAGE;
        let page = shifted.ilog2();
        (page, (shifted ^ (1 << page)) as usize)
    }

    #[inline]
    pub(super) fn get(&self, place: u64) -> Option<&Entry> {
        let (page, at) = Self::locate(place);
        self.0[page as usize].get()?.get(at)
    }

    /// As [`Pages::get`], and allocates the page. `None` if it does not fit the budget's share of
    /// this use.
    #[cold]
    pub(super) fn grow(&self, place: u64, budget: &MemoryBudget, by: Use) -> Option<&Entry> {
        let (number, at) = Self::locate(place);
        let page = &self.0[number as usize];
        if page.get().is_none() {
            let length = 1_usize.checked_shl(number)?;
            let bytes = length.checked_mul(size_of::<Entry>())?;
            if !budget.take(bytes, by) {
                return None;
            }
            let mut is_new = false;
            // Its allocation would make an allocator's span come here again.
            let _busy = Busy::mark();
            page.get_or_init(|| {
                is_new = true;
                (0..length).map(|_| Entry::default()).collect()
            });
            if !is_new {
                // Another thread made the page first.
                budget.release(bytes);
            }
        }
        page.get()?.get(at)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().filter_map(OnceLock::get).flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().filter_map(OnceLock::get).map(|page| page.len()).sum()
    }
}
