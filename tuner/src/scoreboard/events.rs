//! Pairs of successive events, and the sets of them that traces show.

use std::collections::HashMap;

use super::operation::Operation;

/// An event within a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    Start(Operation),
    End(Operation),
    Failed,
    Slow,
}

/// All pairs of successive events, and all sets of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    pairs: HashMap<(Event, Event), u32>,
    shapes: HashMap<Box<[u32]>, u32>,
    /// The pairs of each shape, in ascending order.
    pairs_of: Vec<Box<[u32]>>,
}

/// A span, as far as it adds to the shape of its trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    pub(super) operation: Operation,
    pub(super) parent: Option<Operation>,
    pub(super) is_failed: bool,
    pub(super) is_slow: bool,
}

impl Events {
    /// The shape of a trace with these spans.
    pub(super) fn shape(&mut self, spans: impl Iterator<Item = Observed>) -> u32 {
        let mut set = Vec::new();
        for span in spans {
            let mut last = Event::Start(span.operation);
            let between = [(span.is_failed, Event::Failed), (span.is_slow, Event::Slow)];
            let between = between.into_iter().filter_map(|(is, event)| is.then_some(event));
            for next in between.chain([Event::End(span.operation)]) {
                set.push(self.pair(last, next));
                last = next;
            }
            if let Some(parent) = span.parent {
                set.push(self.pair(Event::End(parent), Event::Start(span.operation)));
            }
        }
        set.sort_unstable();
        set.dedup();
        let set = set.into_boxed_slice();
        if let Some(&shape) = self.shapes.get(&set) {
            return shape;
        }
        let shape = self.pairs_of.len() as u32;
        self.shapes.insert(set.clone(), shape);
        self.pairs_of.push(set);
        shape
    }

    fn pair(&mut self, first: Event, second: Event) -> u32 {
        let next = self.pairs.len() as u32;
        *self.pairs.entry((first, second)).or_insert(next)
    }

    pub(super) fn pair_count(&self) -> usize {
        self.pairs.len()
    }

    pub(super) fn shape_count(&self) -> usize {
        self.pairs_of.len()
    }

    pub(super) fn pairs(&self, shape: u32) -> &[u32] {
        &self.pairs_of[shape as usize]
    }
}
