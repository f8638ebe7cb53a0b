//! The icicle: a box for each call path below the box of its caller, as wide as its time on the
//! critical path.

use std::collections::BTreeMap;

use astracer_report::chart::pc;
use astracer_report::names::short;
use astracer_report::numbers::{change, percent, three};
use maud::{Markup, html};

use super::Report;
use crate::compare::Difference;
use crate::profile::{Profile, Row};

/// Boxes narrower than this share of the graph are not drawn; their time is part of their callers'
/// boxes.
const NARROWEST: f64 = 0.002;
/// The greatest number of boxes.
const BOXES_MAX: usize = 2000;
/// The greatest depth.
const DEPTH_MAX: usize = 40;
/// The height of a box, in pixels.
const HIGH: f64 = 21.0;

#[derive(Default)]
struct Box<'p> {
    /// The time of the path and of all paths below it, ms.
    total_ms: f64,
    own_ms: f64,
    below: BTreeMap<&'p str, Box<'p>>,
}

/// A box with its place.
struct Drawn<'p> {
    left: f64,
    path: Vec<&'p str>,
    total_ms: f64,
    own_ms: f64,
}

impl<'p> Box<'p> {
    fn of(by_path: &'p Profile) -> Self {
        let mut root = Box::default();
        for row in by_path.rows.iter().filter(|row| row.total_ms > 0.0) {
            let mut at = &mut root;
            at.total_ms += row.total_ms;
            for name in row.name.iter().take(DEPTH_MAX) {
                at = at.below.entry(name).or_default();
                at.total_ms += row.total_ms;
            }
            at.own_ms += row.total_ms;
        }
        root
    }

    /// The boxes to draw; callers come first.
    fn drawn(&self) -> Vec<Drawn<'p>> {
        let mut boxes: Vec<Drawn<'p>> = Vec::new();
        let mut waiting: Vec<(f64, Vec<&'p str>, &Box<'p>)> = vec![(0.0, Vec::new(), self)];
        while let Some((left, path, caller)) = waiting.pop() {
            let mut children: Vec<_> = caller.below.iter().collect();
            children.sort_by(|a, b| b.1.total_ms.total_cmp(&a.1.total_ms));
            let mut at = left;
            for (name, child) in children {
                let share = child.total_ms / self.total_ms;
                if share < NARROWEST || boxes.len() >= BOXES_MAX {
                    break;
                }
                let path: Vec<&str> = path.iter().copied().chain([*name]).collect();
                waiting.push((at, path.clone(), child));
                boxes.push(Drawn { left: at, path, total_ms: child.total_ms, own_ms: child.own_ms });
                at += share;
            }
        }
        boxes
    }
}

/// True if a row of a table is about the calls of this path.
fn is_of(name: &[String], path: &[&str]) -> bool {
    name.iter().eq(path) || (name.len() == 1 && path.last() == Some(&name[0].as_str()))
}

pub(super) fn icicle(report: &Report<'_>) -> Markup {
    let root = Box::of(report.by_path);
    let all = root.total_ms;
    if all <= 0.0 {
        return html! { p { "All traces have length zero." } };
    }
    let boxes = root.drawn();
    let deepest = boxes.iter().map(|own| own.path.len()).max().unwrap_or(1);
    let differences = report.comparison.map(|comparison| &comparison.differences[..]);
    let largest =
        differences.unwrap_or_default().iter().map(|row| row.same_roots_ms.abs()).fold(0.0, f64::max);
    html! {
        svg #icicle height=(deepest as f64 * HIGH) role="img" aria-label="Mean critical path: a box for each call, below its caller" {
            @for own in &boxes {
                @let row = report.profile.rows.iter().position(|row| is_of(&row.name, &own.path));
                @let difference = differences.and_then(|all| all.iter().find(|row| is_of(&row.name, &own.path)));
                @let colour = match differences {
                    Some(_) => changed(difference, largest),
                    None => format!("up-{}", (own.own_ms / own.total_ms * 3.0).round() as u8),
                };
                svg.box data-n=[row] x=(pc(own.left * 100.0)) width=(pc(own.total_ms / all * 100.0)) y=((own.path.len() - 1) as f64 * HIGH) height=(HIGH) {
                    rect class=(colour) width="100%" height="100%" rx="3" {}
                    @if own.total_ms / all > 0.02 { text x="5" y="15" { (short(own.path[own.path.len() - 1])) } }
                    title { (about(own, all, report, row.map(|at| &report.profile.rows[at]), difference)) }
                }
            }
        }
        p.note #pointed aria-live="polite" { "Point at a box for its time, its slack and what a faster call can save." }
    }
}

/// The colour's class of a call that changed.
fn changed(difference: Option<&Difference>, largest: f64) -> String {
    let Some(row) = difference.filter(|row| row.same_roots_ms.abs() > 1.96 * row.error_ms && largest > 0.0)
    else {
        return "up-0".to_owned();
    };
    let side = if row.same_roots_ms > 0.0 { "up" } else { "down" };
    format!("{side}-{}", ((row.same_roots_ms.abs() / largest * 3.0).ceil() as u8).clamp(1, 3))
}

/// The text of a box.
fn about(
    own: &Drawn<'_>,
    all: f64,
    report: &Report<'_>,
    row: Option<&Row>,
    difference: Option<&Difference>,
) -> String {
    let traces = report.profile.weight.max(1.0);
    let mut text = format!(
        "{}: {} of the critical time, {} ms a trace, of which {} ms are its own.",
        short(own.path[own.path.len() - 1]),
        percent(own.total_ms / all),
        three(own.total_ms / traces),
        three(own.own_ms / traces),
    );
    if let Some(drag) = row.and_then(|row| row.drag_ms) {
        text += &format!(" A span can get {} ms shorter before another call takes its place.", three(drag));
    }
    if let Some(slack) = row.and_then(|row| row.slack_ms) {
        text += &format!(" Beside the path, it may take {} ms longer without delay.", three(slack));
    }
    if let Some(row) = difference {
        text += &format!(
            " Changed by {} ± {} ms in traces of the same roots.",
            change(row.same_roots_ms),
            three(1.96 * row.error_ms)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_operations_and_one_of_paths_are_linked() {
        let name = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert!(is_of(&name(&["b"]), &["a", "b"]) && is_of(&name(&["a", "b"]), &["a", "b"]));
        assert!(!is_of(&name(&["a"]), &["a", "b"]) && !is_of(&name(&["b", "a"]), &["a", "b"]));
    }
}
