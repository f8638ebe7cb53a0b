//! Fuzzing with libFuzzer, through cargo-fuzz, which needs a nightly compiler. Nothing is installed from here. The
//! same targets also run on stable, without either, over their seeds and mutations of them: that is a test.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::repo::Repo;
use crate::step::Outcome;

/// What `cargo xtask fuzz` was asked for.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    /// Empty: all.
    pub(crate) targets: Vec<String>,
    /// For each target.
    pub(crate) seconds: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options { targets: Vec::new(), seconds: 60 }
    }
}

/// Fuzzes the chosen targets one after the other, to the end even if one finds something.
pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    let known = match Repo::load(root) {
        Ok(repo) => targets(&repo),
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(unknown) = options.targets.iter().find(|target| !known.contains(target)) {
        eprintln!("error: no such target: {unknown}; there are: {}", known.join(", "));
        return ExitCode::from(2);
    }
    if let Err(missing) = tools(root) {
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
        // libFuzzer writes what it finds into the first folder, which git ignores; the seeds are only read.
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
        println!("\nNothing found.");
        return ExitCode::SUCCESS;
    }
    println!(
        "\nFound something in: {}. Add the input to the target's seeds once it is understood.",
        failed.join(", ")
    );
    ExitCode::FAILURE
}

/// The step of `ci`: the targets compile as libFuzzer sees them.
pub(crate) fn check(root: &Path) -> Outcome {
    match tools(root) {
        Ok(()) => cargo_fuzz(root).arg("check").status().is_ok_and(|status| status.success()).into(),
        Err(missing) => Outcome::Skipped(missing),
    }
}

/// The targets are the programs of the fuzz crate.
fn targets(repo: &Repo) -> Vec<String> {
    repo.rust_files()
        .filter_map(|(file, _)| file.path.strip_prefix("fuzz/src/bin/")?.strip_suffix(".rs"))
        .map(str::to_owned)
        .collect()
}

/// Says what is missing.
fn tools(root: &Path) -> Result<(), String> {
    let answers = |command: &mut Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    if !answers(nightly(root).arg("--version")) {
        return Err("there is no nightly toolchain".to_owned());
    }
    if !answers(cargo_fuzz(root).arg("--version")) {
        return Err("cargo-fuzz is not installed".to_owned());
    }
    Ok(())
}

/// rustup's cargo, not the one that runs us: only the former understands `+nightly`.
fn nightly(root: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.arg("+nightly").current_dir(root).env("RUSTUP_AUTO_INSTALL", "0");
    command
}

fn cargo_fuzz(root: &Path) -> Command {
    let mut command = nightly(root);
    // Link-time optimisation takes a minute for each target and finds nothing.
    command.arg("fuzz").env("CARGO_PROFILE_RELEASE_LTO", "off");
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
