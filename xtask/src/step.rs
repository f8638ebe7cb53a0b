//! The checks by name, in the order of `cargo xtask ci`: cheap ones first, the tests last, so that
//! a log ends with the tests' own result.

use std::path::Path;

use crate::outcome::{Options, Outcome};
use crate::{
    bounds, cargo, doc, e2e, features, fuzz, instructions, licences, loom, minimal, msrv, package, platforms,
    semver, soak, tidy,
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
    Msrv,
    Platforms,
    Semver,
    Loom,
    FuzzCheck,
    Instructions,
    Bounds,
    FuzzWork,
    E2e,
    Programs,
    Test,
}

impl Step {
    pub(crate) const ALL: [Step; 19] = [
        Step::Fmt,
        Step::Tidy,
        Step::Licences,
        Step::Clippy,
        Step::Features,
        Step::Doc,
        Step::Package,
        Step::Minimal,
        Step::Msrv,
        Step::Platforms,
        Step::Semver,
        Step::Loom,
        Step::FuzzCheck,
        Step::Instructions,
        Step::Bounds,
        Step::FuzzWork,
        Step::E2e,
        Step::Programs,
        Step::Test,
    ];

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
            Step::Msrv => "msrv",
            Step::Platforms => "platforms",
            Step::Semver => "semver",
            Step::Loom => "loom",
            Step::FuzzCheck => "fuzz-check",
            Step::Instructions => "instructions",
            Step::Bounds => "bounds",
            Step::FuzzWork => "fuzz-work",
            Step::E2e => "e2e",
            Step::Programs => "programs",
            Step::Test => "test",
        }
    }

    /// One line for `--help`.
    pub(crate) fn purpose(self) -> &'static str {
        match self {
            Step::Fmt => "the sources are formatted",
            Step::Tidy => "the crate graph and the invariants of ARCHITECTURE.md hold",
            Step::Licences => "every dependency's licence is one we accept",
            Step::Clippy => "no warning of rustc or clippy",
            Step::Features => "the same with each feature of our crates alone, and with each pair",
            Step::Doc => "the documentation builds without a warning, also with docs.rs's settings",
            Step::Package => "every published crate packages, and builds from its package",
            Step::Minimal => {
                "the oldest dependencies that the manifests allow (only where nightly is installed)"
            }
            Step::Msrv => "the declared minimum Rust builds our crates (only where it is installed)",
            Step::Platforms => {
                "the SDK compiles for other systems and for 32 bits (only where Rust's libraries for them are)"
            }
            Step::Semver => {
                "no breaking change since the last release (only where cargo-semver-checks is installed)"
            }
            Step::Loom => "loom models of the lock-free parts, in every interleaving",
            Step::FuzzCheck => {
                "the libFuzzer targets compile (only where cargo-fuzz and nightly are installed)"
            }
            Step::Instructions => "the layer's instructions for a span are those recorded (with valgrind)",
            Step::FuzzWork => {
                "no fuzz input of texts and of joining takes too many instructions (with valgrind)"
            }
            Step::Bounds => "whole commands grow at most linearly with their input (with valgrind)",
            Step::E2e => "traces sent to real servers (Zipkin, Jaeger, Collector) and read back",
            Step::Programs => "100,000 random programs, on which the SDK and its reference agree",
            Step::Test => "all tests and doc tests; fuzz targets run on their seeds and on mutations of them",
        }
    }

    pub(crate) fn run(self, root: &Path, options: Options) -> Outcome {
        match self {
            Step::Fmt => cargo::run(root, "fmt --all --check").into(),
            Step::Tidy => tidy::run(root),
            Step::Licences => licences::run(root),
            Step::Clippy => {
                cargo::run(root, "clippy --workspace --all-targets --keep-going --locked -- -D warnings")
                    .into()
            }
            Step::Features => features::run(root),
            Step::Doc => doc::run(root),
            Step::Package => package::run(root),
            Step::Minimal => minimal::run(root, options),
            Step::Msrv => msrv::run(root, options),
            Step::Platforms => platforms::run(root, options),
            Step::Semver => semver::run(root),
            Step::Loom => loom::run(root),
            Step::FuzzCheck => fuzz::check(root, options),
            Step::Instructions => instructions::run(root, options),
            Step::Bounds => bounds::run(root, options),
            Step::FuzzWork => fuzz::work::run(root, options),
            Step::E2e => e2e::run(root, options),
            Step::Programs => soak::programs(root),
            Step::Test => cargo::run(root, "test --workspace --locked --no-fail-fast").into(),
        }
    }
}
