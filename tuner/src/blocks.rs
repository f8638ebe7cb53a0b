//! Blocks of time: to leave some out of a search, to tune on some and score on others, and to draw
//! them again.

use crate::stop::Stop;
use crate::workload::Workload;

/// Blocks of equal time that a recording is cut into.
pub(crate) const BLOCKS: usize = 8;

/// The block of each arrival.
pub(crate) fn of(workload: &Workload, blocks: usize) -> impl Fn(usize) -> usize {
    let length_ns = workload.arrivals().last().map_or(1, |last| last.at_ns + 1);
    let block = |at_ns: u64| (u128::from(at_ns) * blocks as u128 / u128::from(length_ns)) as usize;
    // Arrivals are in order, and the bounds of a few blocks take no division of 128 bits for each
    // of them.
    let first = |number: usize| workload.arrivals().partition_point(|arrival| block(arrival.at_ns) < number);
    let firsts: Vec<usize> = (1..blocks).map(first).collect();
    move |arrival| firsts.iter().filter(|&&first| first <= arrival).count()
}

/// The arrivals in some blocks, at their times, as a workload of their own. `None` if asked to
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

/// Whether the sample of a search with this number leaves out a block: one of eight, each in turn.
/// Parameters found so have dist/entropy as low on another recording as with three of eight left
/// out, and lower on this one (docs/design/search-draws.md).
pub(crate) fn is_left_out(number: usize, block: usize) -> bool {
    number % BLOCKS == block
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
            assert_eq!((0..24).filter(|&number| is_left_out(number, block)).count(), 3);
        }
        // Each as its time says.
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
