//! The line that shows how far a search is.

use astracer_tuner::tune::{Progress, Stage};

use crate::output;
use crate::progress::Progress as Bar;

pub(super) fn show(bar: &Bar, what: &str, progress: Progress) {
    let best = progress.best.map_or_else(String::new, |best| format!(", best {}", output::measure(best)));
    let message = format!("{what}{}{best}", stage(progress.stage));
    bar.set(message, progress.evaluations, progress.evaluations_max);
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Summing => "preparing",
        // The tool asks for no other search.
        Stage::Annealing | Stage::Comparing => "annealing",
        Stage::PerKey => "searching a probability for each key",
        Stage::Replaying => "checking by replay",
    }
}
