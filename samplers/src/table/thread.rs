//! A small number for each thread that lives, so that threads can have counters of their own.
//!
//! It decides where a call is counted and nothing else. Not of `sync`: loom's atomics cannot be
//! static, and its models have one shard, which all threads share.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// As many threads at once have a number of their own.
const NUMBERS: u32 = 256;
/// The number of all other threads, and of one that is ending.
const NONE: u32 = u32::MAX;
/// A thread that has not been asked yet.
const UNKNOWN: u32 = NONE - 1;

/// A bit for each number that a thread has.
static TAKEN: [AtomicU64; (NUMBERS / u64::BITS) as usize] = [const { AtomicU64::new(0) }; 4];

thread_local! {
    /// Read in each decision: without a destructor, so that reading is one load.
    static NUMBER: Cell<u32> = const { Cell::new(UNKNOWN) };
    /// Gives the number back when the thread ends.
    static OWNED: Owned = const { Owned(Cell::new(NONE)) };
}

struct Owned(Cell<u32>);

impl Drop for Owned {
    fn drop(&mut self) {
        NUMBER.set(NONE);
        release(self.0.get());
    }
}

/// This thread's number: no other thread that lives has it, and what earlier ones did under it is
/// seen. One that is no less than 256 is not its own.
#[inline]
pub(crate) fn number() -> u32 {
    match NUMBER.get() {
        UNKNOWN => claim(),
        number => number,
    }
}

#[cold]
#[inline(never)]
fn claim() -> u32 {
    let free = (0..NUMBERS).find(|&number| {
        let (word, bit) = place(number);
        // Acquire: the thread that had it before is done with it.
        word.fetch_or(bit, Ordering::Acquire) & bit == 0
    });
    // A thread whose destructors have run cannot promise to give it back.
    let number = free.filter(|&number| {
        let owned = OWNED.try_with(|owned| owned.0.set(number)).is_ok();
        if !owned {
            release(number);
        }
        owned
    });
    NUMBER.set(number.unwrap_or(NONE));
    NUMBER.get()
}

fn release(number: u32) {
    if number < NUMBERS {
        let (word, bit) = place(number);
        word.fetch_and(!bit, Ordering::Release);
    }
}

fn place(number: u32) -> (&'static AtomicU64, u64) {
    (&TAKEN[(number / u64::BITS) as usize], 1 << (number % u64::BITS))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn threads_that_live_at_once_have_different_numbers() {
        const THREADS: usize = 300;
        let barrier = Barrier::new(THREADS);
        let numbers: Vec<u32> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        let first = number();
                        barrier.wait();
                        assert_eq!(number(), first, "the same as long as it lives");
                        first
                    })
                })
                .collect();
            handles.into_iter().map(|handle| handle.join().unwrap()).collect()
        });
        let own: Vec<u32> = numbers.into_iter().filter(|&number| number != NONE).collect();
        assert!(own.iter().all(|&number| number < NUMBERS));
        assert_eq!(own.iter().collect::<HashSet<_>>().len(), own.len());
        // Other tests' threads have some of the 256.
        assert!(own.len() > 128);
    }

    #[test]
    fn numbers_come_back_when_threads_end() {
        // Were they not given back, they would have run out by then. The 300 threads of the test
        // beside this one may have them all for a moment, and not for as long as a thousand threads
        // live one after the other.
        let number = || std::thread::spawn(number).join().unwrap();
        let owned = (0..2 * NUMBERS + 1_000).filter(|_| number() < NUMBERS).count();
        assert!(owned > NUMBERS as usize, "{owned}");
    }
}
