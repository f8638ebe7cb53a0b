//! Lets long work be stopped: a counter that polls a stop condition, and a sort that can be
//! interrupted.
//!
//! A loop over a recording takes a [`Pulse`] and counts its units of work on it. The caller
//! provides the condition: a flag, a deadline, or a counter in tests.

/// Units of work between two polls. A unit takes less than a microsecond, so the condition is
/// polled every few milliseconds.
const STRIDE: u32 = 4096;
/// The number of values sorted without a poll: a few milliseconds of work.
const SORTED_AT_ONCE: usize = 1 << 14;

/// Counts units of work, and polls every 4,096 units whether to stop.
#[derive(Default)]
pub struct Pulse<'c> {
    stop: Option<Box<dyn Fn() -> bool + 'c>>,
    work: u32,
    stopped: bool,
}

impl std::fmt::Debug for Pulse<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pulse")
            .field("work", &self.work)
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}

impl<'c> Pulse<'c> {
    /// Makes a pulse that stops the work soon after `stop` returns true.
    pub fn new(stop: impl Fn() -> bool + 'c) -> Self {
        Self::of(Some(Box::new(stop)))
    }

    /// Makes a pulse that never stops if `stop` is `None`.
    pub(crate) fn of(stop: Option<Box<dyn Fn() -> bool + 'c>>) -> Self {
        Self { stop, ..Self::default() }
    }

    /// Makes a pulse for work that cannot be stopped.
    pub fn never() -> Self {
        Self::default()
    }

    /// Counts one unit of work. Returns true once the work should stop.
    #[inline]
    pub fn stopped(&mut self) -> bool {
        self.stopped_after(1)
    }

    /// Counts several units of work. Returns true once the work should stop.
    #[inline]
    pub fn stopped_after(&mut self, units: usize) -> bool {
        self.work = self.work.saturating_add(u32::try_from(units).unwrap_or(u32::MAX));
        if self.work >= STRIDE {
            self.ask();
        }
        self.stopped
    }

    #[cold]
    fn ask(&mut self) {
        self.work = 0;
        self.stopped |= self.stop.as_ref().is_some_and(|stop| stop());
    }

    /// Sorts by a key; equal keys keep their order. Returns false if the work should stop: the
    /// values are then all present, but in any order.
    ///
    /// The standard library's sort cannot be interrupted and takes seconds for millions of values.
    /// This function uses it on chunks, then merges the chunks step by step where they overlap. The
    /// merge buffer is as large as the overlap. Values that are already in order are not touched.
    pub fn sort_by_key<T: Copy, K: Ord>(&mut self, values: &mut [T], key: impl Fn(&T) -> K) -> bool {
        if values.is_sorted_by_key(&key) {
            return !self.stopped_after(values.len());
        }
        for part in values.chunks_mut(SORTED_AT_ONCE) {
            part.sort_by_key(&key);
            if self.stopped_after(part.len()) {
                return false;
            }
        }
        let mut merged: Vec<T> = Vec::new();
        let mut run = SORTED_AT_ONCE;
        while run < values.len() {
            for pair in values.chunks_mut(2 * run) {
                let (left, right) = pair.split_at(run.min(pair.len()));
                let (Some(last), Some(first)) = (left.last(), right.first()) else { continue };
                // Values before or after the whole other run are already in place.
                let begin = left.partition_point(|value| key(value) <= key(first));
                let end = right.partition_point(|value| key(value) < key(last));
                let overlap = begin..left.len() + end;
                let (mut left, mut right) = (&left[begin..], &right[..end]);
                merged.clear();
                merged.reserve_exact(overlap.len());
                while let (Some(first), Some(second)) = (left.first(), right.first()) {
                    // On equal keys the left run wins, which keeps the sort stable.
                    if key(second) < key(first) {
                        merged.push(*second);
                        right = &right[1..];
                    } else {
                        merged.push(*first);
                        left = &left[1..];
                    }
                    if self.stopped() {
                        return false;
                    }
                }
                merged.extend_from_slice(left);
                merged.extend_from_slice(right);
                if self.stopped_after(left.len() + right.len()) {
                    return false;
                }
                pair[overlap].copy_from_slice(&merged);
            }
            run *= 2;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_question_comes_at_every_stride_and_its_answer_stays() {
        let asked = Cell::new(0);
        let mut pulse = Pulse::new(|| {
            asked.set(asked.get() + 1);
            asked.get() == 2
        });
        let first = (1..20_000).find(|_| pulse.stopped());
        assert_eq!((first, asked.get()), (Some(2 * STRIDE), 2));
        assert!(pulse.stopped(), "a stop is permanent");
        assert!(!Pulse::never().stopped_after(usize::MAX));
    }

    /// Compares with the standard library's stable sort, at lengths around those of chunks and
    /// merged runs.
    #[test]
    fn sorting_in_steps_is_sorting() {
        for len in
            [0, 1, 2, SORTED_AT_ONCE, SORTED_AT_ONCE + 1, 2 * SORTED_AT_ONCE + 1, 5 * SORTED_AT_ONCE + 7]
        {
            // Keys far out of order, slightly out of order, in order except for the first, and in
            // chunks that meet at equal keys.
            let far = |at: usize| at * 7919 % 1000;
            let keys: [&dyn Fn(usize) -> usize; 4] =
                [&far, &|at| at + far(at) / 50, &|at| if at == 0 { len } else { at }, &|at| {
                    at / 20_000 + far(at) / 999
                }];
            for key in keys {
                let mut values: Vec<(usize, usize)> = (0..len).map(|at| (key(at), at)).collect();
                let mut expected = values.clone();
                expected.sort_by_key(|&(key, _)| key);
                assert!(Pulse::never().sort_by_key(&mut values, |&(key, _)| key));
                assert_eq!(values, expected, "{len}");
            }
        }
    }

    #[test]
    fn sorting_stops_soon_and_loses_nothing() {
        for asked_max in [0, 1, 7, 25] {
            let asked = Cell::new(0);
            let mut pulse = Pulse::new(|| {
                asked.set(asked.get() + 1);
                asked.get() > asked_max
            });
            let mut values: Vec<usize> = (0..5 * SORTED_AT_ONCE).rev().collect();
            assert!(!pulse.sort_by_key(&mut values, |&value| value));
            assert_eq!(asked.get(), asked_max + 1);
            values.sort_unstable();
            assert!(values.into_iter().eq(0..5 * SORTED_AT_ONCE));
        }
    }
}
