//! Tries a key as it would be deployed, on blocks of time that it was not tuned on.
//!
//! On the blocks that a search saw, a key with more values is always better. Common parameters
//! alone are a poor guide: a file has a probability for each key wherever that is better.

use std::borrow::Cow;

use super::roots::named;
use super::single_keys::{Effort, TRIAL_STARTS, is_better};
use super::{PerKeyUse, Run};
use crate::blocks;
use crate::expect::Expected;
use crate::half_life::Clock;
use crate::held_out::{Replayed, equal_share};
use crate::per_key;
use crate::space::Tunable;
use crate::workload::Workload;

/// With fewer traces, half of the blocks say nothing, and the result is replayed on what it was
/// tuned on.
const TRACES_MIN: usize = 400;
/// Trials see only evenly spaced stretches of more traces. They choose between samplers that
/// differ by a tenth or more, which this many traces show as well.
pub const TRIED_TRACES_MAX: usize = 200_000;

/// The result of a trial of a key.
#[derive(Clone, Debug)]
pub(crate) struct KeyTrial {
    /// Replays on the blocks between.
    pub(crate) replayed: Replayed,
    /// An equal share of the same size there.
    pub(crate) share: Expected,
    /// The objective relative to that share.
    pub(crate) value: f64,
    /// Whether the limits can be met.
    pub(crate) is_feasible: bool,
}

impl Run<'_> {
    pub(super) fn try_key(&self, workload: &Workload) -> Option<KeyTrial> {
        let options = self.options;
        let workload = &*workload.thinned(TRIED_TRACES_MAX, self.stop)?;
        let half = |remainder: usize| {
            if workload.arrivals().len() < TRACES_MIN {
                return Some(Cow::Borrowed(workload));
            }
            blocks::select(workload, |block| block % 2 == remainder, self.stop).map(Cow::Owned)
        };
        let (even, odd) = (half(0)?, half(1)?);
        let target = self.target(&even)?;
        let common = self.common(&even, &target, (TRIAL_STARTS, false), Clock::Calls)?;
        let has_single_keys = options.sampler == Tunable::Bump
            && options.per_key != PerKeyUse::Never
            && per_key::loop_share(&even).is_none();
        let single =
            has_single_keys.then(|| self.single_keys(&even, &common.parameters, &target, Effort::TRIAL));
        let roots: Vec<_> = single.flatten().iter().flat_map(|found| named(&even, found)).collect();
        let draws = self.trial_draws(&odd);
        let trial = |roots| self.trial((&odd, &target), (&common.parameters, roots), &draws);
        let of_common = trial(&[])?;
        let of_single = if roots.is_empty() { None } else { Some(trial(&roots)?) };
        let is_feasible = common.infeasible.is_none() || of_single.is_some();
        let (replayed, value) = match of_single {
            Some(single) if common.infeasible.is_some() || is_better(&[(of_common.1, single.1)]) => single,
            _ => of_common,
        };
        let share = equal_share(&odd, replayed.tfcr.mean, options.random, self.stop)?;
        Some(KeyTrial { replayed, share, value, is_feasible })
    }
}
