//! The times of one log in the order of its lines, and those that are out of that order.

use astracer_model::problem::Place;

/// One of this many records steps back, or is out of order, in a log whose lines are in no order.
const UNSTEADY: usize = 20;
/// A time that differs by more from its neighbours' is out of order, in nanoseconds.
const STEP_NANOS: u64 = 1_000_000_000;

/// The times of one log that are out of the order of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The first such record.
    pub first: Place,
    /// Its time.
    pub time: u64,
    /// The time of its neighbours.
    pub neighbour: u64,
    /// The number of such records.
    pub count: u64,
    /// True if the log was sorted.
    pub is_sorted: bool,
}

/// The course of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trend {
    /// They rise but for some. For each record its time, or that of its neighbours if it is out of
    /// their order: none is below the one before.
    Rising(Vec<u64>),
    /// They step back often: the lines are in no order.
    Unsteady,
}

/// The course of the times of a log's records.
pub fn trend(times: &[u64]) -> Trend {
    let steps = times.windows(2).filter(|pair| pair[1] < pair[0]).count();
    if steps == 0 {
        return Trend::Rising(times.to_vec());
    }
    if steps > 1 && steps * UNSTEADY >= times.len() {
        return Trend::Unsteady;
    }
    let is_kept = longest_run(times);
    // Blocks of several writers step back rarely, but no longest run holds them all.
    let out = is_kept.iter().filter(|&&is| !is).count();
    if out > UNSTEADY && out * UNSTEADY >= times.len() {
        return Trend::Unsteady;
    }
    let mut last = is_kept.iter().position(|&is| is).map_or(0, |at| times[at]);
    let own = |(&time, is_kept)| {
        if is_kept {
            last = time;
        }
        last
    };
    Trend::Rising(times.iter().zip(is_kept).map(own).collect())
}

/// True if a time is too far from its neighbours' for threads that wrote at once.
pub fn is_step(time: u64, neighbour: u64) -> bool {
    time.abs_diff(neighbour) > STEP_NANOS
}

/// Marks the members of the longest run of values that do not decrease; of equally long ones, that
/// with the least values.
fn longest_run(values: &[u64]) -> Vec<bool> {
    // For each length, the member that ends the run of that length with the least value.
    let mut ends: Vec<usize> = Vec::new();
    let mut before = vec![usize::MAX; values.len()];
    for (at, &value) in values.iter().enumerate() {
        let len = ends.partition_point(|&end| values[end] <= value);
        if let Some(&end) = len.checked_sub(1).and_then(|len| ends.get(len)) {
            before[at] = end;
        }
        match ends.get_mut(len) {
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let mut is_member = vec![false; values.len()];
    let mut next = ends.last().copied();
    while let Some(at) = next {
        is_member[at] = true;
        next = before.get(at).copied().filter(|&before| before != usize::MAX);
    }
    is_member
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_run_leaves_out_what_steps() {
        for (values, expected) in [
            (&[][..], &[][..]),
            (&[0, 66, 2, 4], &[true, false, true, true]),
            (&[5, 1, 6, 7], &[false, true, true, true]),
            (&[30, 31, 2, 3], &[false, false, true, true]),
            (&[1, 1, 1], &[true, true, true]),
        ] {
            assert_eq!(longest_run(values), expected, "{values:?}");
        }
    }

    #[test]
    fn a_time_out_of_order_takes_that_of_its_neighbours() {
        assert_eq!(trend(&[1, 2, 2]), Trend::Rising(vec![1, 2, 2]));
        assert_eq!(trend(&[30, 31, 2, 3]), Trend::Rising(vec![2, 2, 2, 3]));
        assert_eq!(trend(&[1, 66, 2, 4]), Trend::Rising(vec![1, 1, 2, 4]));
        assert_eq!(trend(&[5, 4, 3, 9]), Trend::Unsteady);
        let blocks: Vec<u64> = (50..100).chain(0..50).collect();
        assert_eq!(trend(&blocks), Trend::Unsteady);
    }
}
