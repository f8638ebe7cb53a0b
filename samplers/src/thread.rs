//! A small number for each live thread, so that threads can have counters of their own.
//!
//! The number decides where a call is counted, and nothing else. This module does not use `sync`:
//! loom's atomics cannot be static, and loom models use one shard, which all threads share.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of threads that can have a number of their own at once.
const NUMBERS: u32 = 256;
/// The number of all further threads, and of a thread that is ending.
const NONE: u32 = u32::MAX;
/// A thread that has not claimed a number yet.
const UNKNOWN: u32 = NONE - 1;

/// One bit per number: set while a thread has it.
static TAKEN: [AtomicU64; (NUMBERS / u64::BITS) as usize] = [const { AtomicU64::new(0) }; 4];

thread_local! {
    /// Read in each decision, so without a destructor: reading it is one load.
    static NUMBER: Cell<u32> = const { Cell::new(UNKNOWN) };
    /// Releases the number when the thread ends.
    static OWNED: Owned = const { Owned(Cell::new(NONE)) };
}

struct Owned(Cell<u32>);

impl Drop for Owned {
    fn drop(&mut self) {
        NUMBER.set(NONE);
        release(self.0.get());
    }
}

/// This thread's number. Below 256, no other live thread has it, and whatever its earlier owners
/// wrote is visible. Otherwise it is [`NONE`], which several threads share.
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
        // Acquire pairs with the Release in `release`: the counters of the number's previous owner
        // are visible, and that owner no longer writes them.
        word.fetch_or(bit, Ordering::Acquire) & bit == 0
    });
    // A thread whose destructors have run could not release the number.
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
        // Release pairs with the Acquire in `claim`: the next owner sees this thread's counters.
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
        // Other tests' threads hold some of the 256.
        assert!(own.len() > 128);
    }

    #[test]
    fn numbers_come_back_when_threads_end() {
        // If numbers were not released, they would have run out by then. The 300 threads of the
        // test above may hold all of them for a moment, but not for as long as a thousand threads
        // live one after another.
        let number = || std::thread::spawn(number).join().unwrap();
        let owned = (0..2 * NUMBERS + 1_000).filter(|_| number() < NUMBERS).count();
        assert!(owned > NUMBERS as usize, "{owned}");
    }
}
