//! Spans without a trace id, as HTrace 3 writes for pipelines: they belong to the trace of their parent.

use std::collections::{HashMap, HashSet};

use rapidhash::fast::RandomState;

use astracer_model::ids::{SpanId, TraceId};
use astracer_model::problem::Place;
use astracer_model::span::Span;

/// Holds such spans until all others have been seen.
#[derive(Debug, Default)]
pub(super) struct Traceless {
    /// Whether the file that is being read may have such spans.
    expected: bool,
    /// The spans that know their trace, in their order, with its id, which in HTrace has 64 bits. They are looked up at
    /// the end only, if at all: a list takes less memory and far less time than a table.
    known: Vec<(SpanId, u64)>,
    held: Vec<(Span<'static>, Place)>,
}

impl Traceless {
    /// Says whether spans that follow may lack their trace's id. Only then are others remembered.
    pub(super) fn expect(&mut self, expected: bool) {
        self.expected = expected;
    }

    /// Keeps a span that doesn't know its trace.
    pub(super) fn hold(&mut self, span: Span<'_>, place: &Place) {
        self.held.push((span.into_owned(), place.clone()));
    }

    /// Remembers the trace of a span that knows it.
    #[inline]
    pub(super) fn remember(&mut self, span: &Span<'_>) {
        if let (true, Ok(trace_id)) = (self.expected, u64::try_from(span.trace_id.0)) {
            self.known.push((span.span_id, trace_id));
        }
    }

    /// The spans that were kept, in their order, each with the trace of its nearest ancestor that has one. If none has,
    /// the end of the chain names the trace, and the last member of the tuple is false.
    pub(super) fn resolve(self) -> impl Iterator<Item = (Span<'static>, Place, bool)> {
        let Self { known, mut held, .. } = self;
        let asked_for: HashSet<SpanId, RandomState> =
            held.iter().flat_map(|(span, _)| span.parents.iter().copied()).collect();
        let mut trace_of: HashMap<_, _, RandomState> = HashMap::default();
        for (span_id, trace_id) in known.into_iter().filter(|(span_id, _)| asked_for.contains(span_id)) {
            trace_of.entry(span_id).or_insert(TraceId(trace_id.into()));
        }
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
