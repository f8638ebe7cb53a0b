//! Tests that need several crates, in one binary.

mod baggage;
mod console;
mod documents;
mod http_requests;
mod independent;
mod keys;
mod metrics_example;
mod middleware;
mod outcome_metrics;
mod promises;
mod readme;
mod real_servers;
mod recordings;
mod spanmetrics;
mod strata_replay;
mod stratified;
mod tail_replay;
mod tail_replay_aged;
mod variables;

use std::path::{Path, PathBuf};

use astracer_recording::recording::{Intake, Keep, Recording};
use astracer_recording::source::{self, Options};
use astracer_samplers::Template;
use astracer_tuner::names::NameFolding;

/// The path of a file in the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Reads a recording in the repository as the command-line tool does.
fn read(path: &str) -> Recording {
    let mut folding = NameFolding::new(Template::default());
    let mut intake = Intake::new(Keep::default()).rename_with(|raw, out| folding.fold(raw, out));
    source::read(&repository(path), &Options::default(), &mut intake)
        .expect("the recording is in the repository");
    intake.finish()
}
