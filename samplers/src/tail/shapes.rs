//! The shapes of call trees that were seen within an hour: a table of fixed size, one word for
//! each.
//!
//! A word holds part of a hash and a time, so a shape may be taken for another one: once in 2^36
//! for each that the table holds near it. Where a set is full the oldest makes room, and is new
//! when it comes again; that is counted.

use crate::nanos::Nanos;
use crate::sync::{AtomicU64, Ordering};

/// Words that a shape may stand in.
const WAYS: usize = 8;
/// The time after which a shape is new again, in seconds.
const WINDOW: u64 = 3_600;
/// Bits of a word for the time: seconds, modulo half a year.
const TIME_BITS: u32 = 24;
const TIME: u64 = (1 << TIME_BITS) - 1;

#[derive(Debug)]
pub(super) struct Shapes {
    words: Box<[AtomicU64]>,
    given_up: AtomicU64,
}

impl Shapes {
    /// Room for this number of shapes, at least eight.
    pub(super) fn new(shapes: usize) -> Self {
        let sets = shapes.clamp(WAYS, 1 << 24).div_ceil(WAYS).next_power_of_two();
        Shapes { words: (0..sets * WAYS).map(|_| AtomicU64::new(0)).collect(), given_up: AtomicU64::new(0) }
    }

    /// Notes a shape of a key, and returns whether it is new. Of threads that note a new one at the
    /// same time, one is told.
    pub(super) fn is_new(&self, key: u32, shape: u64, now: Nanos) -> bool {
        // The odd factor spreads keys over all bits; a shape's hash is spread already.
        let hash = shape ^ (u64::from(key) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (hash >> 29);
        let seconds = now.get() / 1_000_000_000;
        // 0 is an empty word; the tag of a shape is never 0.
        let tag = (hash & !TIME).max(TIME + 1);
        let word = tag | (seconds & TIME);
        let set = hash as usize % (self.words.len() / WAYS) * WAYS;
        let words = &self.words[set..set + WAYS];
        loop {
            let mut place: (u64, usize, u64) = (0, 0, 0);
            for (at, known) in words.iter().enumerate() {
                let seen = known.load(Ordering::Relaxed);
                // A time that lies ahead is one from before the clock was set back.
                let age = seconds.wrapping_sub(seen) & TIME;
                let age = if age > TIME / 2 { 0 } else { age.min(WINDOW) };
                if seen & !TIME == tag {
                    // Whoever exchanges it first, if anyone, is told that an old one is new.
                    let first =
                        known.compare_exchange(seen, word, Ordering::Relaxed, Ordering::Relaxed).is_ok();
                    return age >= WINDOW && first;
                }
                let worth = if seen == 0 { u64::MAX } else { age + 1 };
                if worth > place.0 {
                    place = (worth, at, seen);
                }
            }
            let (worth, at, seen) = place;
            if words[at].compare_exchange(seen, word, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                if worth <= WINDOW {
                    self.given_up.fetch_add(1, Ordering::Relaxed);
                }
                return true;
            }
        }
    }

    /// Shapes that made room for others within their hour: they are new when they come again.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }
}
