//! Searches within the limits that late policies leave. The first search estimates what the
//! policies keep; a second one uses what they kept beside the first result.

use std::time::Duration;

use astracer_samplers::tail::Tail;
use astracer_tuner::tail::TailSummary;
use astracer_tuner::tune::{self, Options, Progress};
use astracer_tuner::{Limits, Stop, Tuning, Workload};
use serde::Serialize;

use super::provisional::Other;
use super::shared_limits::{After, SharedLimits};
use crate::failure::Failure;

/// Late policies, and what they keep beside the chosen sampler.
#[derive(Serialize)]
pub(super) struct Late {
    #[serde(skip)]
    pub(super) tail: Tail,
    /// `None` if there was no time to replay them.
    #[serde(flatten)]
    pub(super) summary: Option<TailSummary>,
    /// The other choice of dropped traces to record; `None` if `--provisional` chose, or if there
    /// was no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) other_provisional: Option<Other>,
}

/// The warning if there was no time to replay the policies.
const NOT_REPLAYED: &str = "the search ended before the policies of --tail were replayed: sampler and policies together may exceed the limits";

/// The result of the first of two searches.
struct First {
    limits: Limits,
    tuning: Tuning,
    late: Late,
}

/// Searches with `options`, and replaces their limits by those with which the returned result was
/// found. `left` returns the remaining time.
pub(super) fn search(
    shared_limits: Option<(&SharedLimits<'_>, &Tail)>,
    workload: &Workload,
    options: &mut Options,
    stop: Stop<'_>,
    (left, progress): (&dyn Fn() -> Option<Duration>, &(dyn Fn(Progress) + Sync)),
) -> Result<(Tuning, Option<Late>), Failure> {
    let mut first: Option<First> = None;
    loop {
        options.time_max = left();
        let mut tuning = tune::search(workload, options, stop, progress);
        let Some((shared_limits, tail)) = shared_limits.filter(|_| tuning.feasible) else {
            // The second search found nothing. Return the first result rather than nothing: it took
            // minutes, and has a warning that sampler and policies together exceed the limits.
            if let Some(First { limits, tuning: mut found, late }) = first {
                options.limits = limits;
                found.interrupted |= tuning.interrupted;
                return Ok((found, Some(late)));
            }
            return Ok((tuning, None));
        };
        let late = |summary| Late { tail: tail.clone(), summary, other_provisional: None };
        match shared_limits.after(&tuning, stop.within(left())) {
            Ok(After { again: Some(limits), summary, over }) if first.is_none() && !tuning.interrupted => {
                tuning.warnings.extend(over);
                let before = std::mem::replace(&mut options.limits, limits);
                first = Some(First { limits: before, tuning, late: late(Some(summary)) });
            }
            Ok(After { summary, over, .. }) => {
                tuning.warnings.extend(over);
                return Ok((tuning, Some(late(Some(summary)))));
            }
            // The parameters are still valid.
            Err(Failure::Interrupted) => {
                tuning.warnings.push(NOT_REPLAYED.to_owned());
                return Ok((tuning, Some(late(None))));
            }
            Err(other) => return Err(other),
        }
    }
}

/// The OTLP bytes per second that late policies keep.
pub(super) fn late_bytes(workload: &Workload) -> impl Fn(&TailSummary) -> f64 {
    let seconds = workload.rate_seconds();
    move |summary| {
        let kept = summary.policies.iter().map(|policy| policy.kept_otlp_bytes.mean).sum::<f64>();
        kept / seconds
    }
}
