//! A value that every thread reads and that may be replaced at any time.
//!
//! Each reader keeps its own copy of the pointer and compares a version. That is one load of a
//! cache line that is rarely written: no read-modify-write, no lock, no allocation. A reader takes
//! the lock only once after each change, to copy the new pointer. A reader that is using the old
//! value finishes with it. A thread that stops reading keeps the last value it read until the
//! thread ends.

use std::sync::Arc;

use astracer_spans::sync::{AtomicU64, Mutex, Ordering, lock};

#[derive(Debug)]
pub(crate) struct Live<T> {
    /// Incremented with each change, while the lock is held.
    version: AtomicU64,
    current: Mutex<Arc<T>>,
}

#[derive(Debug)]
pub(crate) struct Copied<T> {
    version: u64,
    value: Arc<T>,
}

impl<T> Live<T> {
    pub(crate) fn new(value: T) -> Self {
        Live { version: AtomicU64::new(0), current: Mutex::new(Arc::new(value)) }
    }

    pub(crate) fn load(&self) -> Arc<T> {
        Arc::clone(&lock(&self.current))
    }

    /// Replaces the value. A read that begins after this returns sees the new one.
    pub(crate) fn store(&self, value: T) {
        let value = Arc::new(value);
        let mut current = lock(&self.current);
        let old = std::mem::replace(&mut *current, value);
        // Release, paired with the acquire load in `read`. A reader that sees the new version then
        // blocks on the lock until it is free, and copies this value or a later one.
        self.version.fetch_add(1, Ordering::Release);
        drop(current);
        // The old value may hold a large table, which should not be freed under the lock.
        drop(old);
    }

    /// The value, through the reader's copy, which is renewed if it is outdated.
    #[inline]
    pub(crate) fn read<'a>(&self, copy: &'a mut Option<Copied<T>>) -> &'a T {
        let version = self.version.load(Ordering::Acquire);
        if copy.as_ref().is_none_or(|copy| copy.version != version) {
            // Drop the old copy first: it may be the last reference to its value.
            *copy = None;
        }
        &copy.get_or_insert_with(|| self.copy()).value
    }

    #[cold]
    #[inline(never)]
    fn copy(&self) -> Copied<T> {
        let current = lock(&self.current);
        // Relaxed: the version changes only under this lock, so it belongs to this value.
        Copied { version: self.version.load(Ordering::Relaxed), value: Arc::clone(&current) }
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use astracer_spans::sync::AtomicU64 as Count;

    /// Parameters that share their counts, as successive samplers share one table.
    struct Parameters {
        number: u64,
        counts: Arc<[Count; 2]>,
    }

    /// Two threads decide while a third replaces the parameters: no call is lost, each is counted
    /// by complete parameters, and no thread goes back to older ones.
    #[test]
    fn loom_a_swap_under_load_loses_no_count() {
        loom::model(|| {
            let counts = Arc::new([Count::new(0), Count::new(0)]);
            let live = Arc::new(Live::new(Parameters { number: 0, counts: Arc::clone(&counts) }));
            let decide = |live: &Live<Parameters>| {
                let mut copy = None;
                let mut last = 0;
                for _ in 0..2 {
                    let parameters = live.read(&mut copy);
                    assert!(parameters.number >= last);
                    last = parameters.number;
                    parameters.counts[(parameters.number % 2) as usize].fetch_add(1, Ordering::Relaxed);
                }
            };
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let live = Arc::clone(&live);
                    loom::thread::spawn(move || decide(&live))
                })
                .collect();
            live.store(Parameters { number: 1, counts: Arc::clone(&counts) });
            let mut copy = None;
            assert_eq!(live.read(&mut copy).number, 1, "the writer sees its own change");
            for reader in readers {
                reader.join().unwrap();
            }
            let counted: u64 = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
            assert_eq!(counted, 4);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_each_change_and_lets_the_old_value_go() {
        let live = Live::new(1);
        let (mut one, mut other) = (None, None);
        assert_eq!((*live.read(&mut one), *live.read(&mut other)), (1, 1));
        let old = live.load();
        live.store(2);
        assert_eq!((*live.read(&mut one), *live.load()), (2, 2));
        // The other reader's copy, and `old` itself.
        assert_eq!(Arc::strong_count(&old), 2);
        assert_eq!(*live.read(&mut other), 2);
        assert_eq!(Arc::strong_count(&old), 1);
    }
}
