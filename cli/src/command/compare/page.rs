//! The page of `--html`.

use std::path::Path;

use astracer_compare::comparison::Comparison;
use astracer_compare::page::{Report, page};
use astracer_compare::traces::Traces;
use astracer_critical_path::lanes::Lanes;
use astracer_critical_path::traced::Analyser;
use astracer_report::page::Next;

use super::Compare;
use crate::failure::Failure;
use crate::load::Input;
use crate::output::{self, shown};
use crate::outputs::Output;
use crate::shell;

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
        next: &next(args, comparison),
    });
    file.write(&output::lines_escaped(&html))?;
    Ok(format!("wrote {}\n", shown(file.path())))
}

/// Commands for the page: what is unusual about the typical bad trace, and a check for a build.
fn next(args: &Compare, comparison: &Comparison) -> Vec<Next> {
    let typical = comparison.details.as_ref().and_then(|details| details.typical.as_ref());
    let all = args.paths.iter().chain(&args.good).chain(&args.bad);
    let explain = typical.filter(|of| !of.ids[1].is_empty()).map(|of| {
        let command =
            format!("astracer compare {} --explain {}", shell::paths(all), shell::quoted(&of.ids[1]));
        Next::new("What is unusual about a typical bad one", command)
    });
    let is_build = !comparison.is_split && args.fail_on.is_none();
    let fail =
        is_build.then(|| Next::new("Fail a build on it", shell::again(&["--html"], "--fail-on confirmed")));
    explain.into_iter().chain(fail).collect()
}

/// The last part of a path, as a title has room for no more.
fn name(path: &Path) -> String {
    path.file_name().map_or_else(|| shown(path), |name| shown(Path::new(name)))
}
