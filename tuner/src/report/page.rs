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
        h1 { "Sampling tuned for " (report.title) }
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
        p { code { (found) } @if !tuning.per_root.is_empty() { " and " (tuning.per_root.len()) " roots of their own" } }
        p {
            "It keeps " (percent(score.tfcr)) " of the bytes and finds " (one(score.call_trees)) " of "
            (whole(score.call_trees_all)) " call trees and " (one(score.functions)) " of " (whole(score.functions_all))
            " functions. dist/entropy is " strong { (measure(score.dist_over_entropy)) } "; an equal share of everything, "
            (percent(equal.tfcr)) " of the bytes, has " (measure(equal.dist_over_entropy)) " and finds "
            (one(equal.call_trees)) " call trees."
        }
        @if tuning.interrupted { p.warn { "Interrupted: this is the best found until then." } }
        @if let Some(reason) = &tuning.infeasible {
            p.warn { "No parameters meet the limits: " (reason) ". What is shown is the nearest." }
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
            "Tuned for the least " (tuning.goal()) ", between " (percent(tuning.limits.size_min)) " and "
            (percent(tuning.limits.size_max)) " of the bytes"
            @if let Some(max) = tuning.limits.traces_per_second_max { ", at most " (max) " traces a second" }
            @if let Some(max) = tuning.limits.bytes_per_second_max { ", at most " (max) " bytes a second" }
            ", counted by " (report.key) ". Expected values"
            "."
        }
        @if let Some(replayed) = &tuning.replayed { (draws(report, replayed)) }
        div.wide { table {
            tr { th { "measure" } th { "tuned" } th { "equal share" } }
            @for (name, of) in rows { tr { td { (name) } td { (of(&tuning.score)) } td { (of(&tuning.baseline)) } } }
        } }
        @if !tuning.per_root.is_empty() {
            h3 { "Roots with parameters of their own" }
            div.wide { table {
                tr { th { "root" } th.left { "parameters" } }
                @for root in tuning.per_root.iter().take(ROOTS_SHOWN) {
                    tr {
                        td.name { (line(&root.key)) }
                        td.left { code { (root.parameters.config().map_or_else(|e| e.to_string(), |c| c.to_string())) } }
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
        h2 { "On traces that were not tuned on" }
        div.wide { table {
            tr { th { "on" } th.left { "parameters" } th { "size" } th { "call trees" } th { "dist/entropy ± sd" } }
            @if let Some(trial) = &tuning.per_key_trial {
                @for (common, per_key) in trial.common.iter().zip(&trial.per_key) {
                    (row("blocks of time between those tuned on", "common", common))
                    (row("the same", "a probability for each key", per_key))
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
        h2 { "Which key serves" }
        p { (keys.because) "." }
        div.wide { table {
            tr {
                th { "key" } th { "keys" } th { "dist/entropy" } th { "call trees" } th { "size" }
                th.left { "known when a trace starts" }
            }
            @for (place, row) in keys.keys.iter().enumerate() {
                tr.best[keys.advised == Some(place)] {
                    td.name { (row.key) } td { (row.keys) }
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
            @if !tuning.per_root.is_empty() { "Of the common parameters, before those of single roots. " }
            "Simulated annealing from " (tuning.starts.len()) " random points, seed " (tuning.seed) ", "
            (tuning.evaluations) " points scored, " (measure(tuning.seconds)) " s. Thin lines are its starts; the long "
            "dashes are random search and the short ones a grid, each with as many points."
        }
        div.charts {
            div { (charts::convergence(tuning)) }
            div.wide { table {
                tr { th { "search" } th { "points" } th { "best" } }
                @for (place, start) in tuning.starts.iter().enumerate() {
                    tr {
                        td { (start.method) " " (place + 1) } td { (start.evaluations) }
                        td { (optional(start.best.map(|best| best.objective))) }
                    }
                }
                @for search in &tuning.compared {
                    tr {
                        td { (search.method) } td { (search.evaluations) }
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
            "Each sampler at up to three sizes, the mean of some replays. Ringed letters are ours, tuned for each size; "
            "dashes are an equal share of everything; the grey line is the front of all points that the search scored: "
            "none of them is both smaller and better. Baselines have their knob turned until they keep as much, and their "
            "periods shortened so that they pass several times in this recording. Lower is better on the left, higher on "
            "the right."
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
                    th.left { "with these parameters" } th.left { "what it does" }
                }
                @for (letter, series, point) in &rows {
                    tr.best[series.ours].none[!point.size_met] {
                        td { (letter) } td.left { (series.name) }
                        td { (measure(point.dist_over_entropy)) } td { (one(point.call_trees)) }
                        td { (percent(point.size)) @if !point.size_met { " \u{2260}" } }
                        td.name { code { (point.sampler) } } td.name { (series.about) }
                    }
                }
            } }
            @if rows.iter().any(|(.., point)| !point.size_met) {
                p.note { "\u{2260}: keeps another size, with the nearest knob found; not to be compared with the rows above." }
            }
            @if !missing.is_empty() { p.note { "Cannot keep so little: " (missing.join(", ")) "." } }
        }
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
        h2 { "Roots: seen and kept" }
        p.note {
            "One replay (seed " (SEED) "). Bars are on a logarithmic scale up to " (count(most))
            " traces: the outline is what was seen, the filled part what was kept."
        }
        div.wide { table {
            tr { th { "root" } th { "seen" } th { "kept" } th { "" } th { "of traces" } th { "of bytes" } }
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
            "Outlines: all calls. Filled: the calls kept with seed " (SEED) ", "
            @if kept.weighted { "each weighted by the number of traces that its trace stands for. " }
            @else { "unweighted, for this sampler tells no weights. " }
            "The " (HISTOGRAMS_SHOWN.min(rows.len())) " functions that most time is spent in; two bars for each doubling, and "
            "durations of 0 a gap apart to the left."
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
            "Durations in ms: all, and kept with seed " (SEED) ". The longest in total first; rows with a background were missed."
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
        @if rows.is_empty() { p { "None: of each call tree there is a trace." } }
        @else {
            p.note {
                (rows.len()) " of " (report.workload.call_trees()) " call trees have no trace in the replay with seed " (SEED) "."
            }
            div.wide { table {
                tr { th { "root" } th { "traces" } th { "spans" } th.left { "calls" } th.left { "a trace" } }
                @for row in rows.iter().take(TREES_SHOWN) {
                    tr {
                        td.name { (line(&row.key)) } td { (row.traces) } td { (row.spans) } td.name { (row.calls) }
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
        p { strong { "Function" } ": spans of one name. " strong { "Call tree" } ": traces whose spans call each other alike." }
        p { strong { "SS" } ": the Euclidean distance of the functions' (mean, standard deviation) of duration from those of all
            traces; a function that was missed counts with all of its mean and deviation. " strong { "IEn" } ": the entropy of
            the functions' shares of the spans kept. " strong { "dist/entropy" } ": SS divided by IEn; less is better." }
        p { strong { "Error of counts" } ": the standard error of a function's number of calls estimated by weights, divided by the
            number; mean over the functions. " strong { "Distance of latencies" } ": Jensen and Shannon's distance (0 to 1) of the
            functions' latency histograms; mean over the functions." }
        p { strong { "Path kind" } ": traces of which the same functions have at least 5 % of the critical time. "
            strong { "Distance of path kinds" } ": half the sum of the differences between their shares of the kept traces, by
            weight, and of all." }
        p { strong { "Weight" } ": one divided by the probability that the trace was kept with." }
    }
}

/// The figures to trust: those on draws that the search did not use.
fn draws(report: &Report<'_>, replayed: &Replayed) -> Markup {
    let tuning = report.tuning;
    let best = report.curves.and_then(|curves| curves.best_baseline.as_ref());
    let best_name =
        best.map_or_else(String::new, |(name, _)| format!("the best baseline of that size, {name}"));
    let rows = [
        ("these parameters", Some(replayed)),
        ("an equal share of the same size", tuning.replayed_share.as_ref()),
        (&best_name, best.map(|(_, replayed)| replayed)),
    ];
    let runs: Vec<_> =
        rows.iter().filter_map(|(name, row)| Some((*name, &row.as_ref()?.dist_over_entropy_runs))).collect();
    let interval = |[low, high]: [f64; 2]| format!("{} to {}", measure(low), measure(high));
    html! {
        p.note {
            "On " (replayed.replays) " draws of phase, jitter and seed that the search did not see: the mean, which lies in its "
            "interval with 95 %, and the range of nine of ten single runs."
            @if let Some(luck) = tuning.bootstrap {
                " With the recording's blocks of time drawn again, dist/entropy of one run is " (interval(luck.run_interval)) "."
            }
        }
        div.charts {
            div { (charts::runs(&runs)) }
            p.note {
                "Each row shows one sampler's runs: nine of ten in the light bar, half of them in the dark one, all on the thin "
                "line, and the median. A service sees one run."
            }
        }
        div.wide { table {
            tr {
                th { "" } th { "dist/entropy" } th { "mean in" } th { "a run in" } th { "by weights" } th { "size" }
                th { "error of counts" } th { "calibrated" }
            }
            @for (name, row) in rows { @if let Some(row) = row {
                tr {
                    td { (name) } td { (measure(row.dist_over_entropy.mean)) }
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
