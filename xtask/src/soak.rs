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
    pub(crate) mode: Option<Mode>,
}

/// The adapter that programs run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The layer, where spans below a dropped root are visible to other layers.
    Visible,
    /// The layer, where such spans are disabled.
    Disabled,
    /// tracing-opentelemetry behind the gate.
    Gate,
}

impl Mode {
    pub(crate) const ALL: [Mode; 3] = [Mode::Visible, Mode::Disabled, Mode::Gate];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Visible => "visible",
            Mode::Disabled => "disabled",
            Mode::Gate => "gate",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// Runs until the time is over, or something fails; the failure names its seed.
pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    let modes = options.mode.map_or(Mode::ALL.to_vec(), |mode| vec![mode]);
    for mode in modes {
        let env = [
            ("ASTRACER_SOAK_MINUTES", options.minutes.to_string()),
            ("ASTRACER_SOAK_MODE", mode.name().to_owned()),
        ];
        let line = "test -p astracer-sdk --test all --locked proof::soak -- --ignored --nocapture";
        if !cargo::run_with(root, line, env) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Seven comparisons, each with this many sessions of 50 programs: 100,100 programs.
const SESSIONS: u32 = 286;

/// The step of `ci`.
pub(crate) fn programs(root: &Path) -> Outcome {
    let env = [("ASTRACER_SESSIONS", SESSIONS.to_string())];
    cargo::run_with(root, "test -p astracer-sdk --test all --locked agrees_with", env).into()
}
