//! One trace drawn in lanes: a row for each span, with its time as a bar and the parts of it on the
//! critical path.

use astracer_recording::recording::Recording;
use serde::Serialize;

use crate::segments::trace_id;
use crate::traced::{Shape, Traced};
use crate::tree::Tree;

/// A trace as rows.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Lanes {
    /// The trace's id, in hexadecimal.
    pub trace_id: String,
    /// The start of the drawing, ns since the epoch.
    pub start_ns: u64,
    /// The end of the drawing, ns since the epoch.
    pub end_ns: u64,
    /// The drawn spans, children below their parents, by start.
    pub lanes: Vec<Lane>,
    /// The number of spans that are not drawn because there are too many. They are beside the path,
    /// unless the path alone has too many.
    pub left_out: u64,
}

/// One span of a drawing.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Lane {
    /// The span's id.
    pub span_id: String,
    /// The span's depth below the root.
    pub depth: u32,
    /// The span's function.
    pub name: String,
    /// The span's service.
    pub service: String,
    /// The span's start as recorded, ns since the epoch.
    pub start_ns: u64,
    /// The span's end as recorded, ns since the epoch.
    pub end_ns: u64,
    /// The span's critical time, ns.
    pub critical_ns: u64,
    /// The stretches of time in which the span was on the path: start and end, ns since the epoch.
    pub critical: Vec<(u64, u64)>,
}

impl Lanes {
    /// The length of the drawing, ns.
    pub fn length_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }

    /// Draws a trace with at most `lanes_max` rows: spans on the path first, then the longest.
    pub fn new(recording: &Recording, traced: &Traced<'_>, lanes_max: usize) -> Self {
        let count = traced.node_count();
        let mut critical: Vec<Vec<(u64, u64)>> = vec![Vec::new(); count];
        for segment in traced.path.segments.iter() {
            critical[segment.node as usize].push((segment.start, segment.end));
        }
        let times = |node: u32| match traced.shape {
            Shape::Tree(tree) => (tree.nodes()[node as usize].start, tree.nodes()[node as usize].end),
            Shape::Events(graph) => {
                let start = graph.events()[node as usize].time;
                (start, critical[node as usize].last().map_or(start, |&(_, end)| end.max(start)))
            }
        };
        let depths = depths(traced);
        let mut chosen: Vec<u32> = (0..count as u32).collect();
        let length = |node: u32| times(node).1 - times(node).0;
        if count > lanes_max {
            chosen.sort_by_key(|&node| {
                (critical[node as usize].is_empty(), std::cmp::Reverse(length(node)), node)
            });
            chosen.truncate(lanes_max);
        }
        order(traced, &mut chosen);
        let lanes: Vec<Lane> = chosen
            .iter()
            .map(|&node| Lane {
                span_id: recording.span(traced.index(node)).id().to_string(),
                depth: depths[node as usize],
                name: recording.names().name(traced.name(node)).to_owned(),
                service: recording.services().name(traced.service(node)).to_owned(),
                start_ns: times(node).0,
                end_ns: times(node).1,
                critical_ns: critical[node as usize].iter().map(|(start, end)| end - start).sum(),
                critical: critical[node as usize].clone(),
            })
            .collect();
        Self {
            trace_id: trace_id(traced.trace.id()),
            start_ns: lanes.iter().map(|lane| lane.start_ns).min().unwrap_or(0),
            end_ns: lanes.iter().map(|lane| lane.end_ns).max().unwrap_or(0),
            left_out: (count - lanes.len()) as u64,
            lanes,
        }
    }
}

fn depths(traced: &Traced<'_>) -> Vec<u32> {
    let mut depths = vec![0; traced.node_count()];
    // Parents have lower numbers than their children.
    for node in 0..traced.node_count() as u32 {
        depths[node as usize] = traced.parent(node).map_or(0, |parent| depths[parent as usize] + 1);
    }
    depths
}

/// Sorts nodes so that a span's children follow it, by start. Events are in order of time already.
fn order(traced: &Traced<'_>, chosen: &mut [u32]) {
    let Shape::Tree(tree) = traced.shape else {
        chosen.sort_unstable();
        return;
    };
    let (mut place, mut next) = (vec![0u32; tree.nodes().len()], 0);
    let mut stack = vec![Tree::ROOT];
    while let Some(node) = stack.pop() {
        place[node as usize] = next;
        next += 1;
        stack.extend(tree.children(node).rev());
    }
    chosen.sort_unstable_by_key(|&node| place[node as usize]);
}
