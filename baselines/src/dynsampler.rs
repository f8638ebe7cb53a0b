//! Honeycomb's dynsampler-go: a sample rate for each key, from the keys' frequencies in past
//! intervals.
//!
//! Source: github.com/honeycombio/dynsampler-go, 0.6.3 (commit 52d51aa, 2025-07). One trace in
//! `rate` is kept, and the rate is recorded with it. That weight is unbiased, because past
//! intervals fixed the rate. Common to all of these samplers:
//!
//! - Rates are whole numbers. For a rate of 1.9, the throughput samplers truncate to 1 and keep up
//!   to twice the goal; the others round up to 2 and keep as little as half of it.
//! - A key without a rate is kept whole: every new key and, after a quiet interval, every key. A
//!   flood of new keys is a flood of traces.
//! - Goals may be fractions here, so that target sizes can be met; the originals take whole numbers
//!   (except the windowed one).
//! - Tables of keys are unbounded (`MaxKeys` is 0 by default).

mod allocation;
mod average;
mod moving;
mod throughput;
mod windowed;

use super::Keys;

pub(super) use average::AVERAGE_RATE;
pub(super) use moving::{MOVING_RATE, MOVING_THROUGHPUT};
pub(super) use throughput::{PER_KEY_THROUGHPUT, TOTAL_THROUGHPUT};
pub(super) use windowed::WINDOWED_THROUGHPUT;

/// A number for each key, 0 for most of them. Only keys with a number above 0 are visited, so that
/// the cost of an interval depends on its own traffic and not on the number of keys in the
/// recording.
#[derive(Clone, Debug)]
struct ByKey {
    numbers: Vec<f64>,
    /// The keys whose number is not 0.
    keys: Vec<u32>,
}

impl ByKey {
    fn zero(keys: usize) -> Self {
        Self { numbers: vec![0.0; keys], keys: Vec::new() }
    }

    fn of(&self, key: u32) -> f64 {
        self.numbers[key as usize]
    }

    fn add(&mut self, key: u32, more: f64) {
        let number = &mut self.numbers[key as usize];
        if *number == 0.0 {
            self.keys.push(key);
        }
        *number += more;
    }

    /// Replaces each number by a function of it; a key that gets 0 is removed.
    fn map(&mut self, function: impl Fn(f64) -> f64) {
        self.keys.retain(|&key| {
            let number = &mut self.numbers[key as usize];
            *number = function(*number);
            *number != 0.0
        });
    }

    fn clear(&mut self) {
        self.map(|_| 0.0);
    }

    fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The number of keys whose number is not 0.
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn sort_by_name(&mut self, keys: &Keys) {
        self.keys.sort_unstable_by_key(|&key| keys.place(key));
    }

    /// The numbers that are not 0, with their keys.
    fn iter(&self) -> impl Iterator<Item = (u32, f64)> {
        self.keys.iter().map(|&key| (key, self.of(key)))
    }

    fn numbers(&self) -> impl Iterator<Item = f64> {
        self.iter().map(|(_, number)| number)
    }
}

/// Keeps one trace in `rate`.
fn one_in(rate: f64, uniform: f64) -> bool {
    uniform * rate < 1.0
}

#[cfg(test)]
mod tests;
