//! A typical good and a typical bad trace, side by side.

use astracer_report::names::{line, named};
use astracer_report::numbers::{count, measure, optional};
use astracer_report::page::table;
use maud::{Markup, html};

use crate::comparison::Comparison;
use crate::details::typical::Typical;
use astracer_critical_path::lanes::Lanes;
use astracer_critical_path::page::rows;

/// Two traces at one scale, and their values of the first variables.
pub(super) fn pair(comparison: &Comparison, typical: &Typical, lanes: Option<&[Lanes; 2]>) -> Markup {
    html! {
        h2 { "A typical good and bad trace" }
        p.note {
            "Both are "
            @if !typical.r#type.is_empty() { "of the type " b { (line(&typical.r#type)) } " and " }
            "near the means of their classes in P and in the first variables."
            @if lanes.is_some() { " Each row is a span; its dark parts are on the critical path. Both have one scale." }
        }
        @if let Some(lanes) = lanes { (drawn(typical, lanes)) }
        (table(&html! {
            tr { th { "variable" } th { "feature" } th { "good" } th { "bad" } }
            tr { td { "trace" } td {} @for id in &typical.ids { td.id { (line(id)) } } }
            tr { td { "P" } td {} @for metric in typical.metrics { td { (measure(metric)) } } }
            @for (row, values) in comparison.ranked.iter().zip(&typical.values) {
                tr {
                    td.name { (line(named(&row.ranked.variable))) } td { (row.ranked.feature) }
                    @for value in values { td { (optional(*value)) } }
                }
            }
        }))
    }
}

fn drawn(typical: &Typical, lanes: &[Lanes; 2]) -> Markup {
    let length = lanes.iter().map(Lanes::length_ns).max().unwrap_or(0);
    html! {
        div.pair {
            @for ((class, id), lanes) in ["good", "bad"].iter().zip(&typical.ids).zip(lanes) {
                div {
                    h3 { (class) ": " (line(id)) }
                    p.note { (measure(lanes.length_ns() as f64 / 1e6)) " ms" }
                    (rows::rows(lanes, length))
                    @if lanes.lanes.is_empty() { p.note { (count(0)) " spans" } }
                }
            }
        }
    }
}
