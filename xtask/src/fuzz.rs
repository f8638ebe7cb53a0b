//! Fuzzing with libFuzzer through cargo-fuzz, which needs a nightly compiler. `cargo xtask fuzz`
//! installs nothing. The same targets also run on stable, as an ordinary test over their seeds and
//! mutations of them.

pub(crate) mod work;

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::built::Built;
use crate::cargo;
use crate::metadata::Package;
use crate::repo::Repo;
use crate::step_result::{self, StepResult};
use crate::tool;

/// The parsed arguments of `cargo xtask fuzz`.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    /// The targets to fuzz; all if empty.
    pub(crate) targets: Vec<String>,
    /// Seconds for each target.
    pub(crate) seconds: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options { targets: Vec::new(), seconds: 60 }
    }
}

/// Fuzzes the chosen targets one after the other, and continues after a failure.
pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    let known = match Repo::load(root) {
        Ok(repo) => targets(&repo),
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(unknown) = options.targets.iter().find(|target| !known.contains(target)) {
        eprintln!("error: unknown target '{unknown}': use one of {}", known.join(", "));
        return ExitCode::from(2);
    }
    if let Err(missing) = tools(root, false) {
        eprintln!(
            "error: {missing}\n\n\
             Install both:  cargo install cargo-fuzz && rustup toolchain install nightly\n\
             On stable:     ASTRACER_FUZZ_ROUNDS=100000 cargo test --package astracer-fuzz"
        );
        return ExitCode::FAILURE;
    }
    let chosen = if options.targets.is_empty() { &known } else { &options.targets };
    let mut failed = Vec::new();
    for target in chosen {
        println!("\n==> fuzz {target} for {} s", options.seconds);
        // libFuzzer writes its findings into the first folder, which git ignores. It only reads the
        // seeds.
        let corpus = format!("fuzz/corpus/{target}");
        if let Err(error) = std::fs::create_dir_all(root.join(&corpus)) {
            eprintln!("error: {corpus}: {error}");
            return ExitCode::FAILURE;
        }
        let passed = cargo_fuzz(root)
            .args(["run", target, &corpus, &format!("fuzz/seeds/{target}"), "--"])
            .arg(format!("-max_total_time={}", options.seconds))
            .arg("-timeout=10")
            .status()
            .is_ok_and(|status| status.success());
        if !passed {
            failed.push(target.as_str());
        }
    }
    if failed.is_empty() {
        println!("\nNo failures found.");
        return ExitCode::SUCCESS;
    }
    println!(
        "\nFailures in: {}. Fix each of them, and add its input to the target's seeds.",
        failed.join(", ")
    );
    ExitCode::FAILURE
}

/// The step of `ci`: the targets compile as libFuzzer needs them.
pub(crate) fn check(root: &Path, options: step_result::Options) -> StepResult {
    match tools(root, options.install) {
        Ok(()) => cargo_fuzz(root).arg("check").status().is_ok_and(|status| status.success()).into(),
        Err(missing) => StepResult::Skipped(missing),
    }
}

/// The targets are programs of one crate.
pub(crate) fn builds(package: &Package) -> Built {
    Built::program_if(package.name == "astracer-fuzz")
}

/// The targets, which are the binaries of the fuzz crate.
fn targets(repo: &Repo) -> Vec<String> {
    repo.rust_files()
        .filter_map(|(file, _)| file.path.strip_prefix("fuzz/src/bin/")?.strip_suffix(".rs"))
        .map(str::to_owned)
        .collect()
}

/// Checks that nightly and cargo-fuzz are installed. With `install`, tries to install missing ones.
///
/// # Errors
///
/// A sentence that names the missing tool.
fn tools(root: &Path, install: bool) -> Result<(), String> {
    if !tool::toolchain(root, "nightly", install) {
        return Err("the nightly toolchain is not installed".to_owned());
    }
    let is_there = || tool::is_silent_success(cargo_fuzz(root).arg("--version"));
    if install && !is_there() {
        tool::try_install(&mut cargo::command(root, "install cargo-fuzz --locked"));
    }
    if !is_there() {
        return Err("cargo-fuzz is not installed".to_owned());
    }
    Ok(())
}

fn cargo_fuzz(root: &Path) -> Command {
    let mut command = tool::toolchain_cargo(root, "nightly");
    command.arg("fuzz");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_programs() {
        let repo = Repo::of(&[
            ("fuzz/src/lib.rs", ""),
            ("fuzz/src/bin/htrace.rs", ""),
            ("fuzz/src/bin/zipkin_json.rs", ""),
            ("cli/src/bin/other.rs", ""),
        ]);
        assert_eq!(targets(&repo), ["htrace", "zipkin_json"]);
    }
}
