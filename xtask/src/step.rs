//! The checks by name, in the order of `cargo xtask ci`: cheap ones first, the tests last, so that what a log ends
//! with is the tests' own result.

use std::path::Path;

use crate::{cargo, e2e, features, fuzz, instructions, licences, loom, tidy};

/// One check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Fmt,
    Tidy,
    Licences,
    Clippy,
    Features,
    Doc,
    Loom,
    FuzzCheck,
    Instructions,
    E2e,
    Test,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    /// It could not run here, for this reason. Not a failure.
    Skipped(String),
}

impl From<bool> for Outcome {
    fn from(passed: bool) -> Self {
        if passed { Outcome::Passed } else { Outcome::Failed }
    }
}

impl Outcome {
    /// A step that something kept from being done has failed; it is told what.
    pub(crate) fn of(result: Result<Outcome, String>) -> Self {
        result.unwrap_or_else(|error| {
            eprintln!("error: {error}");
            Outcome::Failed
        })
    }
}

impl Step {
    pub(crate) const ALL: [Step; 11] = [
        Step::Fmt,
        Step::Tidy,
        Step::Licences,
        Step::Clippy,
        Step::Features,
        Step::Doc,
        Step::Loom,
        Step::FuzzCheck,
        Step::Instructions,
        Step::E2e,
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
            Step::Loom => "loom",
            Step::FuzzCheck => "fuzz-check",
            Step::Instructions => "instructions",
            Step::E2e => "e2e",
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
            Step::Features => "the same with each feature of our crates alone, and with each two",
            Step::Doc => "the documentation builds without a warning",
            Step::Loom => "the samplers' concurrent steps, in every interleaving",
            Step::FuzzCheck => {
                "the libFuzzer targets compile (only where cargo-fuzz and nightly are installed)"
            }
            Step::Instructions => {
                "the layer's instructions for a span are those recorded (only where valgrind is installed)"
            }
            Step::E2e => "traces sent to real servers (Zipkin, Jaeger, Collector) and read back",
            Step::Test => "all tests and doc tests; fuzz targets replay their seeds and mutations of them",
        }
    }

    pub(crate) fn run(self, root: &Path) -> Outcome {
        match self {
            Step::Fmt => cargo::run(root, "fmt --all --check").into(),
            Step::Tidy => tidy::run(root),
            Step::Licences => licences::run(root),
            Step::Clippy => {
                cargo::run(root, "clippy --workspace --all-targets --keep-going --locked -- -D warnings")
                    .into()
            }
            Step::Features => features::run(root),
            Step::Doc => {
                let env = [("RUSTDOCFLAGS", "-D warnings".to_owned())];
                cargo::run_with(root, "doc --workspace --no-deps --locked", env).into()
            }
            Step::Loom => loom::run(root),
            Step::FuzzCheck => fuzz::check(root),
            Step::Instructions => instructions::run(root),
            Step::E2e => e2e::run(root),
            Step::Test => cargo::run(root, "test --workspace --locked --no-fail-fast").into(),
        }
    }
}
