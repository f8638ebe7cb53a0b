//! The loom step: runs the models of every crate that depends on loom, built with `--cfg loom`.
//! They have a target folder of their own, so that the flag does not rebuild everything else.

use std::path::Path;
use std::process::Stdio;

use crate::built::Built;
use crate::cargo;
use crate::metadata::{Metadata, Package};
use crate::step_result::StepResult;

/// Tests whose paths contain this word are models.
const FILTER: &str = "loom";

pub(crate) fn run(root: &Path) -> StepResult {
    StepResult::of(Metadata::load(root).map(|metadata| search(root, &metadata)))
}

/// The models are unit tests.
pub(crate) fn builds(package: &Package) -> Built {
    let has_models = package.dependencies.iter().any(|dependency| dependency.name == "loom");
    if has_models { Built::UnitTests } else { Built::Nothing }
}

fn search(root: &Path, metadata: &Metadata) -> StepResult {
    let with_models = metadata.ours().filter(|package| builds(package) != Built::Nothing);
    let passed: Vec<bool> =
        with_models.map(|package| search_one(root, &package.name, &metadata.target_directory)).collect();
    (!passed.is_empty() && passed.iter().all(|passed| *passed)).into()
}

fn search_one(root: &Path, package: &str, target: &str) -> bool {
    let build = format!("test -p {package} --release --lib --locked");
    let env = environment(target);
    match count(root, &build, &env) {
        // A filter that matches nothing passes, so a renamed model would go unnoticed.
        Some(0) => {
            eprintln!("error: no test of {package} has `{FILTER}` in its path");
            false
        }
        Some(_) => cargo::run_with(root, &format!("{build} -- {FILTER}"), env),
        None => false,
    }
}

/// Models are explored exhaustively, so they need optimised code. Debug assertions stay on, and the
/// number of preemptions is bounded, as loom's documentation recommends.
fn environment(target: &str) -> [(&'static str, String); 5] {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let preemptions = std::env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| "3".to_owned());
    let folder = format!("{target}/loom");
    [
        ("RUSTFLAGS", format!("{flags} --cfg loom").trim().to_owned()),
        ("LOOM_MAX_PREEMPTIONS", preemptions),
        ("CARGO_TARGET_DIR", folder.clone()),
        ("CARGO_BUILD_BUILD_DIR", folder),
        ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true".to_owned()),
    ]
}

/// The number of models, or `None` if they do not compile.
fn count(root: &Path, build: &str, env: &[(&str, String)]) -> Option<usize> {
    let output = cargo::command(root, &format!("{build} -- {FILTER} --list"))
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stderr(Stdio::inherit())
        .output()
        .ok()?;
    let list = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| list.lines().filter(|line| line.ends_with(": test")).count())
}
