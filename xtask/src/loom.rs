//! The loom step: the models in samplers, built with `--cfg loom`, in a target folder of their own so that the flag
//! does not rebuild everything else.

use std::path::Path;
use std::process::Stdio;

use crate::cargo;
use crate::metadata::Metadata;
use crate::step::Outcome;

/// Tests are models if their path has this word in it.
const FILTER: &str = "loom";

const BUILD: &str = "test -p astracer-samplers --release --lib --locked";

pub(crate) fn run(root: &Path) -> Outcome {
    Outcome::of(Metadata::load(root).map(|metadata| search(root, &metadata)))
}

fn search(root: &Path, metadata: &Metadata) -> Outcome {
    let env = environment(&metadata.target_directory);
    match count(root, &env) {
        // A filter that matches nothing passes, so a renamed model would go unnoticed.
        Some(0) => {
            eprintln!("error: no test of samplers has `{FILTER}` in its path");
            Outcome::Failed
        }
        Some(_) => cargo::run_with(root, &format!("{BUILD} -- {FILTER}"), env).into(),
        None => Outcome::Failed,
    }
}

/// Models are searched exhaustively, so they need optimised code; the assertions of a debug build stay on, and the
/// number of forced switches between threads is bounded, as loom's documentation recommends.
fn environment(target: &str) -> [(&'static str, String); 7] {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let preemptions = std::env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| "3".to_owned());
    let folder = format!("{target}/loom");
    [
        ("RUSTFLAGS", format!("{flags} --cfg loom").trim().to_owned()),
        ("LOOM_MAX_PREEMPTIONS", preemptions),
        ("CARGO_TARGET_DIR", folder.clone()),
        ("CARGO_BUILD_BUILD_DIR", folder),
        ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true".to_owned()),
        ("CARGO_PROFILE_RELEASE_LTO", "off".to_owned()),
        ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16".to_owned()),
    ]
}

/// How many models there are; `None` if they do not compile.
fn count(root: &Path, env: &[(&str, String)]) -> Option<usize> {
    let output = cargo::command(root, &format!("{BUILD} -- {FILTER} --list"))
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stderr(Stdio::inherit())
        .output()
        .ok()?;
    let list = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| list.lines().filter(|line| line.ends_with(": test")).count())
}
