//! One trace as a waterfall: a row for each span.

use astracer_report::chart::pc;
use astracer_report::names::short;
use astracer_report::numbers::{count, three};
use maud::{Markup, html};

use crate::lanes::{Lane, Lanes};

/// The least width of a mark in the drawing of a trace, in percent.
const MARK_PERCENT: f64 = 0.3;
/// Deeper spans are indented as this depth.
const DEPTH_MAX: u32 = 12;

/// The lanes as rows. The whole width is `length_ns`, which is at least the trace's own length.
/// Rows for which `is_marked` is true have another colour and a mark beside their name.
pub fn rows(lanes: &Lanes, length_ns: u64, is_marked: &dyn Fn(usize) -> bool) -> Markup {
    let length = length_ns.max(1) as f64;
    let at = |ns: u64| {
        ns.clamp(lanes.start_ns, lanes.end_ns).saturating_sub(lanes.start_ns) as f64 / length * 100.0
    };
    let drawn = |from: u64, to: u64| (at(from), at(to).max(at(from) + MARK_PERCENT));
    let critical = |lane: &Lane| {
        let parts = lane.critical.iter().filter(|(from, to)| from < to);
        joined(parts.map(|&(from, to)| drawn(from, to)).collect())
    };
    let bar = |class: &str, high: f64, (from, to): (f64, f64)| {
        html! { rect class=(class) x=(pc(from)) width=(pc(to - from)) y=((18.0 - high) / 2.0) height=(high) rx="2" {} }
    };
    html! {
        div {
            @for (place, lane) in lanes.lanes.iter().enumerate() {
                @let class = if is_marked(place) { "fill-bad" } else { "fill-good" };
                div.lane {
                    div title=(format!("{} {}: {} ms on the path", short(&lane.service), short(&lane.name), three(lane.critical_ns as f64 / 1e6))) {
                        @for _ in 0..lane.depth.min(DEPTH_MAX) { "\u{2003}" }
                        @if is_marked(place) { "\u{25b2} " }
                        (short(&lane.name)) " " span.note { (short(&lane.service)) }
                    }
                    svg height="18" aria-hidden="true" {
                        (bar(&format!("{class} faint"), 6.0, drawn(lane.start_ns, lane.end_ns)))
                        @for part in critical(lane) { (bar(class, 12.0, part)) }
                    }
                    div { (three((lane.end_ns.saturating_sub(lane.start_ns)) as f64 / 1e6)) " ms" }
                }
            }
        }
        @if lanes.left_out > 0 { p.note { (count(lanes.left_out)) " more spans are not drawn." } }
    }
}

/// The parts of a lane from left to right, with touching parts joined: a span may be interrupted by
/// a million children.
fn joined(mut parts: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    parts.sort_by(|one, other| one.0.total_cmp(&other.0));
    parts.dedup_by(|next, before| {
        let touches = next.0 <= before.1;
        before.1 = if touches { before.1.max(next.1) } else { before.1 };
        touches
    });
    parts
}
