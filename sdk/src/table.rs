//! Maps a span's id in the subscriber to its entry, without a lock.
//!
//! A `Registry` keeps spans in slabs, one per thread, and an id encodes the slab and the place in
//! it. The entries lie in pages of the same order, so arithmetic finds the entry of an id. Pages
//! are allocated when first needed, within a budget of bytes, and stay: like a registry, the table
//! grows to the most spans that were ever open at once.
//!
//! A subscriber without a registry has a table that makes the ids itself: `own.rs`.
//!
//! Local roots may take nine tenths of the budget for their entries, and other spans all of it.
//!
//! A lookup compares the full id. If ids come from elsewhere, or a later registry numbers spans
//! differently, two open spans may map to one entry. The second is then not recorded, and counted
//! as lost; it is never mistaken for the first.

mod atomics;
mod entry;
mod handles;
#[cfg(all(test, loom))]
mod loom_models;
mod own;
mod pages;
mod unrecorded;

use std::sync::{Arc, OnceLock};

#[cfg(feature = "bridge")]
pub(crate) use self::entry::PENDING;
pub(crate) use self::entry::{
    BASE_CURRENT, BODY, Beginning, CONTEXT, Claim, Entry, Fate, HELD, Pending, Phase, REMOTE_PARENT, ROOT,
    RecordedSpan, STATE,
};
pub(crate) use self::handles::LetGo;
use self::own::OwnEntries;
use self::pages::Pages;
use self::unrecorded::Refused;
pub(crate) use self::unrecorded::{METADATA as UNRECORDED, Refusal, is_unrecorded, unrecorded_id};
use astracer_spans::memory_budget::{MemoryBudget, Use};
use astracer_spans::reentry::Busy;

#[derive(Debug)]
pub(crate) struct Table {
    entries: Entries,
    /// Shared by the tables of all subscribers.
    budget: Arc<MemoryBudget>,
    pub(crate) refused: Refused,
}

#[derive(Debug)]
enum Entries {
    /// By the ids of a registry.
    BySlab(Box<[OnceLock<Box<Pages>>; SHARDS]>),
    /// By ids that the table makes.
    Own(OwnEntries),
}

/// A registry's ids are made of a `usize`: the low 38 bits are the place in the slab, followed by
/// the slab. With 32-bit words a place has 22 bits, and there are fewer slabs.
const SLAB_BITS: u32 = usize::BITS / 2 + 6;
const SHARDS: usize = if usize::BITS == 32 { 128 } else { 4096 };
impl Table {
    /// A table for a registry's ids, or one that makes the ids. It charges the bytes of its entries
    /// to `budget`.
    pub(crate) fn new(budget: Arc<MemoryBudget>, makes_ids: bool) -> Self {
        let by_slab = || Entries::BySlab(Box::new([const { OnceLock::new() }; SHARDS]));
        let entries = if makes_ids { Entries::Own(OwnEntries::new()) } else { by_slab() };
        Table { entries, budget, refused: Refused::default() }
    }

    /// The shard, whose pages are those of a slab, and the place in it. A registry's first id is 1.
    #[inline]
    fn locate(id: u64) -> (usize, u64) {
        let id = id.wrapping_sub(1);
        ((id >> SLAB_BITS) as usize % SHARDS, id & ((1 << SLAB_BITS) - 1))
    }

    /// The entry of an open span. Refused spans share one.
    #[inline]
    pub(crate) fn find(&self, id: u64) -> Option<&Entry> {
        self.entry_of(id).or_else(|| self.refused.find(id, self.makes_ids()))
    }

    /// The entry that an open span has to itself.
    #[inline]
    pub(crate) fn entry_of(&self, id: u64) -> Option<&Entry> {
        match &self.entries {
            Entries::Own(own) => own.find(id),
            Entries::BySlab(shards) => {
                let (shard, place) = Self::locate(id);
                let entry = shards[shard].get()?.get(place)?;
                (entry.id() == id).then_some(entry)
            }
        }
    }

    /// Takes an entry for a span that begins, with the id that the registry made, or with `None`
    /// for an id that the table makes. `None` if its page does not fit the budget's share of this
    /// use.
    #[inline]
    pub(crate) fn take(&self, id: Option<u64>, by: Use) -> Option<&Entry> {
        match (&self.entries, id) {
            (Entries::Own(own), None) => own.take(&self.budget, by),
            (Entries::BySlab(shards), Some(id)) => {
                let (shard, place) = Self::locate(id);
                let known = shards[shard].get().and_then(|pages| pages.get(place));
                let entry = match known {
                    Some(entry) => entry,
                    None => {
                        let _busy = Busy::mark();
                        shards[shard].get_or_init(Box::default).grow(place, &self.budget, by)?
                    }
                };
                entry.take(id).then_some(entry)
            }
            _ => None,
        }
    }

    /// Makes the entry of an ended span available again. Only the thread that ends the span calls
    /// this, after taking everything out of the entry.
    #[inline]
    pub(crate) fn free(&self, entry: &Entry) {
        match &self.entries {
            Entries::BySlab(_) => entry.free(),
            Entries::Own(own) => own.give(entry.free_own()),
        }
    }

    pub(crate) fn each_open(&self, f: impl Fn(&Entry)) {
        let is_open = |entry: &&Entry| entry.id() != 0;
        self.refused.shared().for_each(&f);
        match &self.entries {
            Entries::Own(own) => own.pages.entries().filter(is_open).for_each(f),
            Entries::BySlab(shards) => {
                let pages = shards.iter().filter_map(OnceLock::get);
                pages.flat_map(|pages| pages.entries()).filter(is_open).for_each(f);
            }
        }
    }

    pub(crate) fn makes_ids(&self) -> bool {
        matches!(self.entries, Entries::Own(_))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let entries: usize = match &self.entries {
            Entries::BySlab(shards) => shards.iter().filter_map(OnceLock::get).map(|pages| pages.len()).sum(),
            Entries::Own(own) => own.pages.len(),
        };
        self.budget.release(entries * size_of::<Entry>());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;

    use tracing::Subscriber as _;
    use tracing_core::span::Attributes;
    use tracing_subscriber::Registry;

    use super::pages::FIRST_PAGE;
    use super::*;

    /// Ids that a registry can have open at once never share an entry.
    #[test]
    fn ids_of_a_registry_have_entries_of_their_own() {
        let registry = Registry::default();
        let dispatch = tracing::Dispatch::new(Registry::default());
        let span = tracing::dispatcher::with_default(&dispatch, || tracing::info_span!("x"));
        let metadata = span.metadata().unwrap();
        let open = || {
            let values = [];
            let values = metadata.fields().value_set(&values);
            (0..10_000)
                .map(|_| registry.new_span(&Attributes::new_root(metadata, &values)).into_u64())
                .collect::<Vec<u64>>()
        };
        let own = open();
        let other = std::thread::scope(|scope| scope.spawn(open).join().unwrap());
        let ids: Vec<u64> = own.into_iter().chain(other).collect();
        let places: HashSet<_> = ids.iter().map(|id| Table::locate(*id)).collect();
        assert_eq!(places.len(), ids.len());
        let table = Table::new(MemoryBudget::new(usize::MAX), false);
        assert!(ids.iter().all(|id| table.take(Some(*id), Use::Roots).is_some()));
        assert!(ids.iter().all(|id| table.find(*id).is_some_and(|entry| entry.id() == *id)));
        let entries = table.budget.used() / size_of::<Entry>();
        assert!((20_000..70_000).contains(&entries), "{entries}: pages double");
    }

    #[test]
    fn the_budget_holds_and_a_taken_entry_is_not_taken_again() {
        let page = FIRST_PAGE as usize * size_of::<Entry>();
        let budget = MemoryBudget::new(page);
        let table = Table::new(budget.clone(), false);
        assert!(table.take(Some(1), Use::Roots).is_none(), "a tenth is left to children");
        let take = |id| table.take(Some(id), Use::Entries);
        for id in 1..=FIRST_PAGE {
            assert!(take(id).is_some());
        }
        assert!(take(1).is_none());
        assert!(take(FIRST_PAGE + 1).is_none(), "a second page");
        assert!(take(1 << SLAB_BITS | 1).is_none(), "a second thread");
        assert_eq!(budget.used(), page);
        // The same place in its slab, used again.
        let again = 7 << (SLAB_BITS + SHARDS.ilog2() + 1) | 5;
        assert!(take(again).is_none());
        table.find(5).unwrap().free();
        assert!(take(again).is_some() && table.find(5).is_none());
        drop(table);
        assert_eq!(budget.used(), 0);
    }
}
