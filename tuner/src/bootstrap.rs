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
use crate::statistics::{Distribution, MeanSd};
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
/// The number of recordings drawn for the spread of a ratio.
const RATIOS: usize = 100;

/// Count, deviation and squared deviation of a function, and its count without weights.
type Sums = [f64; 4];

/// A recording as sums by block of time and function.
struct Blocks<'w> {
    workload: &'w Workload,
    sums: Vec<Vec<Sums>>,
    /// The blocks that hold traces.
    full: Vec<usize>,
    means: Vec<f64>,
}

impl<'w> Blocks<'w> {
    /// `None` if asked to stop, if fewer than two blocks hold traces, or if there are more than
    /// [`FUNCTIONS_MAX`] functions.
    fn new(workload: &'w Workload, stop: Stop<'_>) -> Option<Self> {
        if workload.functions().len() > FUNCTIONS_MAX {
            return None;
        }
        let means = workload.functions().iter().map(|function| function.duration_ms.mean).collect();
        let mut blocks = Self { workload, sums: Vec::new(), full: Vec::new(), means };
        blocks.sums = blocks.sum(|add| {
            let mut pulse = stop.pulse();
            for arrival in 0..workload.arrivals().len() {
                add(arrival, 1.0);
                if pulse.stopped_after(1 + workload.calls(arrival).len()) {
                    return None;
                }
            }
            Some(())
        })?;
        let has_traces = |sums: &Vec<Sums>| sums.iter().any(|sums| sums[0] > 0.0);
        blocks.full = (0..BLOCKS).filter(|&block| has_traces(&blocks.sums[block])).collect();
        (blocks.full.len() >= 2).then_some(blocks)
    }

    /// The sums of the arrivals that `each` names, with their weights.
    fn sum(&self, each: impl FnOnce(&mut dyn FnMut(usize, f64)) -> Option<()>) -> Option<Vec<Vec<Sums>>> {
        let block = blocks::of(self.workload, BLOCKS);
        let mut sums = vec![vec![[0.0; 4]; self.workload.functions().len()]; BLOCKS];
        each(&mut |arrival, weight| {
            for calls in self.workload.calls(arrival) {
                let sums = &mut sums[block(arrival)][calls.function as usize];
                let count = f64::from(calls.count);
                let values =
                    [weight * count, weight * calls.deviation, weight * calls.deviation_squared, count];
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
        })?;
        Some(sums)
    }

    /// The sums of what a sampler keeps on a draw.
    fn kept(
        &self,
        sampler: &Candidate,
        draw: &Draw,
        by_weights: bool,
        stop: Stop<'_>,
    ) -> Option<Vec<Vec<Sums>>> {
        self.sum(|add| {
            let keep = |arrival, weight: Option<f64>| {
                add(arrival, weight.filter(|_| by_weights).unwrap_or(1.0));
            };
            sampler.replay(self.workload, draw, stop, keep).then_some(())
        })
    }

    /// Draws as many blocks as hold traces, with replacement.
    fn chosen(&self, random: &mut Random) -> Vec<usize> {
        self.full.iter().map(|_| self.full[random.below(self.full.len() as u32) as usize]).collect()
    }

    /// dist/entropy of a sample of a recording that consists of the chosen blocks.
    fn dist_over_entropy(&self, kept: &[Vec<Sums>], chosen: &[usize]) -> f64 {
        dist_over_entropy(&total(&self.sums, chosen), &total(kept, chosen), &self.means)
    }
}

/// The distribution of dist/entropy over drawn recordings, from a replay on each of some draws, of
/// which [`REPLAYS`] are enough. `None` if asked to stop, without draws, if fewer than two blocks
/// hold traces, or if there are more than [`FUNCTIONS_MAX`] functions.
pub(crate) fn bootstrap(
    workload: &Workload,
    sampler: &Candidate,
    draws: &[Draw],
    stop: Stop<'_>,
) -> Option<Distribution> {
    let blocks = Blocks::new(workload, stop).filter(|_| !draws.is_empty())?;
    let resampled = |draw: &Draw| {
        let kept = blocks.kept(sampler, draw, false, stop)?;
        let (mut random, mut pulse) = (Random::new(draw.seed, STREAM), stop.pulse());
        let resample = |_| {
            let is_stopped = pulse.stopped_after(BLOCKS * blocks.means.len());
            (!is_stopped).then(|| blocks.dist_over_entropy(&kept, &blocks.chosen(&mut random)))
        };
        (0..RESAMPLES.div_ceil(draws.len())).map(resample).collect::<Option<Vec<f64>>>()
    };
    let runs = draws.par_iter().map(resampled).collect::<Option<Vec<Vec<f64>>>>()?;
    Some(Distribution::of(runs.into_iter().flatten().collect()))
}

/// The standard deviation, over drawn recordings, of the logarithm of a ratio: dist/entropy by
/// weights of one sampler, divided by that of another, each as the mean over some draws. `None` as
/// for [`bootstrap`], or if the ratio is not finite.
pub(crate) fn spread_of_ratio(
    workload: &Workload,
    samplers: [&Candidate; 2],
    draws: &[Draw],
    stop: Stop<'_>,
) -> Option<f64> {
    let blocks = Blocks::new(workload, stop).filter(|_| !draws.is_empty())?;
    let mut random = Random::new(0, STREAM);
    // All draws share the drawn recordings, so that the means over draws differ by these alone.
    let chosen: Vec<Vec<usize>> = (0..RATIOS).map(|_| blocks.chosen(&mut random)).collect();
    let of_draw = |draw: &Draw| {
        let mut pulse = stop.pulse();
        let [one, other] = samplers.map(|sampler| blocks.kept(sampler, draw, true, stop));
        let (one, other) = (one?, other?);
        let both = |chosen: &Vec<usize>| {
            let is_stopped = pulse.stopped_after(2 * BLOCKS * blocks.means.len());
            (!is_stopped).then(|| [&one, &other].map(|kept| blocks.dist_over_entropy(kept, chosen)))
        };
        chosen.iter().map(both).collect::<Option<Vec<[f64; 2]>>>()
    };
    let draws = draws.par_iter().map(of_draw).collect::<Option<Vec<_>>>()?;
    let ratio = |place: usize| {
        let sum = |sampler: usize| draws.iter().map(|draw| draw[place][sampler]).sum::<f64>();
        (sum(0) / sum(1)).ln()
    };
    let spread = MeanSd::of((0..RATIOS).map(ratio)).sd;
    spread.is_finite().then_some(spread)
}

fn total(blocks: &[Vec<Sums>], chosen: &[usize]) -> Vec<Sums> {
    let mut total = vec![[0.0; 4]; blocks[0].len()];
    for &block in chosen {
        for (total, sums) in total.iter_mut().zip(&blocks[block]) {
            total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
        }
    }
    total
}

fn dist_over_entropy(all: &[Sums], kept: &[Sums], means: &[f64]) -> f64 {
    let moments = |&[count, deviation, squared, _]: &Sums| {
        let offset = deviation / count;
        (offset, (squared / count - offset * offset).max(0.0).sqrt())
    };
    let (mut squares, mut spans, mut weighted) = (0.0, 0.0, 0.0);
    for ((all, kept), mean) in all.iter().zip(kept).zip(means).filter(|((all, _), _)| all[0] > 0.0) {
        let (offset, sd) = moments(all);
        if kept[0] > 0.0 {
            let (kept_offset, kept_sd) = moments(kept);
            squares += (kept_offset - offset).powi(2) + (kept_sd - sd).powi(2);
            spans += kept[3];
            weighted += kept[3] * kept[3].log2();
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
        let blocks = Blocks::new(&workload, Stop::never()).expect("blocks");
        let kept = blocks.kept(&sampler, &Draw::recorded(5), false, Stop::never()).expect("not stopped");
        let once = blocks.dist_over_entropy(&kept, &(0..BLOCKS).collect::<Vec<_>>());
        assert!((once / score.dist_over_entropy - 1.0).abs() < 1e-9, "{once} {score:?}");
        // The weights of an equal share are all the same.
        let weighted = blocks.kept(&sampler, &Draw::recorded(5), true, Stop::never()).expect("not stopped");
        let weighted = blocks.dist_over_entropy(&weighted, &(0..BLOCKS).collect::<Vec<_>>());
        assert!((weighted / once - 1.0).abs() < 1e-9, "{weighted} {once}");
    }

    /// A sampler is as good as itself in every drawn recording.
    #[test]
    fn the_ratio_of_a_sampler_to_itself_has_no_spread() {
        let workload = synthetic(2000, 3);
        let of = |text: &str| -> Candidate {
            text.parse::<astracer_samplers::Config>().expect("a sampler").into()
        };
        let (one, other) = (of("ratio:0.1"), of("bump:lambda=2,min=0.02,count=decaying,tau=100calls"));
        let draws = [Draw::recorded(5), Draw::recorded(6)];
        let spread = |samplers| spread_of_ratio(&workload, samplers, &draws, Stop::never()).expect("finite");
        assert_eq!(spread([&one, &one]), 0.0);
        assert!(spread([&one, &other]) > 0.02, "{}", spread([&one, &other]));
    }
}
