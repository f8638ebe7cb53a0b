//! `cargo xtask affected`: the slow steps whose inputs changed since they last passed, within a
//! budget of time.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::metadata::Metadata;
use crate::passed::{Passed, State};
use crate::ran::Ran;
use crate::step::Step;
use crate::step_result::{Options, StepResult};

const BUDGET: Duration = Duration::from_secs(15 * 60);
/// For a whole call, with the steps before this one: CI must end within 30 minutes.
const WHOLE: Duration = Duration::from_secs(29 * 60);

/// The result of one call.
#[derive(Debug, Default)]
pub(crate) struct Affected {
    pub(crate) ran: Vec<Ran>,
    /// Their inputs are as they were when they last passed.
    pub(crate) unchanged: Vec<Step>,
    /// Did not fit into the budget; the stalest comes first the next time.
    pub(crate) postponed: Vec<Step>,
}

/// Runs the stale steps, the stalest first, as long as the measured time of the next one fits into
/// what is left. `began` is the start of the whole call.
pub(crate) fn run(root: &Path, options: Options, began: Instant) -> Affected {
    let slow = Step::ALL.into_iter().filter(|step| step.slow().is_some());
    let states = match Metadata::load(root) {
        Ok(metadata) => {
            let passed = Passed::load(root);
            slow.map(|step| (step, passed.state(root, &metadata, step))).collect()
        }
        Err(error) => {
            eprintln!("warning: {error}: every slow step counts as changed");
            slow.map(|step| (step, State::Stale { since: 0 })).collect()
        }
    };
    let left = WHOLE.saturating_sub(began.elapsed()).min(BUDGET);
    let until = Instant::now() + left;
    execute(
        states,
        |minutes| Instant::now() + Duration::from_secs_f64(60.0 * minutes) <= until,
        |step| Ran::of(step, root, options),
    )
}

fn execute(
    states: Vec<(Step, State)>,
    fits: impl Fn(f64) -> bool,
    mut run: impl FnMut(Step) -> Ran,
) -> Affected {
    let mut affected = Affected::default();
    let mut stale = Vec::new();
    for (step, state) in states {
        match state {
            State::Unchanged => affected.unchanged.push(step),
            State::Stale { since } => stale.push((since, step)),
        }
    }
    stale.sort_by_key(|(since, _)| *since);
    for (_, step) in stale {
        if step.slow().is_some_and(|slow| fits(slow.minutes)) {
            affected.ran.push(run(step));
        } else {
            affected.postponed.push(step);
        }
    }
    affected
}

impl Affected {
    /// The lines of the summary that say what did not run.
    pub(crate) fn summary(&self) -> String {
        let names = |steps: &[Step]| steps.iter().map(|step| step.name()).collect::<Vec<_>>().join(", ");
        let mut text = String::new();
        if !self.unchanged.is_empty() {
            text.push_str(&format!("\nUnchanged since they passed: {}\n", names(&self.unchanged)));
        }
        if !self.postponed.is_empty() {
            text.push_str(&format!("\nPostponed for lack of time: {}\n", names(&self.postponed)));
        }
        text
    }

    /// Records the steps that passed.
    pub(crate) fn record(&self, root: &Path) {
        record(root, &self.ran);
    }
}

/// Records the slow steps among `ran` that passed. CI throws its clone away and records nothing.
pub(crate) fn record(root: &Path, ran: &[Ran]) {
    if std::env::var_os("CI").is_some() {
        return;
    }
    let mut slow = ran
        .iter()
        .filter(|ran| ran.step.slow().is_some() && ran.outcome == StepResult::Passed)
        .map(|ran| ran.step)
        .peekable();
    if slow.peek().is_none() {
        return;
    }
    let recorded = Metadata::load(root)
        .and_then(|metadata| slow.try_for_each(|step| Passed::record(root, &metadata, step)));
    if let Err(error) = recorded {
        eprintln!("warning: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn passes(step: Step) -> Ran {
        Ran { step, outcome: StepResult::Passed, took: Duration::ZERO }
    }

    #[test]
    fn the_stalest_step_runs_first_and_the_rest_as_time_allows() {
        let stale = |since| State::Stale { since };
        let states = vec![
            (Step::Doc, stale(30)),
            (Step::Loom, stale(0)),
            (Step::E2e, stale(20)),
            (Step::Bounds, State::Unchanged),
            (Step::Programs, stale(40)),
        ];
        let minutes = |step: Step| step.slow().unwrap().minutes;
        // All but e2e, which would leave too little for the rest.
        let left = Cell::new(minutes(Step::Loom) + minutes(Step::Doc) + minutes(Step::Programs));
        assert!(left.get() - minutes(Step::Loom) < minutes(Step::E2e));
        let affected = execute(
            states,
            |minutes| minutes <= left.get() + 1e-9,
            |step| {
                left.set(left.get() - minutes(step));
                passes(step)
            },
        );
        let ran: Vec<Step> = affected.ran.iter().map(|ran| ran.step).collect();
        assert_eq!(ran, [Step::Loom, Step::Doc, Step::Programs]);
        assert_eq!(affected.unchanged, [Step::Bounds]);
        assert_eq!(affected.postponed, [Step::E2e]);
        assert_eq!(
            affected.summary(),
            "\nUnchanged since they passed: bounds\n\nPostponed for lack of time: e2e\n"
        );
    }

    #[test]
    fn every_slow_step_fits_into_the_budget() {
        for slow in Step::ALL.into_iter().filter_map(Step::slow) {
            assert!(60.0 * slow.minutes < BUDGET.as_secs_f64());
        }
    }
}
