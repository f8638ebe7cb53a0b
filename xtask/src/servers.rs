//! Real servers for tests and for viewing traces: Zipkin, Jaeger and the OpenTelemetry Collector.
//! Maven and Go fetch them into the user's cache; they run on free ports of the loopback address.
//!
//! This repository pins their versions. `xtask/servers/go` is a Go module whose go.sum has the hash
//! of every module that Jaeger and the collector are built from. `kind.rs` has Zipkin's version,
//! and Maven checks its hash.

mod fetch;
mod kind;
mod process;

use std::path::Path;
use std::process::ExitCode;

pub(crate) use kind::Kind;
pub(crate) use process::Running;

use crate::metadata::Metadata;

/// The parsed arguments of `cargo xtask servers`.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) action: Action,
    /// Missing system packages may be installed.
    pub(crate) install: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Fetch,
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
            Action::Fetch => {
                fetch::fetch(root, kind, options.install).map(|file| format!("fetched: {}", file.display()))
            }
            Action::Start => start(root, &folder, kind, options.install).map(|running| running.describe()),
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

/// Fetches a server if the cache does not have it, starts it, and waits until it responds.
///
/// # Errors
///
/// A sentence for the user: the missing program, or the server's own message.
pub(crate) fn start(root: &Path, folder: &Path, kind: Kind, install: bool) -> Result<Running, String> {
    let program = fetch::fetch(root, kind, install)?;
    process::start(root, folder, kind, &program)
}

/// The folder for the logs, files and process ids of running servers.
pub(crate) fn folder(root: &Path) -> Result<std::path::PathBuf, String> {
    let folder = Path::new(&Metadata::load(root)?.target_directory).join("servers");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}
