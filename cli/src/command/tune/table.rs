//! The terminal's view of a tuning.

use std::fmt::Write as _;

use astracer_tuner::expect::Expected;
use astracer_tuner::held_out::{HeldOut, Replayed};
use astracer_tuner::key_choice::KeyChoice;
use astracer_tuner::{Candidate, Objective, Parameters, Tuning};

use super::Report;
use crate::output::{self, measure};
use crate::tail;

/// The number of single roots that are named; `--json` and the parameters file have all.
const ROOTS_SHOWN: usize = 8;

pub(super) fn render(report: &Report<'_>) -> String {
    let tuning = report.tuning;
    let mut text = report.input.heading();
    let ended = if tuning.interrupted { "; interrupted: this is the best so far" } else { "" };
    let _ = writeln!(
        text,
        "{} tuned for {} by annealing: {}, {}, {:.1} s{ended}\n",
        tuning.sampler.name(),
        tuning.goal(),
        output::plural(tuning.starts.len() as u64, "start"),
        output::plural(tuning.evaluations, "evaluation"),
        tuning.seconds,
    );
    let found =
        tuning.parameters.config().map_or_else(|error| error.to_string(), |config| config.to_string());
    let share = tuning.baseline.tfcr;
    // Four digits, as a search's own parameters.
    let share = format!("{share:.3e}").parse().unwrap_or(share);
    let baseline = format!("ratio:{share} (an equal share of everything)");
    text.push_str(&output::sections(
        &["traces", "bytes", "functions", "trees", "SS ms", "IEn", "dist/ent"],
        &[(found, cells(&tuning.score)), (baseline, cells(&tuning.baseline))],
    ));
    text.push_str(&output::prose(&sentences(report)));
    if let Some(out) = report.out {
        let _ = writeln!(text, "wrote {}", output::shown(out));
    }
    if let Some(page) = report.report {
        let _ = writeln!(text, "wrote {}: open it in a browser", output::shown(page));
    }
    text + &report.input.footing()
}

/// The sentences below the table.
fn sentences(report: &Report<'_>) -> String {
    let (tuning, mut text) = (report.tuning, String::new());
    if let Some(later) = &tuning.later {
        let [low, high] = later.interval;
        let _ = writeln!(
            text,
            "tuned on the first half, judged on the later half: {:.2} of an equal share's dist/entropy by weights ({low:.2} \
             to {high:.2} over draws; {:.2} as counted)",
            later.ratio, later.ratio_as_counted,
        );
    }
    let _ = writeln!(
        text,
        "other measures: {}; of the equal share {}",
        others(&tuning.score),
        others(&tuning.baseline)
    );
    single_keys(report, &mut text);
    if let Some(replayed) = &tuning.replayed {
        draws(replayed, tuning, &mut text);
    }
    if let Some((late, summary)) = report.tail.and_then(|late| Some((late, late.summary.as_ref()?))) {
        let tuned = tuning.parameters.config().map(|config| Candidate::from(config).brief());
        text.push_str(&tail::render(summary, &late.tail, tuned.as_ref().unwrap_or(&summary.sampler)));
    }
    for held_out in tuning.held_out.iter().chain(&report.validated) {
        checked(held_out, &mut text);
    }
    let common = if tuning.per_root.is_empty() { "" } else { "of common parameters, " };
    for search in &tuning.compared {
        let best = search
            .best
            .map_or_else(|| "nothing within the limits".to_owned(), |best| measure(best.objective));
        let used = if search.method == tuning.found_by { ", which is used" } else { "" };
        let _ = writeln!(text, "{common}with as many evaluations, {} finds {best}{used}", search.method);
    }
    if let Some(keys) = &report.keys {
        key_advice(keys, &report.key, &mut text);
    }
    for warning in &tuning.warnings {
        let _ = writeln!(text, "warning: {}", output::escaped(warning));
    }
    text
}

fn cells(score: &Expected) -> Vec<String> {
    vec![
        output::whole(score.traces),
        format!("{:.2}%", score.tfcr * 100.0),
        format!("{:.1}/{:.0}", score.functions, score.functions_all),
        format!("{:.1}/{:.0}", score.call_trees, score.call_trees_all),
        measure(score.ss_ms),
        measure(score.entropy_bits),
        measure(score.dist_over_entropy),
    ]
}

/// The measures that could have been the objective, beside those in the table.
fn others(score: &Expected) -> String {
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), measure);
    let paths =
        score.paths.map_or_else(|| "-".to_owned(), |found| format!("{found:.1}/{:.0}", score.paths_all));
    format!(
        "counts {}, latency {}, paths {paths}, path distance {}",
        optional(score.count_error),
        optional(score.latency),
        optional(score.path_distance)
    )
}

fn single_keys(report: &Report<'_>, text: &mut String) {
    let tuning = report.tuning;
    if let Some(trial) = tuning.per_key_trial {
        let _ = writeln!(
            text,
            "a probability for each key: dist/entropy {} on blocks of time not tuned on, where common parameters have {}{}",
            both(trial.per_key.map(ratio)),
            both(trial.common.map(ratio)),
            if trial.better { "" } else { ", which are used" },
        );
        if tuning.goal() != Objective::paper().to_string() {
            let _ = writeln!(
                text,
                "  beside equal shares of the same sizes {} is {}, and {} with common parameters: that decides",
                tuning.goal(),
                both(trial.per_key_values),
                both(trial.common_values),
            );
        }
    }
    if let Some(min_kept) = tuning.min_kept {
        let keys = output::plural(tuning.per_root.len() as u64, "key");
        let _ = writeln!(
            text,
            "{keys} with a probability, each for at least {min_kept} traces kept; others keep the curve:"
        );
    }
    for root in tuning.per_root.iter().take(ROOTS_SHOWN) {
        let own = match root.parameters {
            Parameters::Constant { probability } => probability.to_string(),
            other => other.config().map_or_else(|error| error.to_string(), |config| config.to_string()),
        };
        let _ = writeln!(text, "  {}: {own}", output::brief(&format!("{:?}", root.key)));
    }
    if tuning.per_root.len() > ROOTS_SHOWN {
        let _ = writeln!(text, "  ... and {} more", tuning.per_root.len() - ROOTS_SHOWN);
    }
    if let Some(growth) = &tuning.growth {
        let _ = writeln!(
            text,
            "if any one operation became {} times as frequent: kept bytes x {:.1} at most ({}; all bytes x {:.1})",
            growth.calls,
            growth.kept_bytes,
            output::brief(&format!("{:?}", growth.key)),
            growth.bytes,
        );
    }
}

fn ratio(replayed: Replayed) -> f64 {
    replayed.dist_over_entropy.mean
}

fn both([one, other]: [f64; 2]) -> String {
    format!("{} and {}", measure(one), measure(other))
}

/// The figure that holds: means over draws that no search saw, and how far single runs lie from
/// them.
fn draws(replayed: &Replayed, tuning: &Tuning, text: &mut String) {
    let _ =
        writeln!(text, "on {} other draws of phase, jitter and seed: {}", replayed.replays, line(replayed));
    if let Some(share) = &tuning.replayed_share {
        let _ = writeln!(text, "  an equal share of the same size: {}", line(share));
    }
    if let Some(capped) = &tuning.replayed_capped {
        let _ = writeln!(text, "  under the cap {}: {}", tuning.cap, line(capped));
    }
    if let Some(weighted) = replayed.dist_over_entropy_weighted {
        let _ = writeln!(text, "  by weights: dist/entropy {}", measure(weighted.mean));
    }
    if let Some(counts) = replayed.counts {
        let _ = writeln!(
            text,
            "  error of counts: functions {}, calibrated to the roots' numbers {}, roots {}",
            measure(counts.functions),
            measure(counts.functions_calibrated),
            measure(counts.roots),
        );
    }
    if let Some(luck) = tuning.bootstrap {
        let [low, high] = luck.run_interval;
        let _ = writeln!(
            text,
            "  with this recording's blocks of time drawn again: {} to {} (nine of ten)",
            measure(low),
            measure(high),
        );
    }
}

fn line(replayed: &Replayed) -> String {
    let found = replayed.dist_over_entropy;
    let ([low, high], [least, most]) = (found.mean_interval, found.run_interval);
    format!(
        "dist/entropy {} (mean {} to {}, a single run {} to {}), {:.2}% of the bytes, {:.1} trees, \
         {:.1} path kinds at distance {}",
        measure(found.mean),
        measure(low),
        measure(high),
        measure(least),
        measure(most),
        replayed.tfcr.mean * 100.0,
        replayed.call_trees.mean,
        replayed.paths.mean,
        measure(replayed.path_distance.mean),
    )
}

fn checked(held_out: &HeldOut, text: &mut String) {
    let _ = writeln!(
        text,
        "on {} ({}):",
        output::escaped(&held_out.name),
        output::plural(held_out.traces, "trace")
    );
    let _ = writeln!(text, "  {}", line(&held_out.replayed));
    if let Some(there) = &held_out.tuned_there {
        let _ = writeln!(text, "  tuned there: {}", line(there));
    }
    if let Some(share) = &held_out.replayed_share {
        let _ = writeln!(text, "  an equal share of the same size: {}", line(share));
    }
}

fn key_advice(keys: &KeyChoice, used: &str, text: &mut String) {
    let _ = writeln!(text, "keys: {}", output::escaped(&keys.because));
    match keys.advised.map(|advised| &keys.keys[advised]) {
        Some(advised) if advised.key != used => {
            let _ = writeln!(text, "  for that, tune with --key {}", output::escaped(&advised.key));
        }
        _ => {}
    }
}
