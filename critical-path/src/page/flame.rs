//! The flame graph: a box for each call path, below the box of its caller.

use std::collections::BTreeMap;

use astracer_report::names::line;
use astracer_report::numbers::{measure, percent};
use maud::{Markup, html};

use crate::profile::Profile;

/// Boxes narrower than this share of the graph are not drawn; their time is part of their callers'
/// boxes.
const NARROWEST: f64 = 0.001;
/// The greatest number of boxes.
const BOXES_MAX: usize = 4000;
/// The greatest depth.
const DEPTH_MAX: usize = 64;

#[derive(Default)]
struct Box<'p> {
    /// The time of the path and of all paths below it, ms.
    total_ms: f64,
    own_ms: f64,
    below: BTreeMap<&'p str, Box<'p>>,
}

pub(super) fn graph(by_path: &Profile) -> Markup {
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
    let all = root.total_ms;
    if all <= 0.0 {
        return html! { p { "All traces have length zero." } };
    }
    // Boxes with their left edge, depth, name, total and own time; callers come first.
    let mut boxes: Vec<(f64, usize, &str, f64, f64)> = Vec::new();
    let mut waiting: Vec<(f64, usize, &Box<'_>)> = vec![(0.0, 0, &root)];
    let mut deepest = 0;
    while let Some((left, depth, caller)) = waiting.pop() {
        let mut children: Vec<_> = caller.below.iter().collect();
        children.sort_by(|a, b| b.1.total_ms.total_cmp(&a.1.total_ms));
        let mut at = left;
        for (name, child) in children {
            if child.total_ms / all < NARROWEST || boxes.len() >= BOXES_MAX {
                break;
            }
            boxes.push((at, depth, name, child.total_ms, child.own_ms));
            deepest = deepest.max(depth);
            waiting.push((at, depth + 1, child));
            at += child.total_ms / all;
        }
    }
    html! {
        div.flame style=(format!("height:{:.2}rem", (deepest + 1) as f64 * 1.25)) {
            @for (left, depth, name, total, own) in boxes {
                span
                    style=(format!("left:{:.3}%;width:{:.3}%;top:{:.2}rem;background:{}", left * 100.0, total / all * 100.0, depth as f64 * 1.25, colour(name)))
                    title=(format!("{}: {} of the critical time ({} ms), {} its own", line(name), percent(total / all), measure(total), percent(own / all)))
                { (line(name)) }
            }
        }
    }
}

/// A light colour that is the same for a name on every page.
fn colour(name: &str) -> String {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("hsl({},{}%,{}%)", 15 + hash % 45, 70 + (hash >> 8) % 25, 72 + (hash >> 16) % 12)
}
