//! The allocation of samplers with an average rate: traces to keep are distributed by the logarithm of a
//! key's count.

use super::{Rates, occurring};
use crate::Keys;

/// Gives each key that occurred a rate (`calculateSampleRates` in the original).
///
/// A key is due max(1, `ratio` * log10 of its count) traces, and an equal share of what the keys before it, by name,
/// left over. If it has no more than that, all are kept; else one in count / due, rounded up.
pub(super) fn allocate(keys: &Keys, ratio: f64, counts: &[f64], rates: &mut Rates) {
    rates.clear();
    let mut keys_left = occurring(counts) as f64;
    let mut extra = 0.0;
    for key in keys.by_name().filter(|&key| counts[key] > 0.0) {
        let count = counts[key].max(1.0);
        let share = extra / keys_left;
        let due = (count.log10() * ratio).max(1.0) + share;
        extra -= share;
        keys_left -= 1.0;
        // If no count is above 1, the ratio is infinite, and 0 * infinity is no number: max() takes the 1 then.
        let rate = if count <= due { 1.0 } else { (count / due).ceil() };
        extra += due - count / rate;
        rates.set(key, rate);
    }
}
