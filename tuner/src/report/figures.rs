//! The figures of what the parameters file decides by, beside those of an equal share.

use super::Report;
use crate::held_out::Replayed;
use crate::tune::Later;

/// Each pair is of the chosen sampler and of an equal share of the same size.
#[derive(Debug)]
pub(super) struct Figures<'a> {
    /// The share of the bytes that is kept.
    pub(super) kept: f64,
    pub(super) functions: [f64; 2],
    pub(super) functions_all: f64,
    pub(super) call_trees: [f64; 2],
    pub(super) call_trees_all: f64,
    pub(super) count_errors: [Option<f64>; 2],
    /// By weights for strata.
    pub(super) dist_over_entropy: [f64; 2],
    /// The 95 % interval of the first mean; `None` if nothing was replayed.
    pub(super) interval: Option<[f64; 2]>,
    pub(super) later: Option<&'a Later>,
}

impl<'a> Figures<'a> {
    pub(super) fn of(report: &Report<'a>) -> Self {
        let tuning = report.tuning;
        let (score, equal) = (&tuning.score, &tuning.baseline);
        let of_head = Figures {
            kept: score.tfcr,
            functions: [score.functions, equal.functions],
            functions_all: score.functions_all,
            call_trees: [score.call_trees, equal.call_trees],
            call_trees_all: score.call_trees_all,
            count_errors: [score.count_error, equal.count_error],
            dist_over_entropy: [score.dist_over_entropy, equal.dist_over_entropy],
            interval: tuning.replayed.as_ref().map(|replayed| replayed.dist_over_entropy.mean_interval),
            later: tuning.later.as_ref(),
        };
        let Some(strata) = report.strata else { return of_head };
        let both = [&strata.replayed, &strata.share];
        let by_weights = both.map(Replayed::by_weights);
        Figures {
            kept: strata.replayed.tfcr.mean,
            functions: both.map(|of| of.functions.mean),
            call_trees: both.map(|of| of.call_trees.mean),
            count_errors: both.map(|of| of.counts.map(|counts| counts.functions)),
            dist_over_entropy: by_weights.map(|of| of.mean),
            interval: Some(by_weights[0].mean_interval),
            later: strata.later.as_ref(),
            ..of_head
        }
    }
}
