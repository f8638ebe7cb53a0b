//! Spans without a trace id, which HTrace 3 writes for pipelines: they belong to the trace of their parent.

use std::collections::{HashMap, HashSet};

use rapidhash::fast::RandomState;

use astracer_model::ids::{SpanId, TraceId};
use astracer_model::problem::Place;
use astracer_model::span::Span;

/// Holds spans without a trace id until all others have been read.
#[derive(Debug, Default)]
pub(super) struct Traceless {
    /// True if the current file may contain such spans.
    expected: bool,
    /// The spans with a trace id, in input order, with that id, which has 64 bits in HTrace. They are looked
    /// up only at the end, if at all: a list takes less memory and far less time than a hash table.
    known: Vec<(SpanId, u64)>,
    held: Vec<(Span<'static>, Place)>,
}

impl Traceless {
    /// Sets whether the following spans may lack a trace id. Only then are other spans remembered.
    pub(super) fn expect(&mut self, expected: bool) {
        self.expected = expected;
    }

    /// Keeps a span without a trace id.
    pub(super) fn hold(&mut self, span: Span<'_>, place: &Place) {
        self.held.push((span.into_owned(), place.clone()));
    }

    /// Remembers the trace of a span that has one.
    #[inline]
    pub(super) fn remember(&mut self, span: &Span<'_>) {
        if let (true, Ok(trace_id)) = (self.expected, u64::try_from(span.trace_id.0)) {
            self.known.push((span.span_id, trace_id));
        }
    }

    /// The kept spans in input order, each with the trace of its nearest ancestor that has one. If none has,
    /// the id of the chain's last span becomes the trace id, and the last member of the tuple is false.
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
                // Descendants of these spans need not follow the chain so far.
                for id in chain {
                    trace_of.entry(id).or_insert(span.trace_id);
                }
            }
        }
        held.into_iter().zip(found).map(|((span, place), found)| (span, place, found))
    }
}
