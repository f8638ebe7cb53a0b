//! Chooses which dropped traces a service records for the late policies, if `--provisional` leaves
//! it open.
//!
//! An armed key is one with a recent error or slow root, so its first bad trace is never recorded,
//! and with few requests a minute most bad traces are the first. Recording every dropped trace
//! costs what its spans cost, which is nothing to speak of at a low rate.

use astracer_report::numbers::three;
use astracer_samplers::tail::ProvisionalMode;
use astracer_tuner::tail::{Outcomes, TailSummary};
use astracer_tuner::tune::Options;
use astracer_tuner::{Draw, Stop, Workload};

use super::shared_limits::share_within;
use crate::output;

/// The most spans per second for which every dropped trace is recorded: at about a microsecond
/// each, a thousandth of a core.
const SPANS_PER_SECOND_MAX: f64 = 1_000.0;
/// The most of the ring that they may take, as the ring of a service is fuller or emptier.
const RING_PART: f64 = 0.5;
/// The policies must leave this share of the limit to the sampler.
const LEFT_MIN: f64 = 0.5;
const REPLAYS: usize = 12;

/// The mode that was not chosen, and what the policies would keep with it.
#[derive(Debug, serde::Serialize)]
pub(super) struct Other {
    #[serde(serialize_with = "as_text")]
    mode: ProvisionalMode,
    #[serde(flatten)]
    summary: TailSummary,
    #[serde(skip)]
    spans_per_second: f64,
}

fn as_text<S: serde::Serializer>(mode: &ProvisionalMode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(mode)
}

/// Spans per second, over at least a second.
fn rate(workload: &Workload) -> f64 {
    let spans = workload.arrivals().iter().map(|arrival| f64::from(arrival.spans));
    spans.sum::<f64>() / workload.rate_seconds()
}

/// Records every dropped trace if rate, ring and limits allow it, otherwise those of armed keys.
pub(super) fn choose(outcomes: &mut Outcomes, workload: &Workload, options: &Options, stop: Stop<'_>) {
    if rate(workload) > SPANS_PER_SECOND_MAX {
        return;
    }
    outcomes.set_provisional(ProvisionalMode::Always);
    let share = share_within(&options.limits, workload);
    let draws = Draw::unseen(REPLAYS, options.seed, options.random);
    let is_allowed = outcomes.replay(workload, &share.into(), &draws, stop).is_some_and(|kept| {
        let ring = RING_PART * outcomes.tail().ring_bytes as f64;
        let largest = options.limits.largest_share(workload);
        kept.given_up.mean == 0.0
            && kept.ring_peak_bytes.mean <= ring
            && kept.tail.mean <= (1.0 - LEFT_MIN) * largest
    });
    if !is_allowed {
        outcomes.set_provisional(ProvisionalMode::Armed);
    }
}

/// Replays the mode that [`choose`] did not choose behind the sampler that was found; `None` if
/// there was no time.
pub(super) fn other(
    outcomes: &mut Outcomes,
    workload: &Workload,
    tuning: &astracer_tuner::Tuning,
    options: &Options,
    stop: Stop<'_>,
) -> Option<Other> {
    let chosen = outcomes.tail().provisional;
    let mode = match chosen {
        ProvisionalMode::Always => ProvisionalMode::Armed,
        _ => ProvisionalMode::Always,
    };
    let found = astracer_tuner::Candidate::capped(tuning.config().ok()?, options.cap);
    let draws = Draw::unseen(REPLAYS, options.seed, options.random);
    outcomes.set_provisional(mode);
    let summary = outcomes.replay(workload, &found, &draws, stop);
    outcomes.set_provisional(chosen);
    Some(Other { mode, summary: summary?, spans_per_second: rate(workload) })
}

/// A sentence on what the policies keep in both modes, if they differ.
pub(super) fn compared(chosen: &TailSummary, other: &Other) -> Option<String> {
    let (here, there) = (output::rounded(chosen.traces.mean), output::rounded(other.summary.traces.mean));
    let rate = three(other.spans_per_second);
    (here != there).then(|| match other.mode {
        ProvisionalMode::Always => format!(
            "With dropped traces of armed keys recorded, the policies keep {here} traces; with all dropped traces \
             ({rate} spans/s, --provisional always) {there}.\n"
        ),
        _ => format!(
            "With all dropped traces recorded ({rate} spans/s, provisional = \"always\"), the policies keep {here} \
             traces; with those of armed keys {there}.\n"
        ),
    })
}
