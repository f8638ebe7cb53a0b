//! Runs steps one after the other, to the end, and prints a summary.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::affected::{self, Affected};
use crate::ran::Ran;
use crate::step::Step;
use crate::step_result::{Options, StepResult};

/// Runs `steps`, then the affected ones if asked for, and prints the summary. Later steps run even
/// if one fails.
pub(crate) fn run(root: &Path, steps: &[Step], with_affected: bool, options: Options) -> ExitCode {
    let began = Instant::now();
    let mut results: Vec<Ran> = steps.iter().map(|&step| Ran::of(step, root, options)).collect();
    affected::record(root, &results);
    let mut notes = String::new();
    if with_affected {
        let affected: Affected = affected::run(root, options, began);
        affected.record(root);
        notes = affected.summary();
        results.extend(affected.ran);
    }
    print!("\n{}", summary(&results, &notes));
    if results.iter().any(|ran| ran.outcome == StepResult::Failed) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn summary(results: &[Ran], notes: &str) -> String {
    let mut text = format!("{:<12} {:>8}  result\n", "step", "seconds");
    for Ran { step, outcome, took } in results {
        let result = match outcome {
            StepResult::Passed => "ok".to_owned(),
            StepResult::Failed => "FAILED".to_owned(),
            StepResult::Skipped(_) => "skipped".to_owned(),
        };
        text.push_str(&format!("{:<12} {:>8.1}  {result}\n", step.name(), took.as_secs_f64()));
    }
    let failed: Vec<&str> =
        results.iter().filter(|ran| ran.outcome == StepResult::Failed).map(|ran| ran.step.name()).collect();
    let left_out: String = results
        .iter()
        .filter_map(|ran| match &ran.outcome {
            StepResult::Skipped(reason) => Some(format!("  {}: {reason}\n", ran.step.name())),
            _ => None,
        })
        .collect();
    if !left_out.is_empty() {
        text.push_str(&format!("\nSkipped, at least in part:\n{left_out}"));
    }
    text.push_str(notes);
    let total: Duration = results.iter().map(|ran| ran.took).sum();
    if failed.is_empty() {
        text.push_str(&format!("\nAll passed in {:.1} s.\n", total.as_secs_f64()));
    } else {
        text.push_str(&format!("\n{} of {} failed: {}\n", failed.len(), results.len(), failed.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(step: Step, outcome: StepResult, millis: u64) -> Ran {
        Ran { step, outcome, took: Duration::from_millis(millis) }
    }

    #[test]
    fn failures_are_named_at_the_end() {
        let results = [
            ran(Step::Fmt, StepResult::Failed, 250),
            ran(Step::Loom, StepResult::Skipped("no models".to_owned()), 0),
            ran(Step::Clippy, StepResult::Passed, 61_000),
            ran(Step::Test, StepResult::Failed, 1_000),
        ];
        let text = summary(&results, "\nPostponed for lack of time: e2e\n");
        let expected = "\
step          seconds  result
fmt               0.2  FAILED
loom              0.0  skipped
clippy           61.0  ok
tests             1.0  FAILED

Skipped, at least in part:
  loom: no models

Postponed for lack of time: e2e

2 of 4 failed: fmt, tests
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_skipped_step_is_not_a_failure() {
        let results = [
            ran(Step::Fmt, StepResult::Passed, 1_000),
            ran(Step::Loom, StepResult::Skipped("no models".to_owned()), 500),
        ];
        let text = summary(&results, "");
        assert!(text.ends_with("\nAll passed in 1.5 s.\n"), "{text}");
    }
}
