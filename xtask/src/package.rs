//! The package step: `cargo package` for every published crate, which unpacks each package and builds it alone. A crate
//! that includes a file from outside its folder, or lacks a feature that the workspace happens to turn on, fails here.

use std::path::Path;

use crate::cargo;
use crate::metadata::Metadata;
use crate::step::Outcome;

pub(crate) fn run(root: &Path) -> Outcome {
    Outcome::of(Metadata::load(root).map(|metadata| package(root, &metadata)))
}

fn package(root: &Path, metadata: &Metadata) -> Outcome {
    let packages: String = metadata.published().map(|package| format!(" -p {}", package.name)).collect();
    // One target folder for all packages, so that their common dependencies are built once. Uncommitted changes are
    // allowed: the check is also for changes before they are committed.
    let target = format!("{}/packages", metadata.target_directory);
    cargo::run_with(
        root,
        &format!("package{packages} --locked --allow-dirty"),
        [("CARGO_TARGET_DIR", target.clone()), ("CARGO_BUILD_BUILD_DIR", target)],
    )
    .into()
}
