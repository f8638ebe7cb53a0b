//! The bytes that open spans take: the tables of their entries, their attributes, and ended spans
//! that wait for the rest of their trace.
//!
//! All share one bound with different shares. An entry is a whole span and attributes are parts of
//! one, so attributes leave a quarter of the bytes to entries. Local roots leave a tenth to the
//! spans of traces that are open, so that those stay whole. Ended spans can be exported at any time
//! without loss, so they may take only the first half.
//!
//! Memory that is cached for reuse stays charged, because it is still allocated.

use std::sync::Arc;

use crate::sync::statics;
use crate::sync::{AtomicUsize, Ordering};

/// See the module. Shared by all subscribers of a builder.
#[derive(Debug)]
pub struct MemoryBudget {
    used: AtomicUsize,
    pub(crate) max: usize,
    /// Attributes, events and links that were cut because they did not fit.
    parts_cut: statics::AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Entries of local roots.
    Roots,
    /// Entries of other spans.
    Entries,
    Attributes,
    Ended,
}

impl MemoryBudget {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(MemoryBudget { used: AtomicUsize::new(0), max, parts_cut: statics::AtomicU64::new(0) })
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub fn parts_cut(&self) -> u64 {
        self.parts_cut.load(Ordering::Relaxed)
    }

    pub fn take(&self, bytes: usize, by: Use) -> bool {
        let max = match by {
            Use::Entries => self.max,
            Use::Roots => self.max - self.max / 10,
            Use::Attributes => self.max - self.max / 4,
            Use::Ended => self.max / 2,
        };
        // Relaxed: the count guards no other memory, and the atomic update alone keeps the bound.
        let fits = |used: usize| used.checked_add(bytes).filter(|used| *used <= max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    pub fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes taken from a budget and returned on drop.
#[derive(Debug, Default)]
pub struct Reservation {
    budget: Option<Arc<MemoryBudget>>,
    bytes: usize,
}

impl Reservation {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_of(&self, budget: &Arc<MemoryBudget>) -> bool {
        self.budget.as_ref().is_some_and(|own| Arc::ptr_eq(own, budget))
    }

    pub fn of(budget: &Arc<MemoryBudget>) -> Self {
        Reservation { budget: Some(budget.clone()), bytes: 0 }
    }

    /// Grows to this number of bytes. Returns false if the budget does not allow it.
    pub fn grow_to(&mut self, bytes: usize, by: Use) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return true;
        }
        let taken = self.budget.as_ref().is_some_and(|budget| budget.take(more, by));
        if taken {
            self.bytes = bytes;
        }
        taken
    }

    pub fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        if less > 0
            && let Some(budget) = &self.budget
        {
            budget.release(less);
            self.bytes = bytes;
        }
    }

    pub fn count_cut(&self) {
        if let Some(budget) = &self.budget {
            budget.parts_cut.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn attributes_leave_a_quarter_to_entries_and_ended_spans_take_half() {
        let budget = MemoryBudget::new(400);
        let (mut ended, mut attributes) = (Reservation::of(&budget), Reservation::of(&budget));
        assert!(ended.grow_to(200, Use::Ended) && !ended.grow_to(201, Use::Ended));
        assert!(attributes.grow_to(100, Use::Attributes) && !attributes.grow_to(101, Use::Attributes));
        assert!(budget.take(60, Use::Roots) && !budget.take(1, Use::Roots));
        assert!(budget.take(40, Use::Entries) && !budget.take(1, Use::Entries));
        assert_eq!(budget.used(), 400);
        ended.shrink_to(50);
        assert_eq!((budget.used(), ended.bytes()), (250, 50));
        drop((ended, attributes));
        assert_eq!(budget.used(), 100, "the entries");
    }

    #[test]
    fn a_reservation_without_a_budget_has_no_bytes() {
        let mut reservation = Reservation::default();
        assert!(reservation.grow_to(0, Use::Ended) && !reservation.grow_to(1, Use::Ended));
    }
}
