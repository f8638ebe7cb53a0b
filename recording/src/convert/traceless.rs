//! Finds the trace of spans without a trace id, which HTrace 3 writes for pipelines: they belong to
//! the trace of their parent.

use std::collections::{HashMap, HashSet};

use rapidhash::fast::RandomState;

use crate::stop::Pulse;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::problem::Place;
use astracer_model::span::Span;

/// Holds spans without a trace id until all other spans have been read.
#[derive(Debug, Default)]
pub(super) struct Traceless {
    /// True if the current file may contain such spans.
    expected: bool,
    /// The ids and traces of the other spans, in input order. HTrace's trace ids have 64 bits. They
    /// are looked up only at the end, if at all, so a list suffices: it takes less memory and far
    /// less time than a hash table.
    known: Vec<(SpanId, u64)>,
    held: Vec<(Span<'static>, Place)>,
}

impl Traceless {
    /// Sets whether the following spans may lack a trace id. Spans with one are remembered only
    /// then.
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

    /// The held spans in input order, each with the trace of its nearest ancestor that has one. If
    /// no ancestor has one, the trace id is made from the id of the missing last parent, or of a
    /// span of the cycle, and the last member of the tuple is false.
    ///
    /// Each span is walked over once, because it remembers the result of the walk that passed it.
    /// After a stop, spans that no walk has passed are left out.
    pub(super) fn resolve(self, pulse: &mut Pulse<'_>) -> impl Iterator<Item = (Span<'static>, Place, bool)> {
        let Self { known, held, .. } = self;
        let asked_for: HashSet<SpanId, RandomState> =
            held.iter().flat_map(|(span, _)| span.parents.iter().copied()).collect();
        let mut trace_of: HashMap<_, _, RandomState> = HashMap::default();
        for (span_id, trace_id) in known.into_iter().filter(|(span_id, _)| asked_for.contains(span_id)) {
            trace_of.entry(span_id).or_insert(TraceId(trace_id.into()));
        }
        let index_of: HashMap<SpanId, usize, RandomState> =
            held.iter().enumerate().rev().map(|(index, (span, _))| (span.span_id, index)).collect();
        // For each span the last walk that passed it (the walk's first index plus one), and its
        // result.
        let mut walk_of = vec![0; held.len()];
        let mut found: Vec<Option<(TraceId, bool)>> = vec![None; held.len()];
        let mut chain = Vec::new();
        'walks: for first in 0..held.len() {
            let walk = first + 1;
            chain.clear();
            let mut at = first;
            let end = loop {
                if pulse.stopped() {
                    break 'walks;
                }
                if let Some(end) = found[at] {
                    break end;
                }
                chain.push(at);
                walk_of[at] = walk;
                let span = &held[at].0;
                if let Some(&trace_id) = span.parents.iter().find_map(|parent| trace_of.get(parent)) {
                    break (trace_id, true);
                }
                let is_new = |&index: &usize| walk_of[index] != walk;
                let next =
                    span.parents.iter().filter_map(|parent| index_of.get(parent).copied()).find(is_new);
                match next {
                    Some(next) => at = next,
                    None => {
                        let unknown = span.parents.iter().find(|parent| !index_of.contains_key(parent));
                        break (TraceId(u128::from(unknown.unwrap_or(&span.span_id).0)), false);
                    }
                }
            };
            chain.iter().for_each(|&at| found[at] = Some(end));
        }
        held.into_iter().zip(found).filter_map(|((span, place), found)| {
            let (trace_id, is_known) = found?;
            Some((Span { trace_id, ..span }, place, is_known))
        })
    }
}
