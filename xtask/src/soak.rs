//! Long runs of the SDK's random programs and stress tests, and the programs that the step
//! `programs` runs.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::built::Built;
use crate::metadata::{Metadata, Package};
use crate::step_result::{self, StepResult};
use crate::{cargo, tool};

/// The arguments of `cargo xtask soak`.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) minutes: u32,
    /// `None` runs all modes one after the other, each for `minutes`.
    pub(crate) mode: Option<&'static str>,
    /// Runs under ThreadSanitizer.
    pub(crate) with_sanitizer: bool,
}

/// The modes, by their names in the test `proof::soak`: the layer and the subscriber, with spans
/// below a dropped root visible to other layers or disabled; the layer with bounds that are too
/// small; and late keeping.
const MODES: [&str; 9] = [
    "visible",
    "disabled",
    "subscriber",
    "subscriber-disabled",
    "cramped",
    "late",
    "late-disabled",
    "late-subscriber",
    "late-cramped",
];

/// The mode with this name.
pub(crate) fn mode(name: &str) -> Option<&'static str> {
    MODES.into_iter().find(|mode| *mode == name)
}

/// Runs until the time is over or something fails. A failure prints its seed.
pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    let modes = options.mode.map_or(MODES.to_vec(), |mode| vec![mode]);
    for mode in modes {
        let env =
            [("ASTRACER_SOAK_MINUTES", options.minutes.to_string()), ("ASTRACER_SOAK_MODE", mode.to_owned())];
        let passed = if options.with_sanitizer {
            run_sanitized(root, env).map_err(|error| eprintln!("error: {error}")).is_ok()
        } else {
            cargo::run_with(root, &format!("test {SOAK}"), env)
        };
        if !passed {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

const SOAK: &str = "-p astracer-sdk --test all --locked proof::soak -- --nocapture";

/// Runs with an instrumented standard library, since the one shipped with the compiler causes false
/// reports.
fn run_sanitized(root: &Path, env: [(&str, String); 2]) -> Result<(), String> {
    let target = format!("{}/sanitizer", Metadata::load(root)?.target_directory);
    let mut command = tool::toolchain_cargo(root, "nightly");
    command.args(["test", "-Zbuild-std", "--target", &host(root)?, "--target-dir", &target]);
    command.args(SOAK.split_whitespace()).envs(env);
    command.env("RUSTFLAGS", "-Zsanitizer=thread").env("TSAN_OPTIONS", "halt_on_error=1");
    tool::run(&mut command)
}

/// The host target, which a sanitizer requires to be named.
fn host(root: &Path) -> Result<String, String> {
    let printed = Command::new("rustc").current_dir(root).args(["--print", "host-tuple"]).output();
    let host = printed.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    if host.trim().is_empty() {
        return Err("`rustc --print host-tuple` printed no target".to_owned());
    }
    Ok(host.trim().to_owned())
}

/// Sessions of 50 programs for each of eleven comparisons: 17,000 programs, or 247,000.
const SESSIONS: u64 = 31;
const SESSIONS_FULL: u64 = 450;

/// The programs are tests of the SDK.
pub(crate) fn builds(package: &Package) -> Built {
    if package.name == "astracer-sdk" { Built::Tests } else { Built::Nothing }
}

/// The step `programs`. A full run optimises the SDK, which is ten times as fast, and each day has
/// other seeds.
pub(crate) fn programs(root: &Path, options: step_result::Options) -> StepResult {
    if options.full {
        let today = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / DAY);
        let env = [
            ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true".to_owned()),
            ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true".to_owned()),
            ("ASTRACER_FIRST", (today * SESSIONS_FULL).to_string()),
            ("ASTRACER_SESSIONS", SESSIONS_FULL.to_string()),
        ];
        return cargo::run_with(root, "test -p astracer-sdk --test all --release --locked agrees_with", env)
            .into();
    }
    // The same features as in `cargo xtask test`, so that cargo finds the tests built.
    let env = [("ASTRACER_SESSIONS", SESSIONS.to_string())];
    cargo::run_with(root, "test --workspace --test all --locked agrees_with", env).into()
}

/// Seconds.
const DAY: u64 = 24 * 60 * 60;
