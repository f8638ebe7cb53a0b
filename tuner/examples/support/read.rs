//! Reads recordings as the command line does.

use std::cell::RefCell;
use std::error::Error;
use std::path::Path;

use astracer_recording::recording::{Intake, Keep};
use astracer_recording::source;
use astracer_samplers::Template;
use astracer_tuner::Workload;
use astracer_tuner::key::Grouping;
use astracer_tuner::names::NameFolding;

/// Reads a file or directory, with ids in names folded and root names as keys.
pub(crate) fn read(path: &str) -> Result<Workload, Box<dyn Error>> {
    let folding = RefCell::new(NameFolding::new(Template::default()));
    let mut intake = Intake::new(Keep::default()).rename_with(|raw, out| folding.borrow_mut().fold(raw, out));
    source::read(Path::new(path), &source::Options::default(), &mut intake)?;
    Ok(Workload::new(&intake.finish(), &Grouping::default()))
}

/// The file name up to its first dot.
pub(crate) fn short_name(path: &str) -> String {
    let name = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy());
    name.split('.').next().unwrap_or_default().to_owned()
}
