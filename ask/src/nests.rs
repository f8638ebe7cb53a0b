//! The tree of a recording's spans, for joins below spans.

use std::ops::Range;

use astracer_queries::{Edge, Nest, Plan};
use astracer_recording::Recording;
use astracer_recording::recording::SpanView;

/// Marks "no span".
const NONE: u32 = u32::MAX;

/// The numbers of a recording's spans in preorder: those below a span follow it. A span is below
/// the first of its parents that is in the recording.
#[derive(Debug, Default)]
pub(super) struct Nests {
    /// By the span's index: its number, and the one behind the last span below it.
    spans: Vec<(u32, u32)>,
}

impl Nests {
    /// Empty if the plan does not ask.
    pub(super) fn new(recording: &Recording, plan: &Plan) -> Self {
        if plan.stages() == 1 {
            return Self::default();
        }
        let count = recording.index_end();
        let parent = |at: u32| recording.span(at).parent().map_or(NONE, SpanView::index);
        // The children of each span as a list: its first one, and the next one of each.
        let (mut first, mut next, mut roots) = (vec![NONE; count], vec![NONE; count], Vec::new());
        for at in recording.traces().flat_map(|trace| trace.spans()).map(SpanView::index) {
            match parent(at) {
                NONE => roots.push(at),
                parent => next[at as usize] = std::mem::replace(&mut first[parent as usize], at),
            }
        }
        let mut order = roots;
        let mut done = 0;
        while let Some(&at) = order.get(done) {
            done += 1;
            let child = Some(first[at as usize]).filter(|&child| child != NONE);
            order.extend(std::iter::successors(child, |&child| {
                Some(next[child as usize]).filter(|&next| next != NONE)
            }));
        }
        let mut sizes = vec![1; count];
        for &at in order.iter().rev().filter(|&&at| parent(at) != NONE) {
            sizes[parent(at) as usize] += sizes[at as usize];
        }
        // The number of the next child of each span; the last one is for roots.
        let mut free = vec![0; count + 1];
        let mut spans = vec![(0, 0); count];
        for at in order {
            let above = if parent(at) == NONE { count } else { parent(at) as usize };
            let number = free[above];
            free[above] += sizes[at as usize];
            free[at as usize] = number + 1;
            spans[at as usize] = (number, number + sizes[at as usize]);
        }
        Self { spans }
    }

    /// The place of a span's point.
    pub(super) fn of(&self, span: SpanView<'_>, edge: Edge) -> Nest {
        let own = |span: SpanView<'_>| self.spans.get(span.index() as usize).copied();
        let range = own(span).map(|(number, end)| Range { start: number, end });
        match edge {
            Edge::Event => Nest { within: range.map(|range| range.start), spans: None },
            Edge::Start | Edge::End => {
                let above = span.parent().and_then(own);
                Nest { within: above.map(|(number, _)| number), spans: range }
            }
        }
    }
}
