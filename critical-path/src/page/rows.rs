//! The lanes of one trace as rows of a page.

use astracer_report::names::line;
use astracer_report::numbers::{count, measure};
use maud::{Markup, html};

use crate::lanes::{Lane, Lanes};

/// The styles of the rows.
pub const CSS: &str = include_str!("rows.css");

/// The least width of a mark in the drawing of a trace, in percent.
const MARK_PERCENT: f64 = 0.15;

/// The lanes as rows. The whole width is `length_ns`, which is at least the trace's own length.
pub fn rows(lanes: &Lanes, length_ns: u64) -> Markup {
    let length = length_ns.max(1) as f64;
    let at = |ns: u64| {
        ns.clamp(lanes.start_ns, lanes.end_ns).saturating_sub(lanes.start_ns) as f64 / length * 100.0
    };
    let place = |(left, right): (f64, f64)| format!("left:{left:.3}%;width:{:.3}%", right - left);
    let drawn = |from: u64, to: u64| (at(from), at(to).max(at(from) + MARK_PERCENT));
    let critical = |lane: &Lane| {
        let parts = lane.critical.iter().filter(|(from, to)| from < to);
        joined(parts.map(|&(from, to)| drawn(from, to)).collect())
    };
    html! {
        div.lanes {
            @for lane in &lanes.lanes {
                div.lane title=(format!("{} {}: {} ms, {} ms on the path", line(&lane.service), line(&lane.name), measure((lane.end_ns - lane.start_ns) as f64 / 1e6), measure(lane.critical_ns as f64 / 1e6))) {
                    div.label style=(format!("padding-left:{}ch", lane.depth.min(24))) {
                        (line(&lane.name)) " " span.note { (line(&lane.service)) }
                    }
                    div.time {
                        span.span style=(place(drawn(lane.start_ns, lane.end_ns))) {}
                        @for part in critical(lane) { span.critical style=(place(part)) {} }
                    }
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
