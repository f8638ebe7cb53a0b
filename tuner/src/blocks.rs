//! Blocks of time: to leave some out of a search, to tune on some and score on others, and to draw them again.

use crate::workload::Workload;

/// Blocks of equal time that a recording is cut into.
pub(crate) const BLOCKS: usize = 8;
/// Each search sample leaves out its own block and those at these distances: three of eight, and each block is left out
/// by three of eight samples.
const LEFT_OUT: [usize; 3] = [0, 3, 6];

/// The block of each arrival.
pub(crate) fn of(workload: &Workload, blocks: usize) -> impl Fn(usize) -> usize {
    let length_ns = workload.arrivals().last().map_or(1, |last| last.at_ns + 1);
    move |arrival| {
        (u128::from(workload.arrivals()[arrival].at_ns) * blocks as u128 / u128::from(length_ns)) as usize
    }
}

/// The arrivals in some blocks, at their times, as a workload of their own.
pub(crate) fn select(workload: &Workload, wanted: impl Fn(usize) -> bool) -> Workload {
    let block = of(workload, BLOCKS);
    let arrivals = workload.arrivals().iter().zip(0u32..);
    let order: Vec<(u64, u32)> = arrivals
        .filter(|(_, index)| wanted(block(*index as usize)))
        .map(|(arrival, index)| (arrival.at_ns, index))
        .collect();
    workload.arranged(&order)
}

/// The sample of a search with this number: five of eight blocks.
pub(crate) fn sample(workload: &Workload, number: usize) -> Workload {
    select(workload, |block| LEFT_OUT.iter().all(|distance| (number + distance) % BLOCKS != block))
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
        let sizes: Vec<usize> =
            (0..BLOCKS).map(|number| sample(&workload, number).arrivals().len()).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 5 * 2000);
        let even = select(&workload, |block| block % 2 == 0).arrivals().len();
        let odd = select(&workload, |block| block % 2 == 1).arrivals().len();
        assert_eq!(even + odd, 2000);
        assert_eq!(sample(&synthetic(0, 1), 0).arrivals().len(), 0);
    }
}
