//! Samplers of other projects, tuned to the size of ours.

use astracer_baselines::{self as baselines, BaselineSpec};
use astracer_samplers::RandomSource;
use astracer_tuner::equal_size::{EqualSize, at_equal_size};
use astracer_tuner::{Draw, Evaluator, Stop};

use super::{Evaluate, SIZE_SEEDS, draw};
use crate::failure::Failure;
use crate::progress::Progress;

/// The baselines given, with their own parameters.
pub(super) fn baselines(args: &Evaluate) -> Result<Vec<BaselineSpec>, Failure> {
    let mut chosen = Vec::new();
    for text in &args.baselines {
        if text == "all" {
            chosen.extend(baselines::all());
        } else {
            chosen.push(text.parse::<BaselineSpec>().map_err(|error| Failure::Usage(error.to_string()))?);
        }
    }
    Ok(chosen)
}

/// Tunes baselines to keep `size`.
pub(super) fn tuned(
    baselines: &[BaselineSpec],
    size: f64,
    (args, random): (&Evaluate, RandomSource),
    evaluator: &Evaluator<'_>,
    stop: Stop<'_>,
) -> Result<Vec<EqualSize>, Failure> {
    let progress = Progress::steps("sizing baselines", baselines.len() as u64);
    let draws: Vec<Draw> = (0..SIZE_SEEDS).map(|index| draw(args, random, index)).collect();
    let mut met = Vec::with_capacity(baselines.len());
    for baseline in baselines {
        let found = at_equal_size(evaluator.workload(), baseline, size, &draws, stop);
        met.push(found.ok_or(Failure::Interrupted)?);
        progress.inc(1);
    }
    progress.finish();
    Ok(met)
}

/// A warning for each baseline that cannot keep the wanted size.
pub(super) fn missed(met: &[EqualSize], by: &str) -> String {
    let missed = met.iter().filter(|met| !met.is_met()).map(|met| {
        let (reached, wanted) = (met.tfcr * 100.0, met.wanted_tfcr * 100.0);
        format!(
            "warning: {}{by} cannot keep {wanted:.2}% of the bytes; the nearest is {reached:.2}%\n",
            met.spec
        )
    });
    missed.collect()
}
