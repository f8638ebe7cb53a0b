//! Samplers of other projects, tuned to the size of ours.

use astracer_baselines::{self as baselines, BaselineSpec, InvalidBaseline};
use astracer_samplers::RandomSource;
use astracer_tuner::equal_size::{EqualSize, at_equal_size};
use astracer_tuner::{Draw, Evaluator, Stop, Workload};

use super::{Evaluate, SIZE_SEEDS, draw};
use crate::failure::Failure;
use crate::progress::Progress;

/// A baseline to compare with.
pub(super) struct Chosen {
    spec: BaselineSpec,
    /// Without parameters of its own, its times are shortened to the recording, as in `tune`.
    by_name: bool,
}

/// The baselines given.
pub(super) fn baselines(args: &Evaluate) -> Result<Vec<Chosen>, Failure> {
    let mut chosen = Vec::new();
    for text in args.baselines.iter().flat_map(|list| listed(list)) {
        if text == "all" {
            chosen.extend(baselines::all().into_iter().map(|spec| Chosen { spec, by_name: true }));
        } else {
            let spec = text.parse().map_err(|error: InvalidBaseline| Failure::Usage(error.to_string()))?;
            chosen.push(Chosen { spec, by_name: !text.contains(':') });
        }
    }
    Ok(chosen)
}

/// The baselines of a list with commas, which also separate the parameters of each. A part such as
/// `reservoir=1` is a parameter, unlike `xray:rate=0.1`.
fn listed(list: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    let mut start = 0;
    for (end, _) in list.match_indices(',').chain([(list.len(), "")]) {
        let next = list[end..].strip_prefix(',').unwrap_or_default();
        let is_parameter = next.split_once('=').is_some_and(|(name, _)| !name.contains([':', ',']));
        if !is_parameter {
            found.push(&list[start..end]);
            start = end + 1;
        }
    }
    found
}

/// Tunes baselines to keep `size`.
pub(super) fn tuned(
    baselines: &[Chosen],
    size: f64,
    (args, random): (&Evaluate, RandomSource),
    evaluator: &Evaluator<'_>,
    stop: Stop<'_>,
) -> Result<Vec<EqualSize>, Failure> {
    let progress = Progress::steps("sizing baselines", baselines.len() as u64);
    let draws: Vec<Draw> = (0..SIZE_SEEDS).map(|index| draw(args, random, index)).collect();
    let workload = evaluator.workload();
    let mut met = Vec::with_capacity(baselines.len());
    for Chosen { spec, by_name } in baselines {
        let spec = if *by_name { spec.quickened_for(workload.seconds()) } else { spec.clone() };
        let found = at_equal_size(workload, &spec, size, &draws, stop);
        met.push(found.ok_or(Failure::Interrupted)?);
        progress.inc(1);
    }
    progress.finish();
    Ok(met)
}

/// A warning for each baseline that misses the wanted size by more than `tune` allows.
pub(super) fn missed<'m>(
    met: &'m [EqualSize],
    workload: &'m Workload,
    by: &'m str,
) -> impl Iterator<Item = String> + 'm {
    met.iter().filter(|met| !met.is_comparable()).map(move |EqualSize { spec, tfcr, wanted_tfcr, .. }| {
        let (reached, wanted) = (tfcr * 100.0, wanted_tfcr * 100.0);
        let mut text =
            format!("{spec}{by} cannot keep {wanted:.2}% of the bytes; the nearest is {reached:.2}%");
        if spec.quickened_for(workload.seconds()) != *spec {
            let name = spec.kind().name;
            text += &format!(". Its times are long for this recording; `--baselines {name}` shortens them");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_separate_baselines_and_their_parameters() {
        for (list, found) in [
            ("all", &["all"][..]),
            ("xray,every:10,brave", &["xray", "every:10", "brave"]),
            ("xray:rate=0.1,reservoir=1,brave:rate=6", &["xray:rate=0.1,reservoir=1", "brave:rate=6"]),
            ("brave,xray:rate=0.1,reservoir=1", &["brave", "xray:rate=0.1,reservoir=1"]),
            ("brave,", &["brave", ""]),
        ] {
            assert_eq!(listed(list), found);
        }
    }
}
