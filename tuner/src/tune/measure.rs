//! Calculates all measures of some parameters, whichever of them was the objective.

use std::collections::HashMap;
use std::num::NonZeroU64;

use astracer_samplers::RandomSource;

use super::RootParameters;
use crate::draw::Draw;
use crate::expect::{Counting, Curve, Design, Expectation, Expected, Extras, KeyLaw, Scratch};
use crate::family::BucketFamily;
use crate::half_life::Clock;
use crate::held_out::equal_share;
use crate::space::Parameters;
use crate::stop::Stop;
use crate::workload::Workload;

/// Draws of phase and jitter over which the expectation is averaged.
const DRAWS: usize = 8;
/// Arrivals, functions and keys, summed over all draws. Larger workloads are measured on fewer
/// draws, but at least two, because chance matters less there.
const MEASURED_MAX: usize = 800_000;

/// The score of parameters on the whole workload, including latencies and paths, as the mean over
/// phases and jitters that a search uses. `None` if asked to stop.
pub(super) fn measure(
    workload: &Workload,
    common: &Parameters,
    roots: &[RootParameters],
    random: RandomSource,
    stop: Stop<'_>,
) -> Option<Expected> {
    let size = workload.arrivals().len() + workload.functions().len() + workload.keys().len();
    let draws = Draw::seen((MEASURED_MAX / size.max(1)).clamp(2, DRAWS), 0, random);
    let mut clock = Clock::Calls;
    let (counting, length_ns, curve, min) = match *common {
        Parameters::Bump { lambda, min, window_s } => {
            (Counting::Tumbling, window_s * 1e9, Curve::new(Counting::Tumbling, lambda, 2.0), min)
        }
        Parameters::Decaying { lambda, min, half_life, exponent } => {
            clock = half_life.clock();
            (Counting::Decaying, half_life.ns(), Curve::new(Counting::Decaying, lambda, exponent), min)
        }
        Parameters::Bucket { .. } => {
            let family = BucketFamily::new(workload, &draws, Extras::ALL, stop)?;
            return Some(Expected::mean(&family.scores_of(&common.bucket().ok()?, stop)?));
        }
        Parameters::Constant { probability } => return equal_share(workload, probability, random, stop),
    };
    let own: HashMap<&str, (Option<Curve>, f64)> = roots
        .iter()
        .filter_map(|root| match root.parameters {
            Parameters::Constant { probability } => Some((root.key.as_str(), (None, probability))),
            // Only the common half-life is possible, because a table has one for all keys.
            Parameters::Decaying { lambda, min, half_life, exponent }
                if half_life.clock() == clock && half_life.ns() == length_ns =>
            {
                Some((root.key.as_str(), (Some(Curve::new(counting, lambda, exponent)), min)))
            }
            _ => None,
        })
        .collect();
    let own: Vec<Option<&(Option<Curve>, f64)>> = workload.keys().names().map(|name| own.get(name)).collect();
    let law = |key: usize| match own[key] {
        Some((Some(curve), min)) => KeyLaw::Bump(curve, *min),
        Some((None, probability)) => KeyLaw::Constant(*probability),
        None => KeyLaw::Bump(&curve, min),
    };
    let length_ns = NonZeroU64::new(length_ns.round() as u64)?;
    let mut scratch = Scratch::default();
    let score = |draw: &Draw| {
        let lengths_ns = vec![length_ns];
        let design = Design {
            counting,
            lengths_ns,
            phase: draw.phase,
            extras: Extras::ALL,
            stratified: draw.stratified,
        };
        let order = match counting {
            Counting::Tumbling => draw.arrivals(workload, stop)?,
            Counting::Decaying => draw.timed(clock, workload, stop)?,
        };
        let expectation = Expectation::new(&workload.arranged(&order, stop)?, &design, stop)?;
        expectation.expected(0, law, &mut scratch, stop)
    };
    let scores: Option<Vec<Expected>> = draws.iter().map(score).collect();
    Some(Expected::mean(&scores?))
}
