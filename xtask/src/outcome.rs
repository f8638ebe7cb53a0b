//! The settings that a step gets, and the result that it gives.

/// Settings for all steps of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Missing system packages may be installed, as root on Debian.
    pub(crate) install: bool,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    /// Left out, entirely or in part, for this reason. Not a failure.
    Skipped(String),
}

impl From<bool> for Outcome {
    fn from(passed: bool) -> Self {
        if passed { Outcome::Passed } else { Outcome::Failed }
    }
}

impl Outcome {
    /// Prints the error of a step that could not do its work; such a step has failed.
    pub(crate) fn of(result: Result<Outcome, String>) -> Self {
        result.unwrap_or_else(|error| {
            eprintln!("error: {error}");
            Outcome::Failed
        })
    }
}
