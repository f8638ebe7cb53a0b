//! Cuts a recording into blocks of time. Searches leave some blocks out, single keys are tuned on
//! some and scored on others, and the bootstrap draws blocks with replacement.

use crate::stop::Stop;
use crate::workload::Workload;

/// The number of blocks, of equal duration, into which a recording is cut.
pub(crate) const BLOCKS: usize = 8;

/// Returns a function from an arrival's index to its block.
pub(crate) fn of(workload: &Workload, blocks: usize) -> impl Fn(usize) -> usize {
    let length_ns = workload.length_ns() + 1;
    let block = |at_ns: u64| (u128::from(at_ns) * blocks as u128 / u128::from(length_ns)) as usize;
    // Arrivals are sorted by time, so looking up the first arrival of each block saves a 128-bit
    // division per arrival.
    let first = |number: usize| workload.arrivals().partition_point(|arrival| block(arrival.at_ns) < number);
    let firsts: Vec<usize> = (1..blocks).map(first).collect();
    move |arrival| firsts.iter().filter(|&&first| first <= arrival).count()
}

/// A workload of the arrivals in the `wanted` blocks, at their original times. `None` if asked to
/// stop.
pub(crate) fn select(
    workload: &Workload,
    wanted: impl Fn(usize) -> bool,
    stop: Stop<'_>,
) -> Option<Workload> {
    let block = of(workload, BLOCKS);
    let arrivals = workload.arrivals().iter().zip(0u32..);
    let order: Vec<(u64, u32)> = arrivals
        .filter(|(_, index)| wanted(block(*index as usize)))
        .map(|(arrival, index)| (arrival.at_ns, index))
        .collect();
    workload.arranged(&order, stop)
}

/// The blocks that a sample leaves out, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut(u8);

impl LeftOut {
    /// Sample `number` leaves out one of eight blocks, in turn. Leaving out three gave the same
    /// dist/entropy on another recording, and a worse one on this recording
    /// (docs/design/search-draws.md).
    pub(crate) fn in_turn(number: usize) -> Self {
        Self(1 << (number % BLOCKS))
    }

    #[cfg(test)]
    pub(crate) const NOTHING: Self = Self(0);

    pub(crate) fn has(self, block: usize) -> bool {
        self.0 >> block & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic;

    #[test]
    fn each_block_is_left_out_as_often_as_any_other() {
        let workload = synthetic(2000, 1);
        let block = of(&workload, BLOCKS);
        assert_eq!((block(0), block(1999)), (0, BLOCKS - 1));
        assert!((1..2000).all(|arrival| block(arrival - 1) <= block(arrival)));
        for block in 0..BLOCKS {
            assert_eq!((0..24).filter(|&number| LeftOut::in_turn(number).has(block)).count(), 3);
        }
        // By each arrival's own time.
        let length_ns = u128::from(workload.arrivals()[1999].at_ns + 1);
        for (index, arrival) in workload.arrivals().iter().enumerate() {
            assert_eq!(block(index) as u128, u128::from(arrival.at_ns) * BLOCKS as u128 / length_ns);
        }
        let traces = |part: Option<Workload>| part.expect("not stopped").arrivals().len();
        let even = traces(select(&workload, |block| block % 2 == 0, Stop::never()));
        let odd = traces(select(&workload, |block| block % 2 == 1, Stop::never()));
        assert_eq!(even + odd, 2000);
        assert_eq!(traces(select(&synthetic(0, 1), |_| true, Stop::never())), 0);
    }
}
