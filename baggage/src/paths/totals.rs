//! Totals over all requests, by the key of their local roots.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::experiments::{EXPERIMENTS_MAX, Set};
use super::names::{Names, OTHERS, Place};
use super::path::Path;
use super::report::{FunctionTime, add_time};
use super::way::{Part, TimeKind, Way};

/// Rows of keys of roots. More are added up in one row, `(others)`.
const ROWS_MAX: usize = 1_000;
/// Parts of a row. More count for the function `(others)`.
const PARTS_MAX: usize = 512;
/// Experiments of a row that are told apart, those that ended included. The oldest one goes.
const RESULTS_MAX: usize = 2 * EXPERIMENTS_MAX;

/// The critical paths of all requests of one key.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CriticalPathRow {
    /// The key by which the sampler counts the local roots, by default their name with ids folded;
    /// `(others)` for those beyond 1,000.
    pub key: Arc<str>,
    /// Local roots that have ended, kept or dropped.
    pub requests: u64,
    /// The length of their longest ways, in nanoseconds. With the measure `Wall` that is their
    /// duration.
    pub total_ns: u64,
    /// Half of the requests took at most about this time, in nanoseconds; at most 7 % off.
    pub p50_ns: u64,
    /// 95 of 100 requests took at most about this time.
    pub p95_ns: u64,
    /// The functions on the longest ways, each kind of time for itself, the longest first.
    pub functions: Vec<FunctionTime>,
    /// The experiments, in the order in which they were added.
    pub experiments: Vec<ExperimentResult>,
}

impl CriticalPathRow {
    /// The time of each function, of whichever kind, the longest first.
    pub fn by_function(&self) -> Vec<(Arc<str>, u64)> {
        let mut sums = Vec::new();
        self.functions.iter().for_each(|part| add_time(&mut sums, &part.name, part.nanos));
        sums.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        sums
    }

    /// The time of a kind, in nanoseconds.
    pub fn of_kind(&self, kind: TimeKind) -> u64 {
        let parts = self.functions.iter().filter(|part| part.kind == kind);
        parts.fold(0, |sum, part| sum.saturating_add(part.nanos))
    }
}

/// The requests that an experiment has followed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExperimentResult {
    /// The experiment's name.
    pub name: Arc<str>,
    /// The zone's name.
    pub zone: Arc<str>,
    /// The factor by which time in the zone is multiplied.
    pub factor: f64,
    /// The requests.
    pub requests: u64,
    /// The length of their longest ways, in nanoseconds.
    pub total_ns: u64,
    /// The length if the experiment were real.
    pub changed_ns: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Totals {
    rows: RwLock<HashMap<Place, Arc<Mutex<Row>>>>,
}

#[derive(Debug, Default)]
struct Row {
    requests: u64,
    total: u64,
    lengths: Lengths,
    parts: HashMap<Part, u64>,
    results: Vec<(u64, ExperimentResult)>,
}

impl Totals {
    /// Adds a request that has ended to the row of its key. The time of its root counts for `own`.
    pub(super) fn add(&self, key: Place, (root, own): (Place, Place), path: &Path, set: Option<&Set>) {
        let row = self.row(key);
        path.with_longest(|longest| {
            let mut row = lock(&row);
            row.add(longest, (root, own));
            if let Some(set) = set {
                row.add_results(set, longest.total, &path.changed);
            }
        });
    }

    fn row(&self, key: Place) -> Arc<Mutex<Row>> {
        let known = self.rows.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        known.unwrap_or_else(|| {
            let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
            let key = if rows.len() < ROWS_MAX { key } else { Place::OTHERS };
            rows.entry(key).or_default().clone()
        })
    }

    pub(super) fn read(&self, names: &Names) -> Vec<CriticalPathRow> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut all: Vec<CriticalPathRow> =
            rows.iter().map(|(root, row)| lock(row).read(names, *root)).collect();
        all.sort_by(|a, b| (b.total_ns, &a.key).cmp(&(a.total_ns, &b.key)));
        all
    }
}

impl Row {
    fn add(&mut self, way: &Way, (root, own): (Place, Place)) {
        self.requests += 1;
        self.total = self.total.saturating_add(way.total);
        self.lengths.add(way.total);
        for &(part, nanos) in &way.parts {
            let part = if part.place() == root { Part::new(own, part.kind()) } else { part };
            let is_known = self.parts.len() < PARTS_MAX || self.parts.contains_key(&part);
            let part = if is_known { part } else { Part::new(Place::OTHERS, part.kind()) };
            let sum = self.parts.entry(part).or_default();
            *sum = sum.saturating_add(nanos);
        }
    }

    fn add_results(&mut self, set: &Set, total: u64, changed: &[f64; EXPERIMENTS_MAX]) {
        for (experiment, changed) in set.0.iter().zip(changed) {
            let at = self.results.iter().position(|(id, _)| *id == experiment.id).unwrap_or_else(|| {
                if self.results.len() == RESULTS_MAX {
                    self.results.remove(0);
                }
                let (requests, total_ns, changed_ns) = (0, 0, 0.0);
                let (name, zone) = (experiment.name.clone(), experiment.zone.0.clone());
                let factor = experiment.factor;
                let result = ExperimentResult { name, zone, factor, requests, total_ns, changed_ns };
                self.results.push((experiment.id, result));
                self.results.len() - 1
            });
            let result = &mut self.results[at].1;
            result.requests += 1;
            result.total_ns = result.total_ns.saturating_add(total);
            result.changed_ns += changed;
        }
    }

    fn read(&self, names: &Names, key: Place) -> CriticalPathRow {
        let parts = self.parts.iter().map(|(part, nanos)| (*part, *nanos));
        CriticalPathRow {
            key: if key == Place::OTHERS { OTHERS.into() } else { names.name(key) },
            requests: self.requests,
            total_ns: self.total,
            p50_ns: self.lengths.quantile(0.5),
            p95_ns: self.lengths.quantile(0.95),
            functions: names.functions(parts),
            experiments: self.results.iter().map(|(_, result)| result.clone()).collect(),
        }
    }
}

/// Sub-buckets of each power of two: a bucket is at most 1/8 wide.
const STEPS: u32 = 8;
const BUCKETS: usize = 64 * STEPS as usize;

/// A histogram of lengths.
#[derive(Debug)]
struct Lengths(Box<[u64]>);

impl Default for Lengths {
    fn default() -> Self {
        Lengths(vec![0; BUCKETS].into())
    }
}

impl Lengths {
    fn add(&mut self, nanos: u64) {
        let power = nanos.max(STEPS.into()).ilog2();
        // Lengths below 8 have the first 8 buckets.
        let step = if nanos < STEPS.into() { nanos } else { (nanos >> (power - 3)) & u64::from(STEPS - 1) };
        let bucket = if nanos < STEPS.into() { 0 } else { (power - 2) * STEPS } as usize + step as usize;
        if let Some(count) = self.0.get_mut(bucket) {
            *count += 1;
        }
    }

    /// The middle of the bucket in which the quantile lies; 0 without lengths.
    fn quantile(&self, share: f64) -> u64 {
        let count: u64 = self.0.iter().sum();
        let rank = ((count as f64 * share).ceil() as u64).max(1);
        let mut sum = 0;
        let found = self.0.iter().position(|bucket| {
            sum += bucket;
            sum >= rank
        });
        let Some(bucket) = found.filter(|_| count > 0) else { return 0 };
        let (power, step) = (bucket as u32 / STEPS, u64::from(bucket as u32 % STEPS));
        match power.checked_sub(1) {
            None => step,
            Some(shift) => {
                let from = (u64::from(STEPS) + step) << shift;
                from + ((1_u64 << shift) >> 1)
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_at_most_seven_percent_off() {
        for nanos in [0, 1, 7, 8, 9, 15, 16, 1_000, 123_456, 10_u64.pow(9), u64::MAX / 3, u64::MAX] {
            let mut lengths = Lengths::default();
            lengths.add(nanos);
            let found = lengths.quantile(0.5);
            assert!(found.abs_diff(nanos) as f64 <= nanos as f64 * 0.07, "{nanos}: {found}");
        }
        let mut lengths = Lengths::default();
        (1..=100).for_each(|nanos| lengths.add(nanos * 1_000));
        assert!(lengths.quantile(0.5).abs_diff(50_000) < 3_500);
        assert!(lengths.quantile(0.95).abs_diff(95_000) < 6_700);
    }

    #[test]
    fn many_roots_take_a_bounded_table() {
        let (names, totals) = (Names::default(), Totals::default());
        let mut path = Path::default();
        path.tail.add(Part::new(Place::OTHERS, TimeKind::Work), 3);
        for number in 0..3_000 {
            let root = names.inside(Place::NOWHERE, &number.to_string());
            totals.add(root, (root, root), &path, None);
        }
        let rows = totals.read(&names);
        assert_eq!(rows.len(), ROWS_MAX + 1);
        assert_eq!((&*rows[0].key, rows[0].requests, rows[0].total_ns), (OTHERS, 2_000, 6_000));
    }
}
