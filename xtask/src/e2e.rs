//! The e2e step: fetches and starts real servers, runs the tests that need them, and stops them.

use std::path::Path;

use crate::built::Built;
use crate::cargo;
use crate::metadata::{Metadata, Package};
use crate::servers::{self, Kind};
use crate::step_result::{Options, StepResult};

/// The tests of each server are in the module with its name below this one. A plain `cargo test`
/// ignores them.
const MODULE: &str = "real_servers";

pub(crate) fn run(root: &Path, options: Options) -> StepResult {
    let folder = servers::folder(root);
    let metadata = Metadata::load(root);
    StepResult::of(folder.and_then(|folder| Ok(test(root, &folder, &metadata?.target_directory, options))))
}

/// The tests, and the programs that they start. The step builds the whole workspace only because
/// the step `tests` has built it.
pub(crate) fn builds(package: &Package) -> Built {
    match package.name.as_str() {
        "astracer-tests" => Built::Tests,
        "astracer-cli" | "astracer-examples" => Built::Program,
        _ => Built::Nothing,
    }
}

fn test(root: &Path, folder: &Path, target: &str, options: Options) -> StepResult {
    // The same command as in the step `test`, so that nothing is compiled twice. It also builds the
    // command-line tool and the examples.
    if !cargo::run(root, "test --workspace --locked --no-run") {
        return StepResult::Failed;
    }
    let (mut running, mut missing) = (Vec::new(), Vec::new());
    for kind in Kind::ALL {
        match servers::start(root, folder, kind, options.install) {
            Ok(server) => running.push((kind, server)),
            Err(reason) => {
                println!("\n*** {} is not available, its tests are SKIPPED: {reason}\n", kind.name());
                missing.push(format!("{}: {}", kind.name(), reason.lines().next().unwrap_or_default()));
            }
        }
    }
    let passed = running.is_empty() || {
        let cli = format!("{target}/debug/astracer");
        let filters: String =
            running.iter().map(|(kind, _)| format!(" {MODULE}::{}::", kind.name())).collect();
        let mut environment: Vec<_> = running.iter().flat_map(|(_, server)| server.environment()).collect();
        environment.push(("ASTRACER_E2E_CLI".to_owned(), cli));
        environment.push(("ASTRACER_E2E_SHOP".to_owned(), format!("{target}/debug/axum")));
        cargo::run_with_all(
            root,
            &format!("test --workspace --test all --locked -- --ignored{filters}"),
            environment,
        )
    };
    for (kind, server) in &running {
        if let Err(error) = server.stop() {
            eprintln!("error: {}: {error}", kind.name());
        }
    }
    match (passed, missing.is_empty()) {
        (false, _) => StepResult::Failed,
        (true, true) => StepResult::Passed,
        (true, false) => StepResult::Skipped(missing.join("; ")),
    }
}
