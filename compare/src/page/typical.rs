//! A typical good and a typical bad trace, side by side, with their differences marked.

use std::collections::HashMap;

use astracer_critical_path::lanes::{Lane, Lanes};
use astracer_critical_path::page::rows;
use astracer_report::chart::legend;
use astracer_report::names::short;
use astracer_report::numbers::three;
use astracer_report::page::table;
use maud::{Markup, html};

use crate::comparison::Comparison;
use crate::details::typical::Typical;

/// A span that takes this share of the longer trace more than the same span of the other trace is
/// marked.
const LONGER: f64 = 0.1;

/// Two traces at one scale, and their values of the first variables.
pub(super) fn pair(comparison: &Comparison, typical: &Typical, lanes: Option<&[Lanes; 2]>) -> Markup {
    html! {
        h2 { "One of each" }
        details {
            summary {
                "A typical good and bad one, side by side"
                @if !typical.r#type.is_empty() { ": " (short(&typical.r#type)) }
            }
            p.note { "Both are near the means of their classes in the metric and in the first variables." }
            @if let Some(lanes) = lanes { (drawn(typical, lanes)) }
            (table("Values of the typical ones", &html! {
                tr { th { "variable" } th.left { "feature" } th { "good" } th { "bad" } }
                tr { td { (short(&comparison.metric.name)) } td {} @for metric in typical.metrics { td { (three(metric)) } } }
                @for (row, values) in comparison.ranked.iter().zip(&typical.values) {
                    tr {
                        td.name { (short(&row.ranked.variable)) } td.left { (row.ranked.feature) }
                        @for value in values { td { (value.map_or_else(|| "-".to_owned(), three)) } }
                    }
                }
            }))
        }
    }
}

fn drawn(typical: &Typical, lanes: &[Lanes; 2]) -> Markup {
    let length = lanes.iter().map(Lanes::length_ns).max().unwrap_or(0);
    html! {
        (legend(&[("fill-good", "in both traces"), ("fill-bad", "▲ missing in the other trace, or longer by a tenth of the request")]))
        p.note { "Both traces have one scale. The thick parts of a bar are on the critical path." }
        div.split {
            @for (at, class) in ["good", "bad"].into_iter().enumerate() {
                @let marks = marked(&spans(&lanes[at]), &spans(&lanes[1 - at]), lanes[1 - at].left_out == 0, length);
                div.card {
                    h3 { (class) ", " (three(lanes[at].length_ns() as f64 / 1e6)) " ms" }
                    p.note { "trace " (short(&typical.ids[at])) }
                    (rows::rows(&lanes[at], length, &|place| marks.get(place) == Some(&true)))
                    @if lanes[at].lanes.is_empty() { p.note { "It has no spans." } }
                }
            }
        }
    }
}

/// A span's service and name, and its length in ns.
type Span<'l> = (&'l str, &'l str, u64);

fn spans(lanes: &Lanes) -> Vec<Span<'_>> {
    let long = |lane: &Lane| lane.end_ns.saturating_sub(lane.start_ns);
    lanes.lanes.iter().map(|lane| (lane.service.as_str(), lane.name.as_str(), long(lane))).collect()
}

/// The spans that the other trace lacks, if all of its spans are here, or has shorter: the n-th
/// span of a name is compared with the n-th there.
fn marked(own: &[Span<'_>], other: &[Span<'_>], is_whole: bool, length_ns: u64) -> Vec<bool> {
    let mut there: HashMap<(&str, &str), Vec<u64>> = HashMap::new();
    for &(service, name, long) in other.iter().rev() {
        there.entry((service, name)).or_default().push(long);
    }
    let differs =
        own.iter().map(|&(service, name, long)| match there.get_mut(&(service, name)).and_then(Vec::pop) {
            Some(same) => long.saturating_sub(same) as f64 > LONGER * length_ns as f64,
            None => is_whole,
        });
    differs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_other_trace_lacks_or_has_shorter_is_marked() {
        let good = [("shop", "request", 100), ("cart", "read", 10), ("pay", "charge", 50)];
        let bad =
            [("shop", "request", 205), ("cart", "read", 12), ("cart", "read", 11), ("pay", "charge", 70)];
        // A tenth of 205 is 20.5: charge takes 20 more.
        assert_eq!(marked(&bad, &good, true, 205), [true, false, true, false]);
        assert_eq!(marked(&bad, &good, false, 205), [true, false, false, false]);
        assert_eq!(marked(&good, &bad, true, 205), [false; 3]);
    }
}
