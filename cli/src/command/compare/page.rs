//! The page of `--html`.

use std::path::Path;

use astracer_compare::comparison::Comparison;
use astracer_compare::page::{Report, page};
use astracer_compare::traces::Traces;
use astracer_critical_path::lanes::Lanes;
use astracer_critical_path::traced::Analyser;

use super::Compare;
use crate::failure::Failure;
use crate::load::Input;
use crate::output::{self, shown};
use crate::outputs::Output;

/// The spans of a typical trace that are drawn.
const LANES_MAX: usize = 60;

/// The typical good and bad trace with their critical paths.
pub(super) fn lanes(traces: &Traces<'_>, comparison: &Comparison) -> Option<[Lanes; 2]> {
    let typical = comparison.details.as_ref()?.typical.as_ref()?;
    let mut analyser = Analyser::default();
    Some(typical.places.map(|at| {
        let one = traces.chosen()[at];
        Lanes::new(one.recording, &analyser.trace(one.recording, one.trace), LANES_MAX)
    }))
}

/// Writes the page, and returns the line that says so.
pub(super) fn write(
    args: &Compare,
    file: &Output,
    inputs: &[Input],
    comparison: &Comparison,
    lanes: Option<&[Lanes; 2]>,
) -> Result<String, Failure> {
    let paths: Vec<String> =
        args.paths.iter().chain(&args.good).chain(&args.bad).map(|path| name(path)).collect();
    let notes: Vec<String> = inputs
        .iter()
        .flat_map(|input| (input.logs() + &input.footing()).lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| !line.is_empty())
        .collect();
    let html = page(&Report {
        title: &paths.join(", "),
        paper: args.paper,
        window_ns: args.classes.window().map_or(0, |window| window.end - window.start),
        comparison,
        lanes,
        notes: &notes,
    });
    file.write(&output::lines_escaped(&html))?;
    Ok(format!("wrote {}\n", shown(file.path())))
}

/// The last part of a path, as a title has room for no more.
fn name(path: &Path) -> String {
    path.file_name().map_or_else(|| shown(path), |name| shown(Path::new(name)))
}
