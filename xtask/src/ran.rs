//! Running one step and measuring it.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::step::Step;
use crate::step_result::{Options, StepResult};

/// A step that has run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) step: Step,
    pub(crate) outcome: StepResult,
    pub(crate) took: Duration,
}

impl Ran {
    pub(crate) fn of(step: Step, root: &Path, options: Options) -> Ran {
        println!("\n==> {}: {}", step.name(), step.purpose());
        let start = Instant::now();
        let outcome = step.run(root, options);
        Ran { step, outcome, took: start.elapsed() }
    }
}
