//! Call trees: the shapes of traces.
//!
//! The shape of a span is its name and the multiset of its children's shapes, so the order and the
//! times of the children do not matter. A span with several parents belongs to the first. A trace
//! with several tops (roots, orphans) is a multiset of trees.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rapidhash::fast::RandomState;

use crate::intern::Symbol;
use crate::recording::TraceView;
use crate::stop::Pulse;

/// A shape in a set of [`Shapes`]. Equal ids mean equal shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeId(pub u32);

/// The name of the node above the tops of a trace that has several.
const FOREST: u32 = u32::MAX;

/// A set of shapes, each stored once: equal subtrees share one node.
#[derive(Clone, Debug, Default)]
pub struct Shapes {
    table: HashTable<u32>,
    /// The name of each node, and the end of its children in `children`.
    nodes: Vec<(u32, u32)>,
    children: Vec<u32>,
    hasher: RandomState,
}

/// Buffers of [`Shapes::of_trace`], reused between traces.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// Sorted span indices, to find a span's position in its trace.
    positions: Vec<(u32, u32)>,
    parent: Vec<u32>,
    waiting: Vec<u32>,
    ready: Vec<u32>,
    shapes: Vec<Vec<u32>>,
}

impl Shapes {
    /// The shape of a trace. `None` if `pulse` stopped the work, which is polled because a trace
    /// can have millions of spans.
    pub fn of_trace(
        &mut self,
        trace: TraceView<'_>,
        scratch: &mut Scratch,
        pulse: &mut Pulse<'_>,
    ) -> Option<ShapeId> {
        if trace.span_count() == 1 {
            let shape = self.node(trace.root().name_symbol().0, &mut []);
            return (!pulse.stopped()).then_some(shape);
        }
        let Scratch { positions, parent, waiting, ready, shapes } = scratch;
        positions.clear();
        positions.extend((0u32..).zip(trace.spans()).map(|(position, span)| (span.index(), position)));
        if !pulse.sort_by_key(positions, |&(index, _)| index) {
            return None;
        }
        let position = |index: u32| match positions.binary_search_by_key(&index, |&(index, _)| index) {
            Ok(at) => positions[at].1,
            Err(_) => FOREST,
        };
        let len = trace.span_count();
        parent.clear();
        for span in trace.spans() {
            parent.push(span.parent().map_or(FOREST, |parent| position(parent.index())));
            if pulse.stopped() {
                return None;
            }
        }
        waiting.clear();
        waiting.resize(len, 0);
        for &above in parent.iter().filter(|&&above| above != FOREST) {
            waiting[above as usize] += 1;
        }
        // The last list collects the tops.
        shapes.resize_with(shapes.len().max(len + 1), Vec::new);
        shapes[..=len].iter_mut().for_each(Vec::clear);
        ready.clear();
        ready.extend((0..len as u32).filter(|&at| waiting[at as usize] == 0));
        let names: Vec<Symbol> = trace.spans().map(|span| span.name_symbol()).collect();
        // Works from the leaves upwards instead of recursing, because a trace can be a million
        // spans deep.
        while let Some(at) = ready.pop() {
            let mut own = std::mem::take(&mut shapes[at as usize]);
            let shape = self.node(names[at as usize].0, &mut own);
            if pulse.stopped_after(1 + own.len()) {
                return None;
            }
            shapes[at as usize] = own;
            let above = parent[at as usize];
            if above == FOREST {
                shapes[len].push(shape.0);
            } else {
                shapes[above as usize].push(shape.0);
                waiting[above as usize] -= 1;
                if waiting[above as usize] == 0 {
                    ready.push(above);
                }
            }
        }
        Some(match shapes[len][..] {
            [only] => ShapeId(only),
            _ => {
                let mut tops = std::mem::take(&mut shapes[len]);
                let shape = self.node(FOREST, &mut tops);
                shapes[len] = tops;
                shape
            }
        })
    }

    /// The number of nodes: shapes of traces and of their subtrees.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true if there are no shapes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The name of a shape's top node; `None` for a trace with several tops.
    pub fn name(&self, shape: ShapeId) -> Option<Symbol> {
        Some(self.nodes[shape.0 as usize].0).filter(|&name| name != FOREST).map(Symbol)
    }

    /// The shapes below a shape's top node; equal shapes are adjacent.
    pub fn children(&self, shape: ShapeId) -> impl ExactSizeIterator<Item = ShapeId> {
        self.children[self.range(shape.0)].iter().map(|&child| ShapeId(child))
    }

    fn range(&self, node: u32) -> std::ops::Range<usize> {
        let start = if node == 0 { 0 } else { self.nodes[node as usize - 1].1 };
        start as usize..self.nodes[node as usize].1 as usize
    }

    fn node(&mut self, name: u32, children: &mut [u32]) -> ShapeId {
        children.sort_unstable();
        let hash = self.hasher.hash_one((name, &*children));
        let same =
            |&node: &u32| self.nodes[node as usize].0 == name && self.children[self.range(node)] == *children;
        if let Some(&found) = self.table.find(hash, same) {
            return ShapeId(found);
        }
        let node = self.nodes.len() as u32;
        self.children.extend_from_slice(children);
        self.nodes.push((name, self.children.len() as u32));
        let mut table = std::mem::take(&mut self.table);
        table.insert_unique(hash, node, |&node| {
            self.hasher.hash_one((self.nodes[node as usize].0, &self.children[self.range(node)]))
        });
        self.table = table;
        ShapeId(node)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::recording::{Intake, Keep};
    use astracer_model::sink::{Record, Sink};
    use astracer_model::{Place, Span, SpanId, TraceId, UnixNanos};

    /// Traces from `(trace, span, parent, name)`; spans start in the order given.
    fn shapes(spans: &[(u128, u64, u64, &'static str)]) -> (Vec<ShapeId>, Shapes) {
        let mut intake = Intake::new(Keep::default());
        let place = Place::start_of(&Arc::from("test"));
        for (start, &(trace, id, parent, name)) in (0..).zip(spans) {
            let span = Span {
                trace_id: TraceId(trace),
                span_id: SpanId(id),
                parents: [SpanId(parent)].into_iter().filter(|&id| id != SpanId::ZERO).collect(),
                name: name.into(),
                start: Some(UnixNanos(start)),
                end: Some(UnixNanos(start)),
                ..Span::default()
            };
            intake.span(span, Record { bytes: &[], place: &place });
        }
        let recording = intake.finish();
        let (mut shapes, mut scratch) = (Shapes::default(), Scratch::default());
        let ids = recording
            .traces()
            .map(|trace| shapes.of_trace(trace, &mut scratch, &mut Pulse::never()).expect("not stopped"))
            .collect();
        (ids, shapes)
    }

    #[test]
    fn the_order_of_children_does_not_matter_but_their_number_does() {
        let (ids, shapes) = shapes(&[
            (1, 1, 0, "a"),
            (1, 2, 1, "b"),
            (1, 3, 1, "c"),
            (1, 4, 3, "b"),
            (2, 1, 0, "a"),
            (2, 2, 1, "c"),
            (2, 3, 1, "b"),
            (2, 4, 2, "b"),
            (3, 1, 0, "a"),
            (3, 2, 1, "b"),
            (3, 3, 1, "c"),
            (3, 4, 3, "b"),
            (3, 5, 1, "b"),
        ]);
        assert_eq!(ids[0], ids[1]);
        assert_ne!(ids[0], ids[2]);
        // b, c(b), a(b c(b)), a(b b c(b)).
        assert_eq!(shapes.len(), 4);
    }

    #[test]
    fn nesting_and_names_matter() {
        let (ids, _) = shapes(&[
            (1, 1, 0, "a"),
            (1, 2, 1, "b"),
            (1, 3, 2, "c"),
            (2, 1, 0, "a"),
            (2, 2, 1, "b"),
            (2, 3, 1, "c"),
            (3, 1, 0, "a"),
            (3, 2, 1, "c"),
            (3, 3, 2, "b"),
            (4, 1, 0, "a"),
            (5, 1, 0, "b"),
        ]);
        let mut distinct = ids.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), ids.len());
    }

    #[test]
    fn a_trace_with_several_tops_is_a_multiset_of_trees() {
        let (ids, shapes) = shapes(&[
            (1, 1, 0, "a"),
            (1, 2, 9, "b"),
            (2, 1, 9, "b"),
            (2, 2, 0, "a"),
            (3, 1, 9, "b"),
            (4, 1, 0, "b"),
        ]);
        assert_eq!(ids[0], ids[1]);
        // A lone orphan has the shape of a root: being an orphan is a problem of the recording, not
        // a property of the shape.
        assert_eq!(ids[2], ids[3]);
        assert_eq!(shapes.name(ids[0]), None);
        assert_eq!(shapes.children(ids[0]).len(), 2);
        assert!(shapes.name(ids[3]).is_some());
    }
}
