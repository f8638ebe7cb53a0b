//! From a span's id in the subscriber to its entry, without a lock.
//!
//! A `Registry` keeps spans in slabs, one for each thread, and an id says the slab and the place in
//! it; so entries lie in pages in the same order, and an id is found by arithmetic. Pages are made
//! when they are first needed, within a budget of bytes, and stay: like a registry, the table grows
//! to the most spans that were ever open at once.
//!
//! A subscriber without a registry has a table that makes the ids itself: `own.rs`.
//!
//! The full id is compared too. If ids come from elsewhere, or were numbered in another way by a
//! later version, two open spans may meet in one entry: then the second is not recorded, and
//! counted as lost. It is never taken for the first.

mod atomic_id;
mod atomic_metadata;
mod entry;
mod handles;
#[cfg(all(test, loom))]
mod loom_models;
mod occupancy;
mod own;

use std::sync::{Arc, OnceLock};

#[cfg(feature = "bridge")]
pub(crate) use self::entry::PENDING;
pub(crate) use self::entry::{
    BASE_CURRENT, BODY, Beginning, CONTEXT, Claim, Entry, HELD, Kept, Pending, Phase, REMOTE_PARENT, ROOT,
    STATE,
};
pub(crate) use self::handles::LetGo;
use self::own::Own;
use crate::budget::{Budget, Use};
use crate::sync::{AtomicBool, Ordering};

/// The entries of one subscriber's spans.
#[derive(Debug)]
pub(crate) struct Table {
    entries: Entries,
    /// Shared by the tables of all subscribers.
    budget: Arc<Budget>,
    /// Whether a span was ever refused: then there are open spans without an entry.
    refused: AtomicBool,
}

#[derive(Debug)]
enum Entries {
    /// Under the ids of a registry.
    BySlab(Box<[OnceLock<Box<Shard>>; SHARDS]>),
    /// Under ids that the table makes.
    Own(Own),
}

/// The entries for one slab. Page `n` has `1 << n` entries, and each page as many as the pages
/// before it, as in the slab.
#[derive(Debug)]
struct Shard {
    pages: [OnceLock<Box<[Entry]>>; PAGES],
}

/// A registry's ids, which are made of a `usize`: the place in its slab in the low 38 bits, then
/// the slab. With words of 32 bits a place has 22, and there are fewer slabs.
const SLAB_BITS: u32 = usize::BITS / 2 + 6;
const SHARDS: usize = if usize::BITS == 32 { 128 } else { 4096 };
/// As many as the places of a slab need.
const PAGES: usize = 64;
const FIRST_PAGE: u64 = 32;

impl Table {
    /// A table for a registry's ids, which takes bytes for entries from `budget`.
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        let shards = Box::new([const { OnceLock::new() }; SHARDS]);
        Self::with(Entries::BySlab(shards), budget)
    }

    /// A table that makes the ids.
    pub(crate) fn with_own_ids(budget: Arc<Budget>) -> Self {
        Self::with(Entries::Own(Own::new()), budget)
    }

    fn with(entries: Entries, budget: Arc<Budget>) -> Self {
        Table { entries, budget, refused: AtomicBool::new(false) }
    }

    /// The shard, the page and the place in the page. A registry's first id is 1.
    ///
    /// Pages are numbered by the highest bit of their places, so page 5 is the first, and those
    /// below are not used.
    #[inline]
    fn locate(id: u64) -> (usize, usize, usize) {
        let id = id.wrapping_sub(1);
        let place = (id & ((1 << SLAB_BITS) - 1)) + FIRST_PAGE;
        let page = place.ilog2();
        ((id >> SLAB_BITS) as usize % SHARDS, page as usize, (place ^ (1 << page)) as usize)
    }

    /// The entry of an open span.
    #[inline]
    pub(crate) fn find(&self, id: u64) -> Option<&Entry> {
        match &self.entries {
            Entries::Own(own) => own.find(id),
            Entries::BySlab(shards) => {
                let (shard, page, place) = Self::locate(id);
                let entry = shards[shard].get()?.pages[page].get()?.get(place)?;
                (entry.id() == id).then_some(entry)
            }
        }
    }

    /// An entry for a span that begins under a registry's id; `None` if there is no memory for it
    /// within the budget.
    #[inline]
    pub(crate) fn take(&self, id: u64) -> Option<&Entry> {
        let Entries::BySlab(shards) = &self.entries else { return None };
        let (shard, page, place) = Self::locate(id);
        let entries = shards[shard].get().and_then(|shard| shard.pages[page].get());
        let entry = match entries {
            Some(entries) => entries.get(place),
            None => self.grow(&shards[shard], page).and_then(|entries| entries.get(place)),
        };
        self.noted(entry.filter(|entry| entry.take(id)))
    }

    /// An entry for a span that begins, under a new id of the table's own; `None` if there is no
    /// memory for it within the budget.
    #[inline]
    pub(crate) fn take_own(&self) -> Option<&Entry> {
        let Entries::Own(own) = &self.entries else { return None };
        self.noted(own.take(|bytes| self.reserve(bytes)))
    }

    #[inline]
    fn noted<'a>(&self, taken: Option<&'a Entry>) -> Option<&'a Entry> {
        if taken.is_none() {
            self.refused.store(true, Ordering::Relaxed);
        }
        taken
    }

    /// Ends a span: its entry can be taken again. Only who ends the span calls this, when
    /// everything was taken out.
    #[inline]
    pub(crate) fn free(&self, entry: &Entry) {
        match &self.entries {
            Entries::BySlab(_) => entry.free(),
            Entries::Own(own) => own.give(entry.free_own()),
        }
    }

    /// Lends the entries of all open spans.
    pub(crate) fn each_open(&self, f: impl Fn(&Entry)) {
        let is_open = |entry: &&Entry| entry.id() != 0;
        match &self.entries {
            Entries::Own(own) => own.pages().flatten().filter(is_open).for_each(f),
            Entries::BySlab(shards) => pages(&**shards).flatten().filter(is_open).for_each(f),
        }
    }

    pub(crate) fn makes_ids(&self) -> bool {
        matches!(self.entries, Entries::Own(_))
    }

    /// Whether there may be open spans without an entry, though they were to have one.
    pub(crate) fn has_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Counts bytes for entries, if they fit the budget.
    fn reserve(&self, bytes: usize) -> bool {
        self.budget.take(bytes, Use::Entries)
    }

    #[cold]
    fn grow<'a>(&self, shard: &'a OnceLock<Box<Shard>>, page: usize) -> Option<&'a [Entry]> {
        let length = 1 << page;
        let bytes = usize::try_from(length).ok()?.checked_mul(size_of::<Entry>())?;
        if !self.reserve(bytes) {
            return None;
        }
        let shard = shard.get_or_init(|| Box::new(Shard { pages: [const { OnceLock::new() }; PAGES] }));
        let mut is_new = false;
        let entries = shard.pages.get(page).map(|page| {
            page.get_or_init(|| {
                is_new = true;
                (0..length).map(|_| Entry::default()).collect()
            })
        });
        if !is_new {
            // Another thread made the page, or there is none of this number.
            self.budget.give_back(bytes);
        }
        entries.map(|entries| &**entries)
    }
}

/// The pages that were made.
fn pages(shards: &[OnceLock<Box<Shard>>]) -> impl Iterator<Item = &[Entry]> {
    let pages = shards.iter().filter_map(OnceLock::get).flat_map(|shard| &shard.pages);
    pages.filter_map(OnceLock::get).map(|page| &**page)
}

impl Drop for Table {
    fn drop(&mut self) {
        let entries: usize = match &self.entries {
            Entries::BySlab(shards) => pages(&**shards).map(<[Entry]>::len).sum(),
            Entries::Own(own) => own.pages().map(<[Entry]>::len).sum(),
        };
        self.budget.give_back(entries * size_of::<Entry>());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;

    use tracing::Subscriber as _;
    use tracing_core::span::Attributes;
    use tracing_subscriber::Registry;

    use super::*;

    /// No two ids share an entry that a registry can have open at once.
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
        let table = Table::new(Budget::new(usize::MAX));
        assert!(ids.iter().all(|id| table.take(*id).is_some()));
        assert!(ids.iter().all(|id| table.find(*id).is_some_and(|entry| entry.id() == *id)));
        let entries = table.budget.used() / size_of::<Entry>();
        assert!((20_000..70_000).contains(&entries), "{entries}: pages double");
    }

    #[test]
    fn the_budget_holds_and_a_taken_entry_is_not_taken_again() {
        let page = FIRST_PAGE as usize * size_of::<Entry>();
        let budget = Budget::new(page);
        let table = Table::new(budget.clone());
        for id in 1..=FIRST_PAGE {
            assert!(table.take(id).is_some());
        }
        assert!(table.take(1).is_none());
        assert!(table.take(FIRST_PAGE + 1).is_none(), "a second page");
        assert!(table.take(1 << SLAB_BITS | 1).is_none(), "a second thread");
        assert_eq!(budget.used(), page);
        // The same place in its slab, used again.
        let again = 7 << (SLAB_BITS + SHARDS.ilog2() + 1) | 5;
        assert!(table.take(again).is_none());
        table.find(5).unwrap().free();
        assert!(table.take(again).is_some() && table.find(5).is_none());
        drop(table);
        assert_eq!(budget.used(), 0);
    }
}
