//! `astracer inspect --parameters`: whether a parameters file still fits a recording.

use std::path::Path;

use astracer_report::numbers::three;
use astracer_tuner::fit::Fit;
use astracer_tuner::{Grouping, Stop};
use serde::Serialize;

use crate::failure::Failure;
use crate::interrupt;
use crate::load::{self, Input};
use crate::output;
use crate::parameters_file;
use crate::source::Source;

#[derive(Serialize)]
struct Report<'a> {
    input: &'a Input,
    parameters: String,
    fit: &'a Fit,
    /// Why the file does not fit.
    problem: Option<&'static str>,
}

pub(super) fn run(source: &Source, file: &Path, json: bool, stop: Stop<'_>) -> Result<(), Failure> {
    let parameters = parameters_file::read(file)?;
    let source = match source.has_own_template() {
        true => source.clone(),
        false => source.folded_by(*parameters.key.template()),
    };
    let key = Grouping::Key(parameters.key.clone());
    let loaded = load::load_beside(&source, &key.attributes(), stop)?;
    let workload = load::workload(&source, &loaded.recording, &key, stop)?;
    let fit = Fit::new(&workload, &parameters, stop);
    interrupt::answer_at_once(stop)?;
    let fit = fit.ok_or_else(|| Failure::Job("the recording has no traces to compare with".to_owned()))?;
    // A sample has another size, and is nothing to tune on.
    let problem = fit.problem().filter(|_| !loaded.input.is_all_weighted());
    if json {
        let parameters = output::shown(file);
        return output::print_json(&Report { input: &loaded.input, parameters, fit: &fit, problem });
    }
    let mut text = loaded.input.heading();
    text += &format!(
        "{} of {} of {} seen, with {} of the traces\n",
        fit.keys_seen,
        output::plural(fit.keys, "key"),
        output::shown(file),
        output::percent(fit.named)
    );
    text += &match (fit.size(), fit.recorded_kept) {
        (Some(size), Some(recorded)) => format!(
            "keeps {} of the traces, {} times the {} of its own recording\n",
            output::percent(fit.kept),
            three(size),
            output::percent(recorded)
        ),
        _ => format!(
            "keeps {} of the traces; the file does not say how many of its own recording ([recorded])\n",
            output::percent(fit.kept)
        ),
    };
    let sample = loaded.input.sample_warning();
    text += &match problem {
        Some(problem) => format!("warning: {problem}\n"),
        None if fit.size().is_some() && sample.is_none() => "Keys and size fit.\n".to_owned(),
        None => String::new(),
    };
    text.extend(sample.map(|warning| format!("warning: {warning}\n")));
    text += &loaded.input.footing();
    output::report(&output::prose(&text))
}
