//! Falls back to an equal share of everything where a search has nothing to gain.

use super::{PerKeyUse, Run, Tuning};
use crate::objective::{Objective, Target};
use crate::space::{Parameters, Tunable};
use crate::workload::Workload;

/// With fewer kept traces, a search fits what happens to be kept.
pub const KEPT_MIN: f64 = 100.0;

impl Run<'_> {
    /// Whether the caller leaves the choice of the sampler to the search.
    fn is_free(&self) -> bool {
        let options = self.options;
        options.sampler == Tunable::Bump
            && options.per_key == PerKeyUse::Auto
            && options.min_kept.is_none()
            && options.objective == Objective::paper()
    }

    /// Why a recording shows too little for a search, if it does.
    pub(super) fn too_little(&self, workload: &Workload, target: &Target) -> Option<String> {
        let (traces, baseline) = (workload.arrivals().len(), &target.baseline);
        if !self.is_free() || traces == 0 {
            return None;
        }
        let keys = workload.traces_by_key().into_iter().filter(|&traces| traces > 0).count();
        if keys == 1 {
            return Some("all traces have the same key".to_owned());
        }
        if baseline.traces < KEPT_MIN {
            return Some(format!(
                "{:.0} of {traces} traces would be kept, fewer than {KEPT_MIN}",
                baseline.traces
            ));
        }
        if baseline.dist_over_entropy == 0.0 || !baseline.dist_over_entropy.is_finite() {
            return Some("all traces are alike".to_owned());
        }
        None
    }

    /// Uses the largest equal share that the limits allow. Returns false if they allow none.
    pub(super) fn use_equal_share(&self, workload: &Workload, target: &Target, tuning: &mut Tuning) -> bool {
        let share = self.options.limits.largest_share(workload);
        let probability = crate::space::round_to_4_digits(share).min(1.0);
        let baseline = target.baseline;
        if probability <= 0.0 || share < self.options.limits.size_min {
            return false;
        }
        tuning.parameters = Parameters::Constant { probability };
        tuning.per_root.clear();
        (tuning.min_kept, tuning.infeasible, tuning.feasible) = (None, None, true);
        (tuning.baseline, tuning.score) = (baseline, baseline);
        tuning.value = target.value(&[baseline]);
        true
    }

    /// Tries the result on time that it did not see, within what was searched. Uses an equal share
    /// instead if it is clearly no better there, or if no parameters meet the limits.
    pub(super) fn judge(
        &self,
        (workload, searched): (&Workload, &Workload),
        target: &Target,
        tuning: &mut Tuning,
    ) {
        if !tuning.feasible {
            let reason = tuning.infeasible.clone().unwrap_or_default();
            if self.is_free() && !self.stop.is_asked() && self.use_equal_share(workload, target, tuning) {
                tuning.warnings.push(format!("an equal share (ratio) is used, because {reason}"));
            }
            return;
        }
        if tuning.later.is_none() {
            tuning.later = self.try_later(searched, !tuning.per_root.is_empty(), tuning.parameters.clock());
        }
        let Some(later) = &tuning.later else { return };
        let is_asked = self.options.or_equal && !later.is_worth_it();
        let is_replaced = is_asked || (self.is_free() && later.is_clearly_not());
        tuning.warnings.extend(later.warning(is_replaced));
        if is_replaced {
            self.use_equal_share(workload, target, tuning);
        }
    }
}
