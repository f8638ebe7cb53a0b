//! The shapes of call trees that were seen within an hour, in a table of fixed size with one word
//! for each.
//!
//! A word holds part of a hash and a time, so a shape may be mistaken for another: with a
//! probability of 2^-36 for each one in the same set. If a set is full, its oldest shape is
//! evicted, and is new when it comes again; evictions are counted.

use crate::nanos::Nanos;
use crate::sync::{AtomicU64, Ordering};

/// The number of words that a shape may be stored in.
const WAYS: usize = 8;
/// The time after which a shape is new again, in seconds.
const WINDOW: u64 = 3_600;
/// The bits of a word that hold the time: seconds, modulo half a year.
const TIME_BITS: u32 = 24;
const TIME: u64 = (1 << TIME_BITS) - 1;

#[derive(Debug)]
pub(super) struct Shapes {
    words: Box<[AtomicU64]>,
    given_up: AtomicU64,
}

impl Shapes {
    /// A table for this number of shapes, at least eight.
    pub(super) fn new(shapes: usize) -> Self {
        let sets = shapes.clamp(WAYS, 1 << 24).div_ceil(WAYS).next_power_of_two();
        Shapes { words: (0..sets * WAYS).map(|_| AtomicU64::new(0)).collect(), given_up: AtomicU64::new(0) }
    }

    /// Notes a shape of a key, and returns whether it is new. If several threads note a new shape
    /// at once, one of them gets true.
    ///
    /// Relaxed throughout: a word is the whole state of its shape, and publishes no other memory.
    pub(super) fn is_new(&self, key: u32, shape: u64, now: Nanos) -> bool {
        // The odd factor spreads keys over all bits; a shape's hash is already spread.
        let hash = shape ^ (u64::from(key) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (hash >> 29);
        let seconds = now.get() / 1_000_000_000;
        // 0 marks an empty word, so a shape's tag is never 0.
        let tag = (hash & !TIME).max(TIME + 1);
        let word = tag | (seconds & TIME);
        let set = hash as usize % (self.words.len() / WAYS) * WAYS;
        let words = &self.words[set..set + WAYS];
        loop {
            let mut place: (u64, usize, u64) = (0, 0, 0);
            for (at, known) in words.iter().enumerate() {
                let seen = known.load(Ordering::Relaxed);
                // A time in the future is from before the clock was set back.
                let age = seconds.wrapping_sub(seen) & TIME;
                let age = if age > TIME / 2 { 0 } else { age.min(WINDOW) };
                if seen & !TIME == tag {
                    // If the shape is old enough to be new again, only the thread whose exchange
                    // succeeds reports it.
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

    /// The number of shapes that were evicted within their hour, and are new when they come again.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }
}
