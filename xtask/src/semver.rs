//! The semver step: cargo-semver-checks compares the published crates with the last release.

use std::path::Path;
use std::process::Command;

use crate::cargo;
use crate::metadata::Metadata;
use crate::step_result::StepResult;
use crate::tool;

pub(crate) fn run(root: &Path) -> StepResult {
    StepResult::of(last_release(root).and_then(|release| check(root, release)))
}

fn check(root: &Path, release: Option<String>) -> Result<StepResult, String> {
    let Some(release) = release else {
        return Ok(StepResult::Skipped(
            "no release is tagged yet, so there is nothing to compare with".to_owned(),
        ));
    };
    if !tool::is_silent_success(&mut cargo::command(root, "semver-checks --version")) {
        return Ok(StepResult::Skipped("cargo-semver-checks is not installed".to_owned()));
    }
    let metadata = Metadata::load(root)?;
    // The command-line tool's package has no library.
    let packages = metadata.published().filter(|package| package.has_library());
    let packages: String = packages.map(|package| format!(" -p {}", package.name)).collect();
    Ok(cargo::run(root, &format!("semver-checks --baseline-rev {release}{packages}")).into())
}

/// The newest release tag, such as `v0.1.0`, among the ancestors of the current commit.
fn last_release(root: &Path) -> Result<Option<String>, String> {
    let output = Command::new("git")
        .args(["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot start git: {error}"))?;
    let tag = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(output.status.success().then_some(tag))
}
