//! Strata that `tune` tried and did not write.

use astracer_report::numbers::three;
use astracer_tuner::tune::Later;
use serde::Serialize;

/// Strata that are not better than the sampler that decides at the start.
#[derive(Serialize)]
pub(super) struct Tried {
    /// Fitted on each half and replayed on the other.
    pub(super) later: Later,
    /// On the whole recording, dist/entropy by weights; `None` if the halves decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) here: Option<f64>,
}

impl Tried {
    /// The sentence on the screen.
    pub(super) fn sentence(&self) -> String {
        match self.here {
            Some(here) => format!(
                "Deciding by outcome (--late) has dist/entropy {} by weights here, which is not a tenth better.\n",
                three(here)
            ),
            None => {
                let [low, high] = self.later.interval;
                format!(
                    "Deciding by outcome (--late): {:.2} of an equal share on halves ({low:.2} to {high:.2}), which \
                     is not better.\n",
                    self.later.ratio
                )
            }
        }
    }
}
