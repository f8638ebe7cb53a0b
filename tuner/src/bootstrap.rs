//! Estimates how much a figure depends on this particular recording, by a bootstrap over blocks of
//! time.
//!
//! A replay keeps some traces. A recording assembled from the same number of blocks, drawn with
//! replacement, is as likely as this one, and what the sampler keeps of it is known without another
//! replay. Several replays share the drawn recordings, so the spread has both sources of chance:
//! which traces were recorded, and which of them were kept.

use rayon::prelude::*;

use crate::blocks;
use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::random::Random;
use crate::score;
use crate::statistics::Distribution;
use crate::stop::Stop;
use crate::workload::Workload;

/// The number of blocks drawn for each recording. It is larger than the number that searches use,
/// so that the figure depends little on it.
const BLOCKS: usize = 16;
/// The number of recordings drawn, over all replays.
const RESAMPLES: usize = 480;
/// Replays that share them.
pub(crate) const REPLAYS: usize = 24;
/// The bootstrap is skipped if there are more functions, because each drawn recording sums over all
/// of them.
const FUNCTIONS_MAX: usize = 10_000;
const STREAM: u64 = 3;

/// Count, deviation and squared deviation of a function.
type Sums = [f64; 3];

/// The distribution of dist/entropy over drawn recordings, from a replay on each of some draws, of
/// which [`REPLAYS`] are enough. `None` if asked to stop, without draws, if fewer than two blocks
/// hold traces, or if there are more than [`FUNCTIONS_MAX`] functions.
pub(crate) fn bootstrap(
    workload: &Workload,
    sampler: &Candidate,
    draws: &[Draw],
    stop: Stop<'_>,
) -> Option<Distribution> {
    let block = blocks::of(workload, BLOCKS);
    let functions = workload.functions().len();
    if functions > FUNCTIONS_MAX {
        return None;
    }
    let mut pulse = stop.pulse();
    let mut all = vec![vec![[0.0; 3]; functions]; BLOCKS];
    let none = all.clone();
    let add = |sums: &mut [Vec<Sums>], arrival: usize| {
        for calls in workload.calls(arrival) {
            let sums = &mut sums[block(arrival)][calls.function as usize];
            let values = [f64::from(calls.count), calls.deviation, calls.deviation_squared];
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    };
    for arrival in 0..workload.arrivals().len() {
        add(&mut all, arrival);
        if pulse.stopped_after(1 + workload.calls(arrival).len()) {
            return None;
        }
    }
    let means: Vec<f64> = workload.functions().iter().map(|function| function.duration_ms.mean).collect();
    let full: Vec<usize> = (0..BLOCKS).filter(|&block| all[block].iter().any(|sums| sums[0] > 0.0)).collect();
    if full.len() < 2 || draws.is_empty() {
        return None;
    }
    let resampled = |draw: &Draw| {
        let (mut kept, mut pulse) = (none.clone(), stop.pulse());
        sampler.replay(workload, draw, stop, |arrival, _| add(&mut kept, arrival)).then_some(())?;
        let mut random = Random::new(draw.seed, STREAM);
        let resample = |_| {
            if pulse.stopped_after(BLOCKS * functions) {
                return None;
            }
            let chosen: Vec<usize> =
                full.iter().map(|_| full[random.below(full.len() as u32) as usize]).collect();
            Some(dist_over_entropy(&total(&all, &chosen), &total(&kept, &chosen), &means))
        };
        (0..RESAMPLES.div_ceil(draws.len())).map(resample).collect::<Option<Vec<f64>>>()
    };
    let runs = draws.par_iter().map(resampled).collect::<Option<Vec<Vec<f64>>>>()?;
    Some(Distribution::of(runs.into_iter().flatten().collect()))
}

fn total(blocks: &[Vec<Sums>], chosen: &[usize]) -> Vec<Sums> {
    let mut total = vec![[0.0; 3]; blocks[0].len()];
    for &block in chosen {
        for (total, sums) in total.iter_mut().zip(&blocks[block]) {
            total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
        }
    }
    total
}

fn dist_over_entropy(all: &[Sums], kept: &[Sums], means: &[f64]) -> f64 {
    let moments = |&[count, deviation, squared]: &Sums| {
        let offset = deviation / count;
        (offset, (squared / count - offset * offset).max(0.0).sqrt())
    };
    let (mut squares, mut spans, mut weighted) = (0.0, 0.0, 0.0);
    for ((all, kept), mean) in all.iter().zip(kept).zip(means).filter(|((all, _), _)| all[0] > 0.0) {
        let (offset, sd) = moments(all);
        if kept[0] > 0.0 {
            let (kept_offset, kept_sd) = moments(kept);
            squares += (kept_offset - offset).powi(2) + (kept_sd - sd).powi(2);
            spans += kept[0];
            weighted += kept[0] * kept[0].log2();
        } else {
            squares += (mean + offset).powi(2) + sd * sd;
        }
    }
    score::dist_over_entropy(squares.sqrt(), score::entropy(spans, weighted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::Evaluator;
    use crate::testing::synthetic;

    /// Drawing every block once gives the recording itself.
    #[test]
    fn without_drawing_the_figure_is_the_replays() {
        let workload = synthetic(2000, 3);
        let sampler: Candidate = "ratio:0.1".parse::<astracer_samplers::Config>().expect("a sampler").into();
        let score = Evaluator::new(&workload).score(&sampler, &Draw::recorded(5));
        let found = bootstrap(&workload, &sampler, &[Draw::recorded(5)], Stop::never()).expect("blocks");
        let [low, high] = found.run_interval;
        assert!(low < score.dist_over_entropy && score.dist_over_entropy < high, "{found:?} {score:?}");
        let (mut all, mut kept) = (vec![[0.0; 3]; workload.functions().len()], Vec::new());
        kept.clone_from(&all);
        let add = |sums: &mut [Sums], arrival: usize| {
            for calls in workload.calls(arrival) {
                let sums = &mut sums[calls.function as usize];
                sums[0] += f64::from(calls.count);
                sums[1] += calls.deviation;
                sums[2] += calls.deviation_squared;
            }
        };
        (0..2000).for_each(|arrival| add(&mut all, arrival));
        sampler.replay(&workload, &Draw::recorded(5), Stop::never(), |arrival, _| add(&mut kept, arrival));
        let means: Vec<f64> = workload.functions().iter().map(|function| function.duration_ms.mean).collect();
        let once = dist_over_entropy(&all, &kept, &means);
        assert!((once / score.dist_over_entropy - 1.0).abs() < 1e-9, "{once} {score:?}");
    }
}
