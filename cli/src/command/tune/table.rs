//! The text output of `astracer tune`: one screen, and with `--verbose` everything else.

use std::fmt::Write as _;

use astracer_report::numbers::three;
use astracer_tuner::expect::Expected;
use astracer_tuner::growth::Growth;
use astracer_tuner::held_out::{HeldOut, Replayed};
use astracer_tuner::key_choice::KeyChoice;
use astracer_tuner::tune::Bounds;
use astracer_tuner::{Candidate, Clock, Objective, Parameters, Tuning, Workload};

use super::tried::Tried;
use super::{Report, provisional};
use crate::load::Input;
use crate::output::{self, measure};
use crate::tail;

/// Lines of the screen without `--verbose`: a small terminal has 24, and the line of the cap must
/// not displace a warning.
const LINES_MAX: usize = 21;
/// Checks on other traces that have a line of their own.
const CHECKS_SHOWN: usize = 3;
/// Columns for the name of a recording that was checked.
const CHECK_NAME: usize = 28;
/// Keys with their own probability that `--verbose` names; `--json` and the parameters file have
/// all.
const KEYS_SHOWN: usize = 20;

/// The recording in numbers.
pub(super) struct Read {
    traces: u64,
    spans: u64,
    bytes: u64,
    keys: u64,
    pub(super) functions: u64,
    seconds: f64,
}

impl Read {
    pub(super) fn new(workload: &Workload) -> Self {
        let arrivals = workload.arrivals();
        Self {
            traces: arrivals.len() as u64,
            spans: arrivals.iter().map(|arrival| u64::from(arrival.spans)).sum(),
            bytes: arrivals.iter().map(|arrival| arrival.bytes).sum(),
            keys: workload.end_keys().len() as u64,
            functions: workload.function_count() as u64,
            seconds: workload.seconds(),
        }
    }
}

pub(super) fn render(report: &Report<'_>, verbose: bool) -> String {
    let start = head(report) + &table(report);
    let end = ending(report, verbose);
    let warnings = |warnings: Vec<String>| warnings.into_iter().map(|warning| warning_line(&warning));
    if verbose {
        let all = report.tuning.warnings.iter().cloned().chain(report.input.warnings()).collect();
        let sentences = results(report).into_iter().chain(asides(report)).chain(warnings(all));
        let text = start + &sentences.collect::<String>() + "\n" + &details(report);
        return output::prose(&text) + &output::prose(&end);
    }
    // The first warning is more important than details of the result.
    let mut sentences = results(report);
    let mut needed = warnings(needed(report));
    let place =
        sentences.iter().position(|sentence| sentence.ends_with("is better.\n")).map_or(0, |place| place + 1);
    if let Some(first) = needed.next() {
        sentences.insert(place, first);
    }
    sentences.extend(needed);
    let growth = report.tuning.growth.as_ref().map(|of| growth(of, report.unique_names));
    on_screen(&start, sentences, asides(report).into_iter().chain(growth), &end)
}

/// The text between start and end with as many sentences as the screen has lines for, and the
/// number of those that are left out; asides fill the lines that are left.
pub(super) fn on_screen(
    start: &str,
    sentences: Vec<String>,
    asides: impl IntoIterator<Item = String>,
    end: &str,
) -> String {
    let (mut text, end) = (output::prose(start), output::prose(end));
    let lines = |text: &str| text.lines().count();
    let mut left = sentences.len();
    for sentence in sentences {
        let sentence = output::prose(&sentence);
        // Reserve one line for the number of notes that are not shown.
        let after = usize::from(left > 1);
        if lines(&text) + lines(&sentence) + after + lines(&end) > LINES_MAX {
            continue;
        }
        text.push_str(&sentence);
        left -= 1;
    }
    if left > 0 {
        let _ = writeln!(text, "{}: see --verbose", output::plural(left as u64, "more note"));
        return text + &end;
    }
    for aside in asides {
        let aside = output::prose(&aside);
        if lines(&text) + lines(&aside) + lines(&end) <= LINES_MAX {
            text.push_str(&aside);
        }
    }
    text + &end
}

/// The worst cases if traffic changes.
fn growth(growth: &Growth, unique_names: Option<f64>) -> String {
    let unique = unique_names.map_or_else(String::new, |times| {
        format!("; if every third call had its own name: kept bytes x {times:.1}")
    });
    format!(
        "If any one operation became {} times as frequent: kept bytes x {:.1}, all x {:.1}{unique}.\n",
        growth.calls, growth.kept_bytes, growth.bytes
    )
}

/// Warnings that ask for an action.
pub(super) fn needed(report: &Report<'_>) -> Vec<String> {
    let tuning = report.tuning;
    let needed = tuning.warnings.iter().filter(|warning| !tuning.remarks.contains(warning)).cloned();
    needed.chain(report.input.warnings()).collect()
}

pub(super) fn warning_line(warning: &str) -> String {
    format!("warning: {}\n", output::escaped(warning))
}

/// The lines about the recording.
fn head(report: &Report<'_>) -> String {
    heading(report.input, &report.read, &report.key)
}

pub(super) fn heading(input: &Input, read: &Read, key: &str) -> String {
    let Read { traces, spans, bytes, keys, seconds, .. } = *read;
    let rate = if seconds > 0.0 {
        format!(" ({} traces/s)", output::rounded(traces as f64 / seconds))
    } else {
        String::new()
    };
    format!(
        "{}{}, {}, {} by {}, {} over {}{rate}\n\n",
        input.heading(),
        output::plural(traces, "trace"),
        output::plural(spans, "span"),
        output::plural(keys, "key"),
        output::escaped(key),
        output::bytes(bytes),
        output::span(seconds),
    )
}

/// The chosen sampler and the samplers it is compared with: means of replays, or the values that
/// the search expects if there was no time for replays.
fn table(report: &Report<'_>) -> String {
    let tuning = report.tuning;
    let chosen = format!("chosen ({})", tuning.sampler_name());
    let rows = match &tuning.replayed {
        None => vec![
            expected_cells(chosen, &tuning.score),
            expected_cells("equal share".to_owned(), &tuning.baseline),
        ],
        Some(replayed) => {
            let best = report.best_baseline.as_ref();
            let others = [
                ("under the cap".to_owned(), tuning.replayed_capped.as_ref()),
                ("equal share".to_owned(), tuning.replayed_share.as_ref()),
                (
                    best.map(|(name, _)| best_baseline(name)).unwrap_or_default(),
                    best.map(|(_, replayed)| replayed),
                ),
            ];
            let others = others.into_iter().filter_map(|(name, replayed)| Some(cells(name, replayed?)));
            std::iter::once(cells(chosen, replayed)).chain(others).collect()
        }
    };
    // If the time is split, these are the numbers of the part that was tuned on.
    let all = (tuning.score.functions_all, tuning.score.call_trees_all);
    let (functions, trees) = (
        format!("functions\nof {}", output::whole(all.0)),
        format!("call trees\nof {}", output::whole(all.1)),
    );
    let header = [
        "",
        "traces\nkept",
        "bytes\nkept",
        &functions,
        &trees,
        "dist/entropy\n(95% interval)",
        "count\nerror",
    ];
    output::table(&header, rows)
}

pub(super) fn best_baseline(name: &str) -> String {
    format!("best baseline: {name}")
}

fn cells(name: String, replayed: &Replayed) -> Vec<String> {
    let Replayed { dist_over_entropy: found, .. } = replayed;
    vec![
        name,
        output::whole(replayed.traces.mean),
        output::percent(replayed.tfcr.mean),
        output::rounded(replayed.functions.mean),
        output::rounded(replayed.call_trees.mean),
        match found.mean.is_finite() {
            true => format!("{} ({})", three(found.mean), to(found.mean_interval)),
            false => "-".to_owned(),
        },
        replayed.counts.map_or_else(|| "-".to_owned(), |counts| output::percent(counts.functions)),
    ]
}

fn expected_cells(name: String, score: &Expected) -> Vec<String> {
    vec![
        name,
        output::whole(score.traces),
        output::percent(score.tfcr),
        output::rounded(score.functions),
        output::rounded(score.call_trees),
        finite(score.dist_over_entropy),
        score.count_error.map_or_else(|| "-".to_owned(), output::percent),
    ]
}

fn to([low, high]: [f64; 2]) -> String {
    format!("{} to {}", finite(low), finite(high))
}

/// A dash for an infinite dist/entropy: that of spans of a single function.
fn finite(value: f64) -> String {
    if value.is_finite() { three(value) } else { "-".to_owned() }
}

/// The sentences below the table, the most important ones first.
fn results(report: &Report<'_>) -> Vec<String> {
    let (tuning, mut all) = (report.tuning, Vec::new());
    if tuning.interrupted {
        all.push("Interrupted: this is the best found so far.\n".to_owned());
    }
    all.push(match &tuning.replayed {
        Some(replayed) => format!(
            "Means of {} replays at jitters of 0, 5 and 50 ms. Less dist/entropy is better.\n",
            output::count(replayed.replays)
        ),
        None => "Expected values: not checked by replay. Less dist/entropy is better.\n".to_owned(),
    });
    if let Some(later) = &tuning.later {
        let [low, high] = later.interval;
        all.push(format!(
            "On each half, tuned on the other: {:.2} of an equal share ({low:.2} to {high:.2}).\n",
            later.ratio,
        ));
    }
    if report.out.is_none() {
        // No file has the parameters, so they are shown here.
        let found = tuning.config().map_or_else(|error| error.to_string(), |config| config.to_string());
        all.push(format!("Parameters: {}\n", output::brief(&found)));
    }
    if tuning.goal() != Objective::paper().to_string() {
        all.push(format!("Tuned for {}: {} expected.\n", tuning.goal(), measure(tuning.value)));
    }
    all.extend(report.strata_tried.as_ref().map(Tried::sentence));
    if let Some(summary) = report.tail.and_then(|late| late.summary.as_ref()) {
        all.push(tail::in_short(summary));
    }
    let checks: Vec<&HeldOut> = tuning.held_out.iter().chain(&report.validated).collect();
    for check in checks.iter().take(CHECKS_SHOWN) {
        let share = check.replayed_share.as_ref().map(|share| three(share.dist_over_entropy.mean));
        let share = share.map_or_else(String::new, |share| format!(" (equal share {share})"));
        let name =
            output::escaped(check.name.rsplit('/').find(|part| !part.is_empty()).unwrap_or(&check.name));
        all.push(format!(
            "On {}: dist/entropy {}{share}, {} of bytes.\n",
            output::shortened(&name, CHECK_NAME),
            three(check.replayed.dist_over_entropy.mean),
            output::percent(check.replayed.tfcr.mean)
        ));
    }
    if checks.len() > CHECKS_SHOWN {
        all.push(format!("{} more recordings were checked: see --verbose.\n", checks.len() - CHECKS_SHOWN));
    }
    all.extend(keys_tried(report));
    all
}

/// The keys that were tried, and whether one does better.
pub(super) fn keys_tried(report: &Report<'_>) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(advised) = report.keys.as_ref().and_then(|keys| keys.keys.get(keys.advised?))
        && advised.key != report.key
    {
        all.push(format!(
            "hint: --key {} does better ({:.2} of an equal share on blocks not tuned on).\n",
            output::escaped(&advised.key),
            advised.dist_over_entropy / advised.baseline
        ));
    }
    if let Some(keys) = report.keys.as_ref().filter(|keys| keys.keys.len() > 2) {
        let keys: Vec<&str> =
            keys.keys.iter().filter(|row| row.known_at_start).map(|row| &*row.key).collect();
        all.push(format!("Keys tried: {}.\n", output::escaped(&keys.join(", "))));
    }
    all
}

/// Sentences that are left out first: on half-lives, and on choices that were not tried.
fn asides(report: &Report<'_>) -> Vec<String> {
    let (tuning, mut all) = (report.tuning, Vec::new());
    if let Some(trial) = tuning.clock.as_ref().filter(|trial| trial.calls > 0.0 || trial.of_seconds() > 0.0) {
        let (calls, seconds) = (three(trial.calls), three(trial.of_seconds()));
        let used = if trial.used == Clock::Seconds { "seconds" } else { "calls" };
        let speeds = match trial.seconds.len() {
            1 => "",
            _ => " over x 0.5, x 1 and x 2 of the speed",
        };
        all.push(format!(
            "Half-lives in {used}: {calls} of an equal share in calls, {seconds} in seconds{speeds}.\n"
        ));
    }
    all.extend(untried(report));
    if let Some((late, summary)) = report.tail.and_then(|late| Some((late, late.summary.as_ref()?))) {
        all.extend(late.other_provisional.as_ref().and_then(|other| provisional::compared(summary, other)));
    }
    all
}

/// Says so if deciding by outcome was not tried.
fn untried(report: &Report<'_>) -> Option<String> {
    let says = "Deciding by outcome (--late) was not tried, because of other options.\n";
    report.is_only_at_start.then(|| says.to_owned())
}

/// The cap that is written if none was given.
pub(super) fn cap(bounds: &Bounds) -> String {
    format!(
        "Cap: {} x the busiest minute, at most {} a day per process (--no-cap).\n",
        bounds.times,
        output::bytes(bounds.bytes_a_day as u64)
    )
}

/// The files written, with a cap that was not asked for, and what to do with them. It is always
/// shown.
fn ending(report: &Report<'_>, verbose: bool) -> String {
    let mut text = String::new();
    if let Some(out) = report.out {
        text.extend(report.tuning.bounds.as_ref().map(cap));
        let out = output::shown(out);
        let _ = writeln!(text, "\nwrote {out}. To use it, start the service with");
        let _ = writeln!(text, "  OTEL_TRACES_SAMPLER=astracer_file OTEL_TRACES_SAMPLER_ARG={out}");
    }
    if let Some(page) = report.report {
        let _ = writeln!(text, "wrote {}: open it in a browser", output::shown(page));
    }
    if !verbose {
        let page = if report.report.is_some() { "" } else { " or a page (--report FILE)" };
        let _ = writeln!(text, "More figures: --verbose{page}");
    }
    text
}

/// Everything else: the parameters, all measures, all replays, the searches, the keys.
pub(super) fn details(report: &Report<'_>) -> String {
    let mut text = String::new();
    parameters(report.tuning, &mut text);
    if let Some(times) = report.unique_names {
        let _ = writeln!(text, "if every third call had its own name: kept bytes x {times:.1}\n");
    }
    measures(report.tuning, &mut text);
    replays(report, &mut text);
    searches(report.tuning, &mut text);
    if let Some(keys) = &report.keys {
        key_choice(keys, &mut text);
    }
    if let Some((late, summary)) = report.tail.and_then(|late| Some((late, late.summary.as_ref()?))) {
        let tuned = report.tuning.parameters.config().map(|config| Candidate::from(config).brief());
        text.push_str(&tail::render(summary, &late.tail, tuned.as_ref().unwrap_or(&summary.sampler)));
        text.push('\n');
    }
    text + &report.input.footing()
}

fn parameters(tuning: &Tuning, text: &mut String) {
    let found =
        tuning.parameters.config().map_or_else(|error| error.to_string(), |config| config.to_string());
    let common = if tuning.per_root.is_empty() { "parameters" } else { "parameters of other keys" };
    let _ = writeln!(text, "{common}: {found}");
    if let Some(min_kept) = tuning.min_kept {
        let _ = writeln!(
            text,
            "{} with their own probability, which keeps at least {} of each",
            output::plural(tuning.per_root.len() as u64, "key"),
            if min_kept == 1.0 { "1 trace".to_owned() } else { format!("{min_kept} traces") },
        );
    }
    if !tuning.bounded.is_empty() {
        let _ = writeln!(
            text,
            "{} with the common parameters and a recorded share, which bounds the key",
            output::plural(tuning.bounded.len() as u64, "key"),
        );
    }
    if let Some(growth) = &tuning.growth {
        let _ = writeln!(
            text,
            "if {} became {} times as frequent: kept bytes x {:.1}, all bytes x {:.1}",
            output::brief(&format!("{:?}", growth.key)),
            growth.calls,
            growth.kept_bytes,
            growth.bytes
        );
    }
    text.push('\n');
    let rows = tuning.per_root.iter().take(KEYS_SHOWN).map(|root| {
        let own = match root.parameters {
            Parameters::Constant { probability } => three(probability),
            other => other.config().map_or_else(|error| error.to_string(), |config| config.to_string()),
        };
        vec![output::named(&root.key).to_owned(), own]
    });
    if !tuning.per_root.is_empty() {
        text.push_str(&output::table(&["key", "probability"], rows));
    }
    if let Some(more) = tuning.per_root.len().checked_sub(KEYS_SHOWN).filter(|&more| more > 0) {
        text.pop();
        let _ = writeln!(text, "... {more} more in the parameters file\n");
    }
}

/// All measures that could have been the objective.
fn measures(tuning: &Tuning, text: &mut String) {
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), measure);
    type Row = (&'static str, Box<dyn Fn(&Expected) -> String>);
    let of = |found: f64, all: f64| format!("{} of {}", output::rounded(found), output::whole(all));
    let rows: [Row; 11] = [
        ("dist/entropy", Box::new(|score| finite(score.dist_over_entropy))),
        ("distance of durations (SS), ms", Box::new(|score| measure(score.ss_ms))),
        ("entropy (IEn), bits", Box::new(|score| measure(score.entropy_bits))),
        ("traces", Box::new(|score| output::whole(score.traces))),
        ("bytes", Box::new(|score| output::percent(score.tfcr))),
        ("functions", Box::new(move |score| of(score.functions, score.functions_all))),
        ("call trees", Box::new(move |score| of(score.call_trees, score.call_trees_all))),
        (
            "path kinds",
            Box::new(move |score| {
                score.paths.map_or_else(|| "-".to_owned(), |found| of(found, score.paths_all))
            }),
        ),
        ("error of counts", Box::new(move |score| optional(score.count_error))),
        ("distance of latencies", Box::new(move |score| optional(score.latency))),
        ("distance of path kinds", Box::new(move |score| optional(score.path_distance))),
    ];
    let rows =
        rows.into_iter().map(|(name, of)| vec![name.to_owned(), of(&tuning.score), of(&tuning.baseline)]);
    let name = if tuning.replayed.is_some() { "means of replays" } else { "expected by the search" };
    text.push_str(&output::table(&[name, "chosen", "equal share"], rows));
}

/// All replays, and how far single runs lie from their means.
fn replays(report: &Report<'_>, text: &mut String) {
    let tuning = report.tuning;
    let mut rows = Vec::new();
    let mut add = |name: String, replayed: Option<&Replayed>| {
        let Some(replayed) = replayed else { return };
        let found = replayed.dist_over_entropy;
        rows.push(vec![
            name,
            finite(found.mean),
            to(found.mean_interval),
            to(found.run_interval),
            output::percent(replayed.tfcr.mean),
            output::rounded(replayed.call_trees.mean),
            output::rounded(replayed.paths.mean),
            measure(replayed.path_distance.mean),
        ]);
    };
    add("chosen".to_owned(), tuning.replayed.as_ref());
    add("under the cap".to_owned(), tuning.replayed_capped.as_ref());
    add("equal share".to_owned(), tuning.replayed_share.as_ref());
    if let Some((name, replayed)) = &report.best_baseline {
        add(format!("best baseline: {name}"), Some(replayed));
    }
    for held_out in tuning.held_out.iter().chain(&report.validated) {
        let name = output::brief(&held_out.name);
        add(format!("chosen, on {name}"), Some(&held_out.replayed));
        add(format!("tuned on {name}"), held_out.tuned_there.as_ref());
        add(format!("equal share, on {name}"), held_out.replayed_share.as_ref());
    }
    if let Some(trial) = &tuning.per_key_trial {
        for (place, half) in ["later", "first"].into_iter().enumerate() {
            add(format!("trial, {half} half: common"), Some(&trial.common[place]));
            add(format!("trial, {half} half: per key"), Some(&trial.per_key[place]));
        }
    }
    if !rows.is_empty() {
        let header = [
            "replayed",
            "dist/\nentropy",
            "95% interval\nof the mean",
            "90% of\nsingle runs",
            "bytes",
            "call\ntrees",
            "path\nkinds",
            "path\ndistance",
        ];
        text.push_str(&output::table(&header, rows));
    }
    if let Some(trial) = tuning.per_key_trial {
        let used = if trial.better { "one probability per key" } else { "common parameters" };
        let _ = writeln!(text, "the trial decided for {used}");
        if tuning.goal() != Objective::paper().to_string() {
            let _ = writeln!(
                text,
                "  by {}, relative to equal shares: common {}, per key {}",
                tuning.goal(),
                both(trial.common_values),
                both(trial.per_key_values),
            );
        }
    }
    if let Some(replayed) = &tuning.replayed {
        if let Some(weighted) = replayed.dist_over_entropy_weighted {
            let _ = writeln!(text, "dist/entropy with weighted means: {}", three(weighted.mean));
        }
        if let Some(counts) = replayed.counts {
            let _ = writeln!(
                text,
                "error of counts: functions {} ({} calibrated to the roots' counts), roots {}",
                output::percent(counts.functions),
                output::percent(counts.functions_calibrated),
                output::percent(counts.roots),
            );
        }
    }
    if let Some(luck) = tuning.bootstrap {
        let _ = writeln!(
            text,
            "on resampled blocks of the recording's time, 90% of runs have dist/entropy {}",
            to(luck.run_interval)
        );
    }
    text.push('\n');
}

fn both([one, other]: [f64; 2]) -> String {
    format!("{} and {}", three(one), three(other))
}

fn searches(tuning: &Tuning, text: &mut String) {
    let starts = tuning.starts.iter().enumerate();
    let rows = starts.map(|(place, start)| {
        let best = start.best.map_or_else(|| "-".to_owned(), |best| measure(best.objective));
        vec![format!("{} {}", start.method, place + 1), output::count(start.evaluations), best]
    });
    let objective = format!("best {}", tuning.objective);
    text.push_str(&output::table(&["search", "evaluations", &objective], rows));
    let _ = writeln!(
        text,
        "tuned for {} with seed {}: {} in {}\n",
        tuning.goal(),
        tuning.seed,
        output::plural(tuning.evaluations, "evaluation"),
        output::span(tuning.seconds),
    );
}

fn key_choice(keys: &KeyChoice, text: &mut String) {
    let rows = keys.keys.iter().map(|row| {
        let known = if row.known_at_start { "yes" } else { "no" };
        let mut cells = vec![row.key.clone(), output::count(row.keys)];
        if row.feasible {
            cells.extend([
                three(row.dist_over_entropy),
                output::rounded(row.call_trees),
                output::percent(row.size),
            ]);
        } else {
            cells.extend(["over limits", "-", "-"].map(str::to_owned));
        }
        cells.push(known.to_owned());
        cells
    });
    let header = ["key, on other blocks", "keys", "dist/entropy", "call trees", "bytes", "known at start"];
    text.push_str(&output::table(&header, rows));
    // The first sentence repeats the table.
    if let Some((_, advice)) = keys.because.split_once(". ") {
        let _ = writeln!(text, "{}\n", output::escaped(advice));
    }
}
