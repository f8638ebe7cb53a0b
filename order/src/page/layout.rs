//! The column of each event in the diagram.
//!
//! Time runs from left to right. Gaps are drawn by their logarithm, because bursts of microseconds
//! and pauses of seconds have to fit into one picture. Within one moment, each event is drawn to
//! the right of its causes.

use crate::goal::Goal;
use crate::links::Links;
use crate::select::Selection;
use crate::text::time;
use crate::vectors::Lines;

/// The distance of an event from its cause at the same moment, and of clocks.
const STEP: f64 = 7.0;
/// The width of a gap of a microsecond, and of each doubling of it.
const DOUBLING: f64 = 1.6;

/// The horizontal place of each event, from 0; events that were not chosen are at 0.
pub(super) fn columns(links: &Links<'_>, lines: &Lines, chosen: &Selection, goal: Goal) -> Vec<f64> {
    let order = links.order();
    let mut x = vec![0.0; order.events.len()];
    let moment = |event: u32| match goal {
        Goal::Time => time(order, event),
        Goal::Concurrency => u64::from(order.clocks[event as usize]),
    };
    // In the order, so that causes come first within each moment.
    let mut by_time: Vec<u32> = chosen.events.clone();
    by_time.sort_by_key(|&event| moment(event));
    let (mut at, mut end, mut now) = (0.0f64, 0.0f64, None);
    let mut last_on_line = vec![f64::NEG_INFINITY; lines.len()];
    for event in by_time {
        let own = moment(event);
        if now != Some(own) {
            let gap = match (goal, now) {
                (_, None) => 0.0,
                (Goal::Concurrency, Some(before)) => STEP * (own - before) as f64,
                (Goal::Time, Some(before)) => STEP + DOUBLING * ((own - before) as f64 / 1e3).ln_1p(),
            };
            at = end + gap;
            now = Some(own);
        }
        let line = lines.of(event) as usize;
        let causes = chosen.causes(event).iter().map(|link| x[link.before as usize] + STEP);
        let here = causes.fold(at.max(last_on_line[line] + STEP), f64::max);
        // A cause with a later time does not push its effect: the arrow back shows the
        // contradiction.
        let here = if here > end.max(at) + STEP { end.max(at) } else { here };
        (x[event as usize], last_on_line[line]) = (here, here);
        end = end.max(here);
    }
    x
}
