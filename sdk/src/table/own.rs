//! Entries under ids of our own, for a subscriber without a registry beneath it.
//!
//! An id is the number of an entry, its place, and a generation that changes with each span: see
//! `handles.rs`. A place whose generations are used up is not used again: an id is never given to a
//! second span.
//!
//! Free places lie in a list of each thread's own, so that taking and freeing one is a few plain
//! moves, and wander from thread to thread in batches, through a list behind a lock. A thread's
//! list serves the table that it last took a place from; when another table's turn comes, and when
//! the thread ends, the places go back.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock, Weak};

use super::entry::Entry;
use super::handles::{GENERATION_MAX, PLACE_BITS, generation};
use crate::sync::statics::{AtomicU64, Ordering};
use crate::sync::{Mutex, lock};

const PLACES_MAX: u32 = (1 << PLACE_BITS) - 1;
/// The number of places of the first page; page `n + 1` has twice as many as page `n`.
const FIRST_PAGE: u32 = 32;
const PAGES: usize = (PLACE_BITS - FIRST_PAGE.ilog2()) as usize + 1;
/// Places that a thread takes from the shared list at once, or gives back to it.
const BATCH: usize = 32;
/// Places that were never used are taken in smaller numbers, so that a thread with one span does
/// not hold many.
const FRESH: u32 = 8;

/// The entries, and the places that are free.
#[derive(Debug)]
pub(super) struct Own {
    pages: Box<[OnceLock<Box<[Entry]>>; PAGES]>,
    /// Tells tables apart; never 0.
    number: u64,
    spare: Arc<Mutex<Spare>>,
}

/// Free places that no thread holds.
#[derive(Debug)]
struct Spare {
    places: Vec<u32>,
    /// The first place that was never used.
    fresh: u32,
}

impl Own {
    pub(super) fn new() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        Own {
            pages: Box::new([const { OnceLock::new() }; PAGES]),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            spare: Arc::new(Mutex::new(Spare { places: Vec::new(), fresh: 0 })),
        }
    }

    /// The page of a place, and the position there.
    #[inline]
    fn locate(place: u32) -> (usize, usize) {
        let shifted = place + FIRST_PAGE;
        let page = shifted.ilog2();
        ((page - FIRST_PAGE.ilog2()) as usize, (shifted ^ (1 << page)) as usize)
    }

    #[inline]
    fn entry(&self, place: u32) -> Option<&Entry> {
        let (page, at) = Self::locate(place);
        self.pages.get(page)?.get()?.get(at)
    }

    #[inline]
    pub(super) fn find(&self, id: u64) -> Option<&Entry> {
        let entry = self.entry(id as u32 & PLACES_MAX)?;
        (entry.id() == id).then_some(entry)
    }

    /// An entry for a span that begins, with a new id. `reserve` returns true if a page of that
    /// many bytes fits the budget.
    #[inline]
    pub(super) fn take(&self, reserve: impl Fn(usize) -> bool) -> Option<&Entry> {
        let place = match pop(self.number) {
            Some(place) => place,
            None => self.refill(reserve)?,
        };
        let entry = self.entry(place)?;
        let generation = generation(entry.last_id()) + 1;
        entry.take_own(generation << PLACE_BITS | u64::from(place));
        Some(entry)
    }

    /// The entry of a span that has ended can be taken again.
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

    /// Gives the thread places, and returns one of them.
    #[cold]
    fn refill(&self, reserve: impl Fn(usize) -> bool) -> Option<u32> {
        settle(self);
        let mut spare = lock(&self.spare);
        let left = spare.places.len().saturating_sub(BATCH);
        let mut taken = spare.places.split_off(left);
        if taken.is_empty() {
            let first = spare.fresh;
            let end = first.checked_add(FRESH).filter(|end| *end <= PLACES_MAX)?;
            self.make_page(first, reserve)?;
            spare.fresh = end;
            taken = (first..end).rev().collect();
        }
        let place = taken.pop();
        let rest = taken.into_iter().filter(|place| !push(self.number, *place));
        // A thread that ends has no list.
        spare.places.extend(rest);
        place
    }

    /// The page of a place, if it is there or can be made.
    fn make_page(&self, place: u32, reserve: impl Fn(usize) -> bool) -> Option<()> {
        let (page, _) = Self::locate(place);
        let page_of = self.pages.get(page)?;
        // Under the lock of `spare`: no other thread makes it meanwhile.
        if page_of.get().is_none() {
            let length = (FIRST_PAGE as usize) << page;
            if !reserve(length * size_of::<Entry>()) {
                return None;
            }
            page_of.get_or_init(|| (0..length).map(|_| Entry::default()).collect());
        }
        Some(())
    }

    /// The thread's list is full, or another table's.
    #[cold]
    fn give_slowly(&self, place: u32) {
        let mut spare = lock(&self.spare);
        spare.places.push(place);
        if HELD.with(|held| held.owner.get()) == self.number {
            spare.places.extend((0..BATCH).map_while(|_| pop(self.number)));
        }
    }

    /// The pages that were made.
    pub(super) fn pages(&self) -> impl Iterator<Item = &[Entry]> {
        self.pages.iter().filter_map(OnceLock::get).map(|page| &**page)
    }
}

/// The places that one thread holds.
const HELD_MAX: usize = 2 * BATCH;

/// The free places that a thread holds.
struct Held {
    /// The number of the table that they belong to; 0: none.
    owner: Cell<u64>,
    count: Cell<usize>,
    places: [Cell<u32>; HELD_MAX],
}

thread_local! {
    static HELD: Held =
        const { Held { owner: Cell::new(0), count: Cell::new(0), places: [const { Cell::new(0) }; HELD_MAX] } };
    /// The only one with a destructor, so that the other is read without a check.
    static HOME: RefCell<Home> = const { RefCell::new(Home(None)) };
}

/// The shared list to which the thread's places belong.
#[derive(Debug)]
struct Home(Option<Weak<Mutex<Spare>>>);

impl Home {
    fn give_back(&mut self) {
        HELD.with(|held| {
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
        self.give_back();
    }
}

/// Makes the thread's list this table's.
fn settle(table: &Own) {
    if HELD.with(|held| held.owner.get()) == table.number {
        return;
    }
    let settled = HOME.try_with(|home| {
        let mut home = home.borrow_mut();
        home.give_back();
        home.0 = Some(Arc::downgrade(&table.spare));
    });
    if settled.is_ok() {
        HELD.with(|held| held.owner.set(table.number));
    }
}

#[inline]
fn pop(table: u64) -> Option<u32> {
    let popped = HELD.try_with(|held| {
        let count = held.count.get().checked_sub(1).filter(|_| held.owner.get() == table)?;
        held.count.set(count);
        held.places.get(count).map(Cell::get)
    });
    popped.ok().flatten()
}

#[inline]
fn push(table: u64, place: u32) -> bool {
    let pushed = HELD.try_with(|held| {
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
