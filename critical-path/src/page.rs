//! A profile as one self-contained HTML page.

use astracer_report::chart::legend;
use astracer_report::names::{path, short, shortened};
use astracer_report::numbers::{change, count, percent, span, three, whole};
use astracer_report::page::{Next, Page, Tone, more, table};
use maud::{Markup, html};

use crate::compare::Comparison;
use crate::lanes::Lanes;
use crate::profile::{Profile, Row};
use crate::speedup::Speedup;

mod icicle;
pub mod rows;

/// The greatest number of rows shown of a table; a line states how many more there are.
const ROWS_SHOWN: usize = 500;
/// The letters of a name in the page's answer.
const LETTERS: usize = 60;

/// The contents of the page.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The recording's name.
    pub title: &'a str,
    /// The rule by which paths were found.
    pub rule: &'a str,
    /// The percentiles of [`crate::Summary`], 0 to 100.
    pub percentiles: &'a [f64],
    /// The table.
    pub profile: &'a Profile,
    /// A sentence on how to read the figures, such as of a sample whose weights are not used.
    pub hint: Option<&'a str>,
    /// The icicle.
    pub by_path: &'a Profile,
    /// One trace with its path.
    pub lanes: Option<&'a Lanes>,
    /// The latency if some functions were faster or slower.
    pub speedup: Option<&'a Speedup>,
    /// The name of the other recording.
    pub compared: Option<&'a str>,
    /// The differences from the other recording.
    pub comparison: Option<&'a Comparison>,
    /// Commands to run next.
    pub next: &'a [Next],
}

/// The page as HTML. Text from the recording is escaped.
pub fn page(report: &Report<'_>) -> String {
    let title = format!("astracer critical-path: {}", short(report.title));
    let about = match report.compared {
        Some(other) => {
            format!("astracer critical-path · {} compared with {}", short(report.title), short(other))
        }
        None => format!("astracer critical-path · {}", short(report.title)),
    };
    let body = html! {
        (profile(report))
        (differences(report))
        (speedup(report))
        @if let Some(lanes) = report.lanes { (trace(lanes)) }
        (fitting(report))
    };
    Page {
        title: &title,
        about: &about,
        answer: &answer(report),
        picture: picture(report),
        tone: Tone::Plain,
        next: report.next,
        script: Some(include_str!("page/link.js")),
    }
    .html(&body)
}

fn answer(report: &Report<'_>) -> String {
    if let Some(comparison) = report.comparison {
        let (before, after) = (three(comparison.before_ms), three(comparison.after_ms));
        return format!("A trace takes {after} ms instead of {before} ms");
    }
    match report.profile.rows.first() {
        Some(row) if row.total_ms > 0.0 => {
            format!(
                "{} of the time of requests is spent in {}",
                percent(row.share),
                shortened(&path(&row.name), LETTERS)
            )
        }
        _ => "No trace takes any time".to_owned(),
    }
}

/// The certainty of the answer, and the icicle.
fn picture(report: &Report<'_>) -> Markup {
    let profile = report.profile;
    html! {
        p {
            (whole(profile.traces as f64)) " traces"
            @if profile.weight != profile.traces as f64 { ", which stand for " (whole(profile.weight)) }
            ", with " (span(profile.total_ms / 1e3)) " on their critical paths (rule " code { (report.rule) } "). A trace takes "
            (three(profile.length.mean_ms)) " ms on average"
            @for (percent, value) in report.percentiles.iter().zip(&profile.length.percentiles_ms) { ", p" (percent) " " (three(*value)) " ms" }
            "."
        }
        @if let Some(comparison) = report.comparison {
            p {
                (change(comparison.same_roots_ms)) " ms in traces of the same roots, " (change(comparison.mix_ms))
                " ms because the mix of roots differs."
                @if comparison.new_roots > 0.0 { " " (percent(comparison.new_roots)) " of the traces here have roots that do not occur there." }
            }
        }
        @if let Some(hint) = report.hint { p { "Hint: " (hint) "." } }
        @if profile.unweighted > 0 {
            p { (whole(profile.unweighted as f64)) " traces have no weight and count as one." }
        }
        @if report.comparison.is_some() {
            (legend(&[("up-3", "more time than there"), ("down-3", "less time"), ("up-0", "no certain change")]))
        } @else {
            (legend(&[("up-3", "its own time"), ("up-0", "time of calls below")]))
        }
        (icicle::icicle(report))
    }
}

fn speedup(report: &Report<'_>) -> Markup {
    let Some(speedup) = report.speedup else { return html! {} };
    html! {
        h2 { "Latency if functions took a different time" }
        (table("Latency now and then", &html! {
            tr { th { "latency of traces" } th { "now, ms" } th { "then, ms" } }
            tr { td { "mean" } td { (three(speedup.before.mean_ms)) } td { (three(speedup.after.mean_ms)) } }
            @for (place, percent) in report.percentiles.iter().enumerate() {
                tr {
                    td { "p" (percent) } td { (three(speedup.before.percentiles_ms[place])) }
                    td { (three(speedup.after.percentiles_ms[place])) }
                }
            }
        }))
    }
}

fn fitting(report: &Report<'_>) -> Markup {
    let (profile, fitting) = (report.profile, &report.profile.fitting);
    let part = |ms: f64| percent(if profile.total_ms > 0.0 { ms / profile.total_ms } else { 0.0 });
    html! {
        @if fitting.traces > 0 {
            h2 { "Spans outside their parents" }
            p {
                "In " (count(fitting.traces)) " traces a span lies outside its parent: "
                (count(fitting.shifted_spans))
                " spans of other services were shifted into their parents (their subtrees hold "
                (part(fitting.shifted_ms)) " of the critical time), " (count(fitting.clipped_spans)) " were clipped, and "
                (count(fitting.dropped_spans)) " were left out."
            }
        }
    }
}

fn differences(report: &Report<'_>) -> Markup {
    let (Some(other), Some(comparison)) = (report.compared, report.comparison) else { return html! {} };
    let rows = &comparison.differences;
    let columns =
        ["there, ms", "here, ms", "same roots, ms", "± 95 %", "by mix, ms", "share there", "share here"];
    html! {
        h2 { "Compared with " (short(other)) }
        p.note {
            "Mean critical time of a trace. Same roots: the change for the roots that occur in both, weighted by their shares here. The
            largest change beyond its 95 % interval comes first."
        }
        (table("Differences", &html! {
            tr { th { "name" } @for column in columns { th { (column) } } }
            @for row in rows.iter().take(ROWS_SHOWN) {
                tr {
                    td.name { (short(&path(&row.name))) } td { (three(row.before_ms)) } td { (three(row.after_ms)) }
                    td data-v=(row.same_roots_ms) { (change(row.same_roots_ms)) } td { (three(1.96 * row.error_ms)) }
                    td data-v=(row.mix_ms) { (change(row.mix_ms)) }
                    td { (percent(row.share_before)) } td { (percent(row.share_after)) }
                }
            }
        }))
        (more(rows.len(), ROWS_SHOWN))
    }
}

fn profile(report: &Report<'_>) -> Markup {
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), three);
    let row = |(place, row): (usize, &Row)| {
        html! { tr data-n=(place) {
            td.name { (short(&path(&row.name))) } td { (percent(row.share)) } td { (three(row.time.mean_ms)) }
            td { (optional(row.drag_ms)) } td { (optional(row.slack_ms)) }
            @for value in &row.time.percentiles_ms { td { (three(*value)) } }
            td { (whole(row.traces)) }
        } }
    };
    html! {
        h2 { "Calls on the path" }
        p.note {
            "Drag: how much shorter a span can become before another call replaces it on the path. Slack: how much longer its spans "
            "beside the path can become before they are on it. Times are ms, of the traces that have the call on their path."
        }
        div.near { (table("Calls on the path", &html! {
            tr {
                th { "call" } th { "share" } th { "mean ms" } th { "drag ms" } th { "slack ms" }
                @for percent in report.percentiles { th { "p" (percent) " ms" } }
                th { "traces" }
            }
            @for entry in report.profile.rows.iter().take(ROWS_SHOWN).enumerate() { (row(entry)) }
        })) }
        (more(report.profile.rows.len(), ROWS_SHOWN))
    }
}

fn trace(lanes: &Lanes) -> Markup {
    html! {
        h2 { "Trace " (lanes.trace_id) }
        p.note { "Each row is a span; the thick parts of its bar are on the critical path. " (three(lanes.length_ns() as f64 / 1e6)) " ms from left to right." }
        (rows::rows(lanes, lanes.length_ns(), &|_| false))
    }
}
