//! The allocation of samplers with an average rate: the traces to keep are distributed by the
//! logarithm of each key's count.

use super::ByKey;

/// Gives each key that occurred a rate (`calculateSampleRates` in the original).
///
/// A key is due max(1, `ratio` * log10 of its count) traces, plus an equal share of what the keys
/// before it left over. `counts` must be in order of the keys' names. If the key has no more traces
/// than it is due, all are kept; otherwise one in count / due, rounded up.
pub(super) fn allocate(ratio: f64, counts: &ByKey, rates: &mut ByKey) {
    rates.clear();
    let mut keys_left = counts.len() as f64;
    let mut extra = 0.0;
    for (key, count) in counts.iter() {
        let count = count.max(1.0);
        let share = extra / keys_left;
        let due = (count.log10() * ratio).max(1.0) + share;
        extra -= share;
        keys_left -= 1.0;
        // If no count is above 1, the ratio is infinite, and 0 * infinity is NaN; max() returns 1
        // then.
        let rate = if count <= due { 1.0 } else { (count / due).ceil() };
        extra += due - count / rate;
        rates.add(key, rate);
    }
}
