//! Long runs of the SDK's random programs and stress tests, and the 100,000 programs that CI runs.

use std::path::Path;
use std::process::ExitCode;

use crate::cargo;
use crate::step::Outcome;

/// The arguments of `cargo xtask soak`.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) minutes: u32,
    /// `None`: all modes, one after the other, each for `minutes`.
    pub(crate) mode: Option<&'static str>,
}

/// The modes, by the names that the test `proof::soak` knows: the layer and the subscriber, where spans below a dropped root
/// are visible to other layers or disabled; tracing-opentelemetry behind the gate, both ways; the layer with too little room; and with
/// traces that are kept late.
const MODES: [&str; 11] = [
    "visible",
    "disabled",
    "subscriber",
    "subscriber-disabled",
    "gate",
    "gate-disabled",
    "cramped",
    "late",
    "late-disabled",
    "late-subscriber",
    "late-cramped",
];

/// The mode of this name.
pub(crate) fn mode(name: &str) -> Option<&'static str> {
    MODES.into_iter().find(|mode| *mode == name)
}

/// Runs until the time is over, or something fails; the failure names its seed.
pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    let modes = options.mode.map_or(MODES.to_vec(), |mode| vec![mode]);
    for mode in modes {
        let env =
            [("ASTRACER_SOAK_MINUTES", options.minutes.to_string()), ("ASTRACER_SOAK_MODE", mode.to_owned())];
        let line = "test -p astracer-sdk --test all --locked proof::soak -- --nocapture";
        if !cargo::run_with(root, line, env) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Thirteen comparisons, each with this many sessions of 50 programs: 100,000 programs.
const SESSIONS: u32 = 155;

/// The step of `ci`.
pub(crate) fn programs(root: &Path) -> Outcome {
    let env = [("ASTRACER_SESSIONS", SESSIONS.to_string())];
    cargo::run_with(root, "test -p astracer-sdk --test all --locked agrees_with", env).into()
}
