//! A profile as one self-contained HTML page.

use astracer_report::names::path;
use astracer_report::numbers::{count, measure, optional, percent, signed, span, whole};
use astracer_report::page::{Page, sortable, table};
use maud::{Markup, html};

use crate::compare::Comparison;
use crate::lanes::Lanes;
use crate::profile::{Profile, Row};
use crate::speedup::Speedup;

mod flame;
pub mod rows;

const CSS: &str = include_str!("page/page.css");

/// The greatest number of rows shown of a table; a line states how many more there are.
const ROWS_SHOWN: usize = 500;

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
    /// The flame graph.
    pub by_path: &'a Profile,
    /// One trace with its path.
    pub lanes: Option<&'a Lanes>,
    /// The latency if some functions were faster or slower.
    pub speedup: Option<&'a Speedup>,
    /// The name of the other recording.
    pub compared: Option<&'a str>,
    /// The differences from the other recording.
    pub comparison: Option<&'a Comparison>,
}

/// The page as HTML. Text from the recording is escaped.
pub fn page(report: &Report<'_>) -> String {
    let title = format!("astracer critical-path: {}", report.title);
    let body = html! {
        h1 { "Critical path of " (report.title) }
        (summary(report))
        h2 { "Critical time by call path" }
        p.note { "Each box is a call. Its width is the critical time in the call and below it; where nothing is below, the time is its own. Point at a box for its numbers." }
        (flame::graph(report.by_path))
        (differences(report))
        (profile(report))
        @if let Some(lanes) = report.lanes { (trace(lanes)) }
    };
    Page { title: &title, css: &[CSS, rows::CSS].concat(), sortable: true }.html(&body)
}

fn summary(report: &Report<'_>) -> Markup {
    let (profile, fitting) = (report.profile, &report.profile.fitting);
    let part = |ms: f64| if profile.total_ms > 0.0 { percent(ms / profile.total_ms) } else { percent(0.0) };
    html! {
        p {
            (whole(profile.traces as f64)) " traces"
            @if profile.weight != profile.traces as f64 { ", which stand for " (whole(profile.weight)) }
            ", with " (span(profile.total_ms / 1e3)) " of critical time (rule " code { (report.rule) } "). A trace takes "
            (measure(profile.length.mean_ms)) " ms on average"
            @for (percent, value) in report.percentiles.iter().zip(&profile.length.percentiles_ms) { ", p" (percent) " " (measure(*value)) }
            "."
        }
        @if fitting.traces > 0 {
            p.note {
                "In " (count(fitting.traces)) " traces a span lies outside its parent: "
                (count(fitting.shifted_spans))
                " spans of other services were shifted into their parents (their subtrees hold "
                (part(fitting.shifted_ms)) " of the critical time), " (count(fitting.clipped_spans)) " were clipped, and "
                (count(fitting.dropped_spans)) " were left out."
            }
        }
        @if profile.unweighted > 0 {
            p.warn { (whole(profile.unweighted as f64)) " traces have no weight and count as one." }
        }
        @if let Some(speedup) = report.speedup {
            h2 { "Latency if functions took a different time" }
            (table(&html! {
                tr { th { "latency of traces" } th { "now, ms" } th { "then, ms" } }
                tr { td { "mean" } td { (measure(speedup.before.mean_ms)) } td { (measure(speedup.after.mean_ms)) } }
                @for (place, percent) in report.percentiles.iter().enumerate() {
                    tr {
                        td { "p" (percent) } td { (measure(speedup.before.percentiles_ms[place])) }
                        td { (measure(speedup.after.percentiles_ms[place])) }
                    }
                }
            }))
        }
    }
}

fn differences(report: &Report<'_>) -> Markup {
    let (Some(other), Some(comparison)) = (report.compared, report.comparison) else { return html! {} };
    let rows = &comparison.differences;
    let widest = rows.iter().map(|row| row.same_roots_ms.abs()).fold(0.0, f64::max);
    let columns =
        ["there, ms", "here, ms", "same roots, ms", "± 95 %", "", "by mix, ms", "share there", "share here"];
    html! {
        h2 { "Compared with " (other) }
        p {
            "A trace takes " (measure(comparison.before_ms)) " ms there and " (measure(comparison.after_ms)) " ms here: "
            (signed(comparison.same_roots_ms)) " ms for the same roots, " (signed(comparison.mix_ms))
            " ms because the mix of roots differs."
            @if comparison.new_roots > 0.0 { " " (percent(comparison.new_roots)) " of the traces here have roots that do not occur there." }
        }
        p.note {
            "Mean critical time per trace. Same roots: the change for the roots that occur in both, weighted by their shares here. The
            largest change beyond its 95 % interval comes first."
        }
        (sortable(&html! {
            tr { th { "name" } @for column in columns { th { (column) } } }
            @for row in rows.iter().take(ROWS_SHOWN) {
                tr {
                    td.name { (path(&row.name)) } td { (measure(row.before_ms)) } td { (measure(row.after_ms)) }
                    td data-v=(row.same_roots_ms) { (signed(row.same_roots_ms)) } td { (measure(1.96 * row.error_ms)) }
                    td.left { (bar(row.same_roots_ms, widest)) } td data-v=(row.mix_ms) { (signed(row.mix_ms)) }
                    td { (percent(row.share_before)) } td { (percent(row.share_after)) }
                }
            }
        }))
        (beyond(rows.len()))
    }
}

/// A bar whose class gives the colour: `up` for more time, `down` for less.
fn bar(value: f64, widest: f64) -> Markup {
    let width = if widest > 0.0 { value.abs() / widest * 8.0 } else { 0.0 };
    let class = if value > 0.0 { "bar up" } else { "bar down" };
    html! { span class=(class) style=(format!("width:{width:.2}rem")) {} }
}

fn profile(report: &Report<'_>) -> Markup {
    let row = |row: &Row| {
        html! { tr {
            td.name { (path(&row.name)) } td { (percent(row.share)) } td { (whole(row.traces)) } td { (measure(row.time.mean_ms)) }
            @for value in &row.time.percentiles_ms { td { (measure(*value)) } }
            td { (optional(row.drag_ms)) } td { (optional(row.slack_ms)) }
        } }
    };
    html! {
        h2 { "Critical time" }
        p.note {
            "Traces: how many have it on their critical path. Mean and percentiles: its time on the path in those traces. Drag: how "
            "much shorter its spans can become before a sibling replaces them on the path. Slack: how much longer its spans beside "
            "the path can become before they are on it. Click on a heading to sort."
        }
        (sortable(&html! {
            tr {
                th { "name" } th { "share" } th { "traces" } th { "mean ms" }
                @for percent in report.percentiles { th { "p" (percent) } }
                th { "drag ms" } th { "slack ms" }
            }
            @for entry in report.profile.rows.iter().take(ROWS_SHOWN) { (row(entry)) }
        }))
        (beyond(report.profile.rows.len()))
    }
}

fn trace(lanes: &Lanes) -> Markup {
    html! {
        h2 { "Trace " (lanes.trace_id) }
        p.note { "Each row is a span; its dark parts are on the critical path. " (measure(lanes.length_ns() as f64 / 1e6)) " ms from left to right." }
        (rows::rows(lanes, lanes.length_ns()))
    }
}

/// A line stating how many rows of a sortable table are not shown. It is outside the table, so that
/// it is not sorted.
fn beyond(rows: usize) -> Markup {
    html! { @if rows > ROWS_SHOWN { p.note { (count((rows - ROWS_SHOWN) as u64)) " more rows are not shown." } } }
}
