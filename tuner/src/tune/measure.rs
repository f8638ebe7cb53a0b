//! All measures of parameters, whichever of them was the objective.

use std::collections::HashMap;
use std::num::NonZeroU64;

use super::{DRAWS, RootParameters};
use crate::draw::{Draw, STRATIFIED};
use crate::expect::{Counting, Curve, Design, Expectation, Expected, Extras, KeyLaw, Scratch};
use crate::family::BucketFamily;
use crate::space::Parameters;
use crate::stop::Stop;
use crate::workload::Workload;

/// The score of parameters, latencies and paths included: mean over the phases and jitters that a search sees, on all of the time.
/// `None` if asked to stop.
pub(super) fn measure(
    workload: &Workload,
    common: &Parameters,
    roots: &[RootParameters],
    stop: Stop<'_>,
) -> Option<Expected> {
    let (counting, length_s, curve, min) = match *common {
        Parameters::Bump { lambda, min, window_s } => {
            (Counting::Tumbling, window_s, Curve::new(Counting::Tumbling, lambda, 2.0), min)
        }
        Parameters::Decaying { lambda, min, half_life_s, exponent } => {
            (Counting::Decaying, half_life_s, Curve::new(Counting::Decaying, lambda, exponent), min)
        }
        Parameters::Bucket { .. } => {
            let family = BucketFamily::new(workload, &Draw::seen(DRAWS, 0), Extras::ALL);
            return Some(Expected::mean(&family.scores_of(&common.bucket().ok()?)));
        }
        Parameters::Constant { .. } => return None,
    };
    let own: HashMap<&str, f64> = roots
        .iter()
        .filter_map(|root| match root.parameters {
            Parameters::Constant { probability } => Some((root.key.as_str(), probability)),
            _ => None,
        })
        .collect();
    let own: Vec<Option<f64>> = workload.keys().names().map(|name| own.get(name).copied()).collect();
    let first = Curve::new(counting, 0.0, 2.0);
    let law = |key: usize| match own[key] {
        Some(probability) => KeyLaw::Bump(&first, probability),
        None => KeyLaw::Bump(&curve, min),
    };
    let length_ns = NonZeroU64::new((length_s * 1e9).round() as u64)?;
    let mut scratch = Scratch::default();
    let score = |draw: Draw| {
        let lengths_ns = vec![length_ns];
        let design =
            Design { counting, lengths_ns, phase: draw.phase, extras: Extras::ALL, stratified: STRATIFIED };
        let expectation = if draw.jitter_ms == 0.0 {
            Expectation::new(workload, &design, stop)?
        } else {
            Expectation::new(&workload.arranged(&draw.arrivals(workload)), &design, stop)?
        };
        Some(expectation.expected(0, law, &mut scratch))
    };
    // Constants do not depend on the draw.
    let draws = if own.iter().all(Option::is_some) { 1 } else { DRAWS };
    let scores: Option<Vec<Expected>> = Draw::seen(draws, 0).into_iter().map(score).collect();
    Some(Expected::mean(&scores?))
}
