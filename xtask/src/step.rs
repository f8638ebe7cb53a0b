//! The checks by name. `cargo xtask test` runs the quick ones, `release` runs all, and `affected`
//! runs the slow ones whose inputs have changed since they last passed.

use std::path::Path;

use crate::built::Built;
use crate::metadata::Package;
use crate::step_result::{Options, StepResult};
use crate::{
    bounds, cargo, doc, e2e, features, fuzz, instructions, licences, loom, minimal, package, pages,
    platforms, semver, soak, tidy,
};

/// One check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Fmt,
    Tidy,
    Licences,
    Clippy,
    Features,
    Doc,
    Package,
    Minimal,
    Platforms,
    Semver,
    Loom,
    FuzzCheck,
    Instructions,
    Bounds,
    FuzzWork,
    E2e,
    Pages,
    Programs,
    Test,
}

/// Inputs and cost of a slow step, for `affected`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slow {
    /// The part of each of our packages that the step compiles, or runs. Path dependencies are
    /// added; see [`crate::inputs`].
    pub(crate) builds: fn(&Package) -> Built,
    /// Git pathspecs of what the step reads besides: its own source, and data.
    pub(crate) reads: &'static [&'static str],
    /// Minutes on two cores, measured with a target folder that holds no more than what
    /// `cargo xtask test` leaves there.
    pub(crate) minutes: f64,
}

impl Step {
    /// Every step, in the order of `release`: quick answers first, and the tests last, so that a
    /// log ends with the tests' own result.
    pub(crate) const ALL: [Step; 19] = [
        Step::Fmt,
        Step::Tidy,
        Step::Licences,
        Step::Clippy,
        Step::Features,
        Step::Doc,
        Step::Package,
        Step::Minimal,
        Step::Platforms,
        Step::Semver,
        Step::Loom,
        Step::FuzzCheck,
        Step::Instructions,
        Step::Bounds,
        Step::FuzzWork,
        Step::E2e,
        Step::Pages,
        Step::Programs,
        Step::Test,
    ];

    /// The steps of `cargo xtask test`.
    pub(crate) fn quick() -> impl Iterator<Item = Step> {
        Step::ALL.into_iter().filter(|step| step.slow().is_none())
    }

    pub(crate) fn named(name: &str) -> Option<Step> {
        Step::ALL.into_iter().find(|step| step.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Step::Fmt => "fmt",
            Step::Tidy => "tidy",
            Step::Licences => "licences",
            Step::Clippy => "clippy",
            Step::Features => "features",
            Step::Doc => "doc",
            Step::Package => "package",
            Step::Minimal => "minimal",
            Step::Platforms => "platforms",
            Step::Semver => "semver",
            Step::Loom => "loom",
            Step::FuzzCheck => "fuzz-check",
            Step::Instructions => "instructions",
            Step::Bounds => "bounds",
            Step::FuzzWork => "fuzz-work",
            Step::E2e => "e2e",
            Step::Pages => "pages",
            Step::Programs => "programs",
            Step::Test => "tests",
        }
    }

    /// One line for `--help`.
    pub(crate) fn purpose(self) -> &'static str {
        match self {
            Step::Fmt => "the sources are formatted",
            Step::Tidy => "the crate graph and the invariants of ARCHITECTURE.md hold",
            Step::Licences => "every dependency has an accepted licence (needs cargo-deny)",
            Step::Clippy => "no warnings from rustc or clippy",
            Step::Features => "our crates build with each feature alone",
            Step::Doc => "the documentation builds without warnings, also as docs.rs builds it",
            Step::Package => "every published crate packages, and builds from its package",
            Step::Minimal => {
                "the oldest allowed dependencies build with the oldest allowed Rust (needs nightly)"
            }
            Step::Platforms => "the SDK compiles for Windows, macOS and 32-bit targets (needs their std)",
            Step::Semver => "no breaking change since the last release (needs cargo-semver-checks)",
            Step::Loom => "loom models of the lock-free parts, in every interleaving",
            Step::FuzzCheck => "the libFuzzer targets compile (needs cargo-fuzz and nightly)",
            Step::Instructions => "instructions per span match the recorded counts (needs valgrind)",
            Step::Bounds => "whole commands grow at most linearly with their input (needs valgrind)",
            Step::FuzzWork => "no fuzz input takes too many instructions (needs valgrind)",
            Step::E2e => "traces sent to real servers (Zipkin, Jaeger, Collector) and read back",
            Step::Pages => "every HTML page opens in a browser without overflow or errors (needs chromium)",
            Step::Programs => "random programs on which the SDK and its reference model agree",
            Step::Test => "all tests and doc tests, with fuzz targets on their seeds and mutations",
        }
    }

    /// `None` for the quick steps.
    pub(crate) fn slow(self) -> Option<Slow> {
        let (builds, reads, minutes): (fn(&Package) -> Built, &'static [&'static str], f64) = match self {
            Step::Fmt | Step::Tidy | Step::Licences | Step::Clippy | Step::Test => return None,
            Step::Features => (features::builds, &["clippy.toml", "xtask/src/features.rs"], 3.0),
            Step::Doc => (|_| Built::Program, &["docs", "xtask/src/doc.rs"], 2.0),
            Step::Package => (published, &["xtask/src/package.rs"], 4.0),
            Step::Minimal => (published, &["xtask/src/minimal.rs"], 3.0),
            Step::Platforms => (platforms::builds, &["xtask/src/platforms.rs"], 2.5),
            Step::Semver => (published, &["xtask/src/semver.rs"], 1.0),
            Step::Loom => (loom::builds, &["xtask/src/loom.rs"], 2.5),
            Step::FuzzCheck => (fuzz::builds, &["xtask/src/fuzz.rs"], 2.0),
            Step::Instructions => {
                let reads = &[instructions::FILE, "xtask/src/instructions.rs", "xtask/src/program.rs"];
                (instructions::builds, reads, 6.0)
            }
            Step::Bounds => {
                let reads = &["xtask/src/bounds.rs", "xtask/src/bounds", "xtask/src/program.rs"];
                (bounds::builds, reads, 2.5)
            }
            Step::FuzzWork => {
                (fuzz::builds, &["fuzz/seeds", "xtask/src/fuzz/work.rs", "xtask/src/program.rs"], 4.0)
            }
            Step::E2e => {
                let reads =
                    &["xtask/servers", "xtask/src/e2e.rs", "xtask/src/servers.rs", "xtask/src/servers"];
                (e2e::builds, reads, 14.5)
            }
            Step::Pages => {
                (pages::builds, &["operate/src/endpoint", "xtask/src/pages.rs", "xtask/src/pages"], 3.0)
            }
            Step::Programs => (soak::builds, &["xtask/src/soak.rs"], 4.0),
        };
        Some(Slow { builds, reads, minutes })
    }

    pub(crate) fn run(self, root: &Path, options: Options) -> StepResult {
        match self {
            Step::Fmt => cargo::run(root, "fmt --all --check").into(),
            Step::Tidy => tidy::run(root),
            Step::Licences => licences::run(root, options),
            Step::Clippy => {
                cargo::run(root, "clippy --workspace --all-targets --keep-going --locked -- -D warnings")
                    .into()
            }
            Step::Features => features::run(root),
            Step::Doc => doc::run(root),
            Step::Package => package::run(root),
            Step::Minimal => minimal::run(root, options),
            Step::Platforms => platforms::run(root, options),
            Step::Semver => semver::run(root),
            Step::Loom => loom::run(root),
            Step::FuzzCheck => fuzz::check(root, options),
            Step::Instructions => instructions::run(root, options),
            Step::Bounds => bounds::run(root, options),
            Step::FuzzWork => fuzz::work::run(root, options),
            Step::E2e => e2e::run(root, options),
            Step::Pages => pages::run(root, options),
            Step::Programs => soak::programs(root, options),
            Step::Test => {
                let full = options.full.then(|| ("ASTRACER_FULL".to_owned(), "1".to_owned()));
                let env = full.into_iter().collect();
                cargo::run_with_all(root, "test --workspace --locked --no-fail-fast", env).into()
            }
        }
    }
}

fn published(package: &Package) -> Built {
    Built::program_if(package.is_published())
}
