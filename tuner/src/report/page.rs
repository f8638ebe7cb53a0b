//! The page: its order, its texts and its tables.

use astracer_report::names::line;
use astracer_report::numbers::{count, measure, one, optional, percent, whole};
use astracer_report::page::{Page, more};
use maud::{Markup, html};

use super::charts::{self, EQUAL_SHARE, Measure};
use super::functions::{self, FunctionRow, Part};
use super::kept::{KeptTraces, SEED};
use super::{Report, roots, trees};
use crate::curves::{CurvePoint, Curves, Series};
use crate::expect::Expected;
use crate::held_out::{HeldOut, Replayed};
use crate::key_choice::KeyChoice;
use crate::space::Parameters;

const CSS: &str = include_str!("page.css");
/// Rows shown of long tables; a line below says how many more there are.
const ROOTS_SHOWN: usize = 60;
const FUNCTIONS_SHOWN: usize = 300;
const TREES_SHOWN: usize = 100;
/// Histograms are shown for the functions that take the most time.
const HISTOGRAMS_SHOWN: usize = 9;

pub(super) fn page(report: &Report<'_>) -> String {
    let kept = KeptTraces::new(report.workload, report.tuning);
    let functions = functions::rows(report.workload, &kept);
    let title = format!("astracer tune: {}", report.title);
    let body = html! {
        h1 { "Sampling parameters for " (report.title) }
        (summary(report))
        (measures(report))
        (checks(report))
        (keys(report.keys))
        (search(report))
        (sizes(report))
        (root_table(report, &kept))
        (histograms(&functions, &kept))
        (function_table(&functions, &kept))
        (missed_trees(report, &kept))
        (words())
    };
    Page { title: &title, css: CSS, sortable: false }.html(&body)
}

fn summary(report: &Report<'_>) -> Markup {
    let tuning = report.tuning;
    let (score, equal) = (&tuning.score, &tuning.baseline);
    let found =
        tuning.parameters.config().map_or_else(|error| error.to_string(), |config| config.to_string());
    html! {
        p {
            code { (found) }
            @if !tuning.per_root.is_empty() { ", and " (tuning.per_root.len()) " keys with a probability of their own" }
        }
        p {
            "The sampler keeps " (percent(score.tfcr)) " of the bytes and finds " (one(score.call_trees)) " of "
            (whole(score.call_trees_all)) " call trees and " (one(score.functions)) " of " (whole(score.functions_all))
            " functions. Its dist/entropy is " strong { (measure(score.dist_over_entropy)) } " (less is better). An equal share of "
            "everything, " (percent(equal.tfcr)) " of the bytes, has " (measure(equal.dist_over_entropy)) " and finds "
            (one(equal.call_trees)) " call trees. These are values that the search expects; replays follow below."
        }
        @if tuning.interrupted { p.warn { "The search was interrupted. This is the best found so far." } }
        @if let Some(reason) = &tuning.infeasible {
            p.warn { "No parameters meet the limits: " (reason) ". The nearest ones are shown." }
        }
        @for warning in &tuning.warnings { p.warn { "Warning: " (warning) "." } }
        @if let Some(file) = report.file { details { summary { "The parameters file" } pre { (file) } } }
    }
}

fn measures(report: &Report<'_>) -> Markup {
    let tuning = report.tuning;
    type Row = (&'static str, fn(&Expected) -> String);
    let rows: [Row; 13] = [
        ("dist/entropy", |score| measure(score.dist_over_entropy)),
        ("SS, ms", |score| measure(score.ss_ms)),
        ("IEn, bits", |score| measure(score.entropy_bits)),
        ("call trees", |score| one(score.call_trees)),
        ("functions", |score| one(score.functions)),
        ("error of counts", |score| optional(score.count_error)),
        ("distance of latencies", |score| optional(score.latency)),
        ("path kinds", |score| score.paths.map_or_else(|| "-".to_owned(), one)),
        ("distance of path kinds", |score| optional(score.path_distance)),
        ("size (TFCR)", |score| percent(score.tfcr)),
        ("traces", |score| whole(score.traces)),
        ("spans", |score| whole(score.spans)),
        ("bytes", |score| whole(score.bytes)),
    ];
    html! {
        h2 { "What is kept" }
        p.note {
            "Tuned to minimise " (tuning.goal()) " while keeping between " (percent(tuning.limits.size_min)) " and "
            (percent(tuning.limits.size_max)) " of the bytes"
            @if let Some(max) = tuning.limits.traces_per_second_max { ", at most " (max) " traces per second" }
            @if let Some(max) = tuning.limits.bytes_per_second_max { ", at most " (whole(max)) " bytes per second" }
            ". The sampler counts by the key " code { (report.key) } "."
        }
        @if let Some(replayed) = &tuning.replayed { (draws(report, replayed)) }
        div.wide { table {
            tr { th { "expected by the search" } th { "these parameters" } th { "equal share" } }
            @for (name, of) in rows { tr { td { (name) } td { (of(&tuning.score)) } td { (of(&tuning.baseline)) } } }
        } }
        @if !tuning.per_root.is_empty() {
            h3 { "Keys with a probability of their own" }
            div.wide { table {
                tr { th { "key" } th.left { "probability" } }
                @for root in tuning.per_root.iter().take(ROOTS_SHOWN) {
                    tr {
                        td.name { (line(&root.key)) }
                        td.left { (own(&root.parameters)) }
                    }
                }
                (more(tuning.per_root.len(), ROOTS_SHOWN, 2))
            } }
        }
    }
}

fn checks(report: &Report<'_>) -> Markup {
    let tuning = report.tuning;
    let held_out: Vec<&HeldOut> = tuning.held_out.iter().chain(report.validated).collect();
    if held_out.is_empty() && tuning.per_key_trial.is_none() {
        return html! {};
    }
    let row = |on: &str, what: &str, replayed: &Replayed| {
        html! { tr {
            td.name { (on) } td.left { (what) }
            td { (percent(replayed.tfcr.mean)) } td { (one(replayed.call_trees.mean)) }
            td { (measure(replayed.dist_over_entropy.mean)) " ± " (measure(replayed.dist_over_entropy.sd)) }
        } }
    };
    html! {
        h2 { "Checks on traces that were not tuned on" }
        div.wide { table {
            tr { th { "on" } th.left { "parameters" } th { "size" } th { "call trees" } th { "dist/entropy ± sd" } }
            @if let Some(trial) = &tuning.per_key_trial {
                @for (common, per_key) in trial.common.iter().zip(&trial.per_key) {
                    (row("the other half of the time", "common", common))
                    (row("the same half", "one probability per key", per_key))
                }
            }
            @for held_out in held_out {
                (row(&held_out.name, "these", &held_out.replayed))
                @if let Some(there) = &held_out.tuned_there { (row(&held_out.name, "tuned there", there)) }
                @if let Some(share) = &held_out.replayed_share { (row(&held_out.name, "equal share", share)) }
            }
        } }
    }
}

fn keys(keys: Option<&KeyChoice>) -> Markup {
    let Some(keys) = keys else { return html! {} };
    html! {
        h2 { "Which key to use" }
        p { "Tuned briefly, on blocks of time not tuned on: " (keys.because) "." }
        div.wide { table {
            tr {
                th { "key" } th { "keys" } th { "dist/entropy" } th { "call trees" } th { "size" }
                th.left { "known when a trace starts" }
            }
            @for (place, row) in keys.keys.iter().enumerate() {
                tr.best[keys.advised == Some(place)] {
                    td.name { (row.key) } td { (count(row.keys)) }
                    @if row.feasible {
                        td { (measure(row.dist_over_entropy)) } td { (one(row.call_trees)) } td { (percent(row.size)) }
                    } @else {
                        td.left colspan="3" { "cannot meet the limits" }
                    }
                    td.left { (if row.known_at_start { "yes" } else { "no" }) }
                }
            }
        } }
    }
}

fn search(report: &Report<'_>) -> Markup {
    let tuning = report.tuning;
    html! {
        h2 { "How it was found" }
        p.note {
            "Simulated annealing from " (tuning.starts.len()) " random points with seed " (tuning.seed) "; "
            (count(tuning.evaluations)) " candidates scored in " (measure(tuning.seconds)) " s. Each thin line is one start."
            @if !tuning.compared.is_empty() {
                " Long dashes are a random search and short dashes a grid search, each with as many candidates."
            }
            @if !tuning.per_root.is_empty() {
                " This shows the search for parameters common to all keys; a search for the keys' own probabilities followed."
            }
        }
        div.charts {
            div { (charts::convergence(tuning)) }
            div.wide { table {
                tr { th { "search" } th { "candidates" } th { "best" } }
                @for (place, start) in tuning.starts.iter().enumerate() {
                    tr {
                        td { (start.method) " " (place + 1) } td { (count(start.evaluations)) }
                        td { (optional(start.best.map(|best| best.objective))) }
                    }
                }
                @for search in &tuning.compared {
                    tr {
                        td { (search.method) } td { (count(search.evaluations)) }
                        td { (optional(search.best.map(|best| best.objective))) }
                    }
                }
            } }
        }
    }
}

const DIST: Measure = Measure { what: "dist/entropy", of: |point| point.dist_over_entropy, log: true };
const TREES: Measure = Measure { what: "call trees", of: |point| point.call_trees, log: false };

fn sizes(report: &Report<'_>) -> Markup {
    let Some(curves) = report.curves else { return html! {} };
    let letters = letters(curves);
    let tuning = report.tuning;
    let front: Vec<_> = tuning.front.iter().map(|point| (point.size, point.dist_over_entropy)).collect();
    let front_trees: Vec<_> =
        tuning.front_call_trees.iter().map(|point| (point.size, point.call_trees)).collect();
    html! {
        h2 { "Samplers at equal size" }
        p.note {
            "Each sampler at up to three sizes; each point is the mean of several replays. Ringed letters are astracer's "
            "samplers, tuned for each size. Other letters are baselines, adjusted to keep as much, with periods short enough "
            "to pass several times in this recording; the tables below name them. The dashed line is an equal share of "
            "everything. The grey line is the best that the search for common parameters expected at each size. Lower is "
            "better in the first chart, higher in the second."
        }
        div.charts {
            div { (charts::by_size(curves, &DIST, &front, &letters)) }
            div { (charts::by_size(curves, &TREES, &front_trees, &letters)) }
        }
        @for (place, size) in curves.sizes.iter().enumerate() { (size_table(curves, &letters, place, *size)) }
    }
}

/// The samplers at one size: those that keep it, by dist/entropy, then those that cannot.
fn size_table(curves: &Curves, letters: &[char], place: usize, size: f64) -> Markup {
    let pairs = curves.series.iter().zip(letters);
    let mut rows: Vec<(char, &Series, &CurvePoint)> = pairs
        .filter_map(|(series, letter)| Some((*letter, series, series.points.get(place)?.as_ref()?)))
        .collect();
    rows.sort_by(|a, b| {
        b.2.size_met.cmp(&a.2.size_met).then(a.2.dist_over_entropy.total_cmp(&b.2.dist_over_entropy))
    });
    // This tuning has a point at the first size only.
    let missing = curves.series.iter().enumerate().filter(|(index, _)| *index != 1).map(|(_, series)| series);
    let missing = missing.filter(|series| series.points.get(place).is_none_or(Option::is_none));
    let missing: Vec<&str> = missing.map(|series| series.name.as_str()).collect();
    html! {
        details open[place == 0] {
            summary { "At " (percent(size)) " of the bytes" }
            div.wide { table {
                tr {
                    th { "" } th.left { "sampler" } th { "dist/entropy" } th { "call trees" } th { "size" }
                    th.left { "what it does, and its parameters here" }
                }
                @for (letter, series, point) in &rows {
                    tr.best[series.ours].none[!point.size_met] {
                        td { (letter) } td.left { (series.name) }
                        td { (measure(point.dist_over_entropy)) } td { (one(point.call_trees)) }
                        td { (percent(point.size)) @if !point.size_met { " \u{2260}" } }
                        td.name.about { (series.about) br; code { (without_keys(&point.sampler)) } }
                    }
                }
            } }
            @if rows.iter().any(|(.., point)| !point.size_met) {
                p.note { "\u{2260}: cannot keep this size; shown at the nearest one, so not comparable with the other rows." }
            }
            @if !missing.is_empty() { p.note { "Cannot keep this little: " (missing.join(", ")) "." } }
        }
    }
}

/// The probability of a key, or its sampler if that is no constant.
fn own(parameters: &Parameters) -> Markup {
    match parameters {
        Parameters::Constant { probability } => html! { (measure(*probability)) },
        other => {
            html! { code { (other.config().map_or_else(|error| error.to_string(), |config| config.to_string())) } }
        }
    }
}

/// A sampler without the parameters of single keys, which the parameters file has.
fn without_keys(sampler: &str) -> String {
    match sampler.split_once(";\"") {
        Some((common, keys)) => {
            let keys = keys.matches(";\"").count() as u64 + 1;
            format!(
                "{common}, and {} with parameters of their own",
                if keys == 1 { "1 key".to_owned() } else { format!("{} keys", count(keys)) }
            )
        }
        None => sampler.to_owned(),
    }
}

/// One for each series: capitals for ours, small letters for baselines.
fn letters(curves: &Curves) -> Vec<char> {
    let (mut capitals, mut small) = ('A'..='Z', 'a'..='z');
    let letter = |(place, series): (usize, &Series)| match (place, series.ours) {
        (0, _) => EQUAL_SHARE,
        (_, true) => capitals.next().unwrap_or('*'),
        (_, false) => small.next().unwrap_or('+'),
    };
    curves.series.iter().enumerate().map(letter).collect()
}

fn root_table(report: &Report<'_>, kept: &KeptTraces) -> Markup {
    let rows = roots::rows(report.workload, kept);
    let most = rows.first().map_or(1, |row| row.seen);
    html! {
        h2 { "Keys: seen and kept" }
        p.note {
            "From one replay (seed " (SEED) "). Bars have a logarithmic scale up to " (count(most))
            " traces: the outline is what was seen, the filled part is what was kept."
        }
        div.wide { table {
            tr { th { "key" } th { "traces seen" } th { "kept" } th { "" } th { "of traces" } th { "of bytes" } }
            @for row in rows.iter().take(ROOTS_SHOWN) {
                tr.none[row.kept == 0] {
                    td.name { (line(&row.key)) } td { (count(row.seen)) } td { (count(row.kept)) }
                    td { (bar(row.seen, row.kept, most)) }
                    td { (percent(row.kept as f64 / row.seen as f64)) }
                    td { (percent(row.bytes_kept as f64 / row.bytes.max(1) as f64)) }
                }
            }
            (more(rows.len(), ROOTS_SHOWN, 6))
        } }
    }
}

/// Draws two numbers on a logarithmic scale from 0 to `most`.
fn bar(seen: u64, kept: u64, most: u64) -> Markup {
    let width = |count: u64| (count as f64).ln_1p() / (most.max(1) as f64).ln_1p() * 98.0;
    html! {
        svg.bar viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label=(format!("{kept} of {seen}")) {
            rect x="1" y="1" width=(format!("{:.1}", width(seen))) height="8" fill="none" stroke="#111" stroke-width="1" {}
            rect x="1" y="3" width=(format!("{:.1}", width(kept))) height="4" fill="#005aa0" {}
        }
    }
}

fn histograms(rows: &[FunctionRow], kept: &KeptTraces) -> Markup {
    html! {
        h2 { "Latency histograms" }
        p.note {
            "The " (HISTOGRAMS_SHOWN.min(rows.len())) " functions with the most total time. Outlines are all calls; filled bars are "
            "the calls kept in the replay with seed " (SEED) ", "
            @if kept.weighted { "each weighted by the number of traces that its trace stands for. " }
            @else { "unweighted, because this sampler has no weights. " }
            "Each doubling of the duration has two bars; a bar apart on the left is a duration of 0."
        }
        div.charts.small {
            @for row in rows.iter().take(HISTOGRAMS_SHOWN) {
                div { h3 { (line(&row.name)) } (charts::histogram(&row.name, &row.histogram)) }
            }
        }
    }
}

fn function_table(rows: &[FunctionRow], kept: &KeptTraces) -> Markup {
    let part = |part: &Part| {
        html! {
            td { (count(part.count)) }
            @if part.count == 0 { td { "-" } td { "-" } td { "-" } }
            @else { td { (measure(part.duration_ms.mean)) } td { (measure(part.duration_ms.sd)) } td { (measure(part.max_ms)) } }
        }
    };
    let row = |row: &FunctionRow| {
        html! {
            tr.none[row.kept.count == 0] {
                td.name { (line(&row.name)) }
                (part(&row.all)) (part(&row.kept))
                @if kept.weighted { td { (whole(row.estimated)) } }
            }
        }
    };
    html! {
        h2 { "Functions" }
        p.note {
            "Durations in ms of all calls, and of those kept in the replay with seed " (SEED) ", by total time. Coloured rows were missed."
        }
        div.wide { table {
            tr {
                th { "" } th colspan="4" { "all" } th colspan="4" { "kept" } @if kept.weighted { th { "estimated" } }
            }
            tr {
                th { "function" }
                @for _ in 0..2 { th { "calls" } th { "mean" } th { "sd" } th { "max" } }
                @if kept.weighted { th { "calls" } }
            }
            @for function in rows.iter().take(FUNCTIONS_SHOWN) { (row(function)) }
            (more(rows.len(), FUNCTIONS_SHOWN, 10))
        } }
    }
}

fn missed_trees(report: &Report<'_>, kept: &KeptTraces) -> Markup {
    let rows = trees::missed(report.workload, kept);
    html! {
        h2 { "Call trees that were missed" }
        @if rows.is_empty() { p { "None: every call tree has at least one trace that was kept." } }
        @else {
            p.note {
                (count(rows.len() as u64)) " of " (count(report.workload.call_trees().into()))
                " call trees have no trace in the replay with seed " (SEED) "."
            }
            div.wide { table {
                tr { th { "key" } th { "traces" } th { "spans" } th.left { "calls" } th.left { "example trace" } }
                @for row in rows.iter().take(TREES_SHOWN) {
                    tr {
                        td.name { (line(&row.key)) } td { (count(row.traces)) } td { (count(row.spans.into())) } td.name { (row.calls) }
                        td.left { code { (row.example) } }
                    }
                }
                (more(rows.len(), TREES_SHOWN, 5))
            } }
        }
    }
}

fn words() -> Markup {
    html! {
        h2 { "What the words mean" }
        p { strong { "Function" } ": all spans of one name. " strong { "Call tree" } ": all traces with the same structure of calls. "
            strong { "Size (TFCR)" } ": the share of the bytes that is kept." }
        p { strong { "SS" } ": how far durations in the kept traces are from those in all traces. It is the Euclidean distance
            between the functions' means and standard deviations; a missed function counts in full. " strong { "IEn" } ": the
            entropy of the functions' shares of the kept spans, which is large if many functions are represented. "
            strong { "dist/entropy" } ": SS divided by IEn; less is better." }
        p { strong { "Error of counts" } ": the standard error of a function's number of calls as estimated from weights, relative to
            the true number; the mean over the functions. " strong { "Distance of latencies" } ": the Jensen-Shannon distance
            (0 to 1) between latency histograms of kept and all calls; the mean over the functions." }
        p { strong { "Path kind" } ": all traces with the same set of functions that have at least 5 % of the critical time. "
            strong { "Distance of path kinds" } ": half the sum of the differences between their shares of the (weighted) kept
            traces and of all traces." }
        p { strong { "Weight" } ": one divided by the probability with which the trace was kept." }
    }
}

/// The figures to trust: those on draws that the search did not use.
fn draws(report: &Report<'_>, replayed: &Replayed) -> Markup {
    let tuning = report.tuning;
    let best = report.curves.and_then(|curves| curves.best_baseline.as_ref());
    let best_name = best.map_or_else(String::new, |(name, _)| format!("best baseline of this size: {name}"));
    let rows = [
        ("these parameters", Some(replayed)),
        ("equal share of this size", tuning.replayed_share.as_ref()),
        (&best_name, best.map(|(_, replayed)| replayed)),
    ];
    let runs: Vec<_> =
        rows.iter().filter_map(|(name, row)| Some((*name, &row.as_ref()?.dist_over_entropy_runs))).collect();
    let interval = |[low, high]: [f64; 2]| format!("{} to {}", measure(low), measure(high));
    html! {
        p.note {
            "From " (count(replayed.replays)) " replays with random phases, jitters and seeds that the search did not see."
            @if let Some(luck) = tuning.bootstrap {
                " On resampled blocks of this recording's time, 90 % of runs have a dist/entropy of "
                (interval(luck.run_interval)) ": that much depends on what happened to be recorded."
            }
        }
        div.charts {
            div { (charts::runs(&runs)) }
            p.note {
                "Each row shows the single runs of one sampler: half of them in the dark bar, nine of ten in the light bar, all on "
                "the thin line, with the median marked. A service sees one run."
            }
        }
        div.wide { table {
            tr {
                th { "" } th { "dist/entropy" } th { "95 % interval of the mean" } th { "nine of ten runs" }
                th { "with weights" } th { "size" } th { "error of counts" } th { "the same, calibrated" }
            }
            @for (name, row) in rows { @if let Some(row) = row {
                tr {
                    td.name { (name) } td { (measure(row.dist_over_entropy.mean)) }
                    td { (interval(row.dist_over_entropy.mean_interval)) } td { (interval(row.dist_over_entropy.run_interval)) }
                    td { (optional(row.dist_over_entropy_weighted.map(|weighted| weighted.mean))) }
                    td { (percent(row.tfcr.mean)) }
                    td { (optional(row.counts.map(|counts| counts.functions))) }
                    td { (optional(row.counts.map(|counts| counts.functions_calibrated))) }
                }
            } }
        } }
    }
}
