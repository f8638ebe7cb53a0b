//! A profile as one page for a browser, without scripts or styles from elsewhere.

use std::borrow::Cow;

use astracer_model::text::escaped;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::compare::Difference;
use crate::lanes::Lanes;
use crate::profile::{Profile, Row};
use crate::speedup::Speedup;

mod flame;

const CSS: &str = include_str!("page/page.css");
const SORT: &str = include_str!("page/sort.js");

/// Rows of a table that are shown; a line says how many there are beyond.
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
    /// The latency with some functions faster or slower.
    pub speedup: Option<&'a Speedup>,
    /// The name of the recording compared with.
    pub compared: Option<&'a str>,
    /// The differences from it.
    pub differences: &'a [Difference],
}

/// The page as HTML. Text of the recording is escaped.
pub fn page(report: &Report<'_>) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "astracer critical-path: " (report.title) }
                style { (PreEscaped(CSS)) }
            }
            body {
                h1 { "Critical path of " (report.title) }
                (summary(report))
                h2 { "Critical time by path of calls" }
                p.note { "Each box is a call, as wide as the critical time in it and below it; its own time is where nothing is below. Point at a box for its numbers." }
                (flame::graph(report.by_path))
                (differences(report))
                (table(report))
                @if let Some(lanes) = report.lanes { (trace(lanes)) }
                script { (PreEscaped(SORT)) }
            }
        }
    };
    markup.into_string()
}

fn summary(report: &Report<'_>) -> Markup {
    let (profile, fitting) = (report.profile, &report.profile.fitting);
    let part = |ms: f64| if profile.total_ms > 0.0 { percent(ms / profile.total_ms) } else { percent(0.0) };
    html! {
        p {
            (number(profile.traces as f64)) " traces"
            @if profile.weight != profile.traces as f64 { " for " (number(profile.weight)) }
            ", " (ms(profile.total_ms)) " ms of critical time by the rule " code { (report.rule) } ". A trace takes "
            (ms(profile.length.mean_ms)) " ms"
            @for (percent, value) in report.percentiles.iter().zip(&profile.length.percentiles_ms) { ", p" (percent) " " (ms(*value)) }
            "."
        }
        @if fitting.traces > 0 {
            p.note {
                "In " (number(fitting.traces as f64)) " traces a span lies outside of its parent: "
                (number(fitting.shifted_spans as f64)) " spans of other services were shifted inside (they and those below them have "
                (part(fitting.shifted_ms)) " of the critical time), " (number(fitting.clipped_spans as f64)) " clipped, "
                (number(fitting.dropped_spans as f64)) " left out."
            }
        }
        @if profile.unweighted > 0 {
            p.warn { (number(profile.unweighted as f64)) " traces have no weight and count once." }
        }
        @if let Some(speedup) = report.speedup {
            h2 { "Latency with the factors asked for" }
            div.wide { table {
                tr { th { "of traces" } th { "now, ms" } th { "then, ms" } }
                tr { td { "mean" } td { (ms(speedup.before.mean_ms)) } td { (ms(speedup.after.mean_ms)) } }
                @for (place, percent) in report.percentiles.iter().enumerate() {
                    tr {
                        td { "p" (percent) } td { (ms(speedup.before.percentiles_ms[place])) }
                        td { (ms(speedup.after.percentiles_ms[place])) }
                    }
                }
            } }
        }
    }
}

fn differences(report: &Report<'_>) -> Markup {
    let Some(other) = report.compared else { return html! {} };
    let widest = report.differences.iter().map(|row| row.difference_ms.abs()).fold(0.0, f64::max);
    html! {
        h2 { "Compared with " (other) }
        p.note { "Critical time of a trace, the mean over all traces. The largest differences first." }
        div.wide { table.sortable {
            tr { th { "name" } th { "there, ms" } th { "here, ms" } th { "change, ms" } th.left { } th { "share there" } th { "share here" } }
            @for row in report.differences.iter().take(ROWS_SHOWN) {
                tr {
                    td.name { (name(&row.name)) } td { (ms(row.before_ms)) } td { (ms(row.after_ms)) }
                    td data-v=(row.difference_ms) { @if row.difference_ms > 0.0 { "+" } (ms(row.difference_ms)) }
                    td.left { (bar(row.difference_ms, widest)) }
                    td { (percent(row.share_before)) } td { (percent(row.share_after)) }
                }
            }
        } }
        (more(report.differences.len()))
    }
}

/// A bar to the right for more time, in the other colour for less.
fn bar(value: f64, widest: f64) -> Markup {
    let width = if widest > 0.0 { value.abs() / widest * 8.0 } else { 0.0 };
    let class = if value > 0.0 { "bar up" } else { "bar down" };
    html! { span class=(class) style=(format!("width:{width:.2}rem")) {} }
}

fn table(report: &Report<'_>) -> Markup {
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), ms);
    let row = |row: &Row| {
        html! { tr {
            td.name { (name(&row.name)) } td { (percent(row.share)) } td { (number(row.traces)) } td { (ms(row.time.mean_ms)) }
            @for value in &row.time.percentiles_ms { td { (ms(*value)) } }
            td { (optional(row.drag_ms)) } td { (optional(row.slack_ms)) }
        } }
    };
    html! {
        h2 { "Critical time" }
        p.note {
            "Traces: on whose path it lies. Mean and percentiles: its time on the path in those traces. Drag: how much shorter a "
            "span of it can get before a sibling takes its place on the path. Slack: how much longer a span of it that is "
            "beside the path can get before it is on it. A click on a heading sorts."
        }
        div.wide { table.sortable {
            tr {
                th { "name" } th { "share" } th { "traces" } th { "mean ms" }
                @for percent in report.percentiles { th { "p" (percent) } }
                th { "drag ms" } th { "slack ms" }
            }
            @for entry in report.profile.rows.iter().take(ROWS_SHOWN) { (row(entry)) }
        } }
        (more(report.profile.rows.len()))
    }
}

fn trace(lanes: &Lanes) -> Markup {
    let length = (lanes.end_ns - lanes.start_ns).max(1) as f64;
    let at = |ns: u64| {
        ns.clamp(lanes.start_ns, lanes.end_ns).saturating_sub(lanes.start_ns) as f64 / length * 100.0
    };
    let place =
        |from: u64, to: u64| format!("left:{:.3}%;width:{:.3}%", at(from), (at(to) - at(from)).max(0.15));
    html! {
        h2 { "Trace " (lanes.trace_id) }
        p.note { "One row for each span; the dark parts are the critical path. " (ms(length / 1e6)) " ms from left to right." }
        div.lanes {
            @for lane in &lanes.lanes {
                div.lane title=(format!("{} {}: {} ms, {} ms on the path", escaped(&lane.service), text(&lane.name), ms((lane.end_ns - lane.start_ns) as f64 / 1e6), ms(lane.critical_ns as f64 / 1e6))) {
                    div.label style=(format!("padding-left:{}ch", lane.depth.min(24))) {
                        (text(&lane.name)) " " span.note { (escaped(&lane.service)) }
                    }
                    div.time {
                        span.span style=(place(lane.start_ns, lane.end_ns)) {}
                        @for &(from, to) in &lane.critical { @if from < to { span.critical style=(place(from, to)) {} } }
                    }
                }
            }
        }
        @if lanes.left_out > 0 { p.note { "... and " (number(lanes.left_out as f64)) " spans that are not drawn." } }
    }
}

fn more(rows: usize) -> Markup {
    html! { @if rows > ROWS_SHOWN { p.note { "... and " (number((rows - ROWS_SHOWN) as f64)) " more." } } }
}

/// A name as one line that nothing in it reorders.
fn text(name: &str) -> Cow<'_, str> {
    if name.is_empty() { Cow::Borrowed("(unnamed)") } else { escaped(name) }
}

fn name(names: &[String]) -> String {
    names.iter().map(|name| text(name)).collect::<Vec<_>>().join(" > ")
}

fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// About four digits.
fn ms(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1000.0 => number(value),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        size if size >= 0.001 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

/// Without a fraction, with a comma before each three digits.
fn number(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = if value <= -0.5 { "-".to_owned() } else { String::new() };
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
