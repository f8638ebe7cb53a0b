//! Real servers for tests and for looking at traces: Zipkin, Jaeger and the OpenTelemetry Collector, brought to this
//! machine by ordinary clients (Maven, Go), kept in the user's cache, and run on free ports of the loopback address.
//!
//! Versions and hashes stand in this repository: `xtask/servers/go` is a Go module whose go.sum pins every module that
//! Jaeger and the collector are built from; Zipkin's version stands in `kind.rs`, and Maven checks its hash.

mod install;
mod kind;
mod process;
mod tool;

use std::path::Path;
use std::process::ExitCode;

pub(crate) use kind::Kind;
pub(crate) use process::Running;

use crate::metadata::Metadata;

/// What `cargo xtask servers` was asked for.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Install,
    Start,
    Stop,
}

pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    let folder = match folder(root) {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = false;
    for &kind in &options.kinds {
        let done = match options.action {
            Action::Install => {
                install::install(root, kind).map(|file| format!("installed: {}", file.display()))
            }
            Action::Start => start(root, &folder, kind).map(|running| running.describe()),
            Action::Stop => process::stop_recorded(&folder, kind),
        };
        match done {
            Ok(text) => println!("{}: {text}", kind.name()),
            Err(error) => {
                eprintln!("error: {}: {error}", kind.name());
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Brings a server to this machine if it is not here yet, starts it, and waits until it answers.
///
/// # Errors
///
/// A sentence for the user: what is missing, or what the server said.
pub(crate) fn start(root: &Path, folder: &Path, kind: Kind) -> Result<Running, String> {
    let program = install::install(root, kind)?;
    process::start(root, folder, kind, &program)
}

/// Where running servers keep their logs, files and process ids.
pub(crate) fn folder(root: &Path) -> Result<std::path::PathBuf, String> {
    let folder = Path::new(&Metadata::load(root)?.target_directory).join("servers");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}
