//! `astracer tune`: a sampler's parameters for a recording.

use std::fmt::Write as _;
use std::fs;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use astracer_samplers::parameters::{KeyNames, Parameters as File};
use astracer_tuner::tune::{Options, Progress, Stage};
use astracer_tuner::{KeyRule, Limits, Tuning, Workload, tune};
use serde::Serialize;

use crate::args::{Names, Tune};
use crate::failure::Failure;
use crate::load::{self, Input};
use crate::output;

#[derive(Serialize)]
struct Report<'a> {
    input: &'a Input,
    key: String,
    #[serde(flatten)]
    tuning: &'a Tuning,
}

pub(crate) fn run(args: &Tune, stop: &AtomicBool) -> Result<(), Failure> {
    if args.key == KeyRule::Tree {
        let reason = "a service does not know a trace's whole tree when it starts, so it can't count by it";
        return Err(Failure::Job(format!("--key tree: {reason}; use name or name+ATTRIBUTE")));
    }
    let loaded = load::load(&args.source, args.key.attributes(), stop)?;
    let workload = Workload::new(&loaded.recording, &args.key);
    let load::Loaded { input, recording } = loaded;
    drop(recording);

    let bar = load::progress("tuning", 0);
    let tell = |progress: Progress| {
        bar.set_length(progress.evaluations_max);
        bar.set_position(progress.evaluations);
        let best = progress.best.map_or_else(String::new, |best| format!(", best {}", output::measure(best)));
        bar.set_message(format!("{}{best}", stage(progress.stage)));
    };
    let tuning = tune(&workload, &options(args), stop, &tell);
    bar.finish_and_clear();
    if tuning.interrupted && tuning.evaluations == 0 {
        return Err(Failure::Interrupted);
    }
    if tuning.feasible {
        write_file(args, &input, &tuning)?;
    }
    if args.json {
        output::print_json(&Report { input: &input, key: args.key.to_string(), tuning: &tuning })?;
    } else {
        output::print(&(input.heading() + &render(args, &tuning) + &input.footing()))?;
    }
    match &tuning.infeasible {
        Some(reason) => Err(Failure::Job(format!("no parameters meet the limits: {reason}"))),
        None => Ok(()),
    }
}

fn options(args: &Tune) -> Options {
    let limits = Limits {
        size_min: args.size_min.unwrap_or(args.size_max / 10.0),
        size_max: args.size_max,
        traces_per_second_max: args.traces_per_second,
        bytes_per_second_max: args.bytes_per_second.map(|bytes| bytes as f64),
    };
    let windows = args.window.iter().map(|&seconds| Duration::from_secs_f64(seconds)).collect::<Vec<_>>();
    Options {
        sampler: args.sampler,
        objective: args.objective.clone(),
        limits,
        windows: (!windows.is_empty()).then_some(windows),
        seed: args.seed,
        starts: args.starts,
        iterations: args.iterations,
        time_max: args.time.map(Duration::from_secs_f64),
        ..Options::default()
    }
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Summing => "summing up",
        Stage::Annealing => "annealing",
        Stage::Comparing => "comparing with random search and grid",
        Stage::PerRoot => "trying single roots",
        Stage::Replaying => "checking by replay",
    }
}

/// The sampler found, as the text form of `--sampler`.
fn sampler(tuning: &Tuning) -> Result<astracer_samplers::Config, Failure> {
    tuning.config().map_err(|error| Failure::Job(error.to_string()))
}

fn write_file(args: &Tune, input: &Input, tuning: &Tuning) -> Result<(), Failure> {
    let mut file = File::new(sampler(tuning)?);
    file.names = if args.source.names == Names::Raw { KeyNames::Raw } else { KeyNames::Template };
    file.attributes = args.key.attributes().to_vec();
    file.comments = vec![
        "Written by astracer tune; a service loads it as it is.".to_owned(),
        format!("workload: {}", input.paths().join(" ")),
        format!("objective: {} = {}, seed {}", tuning.objective, output::measure(tuning.value), tuning.seed),
        format!(
            "expected: {:.2}% of the bytes, {:.1} call trees, dist/entropy {} (an equal share of everything: {})",
            tuning.score.tfcr * 100.0,
            tuning.score.call_trees,
            output::measure(tuning.score.dist_over_entropy),
            output::measure(tuning.baseline.dist_over_entropy),
        ),
    ];
    let path = args.out.display();
    fs::write(&args.out, file.to_string())
        .map_err(|error| Failure::Job(format!("can't write {path}: {error}; choose another file with --out")))
}

fn render(args: &Tune, tuning: &Tuning) -> String {
    let mut text = String::new();
    let ended = if tuning.interrupted { "; interrupted: this is the best so far" } else { "" };
    let _ = writeln!(
        text,
        "{} tuned for {} by annealing: {}, {}, {:.1} s{ended}\n",
        tuning.sampler.name(),
        tuning.objective,
        output::plural(tuning.starts.len() as u64, "start"),
        output::plural(tuning.evaluations, "evaluation"),
        tuning.seconds,
    );
    let found = tuning.config().map_or_else(|error| error.to_string(), |config| config.to_string());
    let baseline = format!("ratio:{} (an equal share of everything)", tuning.limits.size_max);
    let rows = [(found, &tuning.score), (baseline, &tuning.baseline)].map(|(name, score)| {
        let cells = vec![
            output::count(score.traces.round() as u64),
            format!("{:.2}%", score.tfcr * 100.0),
            format!("{:.1}/{:.0}", score.functions, score.functions_all),
            format!("{:.1}/{:.0}", score.call_trees, score.call_trees_all),
            output::measure(score.ss_ms),
            output::measure(score.entropy_bits),
            output::measure(score.dist_over_entropy),
        ];
        (name, cells)
    });
    text.push_str(&output::sections(
        &["traces", "bytes", "functions", "trees", "SS ms", "IEn", "dist/ent"],
        &rows,
    ));
    if let Some(replayed) = &tuning.replayed {
        let _ = writeln!(
            text,
            "replayed {} times: {:.2}% of the bytes, {:.1} trees, dist/entropy {} ± {}",
            replayed.replays,
            replayed.tfcr.mean * 100.0,
            replayed.call_trees.mean,
            output::measure(replayed.dist_over_entropy.mean),
            output::measure(replayed.dist_over_entropy.sd),
        );
    }
    for search in &tuning.compared {
        let best = search
            .best
            .map_or_else(|| "nothing within the limits".to_owned(), |best| output::measure(best.objective));
        let _ = writeln!(text, "with as many evaluations, {} finds {best}", search.method);
    }
    for warning in &tuning.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    if tuning.feasible {
        let _ = writeln!(text, "wrote {}", args.out.display());
    }
    text
}
