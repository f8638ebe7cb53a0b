//! Spans without a trace id, as HTrace 3 writes for pipelines: they belong to the trace of their parent.

use std::collections::HashMap;

use rapidhash::fast::RandomState;

use crate::ids::{SpanId, TraceId};
use crate::problem::Place;
use crate::span::Span;

/// Holds such spans until all others have been seen.
#[derive(Debug, Default)]
pub(super) struct Traceless {
    /// Whether the file that is being read may have such spans.
    expected: bool,
    trace_of: HashMap<SpanId, TraceId, RandomState>,
    held: Vec<(Span<'static>, Place)>,
}

impl Traceless {
    /// Says whether spans that follow may lack their trace's id. Only then are others remembered.
    pub(super) fn expect(&mut self, expected: bool) {
        self.expected = expected;
    }

    /// Gives a span back that knows its trace, and keeps one that doesn't.
    pub(super) fn pass<'a>(&mut self, span: Span<'a>, place: &Place) -> Option<Span<'a>> {
        if span.trace_id == TraceId::ZERO {
            self.held.push((span.into_owned(), place.clone()));
            return None;
        }
        if self.expected {
            self.trace_of.entry(span.span_id).or_insert(span.trace_id);
        }
        Some(span)
    }

    /// The spans that were kept, in their order, each with the trace of its nearest ancestor that has one. If none has,
    /// the end of the chain names the trace, and the last member of the tuple is false.
    pub(super) fn resolve(self) -> impl Iterator<Item = (Span<'static>, Place, bool)> {
        let Self { mut trace_of, mut held, .. } = self;
        let parents: HashMap<_, _, RandomState> =
            held.iter().rev().map(|(span, _)| (span.span_id, span.parents.clone())).collect();
        let mut found = vec![false; held.len()];
        for (index, (span, _)) in held.iter_mut().enumerate() {
            let mut chain = vec![span.span_id];
            let mut candidates = span.parents.clone();
            span.trace_id = loop {
                if let Some(&trace_id) = candidates.iter().find_map(|parent| trace_of.get(parent)) {
                    found[index] = true;
                    break trace_id;
                }
                let next =
                    candidates.iter().find(|parent| parents.contains_key(parent) && !chain.contains(parent));
                let Some(&next) = next else {
                    let end = candidates.iter().find(|parent| !chain.contains(parent)).or(chain.last());
                    break TraceId(end.map_or(0, |end| u128::from(end.0)));
                };
                chain.push(next);
                candidates = parents[&next].clone();
            };
            if found[index] {
                // Whoever hangs below these need not go so far.
                for id in chain {
                    trace_of.entry(id).or_insert(span.trace_id);
                }
            }
        }
        held.into_iter().zip(found).map(|((span, place), found)| (span, place, found))
    }
}
