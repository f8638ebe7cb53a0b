//! Honeycomb's dynsampler-go: a sample rate for each key, from how often keys came in past intervals.
//!
//! Source: github.com/honeycombio/dynsampler-go, 0.6.3 (commit 52d51aa, 2025-07). One trace in `rate` is kept, and the
//! rate is recorded with it. As it was fixed by past intervals, that weight is true in expectation. What all share:
//!
//! - Rates are whole numbers. Where a goal asks for 1.9, the throughput samplers cut off to 1 and keep up to twice the
//!   goal; the others round up to 2 and keep up to half of it.
//! - A key without a rate is kept whole: every new key, and after a quiet interval every key. A flood of new keys is
//!   a flood of traces.
//! - Goals may be fractions here, so that sizes can be met; the originals take whole numbers (the windowed one does not).
//! - Tables of keys are unbounded (`MaxKeys` is 0 by default).

mod allocation;
mod average;
mod moving;
mod throughput;
mod windowed;

pub(super) use average::AVERAGE_RATE;
pub(super) use moving::{MOVING_RATE, MOVING_THROUGHPUT};
pub(super) use throughput::{PER_KEY_THROUGHPUT, TOTAL_THROUGHPUT};
pub(super) use windowed::WINDOWED_THROUGHPUT;

/// The sample rate of each key; 0 where there is none.
#[derive(Clone, Debug)]
struct Rates(Vec<f64>);

impl Rates {
    fn none(keys: usize) -> Self {
        Self(vec![0.0; keys])
    }

    fn clear(&mut self) {
        self.0.fill(0.0);
    }

    fn set(&mut self, key: usize, rate: f64) {
        self.0[key] = rate;
    }

    /// The key's rate; 1 if it has none.
    fn of(&self, key: u32) -> f64 {
        self.0[key as usize].max(1.0)
    }
}

/// Keeps one in `rate`.
fn one_in(rate: f64, uniform: f64) -> bool {
    uniform * rate < 1.0
}

/// The number of keys that occurred.
fn occurring(counts: &[f64]) -> usize {
    counts.iter().filter(|&&count| count > 0.0).count()
}

#[cfg(test)]
mod tests;
