//! The focused networks as drawings: the variables that are connected with the metric.
//!
//! Each variable has a row of its own, so labels never overlap. With times, rows are in the order
//! of time and the dots stand at their median time; else they form a tree below the metric.

use std::collections::HashMap;

use astracer_report::names::{line, short, shortened};
use astracer_report::numbers::{count, percent, three};
use astracer_report::page::folded;
use maud::{Markup, html};

use crate::comparison::Comparison;
use crate::features::Kind;
use crate::network::{METRIC, Network, Node};

/// The width of a drawing, in pixels before scaling.
const WIDTH: f64 = 480.0;
const MARGIN: f64 = 12.0;
/// Variables in a drawing: those with the largest scores, and those on the way to them.
const NODES_SHOWN: usize = 24;
/// The sizes of labels: of variables that do not differ, and of the one that differs most.
const FONT: (f64, f64) = (10.0, 17.0);
/// The mean width of a letter by the size of its font; rather too wide.
const LETTER: f64 = 0.6;
const INDENT: f64 = 22.0;
/// The height of a row beside its label.
const ROW: f64 = 14.0;
const ROW_OF_TREE: f64 = 6.0;
/// The distance from a dot to its label, which stands above it or beside it.
const LABEL: f64 = 7.0;
/// The room for the times below a drawing.
const AXIS: f64 = 18.0;

/// The best network of each class and kind, in which something differs.
pub(super) fn networks(comparison: &Comparison) -> Markup {
    let mut best: Vec<&Network> = Vec::new();
    for network in &comparison.networks {
        let is_first = !best.iter().any(|other| (other.class, other.kind) == (network.class, network.kind));
        if is_first && network.score > 0.0 {
            best.push(network);
        }
    }
    html! { @if !best.is_empty() {
        (folded("How variables are connected", &html! {
            p.note {
                "The variables that go with the metric in one class, by the dependency network with the best score. Large names differ "
                "more between good and bad traces; thick lines connect more closely. An arrow leads from what comes first in every "
                "trace to what comes later."
            }
            div.grid { @for network in best { (one(network)) } }
        }))
    } }
}

/// A network's name in headings.
pub(super) fn title(network: &Network) -> String {
    let class = if network.class == 0 { "good" } else { "bad" };
    let kind = match network.kind {
        Kind::Event => "events",
        Kind::State => "values",
    };
    format!("{kind} of {class} traces, {}", network.feature)
}

/// A dot with its label.
struct Place<'n> {
    name: &'n str,
    x: f64,
    y: f64,
    size: f64,
    label: String,
    label_x: f64,
    label_y: f64,
    about: String,
}

fn one(network: &Network) -> Markup {
    let shown = chosen(&network.nodes);
    let (places, height) = places(&shown);
    let at: HashMap<&str, &Place<'_>> = places.iter().map(|place| (place.name, place)).collect();
    let has_times = shown.iter().all(|node| node.time_ms.is_some());
    let ends = shown.iter().filter_map(|node| node.time_ms);
    let (first, last) = (ends.clone().fold(f64::INFINITY, f64::min), ends.fold(f64::NEG_INFINITY, f64::max));
    let name = title(network);
    html! {
        div {
            h3 { "Network of " (name) }
            p.note { "score " (three(network.score)) ", " (count(network.nodes.len() as u64)) " variables connected with the metric" }
            div.wide tabindex="0" role="region" aria-label=(name) {
                svg.network role="img" viewBox=(format!("0 0 {WIDTH} {:.0}", height + AXIS)) {
                    title { "Network of " (name) }
                    @for node in &shown {
                        @if let (Some(from), Some(to)) = (at.get(node.from.as_str()), at.get(node.name.as_str())) {
                            (edge(network, node, from, to))
                        }
                    }
                    @for place in &places { (dot(place)) }
                    @if has_times && first.is_finite() {
                        text x=(MARGIN) y=(format!("{:.0}", height + 12.0)) font-size="11" { (three(first)) " ms" }
                        text x=(WIDTH - MARGIN) y=(format!("{:.0}", height + 12.0)) font-size="11" text-anchor="end" {
                            "median time: " (three(last)) " ms"
                        }
                    }
                }
            }
            @if network.nodes.len() > shown.len() {
                p.note { (count((network.nodes.len() - shown.len()) as u64)) " variables with smaller scores are in the tables below." }
            }
        }
    }
}

/// The variables with the largest scores, and those on the way to them, in their order.
fn chosen(nodes: &[Node]) -> Vec<&Node> {
    let number: HashMap<&str, usize> =
        nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by(|&a, &b| nodes[b].score.total_cmp(&nodes[a].score));
    let mut is_shown = vec![false; nodes.len()];
    for place in order {
        // Each variable was reached from an earlier one, so this ends at the metric.
        let way = std::iter::successors(Some(place), |&at| {
            number.get(nodes[at].from.as_str()).copied().filter(|&before| before < at)
        });
        let way: Vec<usize> = way.filter(|&at| !is_shown[at]).collect();
        if is_shown.iter().filter(|shown| **shown).count() + way.len() <= NODES_SHOWN {
            way.into_iter().for_each(|at| is_shown[at] = true);
        }
    }
    nodes.iter().zip(is_shown).filter(|(_, shown)| *shown).map(|(node, _)| node).collect()
}

/// The places of all dots, and the height of the drawing.
fn places<'n>(shown: &[&'n Node]) -> (Vec<Place<'n>>, f64) {
    let most = shown.iter().map(|node| node.t.abs()).fold(0.0, f64::max);
    let size = |t: f64| FONT.0 + (FONT.1 - FONT.0) * if most > 0.0 { t.abs() / most } else { 0.0 };
    let mut places = Vec::with_capacity(shown.len() + 1);
    let mut bottom = 0.0;
    let times: Option<Vec<f64>> = shown.iter().map(|node| node.time_ms.filter(|t| t.is_finite())).collect();
    let times = times.filter(|times| !times.is_empty());
    // A label stands above its dot where dots may be far right, and beside it in a tree.
    let is_above = times.is_some();
    let mut push = |name: &'n str, x: f64, size: f64, label: &str, about: String| {
        let least = if is_above { MARGIN } else { x + LABEL };
        let label = shortened(label, ((WIDTH - MARGIN - least) / (size * LETTER)) as usize);
        let width = label.chars().count() as f64 * size * LETTER;
        let label_x = if is_above { x.min(WIDTH - MARGIN - width).max(least) } else { least };
        bottom += size + if is_above { ROW } else { ROW_OF_TREE };
        let y = bottom - if is_above { 5.0 } else { size / 2.0 };
        let label_y = if is_above { y - LABEL } else { y + size * 0.35 };
        places.push(Place { name, x, y, size, label, label_x, label_y, about });
    };
    let about = |node: &Node| {
        format!("{}: |t| {}, weight {}", short(&node.name), three(node.t.abs()), percent(node.weight))
    };
    let metric = "the metric";
    if let Some(times) = times {
        let first = times.iter().copied().fold(f64::INFINITY, f64::min);
        let last = times.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // The metric is known at the end.
        let room = WIDTH - 2.0 * MARGIN - INDENT;
        let x = |time: f64| MARGIN + if last > first { (time - first) / (last - first) * room } else { 0.0 };
        let mut order: Vec<usize> = (0..shown.len()).collect();
        order.sort_by(|&a, &b| times[a].total_cmp(&times[b]));
        for at in order {
            let node = shown[at];
            push(&node.name, x(times[at]), size(node.t), &line(&node.name), about(node));
        }
        push(METRIC, WIDTH - MARGIN, 13.0, metric, metric.to_owned());
    } else {
        push(METRIC, MARGIN, 13.0, metric, metric.to_owned());
        let mut open: Vec<(&str, usize)> = vec![(METRIC, 0)];
        while let Some((from, depth)) = open.pop() {
            if let Some(node) = shown.iter().find(|node| node.name == from) {
                let x = MARGIN + INDENT * depth.min(8) as f64;
                push(&node.name, x, size(node.t), &line(&node.name), about(node));
            }
            let below = shown.iter().filter(|node| node.from == from).rev();
            open.extend(below.map(|node| (node.name.as_str(), depth + 1)));
        }
    }
    (places, bottom + 4.0)
}

fn dot(place: &Place<'_>) -> Markup {
    html! {
        g {
            title { (place.about) }
            circle.strong cx=(format!("{:.1}", place.x)) cy=(format!("{:.1}", place.y)) r="3.5" {}
            text x=(format!("{:.1}", place.label_x)) y=(format!("{:.1}", place.label_y)) font-size=(format!("{:.1}", place.size)) { (place.label) }
        }
    }
}

/// A line from dot to dot, with an arrow's head if one precedes the other in all instances.
fn edge(network: &Network, node: &Node, from: &Place<'_>, to: &Place<'_>) -> Markup {
    let is_arrow =
        |before: &str, after: &str| network.arrows.iter().any(|(one, other)| one == before && other == after);
    // The line bends to the left, where fewer labels are.
    let bend = ((to.y - from.y).abs() * 0.2).min(40.0);
    let control = ((from.x.min(to.x) - bend).max(2.0), f64::midpoint(from.y, to.y));
    let head = if is_arrow(&node.from, &node.name) {
        Some(to)
    } else if is_arrow(&node.name, &node.from) {
        Some(from)
    } else {
        None
    };
    let width = 0.8 + 4.2 * node.weight.clamp(0.0, 1.0);
    html! {
        path."line-soft" fill="none" d=(format!("M{:.1} {:.1}Q{:.1} {:.1} {:.1} {:.1}", from.x, from.y, control.0, control.1, to.x, to.y))
            stroke-width=(format!("{width:.1}")) {}
        @if let Some(end) = head { (arrow(control, (end.x, end.y), width)) }
    }
}

/// The head of an arrow that comes from `control` and ends beside a dot.
fn arrow(control: (f64, f64), end: (f64, f64), width: f64) -> Markup {
    let (dx, dy) = (end.0 - control.0, end.1 - control.1);
    let length = dx.hypot(dy).max(1e-9);
    let (dx, dy) = (dx / length, dy / length);
    let (tip, size) = ((end.0 - dx * 4.0, end.1 - dy * 4.0), 5.0 + width);
    let back = (tip.0 - dx * size, tip.1 - dy * size);
    let side = size * 0.5;
    html! {
        polygon."fill-soft" points=(format!(
            "{:.1},{:.1} {:.1},{:.1} {:.1},{:.1}",
            tip.0, tip.1, back.0 - dy * side, back.1 + dx * side, back.0 + dy * side, back.1 - dx * side
        )) {}
    }
}

#[cfg(test)]
mod tests {
    use astracer_testing::SplitMix;

    use super::*;

    fn nodes(random: &mut SplitMix, has_times: bool) -> Vec<Node> {
        let count = 1 + random.next() as usize % 60;
        let mut nodes: Vec<Node> = Vec::new();
        for at in 0..count {
            let from = match random.next() as usize % (at + 1) {
                0 => METRIC.to_owned(),
                before => nodes[before - 1].name.clone(),
            };
            let number = |bits: u64| (bits >> 40) as f64 / 1e4;
            nodes.push(Node {
                name: format!("{at} {}", "x".repeat(random.next() as usize % 90)),
                from,
                weight: 0.5,
                t: number(random.next()),
                score: number(random.next()),
                time_ms: has_times.then(|| number(random.next())),
            });
        }
        nodes
    }

    #[test]
    fn labels_stay_inside_and_apart_and_lines_have_both_ends() {
        for seed in 0..200 {
            let nodes = nodes(&mut SplitMix::new(seed), seed % 2 == 0);
            let shown = chosen(&nodes);
            assert!(!shown.is_empty() && shown.len() <= NODES_SHOWN, "seed {seed}");
            let (places, height) = places(&shown);
            assert_eq!(places.len(), shown.len() + 1, "seed {seed}");
            for node in &shown {
                let has = |name: &str| places.iter().any(|place| place.name == name);
                assert!(has(&node.from) && has(&node.name), "seed {seed}: {}", node.name);
            }
            let mut above = 0.0;
            for place in &places {
                let top = (place.label_y - place.size).min(place.y - 3.5);
                let bottom = (place.label_y + place.size * 0.2).max(place.y + 3.5);
                assert!(top >= above && bottom <= height + 1.0, "seed {seed}: {}", place.label);
                let end = place.label_x + place.label.chars().count() as f64 * place.size * LETTER;
                assert!(place.label_x >= MARGIN && end <= WIDTH, "seed {seed}: {}", place.label);
                assert!((0.0..=WIDTH).contains(&place.x), "seed {seed}");
                above = bottom;
            }
        }
    }
}
