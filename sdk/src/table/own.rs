//! Entries under ids that the table makes itself, for a subscriber without a registry.
//!
//! An id combines the index of an entry (its place) with a generation that changes with each span:
//! see `handles.rs`. A place whose generations are exhausted is retired, so no id is ever used
//! twice.
//!
//! Each thread has its own list of free places, so that taking and freeing one costs a few plain
//! moves. Places move between threads in batches, through a shared list behind a lock. A
//! thread's list belongs to the table from which it last took a place. Its places go back to that
//! table's shared list when the thread uses another table, or terminates.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

use super::entry::Entry;
use super::handles::{GENERATION_MAX, PLACE_BITS, generation};
use super::pages::Pages;
use astracer_spans::memory_budget::{MemoryBudget, Use};
use astracer_spans::sync::statics::{AtomicU64, Ordering};
use astracer_spans::sync::{Mutex, lock};

const PLACES_MAX: u32 = (1 << PLACE_BITS) - 1;
const BATCH: usize = 32;
/// Never-used places are taken in smaller batches, so that a thread with one span does not hold
/// many.
const FRESH: u32 = 8;

#[derive(Debug)]
pub(super) struct OwnEntries {
    pub(super) pages: Box<Pages>,
    number: u64,
    spare: Arc<Mutex<Spare>>,
}

#[derive(Debug)]
struct Spare {
    places: Vec<u32>,
    /// The first place that has never been used.
    fresh: u32,
}

impl OwnEntries {
    pub(super) fn new() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        OwnEntries {
            pages: Box::default(),
            // Relaxed: the numbers only have to differ.
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            spare: Arc::new(Mutex::new(Spare { places: Vec::new(), fresh: 0 })),
        }
    }

    #[inline]
    pub(super) fn find(&self, id: u64) -> Option<&Entry> {
        let entry = self.pages.get(id & u64::from(PLACES_MAX))?;
        (entry.id() == id).then_some(entry)
    }

    /// Takes an entry for a new span, under a new id. `None` if its page does not fit the budget's
    /// share of this use.
    #[inline]
    pub(super) fn take(&self, budget: &MemoryBudget, by: Use) -> Option<&Entry> {
        let place = match pop(self.number) {
            Some(place) => place,
            None => self.refill(budget, by)?,
        };
        let entry = self.pages.get(place.into())?;
        let generation = generation(entry.above()) + 1;
        entry.take_own(generation << PLACE_BITS | u64::from(place));
        Some(entry)
    }

    #[inline]
    pub(super) fn give(&self, id: u64) {
        if generation(id) == GENERATION_MAX {
            return;
        }
        let place = id as u32 & PLACES_MAX;
        if !push(self.number, place) {
            self.give_slowly(place);
        }
    }

    #[cold]
    fn refill(&self, budget: &MemoryBudget, by: Use) -> Option<u32> {
        settle(self);
        let mut spare = lock(&self.spare);
        let left = spare.places.len().saturating_sub(BATCH);
        let mut taken = spare.places.split_off(left);
        if taken.is_empty() {
            let first = spare.fresh;
            let end = first.checked_add(FRESH).filter(|end| *end <= PLACES_MAX)?;
            self.pages.grow(first.into(), budget, by)?;
            spare.fresh = end;
            taken = (first..end).rev().collect();
        }
        let place = taken.pop();
        let rest = taken.into_iter().filter(|place| !push(self.number, *place));
        // A thread that is ending has no list: its places go back.
        spare.places.extend(rest);
        place
    }

    /// Frees a place when the thread's list is full, or belongs to another table.
    #[cold]
    fn give_slowly(&self, place: u32) {
        let mut spare = lock(&self.spare);
        spare.places.push(place);
        if FREE.with(|held| held.owner.get()) == self.number {
            spare.places.extend((0..BATCH).map_while(|_| pop(self.number)));
        }
    }
}

const FREE_MAX: usize = 2 * BATCH;

struct FreePlaces {
    /// The number of the table that the places belong to; 0: no table.
    owner: Cell<u64>,
    count: Cell<usize>,
    places: [Cell<u32>; FREE_MAX],
}

thread_local! {
    static FREE: FreePlaces =
        const { FreePlaces { owner: Cell::new(0), count: Cell::new(0), places: [const { Cell::new(0) }; FREE_MAX] } };
    /// Only this thread-local has a destructor, so that `FREE` can be read without a check.
    static HOME: RefCell<Home> = const { RefCell::new(Home(None)) };
}

#[derive(Debug)]
struct Home(Option<Weak<Mutex<Spare>>>);

impl Home {
    fn return_places(&mut self) {
        FREE.with(|held| {
            let count = held.count.replace(0);
            held.owner.set(0);
            if let Some(spare) = self.0.take().and_then(|spare| spare.upgrade()) {
                lock(&spare).places.extend(held.places.iter().take(count).map(Cell::get));
            }
        });
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.return_places();
    }
}

fn settle(table: &OwnEntries) {
    if FREE.with(|held| held.owner.get()) == table.number {
        return;
    }
    let settled = HOME.try_with(|home| {
        let mut home = home.borrow_mut();
        home.return_places();
        home.0 = Some(Arc::downgrade(&table.spare));
    });
    if settled.is_ok() {
        FREE.with(|held| held.owner.set(table.number));
    }
}

#[inline]
fn pop(table: u64) -> Option<u32> {
    let popped = FREE.try_with(|held| {
        let count = held.count.get().checked_sub(1).filter(|_| held.owner.get() == table)?;
        held.count.set(count);
        held.places.get(count).map(Cell::get)
    });
    popped.ok().flatten()
}

#[inline]
fn push(table: u64, place: u32) -> bool {
    let pushed = FREE.try_with(|held| {
        let count = held.count.get();
        let free = held.places.get(count).filter(|_| held.owner.get() == table);
        free.inspect(|free| {
            free.set(place);
            held.count.set(count + 1);
        })
        .is_some()
    });
    pushed.unwrap_or(false)
}
