//! Adds up the results of many parallel jobs while holding only some of the results in memory at a
//! time.

use rayon::prelude::*;

use crate::workload::Workload;

/// Functions and keys, summed over all results held at a time: about this many at most.
const HELD_MAX: usize = 1 << 20;
/// At least this many results are held at a time, to keep many cores busy.
const HELD_MIN: usize = 8;

/// The number of results to hold at a time if each has a few numbers per function and per key.
pub(crate) fn held(workload: &Workload) -> usize {
    let numbers = workload.functions().len() + workload.keys().len();
    (HELD_MAX / numbers.max(1)).max(HELD_MIN)
}

/// Runs jobs on all cores, `held` at a time, and adds their results in the order of the jobs, so
/// that sums do not depend on thread timing.
pub(crate) fn add_up<J: Sync, R: Send>(
    jobs: &[J],
    held: usize,
    result: impl Fn(&J) -> R + Sync,
    mut add: impl FnMut(&J, R),
) {
    for jobs in jobs.chunks(held) {
        let results: Vec<R> = jobs.par_iter().map(&result).collect();
        jobs.iter().zip(results).for_each(|(job, result)| add(job, result));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::testing::many_names;

    struct LiveResult<'c>(u32, &'c AtomicUsize);

    impl Drop for LiveResult<'_> {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn few_results_are_held_and_all_are_added_in_order() {
        let jobs: Vec<u32> = (0..1000).collect();
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut added = Vec::new();
        let result = |&job: &u32| {
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            LiveResult(job, &now)
        };
        add_up(&jobs, 30, result, |&job, held| added.push((job, held.0)));
        assert!(added.iter().copied().eq(jobs.iter().map(|&job| (job, job))));
        assert!(most.into_inner() <= 30);
    }

    /// Each name is both a function and a key.
    #[test]
    fn fewer_are_held_the_more_functions_and_keys_there_are() {
        assert_eq!(held(&many_names(1024, 1024, 1)), 512);
        assert_eq!(held(&many_names(70_000, 70_000, 1)), HELD_MIN);
    }
}
