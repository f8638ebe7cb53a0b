//! The samplers of the tuning report: all of them at equal size, and single runs of the best.

use astracer_report::names::short;
use astracer_report::numbers::{count, one, percent, three};
use astracer_report::page::{folded, table};
use maud::{Markup, html};

use super::Report;
use super::charts::{self, Measure};
use crate::curves::{CurvePoint, Curves, Series};
use crate::held_out::Replayed;
use crate::statistics::Twentieths;

pub(super) fn interval([low, high]: [f64; 2]) -> String {
    format!("{} to {}", three(low), three(high))
}

/// The sampler `own` and the best others by dist/entropy.
pub(super) fn by_size(curves: &Curves, own: &str) -> Markup {
    charts::by_size(curves, own, &DIST, false)
}

const DIST: Measure =
    Measure { what: "dist/entropy, lower is better", of: |point| point.dist_over_entropy, log: true };
const TREES: Measure =
    Measure { what: "call trees, higher is better", of: |point| point.call_trees, log: false };

pub(super) fn at_equal_size(curves: Option<&Curves>) -> Markup {
    let Some(curves) = curves else { return html! {} };
    folded(
        "All samplers at equal size",
        &html! {
            p.note {
                "Each sampler at up to three sizes; each point is the mean of several replays. astracer's samplers were tuned for each "
                "size. Baselines were adjusted to keep as much, with periods short enough to pass several times in this recording. The "
                "dashed line is an equal share of everything."
            }
            div.split { (charts::by_size(curves, "", &DIST, true)) (charts::by_size(curves, "", &TREES, true)) }
            @for (place, size) in curves.sizes.iter().enumerate() { (size_table(curves, place, *size)) }
        },
    )
}

/// The samplers at one size: those that keep it, by dist/entropy, then those that cannot.
fn size_table(curves: &Curves, place: usize, size: f64) -> Markup {
    let mut rows: Vec<(&Series, &CurvePoint)> = curves
        .series
        .iter()
        .filter_map(|series| Some((series, series.points.get(place)?.as_ref()?)))
        .collect();
    rows.sort_by(|a, b| {
        b.1.size_met.cmp(&a.1.size_met).then(a.1.dist_over_entropy.total_cmp(&b.1.dist_over_entropy))
    });
    // This tuning has a point at the first size only.
    let missing = curves.series.iter().enumerate().filter(|(index, _)| *index != 1).map(|(_, series)| series);
    let missing = missing.filter(|series| series.points.get(place).is_none_or(Option::is_none));
    let missing: Vec<&str> = missing.map(|series| series.name.as_str()).collect();
    html! {
        h3 { "At " (percent(size)) " of the bytes" }
        (table(&format!("Samplers at {}", percent(size)), &html! {
            tr {
                th { "sampler" } th { "dist/entropy" } th { "call trees" } th { "size" }
                th.left { "what it does, and its parameters here" }
            }
            @for (series, point) in &rows {
                tr.best[series.ours] {
                    td.left { (series.name) }
                    td { (three(point.dist_over_entropy)) } td { (one(point.call_trees)) }
                    td { (percent(point.size)) @if !point.size_met { " \u{2260}" } }
                    td.name { (series.about) " " code { (short(&without_keys(&point.sampler))) } }
                }
            }
        }))
        @if rows.iter().any(|(.., point)| !point.size_met) {
            p.note { "\u{2260}: cannot keep this size; shown at the nearest one, so not comparable with the other rows." }
        }
        @if !missing.is_empty() { p.note { "Cannot keep this little: " (missing.join(", ")) "." } }
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

/// The single runs of the parameters, of an equal share and of the best baseline.
pub(super) fn runs<'r>(
    report: &'r Report<'_>,
    replayed: &'r Replayed,
) -> Vec<(&'static str, &'static str, &'r Twentieths)> {
    let best = report.curves.and_then(|curves| curves.best_baseline.as_ref()).map(|(_, replayed)| replayed);
    let rows = [
        ("ours", "ours", Some(replayed)),
        ("equal", "bad", report.tuning.replayed_share.as_ref()),
        ("best", "soft", best),
    ];
    rows.into_iter()
        .filter_map(|(name, colour, row)| Some((name, colour, &row?.dist_over_entropy_runs)))
        .collect()
}

/// The figures to trust: those on draws that the search did not use.
pub(super) fn draws(report: &Report<'_>) -> Markup {
    let tuning = report.tuning;
    let Some(replayed) = &tuning.replayed else { return html! {} };
    let best = report.curves.and_then(|curves| curves.best_baseline.as_ref());
    let best_name = best.map_or_else(String::new, |(name, _)| format!("best other sampler: {name}"));
    let rows = [
        ("these parameters", Some(replayed)),
        ("an equal share of this size", tuning.replayed_share.as_ref()),
        (&best_name, best.map(|(_, replayed)| replayed)),
    ];
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), three);
    folded(
        "Single runs",
        &html! {
            p.note {
                "From " (count(replayed.replays)) " replays with random phases, jitters and seeds that the search did not see. A service "
                "sees one run. Half of the runs are in the high bar, nine of ten in the low one, all on the line; the dot is the median."
                @if let Some(luck) = tuning.bootstrap {
                    " On resampled blocks of this recording's time, 90 % of runs have a dist/entropy of "
                    (interval(luck.run_interval)) ": that much depends on what happened to be recorded."
                }
            }
            (charts::runs(&runs(report, replayed)))
            (table("Single runs", &html! {
                tr {
                    th { "runs of" } th { "dist/entropy" } th { "95 % interval of the mean" } th { "nine of ten runs" }
                    th { "with weights" } th { "size" } th { "error of counts" } th { "the same, calibrated" }
                }
                @for (name, row) in rows { @if let Some(row) = row {
                    tr {
                        td.name { (name) } td { (three(row.dist_over_entropy.mean)) }
                        td { (interval(row.dist_over_entropy.mean_interval)) } td { (interval(row.dist_over_entropy.run_interval)) }
                        td { (optional(row.dist_over_entropy_weighted.map(|weighted| weighted.mean))) }
                        td { (percent(row.tfcr.mean)) }
                        td { (optional(row.counts.map(|counts| counts.functions))) }
                        td { (optional(row.counts.map(|counts| counts.functions_calibrated))) }
                    }
                } }
            }))
        },
    )
}
