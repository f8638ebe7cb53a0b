//! The doc step: builds the documentation of the whole workspace, and that of the published crates
//! as docs.rs builds it.

use std::path::Path;

use crate::cargo;
use crate::metadata::Metadata;
use crate::step_result::StepResult;

pub(crate) fn run(root: &Path) -> StepResult {
    StepResult::of(Metadata::load(root).map(|metadata| build(root, &metadata)))
}

fn build(root: &Path, metadata: &Metadata) -> StepResult {
    let flags = || [("RUSTDOCFLAGS", "-D warnings".to_owned())];
    let workspace = cargo::run_with(root, "doc --workspace --no-deps --locked", flags());
    // docs.rs builds with the features that [package.metadata.docs.rs] names. In our crates that is
    // `all-features`, which tidy checks.
    let packages: String = metadata.published().map(|package| format!(" -p {}", package.name)).collect();
    let docs_rs = cargo::run_with(root, &format!("doc{packages} --all-features --no-deps --locked"), flags());
    (workspace && docs_rs).into()
}
