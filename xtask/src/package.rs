//! The package step: `cargo package` for every published crate, which unpacks each package and
//! builds it alone. A crate that includes a file from outside its folder, or lacks a feature that
//! the workspace happens to enable, fails here.

use std::path::Path;

use crate::cargo;
use crate::metadata::Metadata;
use crate::step_result::StepResult;

pub(crate) fn run(root: &Path) -> StepResult {
    StepResult::of(Metadata::load(root).map(|metadata| package(root, &metadata)))
}

fn package(root: &Path, metadata: &Metadata) -> StepResult {
    let packages: String = metadata.published().map(|package| format!(" -p {}", package.name)).collect();
    // One target folder for all crates, so that shared dependencies are built once, and a new one
    // for each run: cargo unpacks the crates for each other, and would reuse those of an earlier
    // run with the same path and version. Uncommitted changes are allowed, because the check also
    // serves before a commit.
    let target = format!("{}/packages-{}", metadata.target_directory, std::process::id());
    let outcome = cargo::run_with(
        root,
        &format!("package{packages} --locked --allow-dirty"),
        [("CARGO_TARGET_DIR", target.clone()), ("CARGO_BUILD_BUILD_DIR", target.clone())],
    );
    let _ = std::fs::remove_dir_all(target);
    outcome.into()
}
