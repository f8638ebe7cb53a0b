//! The options and the result of a step.

/// Options for all steps of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Missing system packages may be installed, as root on Debian.
    pub(crate) install: bool,
    /// Random programs, stress rounds and simulated weeks run at full size: the release check.
    pub(crate) full: bool,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepResult {
    Passed,
    Failed,
    /// Skipped, entirely or in part, for this reason. Not a failure.
    Skipped(String),
}

impl From<bool> for StepResult {
    fn from(passed: bool) -> Self {
        if passed { StepResult::Passed } else { StepResult::Failed }
    }
}

impl StepResult {
    /// The outcome, or a failure if the step could not do its work; the error is printed.
    pub(crate) fn of(result: Result<StepResult, String>) -> Self {
        result.unwrap_or_else(|error| {
            eprintln!("error: {error}");
            StepResult::Failed
        })
    }
}
