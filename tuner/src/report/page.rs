//! The page: its order, its texts and its tables.

use astracer_report::chart::shares;
use astracer_report::names::{line, short, shortened};
use astracer_report::numbers::{count, one, percent, three, tick, whole};
use astracer_report::page::{Page, Tone, folded, more, table};
use maud::{Markup, html};

use super::charts;
use super::figures::Figures;
use super::functions::{self, FunctionRow, Part};
use super::kept::{KeptTraces, SEED};
use super::roots::RootRow;
use super::samplers::{self, interval};
use super::{Report, roots, strata, trees};
use crate::expect::Expected;
use crate::growth;
use crate::held_out::{HeldOut, Replayed};
use crate::key_choice::KeyChoice;
use crate::space::Parameters;
use crate::tail::TailSummary;
use crate::tune::SLOWER;

/// Rows shown of long tables; a line below says how many more there are.
const ROOTS_SHOWN: usize = 60;
const FUNCTIONS_SHOWN: usize = 300;
const TREES_SHOWN: usize = 100;
/// Keys that are not folded.
const ROOTS_OPEN: usize = 10;
/// Histograms are shown for the functions that take the most time.
const HISTOGRAMS_SHOWN: usize = 9;
/// The letters of a key in a sentence.
const LETTERS: usize = 40;

pub(super) fn page(report: &Report<'_>) -> String {
    let plural = |number: usize, what: &str| {
        format!("{} {what}{}", count(number as u64), if number == 1 { "" } else { "s" })
    };
    let kept = KeptTraces::new(report.workload, report.tuning, report.strata);
    let figures = Figures::of(report);
    let functions = functions::rows(report.workload, &kept);
    let title = format!("astracer tune: {}", short(report.title));
    let about = format!(
        "astracer tune · {} · {}, {}",
        short(report.title),
        plural(report.workload.arrivals().len(), "trace"),
        plural(report.workload.keys().len(), "key")
    );
    let body = html! {
        (cards(report, &figures))
        @if let Some(strata) = report.strata { (strata::beside_the_start(strata, report.tuning)) }
        (seen(report, &kept))
        (tomorrow(report))
        @if let Some(late) = report.late { (head_and_late(late)) }
        h2 { "More" }
        @if report.strata.is_some() { p.note { "Samplers, draws, searches and parameters are of the sampler that decides at the start. --no-late writes its file." } (warnings(report)) }
        (samplers::at_equal_size(report.curves))
        (samplers::draws(report))
        (checks(report))
        (measures(report))
        (own_parameters(report))
        (keys(report.keys))
        (histograms(&functions, &kept))
        (function_table(&functions, &kept))
        (missed_trees(report, &kept))
        (search(report))
        @if let Some(file) = report.file { (folded("The parameters file", &html! { pre tabindex="0" { (file) } })) }
        (words())
    };
    let is_found = report.tuning.infeasible.is_none();
    Page {
        title: &title,
        about: &about,
        answer: &answer(report, &figures),
        picture: picture(report, &figures),
        tone: if is_found { Tone::Ours } else { Tone::Bad },
        next: report.next,
        script: None,
    }
    .html(&body)
}

fn answer(report: &Report<'_>, figures: &Figures<'_>) -> String {
    if let Some(reason) = &report.tuning.infeasible {
        return format!("No parameters meet the limits: {reason}");
    }
    format!(
        "{} of the bytes{} keep {} of {} kinds of traces",
        percent(figures.kept),
        if report.strata.is_some() { ", chosen by outcome," } else { "" },
        whole(figures.call_trees[0]),
        whole(figures.call_trees_all)
    )
}

/// The certainty of the answer, and the samplers by size.
fn picture(report: &Report<'_>, figures: &Figures<'_>) -> Markup {
    let tuning = report.tuning;
    let [score, equal] = figures.dist_over_entropy;
    let best = report.curves.and_then(|curves| curves.best_baseline.as_ref());
    html! {
        @if tuning.infeasible.is_some() { p { "The nearest parameters are shown." } }
        @if score > 0.0 && equal.is_finite() && equal > score {
            p { b { (three(equal / score)) " times closer to the whole than an equal share of everything." } }
        }
        p {
            "dist/entropy " @if report.strata.is_some() { "by weights " } (three(score))
            @if let Some(of_mean) = figures.interval { " (" (interval(of_mean)) ")" }
            " against " (three(equal))
            @if let Some(replayed) = tuning.replayed.as_ref().filter(|_| report.strata.is_some()) {
                "; decided at the start " (three(replayed.by_weights().mean))
            }
            @if let Some((name, replayed)) = best { "; the best other sampler, " (short(name)) ", reaches " (three(replayed.dist_over_entropy.mean)) }
            ". "
            @if let Some(later) = figures.later {
                "On time that the search did not see: " (three(later.ratio)) " of an equal share's (" (interval(later.interval)) ")."
            }
            @if figures.interval.is_none() { "These are values that the search expects, without replays." }
        }
        @if let Some(curves) = report.curves {
            (samplers::by_size(curves, report.tuning.sampler.name()))
            p.note {
                @if report.strata.is_some() { "Other samplers decide at the start; this tuning is by weights. " }
                (report.tuning.sampler.name()) " is searched shortly for each size. Points are means of a few replays"
                @if let Some(replayed) = tuning.replayed.as_ref().filter(|_| report.strata.is_none()) {
                    "; single ones of this tuning: " (three(replayed.dist_over_entropy_runs.at(1))) " to "
                    (three(replayed.dist_over_entropy_runs.at(19)))
                }
                "."
            }
        } @else if let Some(replayed) = &tuning.replayed { (charts::runs(&samplers::runs(report, replayed))) }
        @if tuning.interrupted { p { "The search was interrupted. This is the best found so far." } }
        @if report.strata.is_none() { (warnings(report)) }
    }
}

fn warnings(report: &Report<'_>) -> Markup {
    html! { @for warning in &report.tuning.warnings { p { "Warning: " (shortened(&line(warning), 400)) "." } } }
}

fn cards(report: &Report<'_>, figures: &Figures<'_>) -> Markup {
    let card = |[kept, equal]: [f64; 2], all: f64, what: &str| {
        html! { div.card { b { (whole(kept)) " of " (whole(all)) } span.note { (what) " kept; an equal share keeps " (whole(equal)) } } }
    };
    html! {
        div.grid {
            (card(figures.functions, figures.functions_all, "functions"))
            (card(figures.call_trees, figures.call_trees_all, "kinds of traces (call trees)"))
            @if let [Some(error), equal] = figures.count_errors {
                div.card {
                    b { "± " (percent(error)) }
                    span.note {
                        "standard error of a function's number of calls by weights"
                        @if let Some(error) = equal { "; ± " (percent(error)) " with an equal share" }
                    }
                }
            }
        }
        p.note {
            @if report.strata.is_some() { "The sampler at the start was tuned" } @else { "Tuned" }
            " to minimise " (report.tuning.goal()) " while keeping between " (percent(report.tuning.limits.size_min)) " and "
            (percent(report.tuning.limits.size_max)) " of the bytes"
            @if let Some(max) = report.tuning.limits.traces_per_second_max { ", at most " (max) " traces per second" }
            @if let Some(max) = report.tuning.limits.bytes_per_second_max { ", at most " (whole(max)) " bytes per second" }
            ". The sampler counts by the key " code { (report.key) } "."
        }
    }
}

/// Each key's share of the traffic beside its share of what is kept.
fn seen(report: &Report<'_>, kept: &KeptTraces) -> Markup {
    let rows = roots::rows(report.workload, kept);
    let all = rows.iter().map(|row| row.seen).sum::<u64>().max(1) as f64;
    let all_kept = rows.iter().map(|row| row.kept).sum::<u64>().max(1) as f64;
    let top =
        rows.iter().flat_map(|row| [row.seen as f64 / all, row.kept as f64 / all_kept]).fold(1e-9, f64::max);
    let row = |row: &RootRow| {
        let (seen, kept) = (row.seen as f64 / all, row.kept as f64 / all_kept);
        let bars = [("seen", "soft", seen / top, percent(seen)), ("kept", "ours", kept / top, percent(kept))];
        html! {
            div.row {
                div.name { b { (short(&row.key)) } span { (count(row.seen)) " traces" } }
                (shares(&short(&row.key), &bars))
                div.say {
                    b { (count(row.kinds_kept as u64)) " of " (count(row.kinds as u64)) " kinds" }
                    span { (percent(row.kept as f64 / row.seen as f64)) " of its traces, " (percent(row.bytes_kept as f64 / row.bytes.max(1) as f64)) " of its bytes" }
                }
            }
        }
    };
    let (open, closed) = rows.split_at(rows.len().min(ROOTS_OPEN));
    html! {
        h2 { "What you would see" }
        p.note { "Each key's share of all traces beside its share of the kept ones, in one replay (seed " (SEED) ")." }
        @for own in open { (row(own)) }
        @if !closed.is_empty() {
            (folded(&format!("{} more keys", count(closed.len() as u64)), &html! {
                @for own in closed.iter().take(ROOTS_SHOWN) { (row(own)) }
                (more(closed.len(), ROOTS_SHOWN))
            }))
        }
    }
}

/// Kept bytes if traffic changes.
fn tomorrow(report: &Report<'_>) -> Markup {
    let tuning = report.tuning;
    let mut rows = vec![("Traffic as recorded".to_owned(), 1.0, 1.0)];
    let (growth, bounds) = match report.strata {
        Some(strata) => (&strata.growth, &strata.bounds),
        None => (&tuning.growth, &tuning.bounds),
    };
    if let Some(growth) = growth {
        let name = format!("{} × {}", shortened(&line(&growth.key), LETTERS), tick(growth.calls));
        rows.push((name, growth.bytes, growth.kept_bytes));
    }
    let head = report.strata.is_none();
    if let Some(strata) = report.strata {
        rows.push((format!("All requests take {SLOWER} × as long"), 1.0, strata.slower));
    }
    if let Some(kept) = tuning.with_unique_names(report.workload, growth::UNIQUE).filter(|_| head) {
        rows.push(("A third of the calls with unique names".to_owned(), 1.0, kept));
    }
    let config = tuning.config().ok().filter(|_| head);
    if let Some(kept) = config.and_then(|config| growth::doubled(report.workload, &config, tuning.score.tfcr))
    {
        rows.push(("Twice the traffic".to_owned(), 2.0, kept));
    }
    let top = rows.iter().flat_map(|row| [row.1, row.2]).fold(1.0, f64::max);
    let times = |number: f64| format!("× {}", tick(number));
    html! {
        h2 { "What tomorrow may cost" }
        p.note { "All bytes and kept bytes as multiples of today's, as calculated for calls at constant rates." }
        @for (name, seen, kept) in &rows {
            div.row {
                div.name { b { (name) } }
                (shares(name, &[("all", "soft", seen / top, times(*seen)), ("kept", "ours", kept / top, times(*kept))]))
                div.say { b { (times(*kept)) } span { "kept bytes" } }
            }
        }
        @if let Some(bounds) = bounds {
            p { "The cap in the file bounds kept traces to " (whole(bounds.bytes_a_day)) " bytes a day in each process." }
        }
    }
}

/// Decisions at the begin of traces beside those at their ends.
fn head_and_late(late: &TailSummary) -> Markup {
    let bytes = [
        ("head", "soft", late.head.mean, percent(late.head.mean)),
        ("late", "ours", late.tail.mean, percent(late.tail.mean)),
    ];
    html! {
        h2 { "Decided at the start and at the end" }
        p.note { "Head: the sampler decides when a trace starts. Late: policies decide when its root ends, about traces that the sampler dropped and that were recorded." }
        div.row {
            div.name { b { "Share of the bytes" } }
            (shares("Share of the bytes", &bytes))
            div.say { b { (percent(late.head.mean + late.tail.mean)) } span { "together" } }
        }
        @if late.errors > 0 {
            @let errors = late.errors as f64;
            div.row {
                div.name { b { "Traces with errors kept" } }
                (shares("Traces with errors kept", &[("all", "ours", late.errors_kept.mean / errors, format!("{} of {}", whole(late.errors_kept.mean), count(late.errors)))]))
                div.say { span { (whole(late.errors_not_recorded.mean)) " were not recorded" } }
            }
        }
        (table("Late policies", &html! {
            tr { th { "kept by" } th { "traces" } th { "OTLP bytes" } th { "refused for lack of budget" } }
            tr { td.name { "head: " code { (line(&late.sampler)) } } td { (whole(late.head_traces.mean)) } td { "-" } td { "-" } }
            @for policy in &late.policies {
                tr {
                    td.name { "late: " code { (line(&policy.policy)) } } td { (whole(policy.kept.mean)) }
                    td { (whole(policy.kept_otlp_bytes.mean)) } td { (whole(policy.refused.mean)) }
                }
            }
        }))
    }
}

fn measures(report: &Report<'_>) -> Markup {
    let tuning = report.tuning;
    type Row = (&'static str, fn(&Expected) -> String);
    let rows: [Row; 13] = [
        ("dist/entropy", |score| three(score.dist_over_entropy)),
        ("SS, ms", |score| three(score.ss_ms)),
        ("IEn, bits", |score| three(score.entropy_bits)),
        ("call trees", |score| one(score.call_trees)),
        ("functions", |score| one(score.functions)),
        ("error of counts", |score| score.count_error.map_or_else(|| "-".to_owned(), three)),
        ("distance of latencies", |score| score.latency.map_or_else(|| "-".to_owned(), three)),
        ("path kinds", |score| score.paths.map_or_else(|| "-".to_owned(), one)),
        ("distance of path kinds", |score| score.path_distance.map_or_else(|| "-".to_owned(), three)),
        ("size (TFCR)", |score| percent(score.tfcr)),
        ("traces", |score| whole(score.traces)),
        ("spans", |score| whole(score.spans)),
        ("bytes", |score| whole(score.bytes)),
    ];
    folded(
        "All measures",
        &table(
            "All measures",
            &html! {
                tr { th { "measure" } th { "these parameters" } th { "equal share" } }
                @for (name, of) in rows { tr { td { (name) } td { (of(&tuning.score)) } td { (of(&tuning.baseline)) } } }
            },
        ),
    )
}

fn own_parameters(report: &Report<'_>) -> Markup {
    let tuning = report.tuning;
    let found =
        tuning.parameters.config().map_or_else(|error| error.to_string(), |config| config.to_string());
    folded(
        "The parameters",
        &html! {
            p { code { (line(&found)) } }
            @if !tuning.per_root.is_empty() {
                (table("Keys with parameters of their own", &html! {
                    tr { th { "key with its own" } th.left { "probability" } }
                    @for root in tuning.per_root.iter().take(ROOTS_SHOWN) {
                        tr { td.name { (short(&root.key)) } td.left { (own(&root.parameters)) } }
                    }
                }))
                (more(tuning.per_root.len(), ROOTS_SHOWN))
            }
        },
    )
}

/// The probability of a key, or its sampler if that is no constant.
fn own(parameters: &Parameters) -> Markup {
    match parameters {
        Parameters::Constant { probability } => html! { (three(*probability)) },
        other => {
            html! { code { (other.config().map_or_else(|error| error.to_string(), |config| config.to_string())) } }
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
            td.name { (short(on)) } td.left { (what) }
            td { (percent(replayed.tfcr.mean)) } td { (one(replayed.call_trees.mean)) }
            td { (three(replayed.dist_over_entropy.mean)) " ± " (three(replayed.dist_over_entropy.sd)) }
        } }
    };
    folded(
        "Checks on traces that were not tuned on",
        &html! {
            (table("Checks", &html! {
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
            }))
        },
    )
}

fn keys(keys: Option<&KeyChoice>) -> Markup {
    let Some(keys) = keys else { return html! {} };
    folded(
        "Which key to use",
        &html! {
            p { "Tuned briefly, on blocks of time not tuned on: " (keys.because) "." }
            (table("Keys tried", &html! {
                tr {
                    th { "key" } th { "keys" } th { "dist/entropy" } th { "call trees" } th { "size" }
                    th.left { "known when a trace starts" }
                }
                @for (place, row) in keys.keys.iter().enumerate() {
                    tr.best[keys.advised == Some(place)] {
                        td.name { (row.key) } td { (count(row.keys)) }
                        @if row.feasible {
                            td { (three(row.dist_over_entropy)) } td { (one(row.call_trees)) } td { (percent(row.size)) }
                        } @else {
                            td.left colspan="3" { "cannot meet the limits" }
                        }
                        td.left { (if row.known_at_start { "yes" } else { "no" }) }
                    }
                }
            }))
        },
    )
}

fn search(report: &Report<'_>) -> Markup {
    let tuning = report.tuning;
    folded(
        "How it was found",
        &html! {
            p.note {
                "Simulated annealing from " (tuning.starts.len()) " random points with seed " (tuning.seed) "; "
                (count(tuning.evaluations)) " candidates scored in " (three(tuning.seconds)) " s. Each solid line is one start."
                @if !tuning.compared.is_empty() {
                    " Dashed lines are a random search and a grid search, each with as many candidates."
                }
                @if !tuning.per_root.is_empty() {
                    " This shows the search for parameters common to all keys; a search for the keys' own probabilities followed."
                }
            }
            (charts::convergence(tuning))
            (table("Searches", &html! {
                    tr { th { "search" } th { "candidates" } th { "best" } }
                    @for (place, start) in tuning.starts.iter().enumerate() {
                        tr {
                            td { (start.method) " " (place + 1) } td { (count(start.evaluations)) }
                            td { (start.best.map_or_else(|| "-".to_owned(), |best| three(best.objective))) }
                        }
                    }
                    @for search in &tuning.compared {
                        tr {
                            td { (search.method) } td { (count(search.evaluations)) }
                            td { (search.best.map_or_else(|| "-".to_owned(), |best| three(best.objective))) }
                        }
                    }
            }))
        },
    )
}

fn histograms(rows: &[FunctionRow], kept: &KeptTraces) -> Markup {
    folded(
        "Latencies of all calls and of those kept",
        &html! {
            p.note {
                "The " (HISTOGRAMS_SHOWN.min(rows.len())) " functions with the most total time. Grey bars are all calls; coloured bars are "
                "the calls kept in the replay with seed " (SEED) ", "
                @if kept.weighted { "each weighted by the number of traces that its trace stands for. " }
                @else { "unweighted, because this sampler has no weights. " }
                "Each doubling of the duration has two bars; a bar apart on the left is a duration of 0."
            }
            div.grid {
                @for row in rows.iter().take(HISTOGRAMS_SHOWN) {
                    div { h3 { (short(&row.name)) } (charts::histogram(&short(&row.name), &row.histogram)) }
                }
            }
        },
    )
}

fn function_table(rows: &[FunctionRow], kept: &KeptTraces) -> Markup {
    let part = |part: &Part| {
        html! {
            td { (count(part.count)) }
            @if part.count == 0 { td { "-" } td { "-" } td { "-" } }
            @else { td { (three(part.duration_ms.mean)) } td { (three(part.duration_ms.sd)) } td { (three(part.max_ms)) } }
        }
    };
    let row = |row: &FunctionRow| {
        html! {
            tr {
                td.name { (short(&row.name)) }
                (part(&row.all)) (part(&row.kept))
                @if kept.weighted { td { (whole(row.estimated)) } }
            }
        }
    };
    folded(
        "Functions",
        &html! {
            p.note {
                "Durations in ms of all calls, and of those kept in the replay with seed " (SEED) ", by total time."
            }
            (table("Functions", &html! {
                tr {
                    th { "function" }
                    @for of in ["all", "kept"] { th { (of) " calls" } th { (of) " mean" } th { (of) " sd" } th { (of) " max" } }
                    @if kept.weighted { th { "estimated calls" } }
                }
                @for function in rows.iter().take(FUNCTIONS_SHOWN) { (row(function)) }
            }))
            (more(rows.len(), FUNCTIONS_SHOWN))
        },
    )
}

fn missed_trees(report: &Report<'_>, kept: &KeptTraces) -> Markup {
    let rows = trees::missed(report.workload, kept);
    folded(
        "Call trees that were missed",
        &html! {
            @if rows.is_empty() { p { "Every call tree has at least one trace that was kept." } }
            @else {
                p.note {
                    (count(rows.len() as u64)) " of " (count(report.workload.call_trees().into()))
                    " call trees have no trace in the replay with seed " (SEED) "."
                }
                (table("Missed call trees", &html! {
                    tr { th { "key" } th { "traces" } th { "spans" } th.left { "calls" } th.left { "example trace" } }
                    @for row in rows.iter().take(TREES_SHOWN) {
                        tr {
                            td.name { (short(&row.key)) } td { (count(row.traces)) } td { (count(row.spans.into())) } td.name { (short(&row.calls)) }
                            td.left { code { (row.example) } }
                        }
                    }
                }))
                (more(rows.len(), TREES_SHOWN))
            }
        },
    )
}

fn words() -> Markup {
    folded(
        "What the words mean",
        &html! {
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
        },
    )
}
