//! Ties spans to their parents, and messages and log records to spans, by the ids that they carry.

use std::collections::BTreeMap;

use astracer_model::event::EventKind;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::span::SpanKind;

use crate::edge::{Edge, EdgeKind};
use crate::points::{Events, NONE, Placed, Row};
use crate::written::Joins;

/// Events that belong together by ids.
#[derive(Debug, Default)]
pub(crate) struct Ties {
    /// Constraints between spans, their sends and their records.
    pub(crate) edges: Vec<Edge>,
    /// The end of a server's span, and that of the client's that waited for it.
    pub(crate) pairs: Vec<(u32, u32)>,
}

/// Spans by their ids.
struct ById(Vec<(TraceId, SpanId, u32)>);

impl ById {
    fn new(events: &Events) -> Self {
        let mut all: Vec<_> = (0..).zip(&events.spans).map(|(at, span)| (span.trace, span.id, at)).collect();
        all.sort_unstable();
        Self(all)
    }

    fn find(&self, trace: TraceId, id: SpanId) -> impl Iterator<Item = u32> + '_ {
        let from = self.0.partition_point(|own| (own.0, own.1) < (trace, id));
        self.0[from..].iter().take_while(move |own| (own.0, own.1) == (trace, id)).map(|own| own.2)
    }
}

/// Ties what belongs together, and counts it.
pub(crate) fn tie(events: &mut Events, joins: &mut Joins) -> Ties {
    let mut ties = Ties::default();
    for (index, row) in (0..).zip(&events.rows) {
        let Some(span) = events.spans.get_mut(row.span as usize) else { continue };
        match row.kind {
            EventKind::SpanStart => span.start = index,
            EventKind::SpanEnd => span.end = index,
            _ => {}
        }
    }
    let by_id = ById::new(events);
    let process = |thread: u32| events.threads[thread as usize].process;
    let mut children: Vec<(u32, u32)> = Vec::new();
    for (at, span) in (0u32..).zip(&events.spans) {
        if span.start == NONE {
            continue;
        }
        if span.end != NONE {
            ties.edges.push(Edge { kind: EdgeKind::Span, before: span.start, after: span.end });
        }
        let own_half = |other: &u32| {
            let other = &events.spans[*other as usize];
            span.shared && !other.shared
        };
        let half = by_id.find(span.trace, span.id).filter(|&other| other != at).find(own_half);
        let parents = events.parents.get(span.parents.0 as usize..span.parents.1 as usize);
        let parents = parents.unwrap_or_default().iter().filter_map(|&parent| {
            let is_near = |other: &u32| process(events.spans[*other as usize].thread) == process(span.thread);
            let all = || by_id.find(span.trace, parent).filter(|&other| other != at);
            all().find(is_near).or_else(|| all().next())
        });
        let parents: Vec<u32> = match half {
            Some(half) => vec![half],
            None => parents.collect(),
        };
        for parent in parents {
            let from = &events.spans[parent as usize];
            if from.start != NONE {
                ties.edges.push(Edge { kind: EdgeKind::Span, before: from.start, after: span.start });
                children.push((parent, at));
            }
            let is_call = from.kind == SpanKind::Client && span.kind == SpanKind::Server && !span.follows;
            if is_call && from.end != NONE && span.end != NONE {
                ties.pairs.push((span.end, from.end));
            }
        }
    }
    children.sort_unstable();
    let by_bytes = carried(events, &by_id, &children, &mut ties, joins);
    for at in by_bytes {
        events.spans[at as usize].by_bytes = true;
    }
    count(events, joins);
    ties
}

/// Ties messages and records. Returns the spans that messages carry.
fn carried(
    events: &mut Events,
    by_id: &ById,
    children: &[(u32, u32)],
    ties: &mut Ties,
    joins: &mut Joins,
) -> Vec<u32> {
    let mut by_bytes = Vec::new();
    let mut of_rows: Vec<(u32, u32)> = Vec::new();
    let spans = &events.spans;
    let process = |thread: u32| events.threads[thread as usize].process;
    for (index, row) in (0..).zip(&events.rows) {
        if !matches!(row.kind, EventKind::Log | EventKind::Send | EventKind::Receive) {
            continue;
        }
        let ids = events.ids.get(row.ids.0 as usize..row.ids.0 as usize + usize::from(row.ids.1));
        for (number, &(trace, id)) in ids.unwrap_or_default().iter().enumerate() {
            let near = |at: &u32| process(spans[*at as usize].thread) == process(row.thread);
            let found = by_id.find(trace, id).find(near).or_else(|| by_id.find(trace, id).next());
            let Some(span) = found else {
                if row.kind == EventKind::Log {
                    *joins.unjoined.entry("log records whose span is not here").or_insert(0) += 1;
                }
                continue;
            };
            if number == 0 {
                of_rows.push((index, span));
            }
            let start = spans[span as usize].start;
            let is_cause = row.kind != EventKind::Receive && start != NONE;
            if is_cause {
                ties.edges.push(Edge { kind: EdgeKind::Span, before: start, after: index });
            }
            match row.kind {
                EventKind::Log => joins.ids += 1,
                EventKind::Send => by_bytes.push(span),
                _ => {
                    let from = children.partition_point(|&(parent, _)| parent < span);
                    let own = children[from..].iter().take_while(|&&(parent, _)| parent == span);
                    by_bytes.extend(own.map(|&(_, child)| child).filter(near));
                }
            }
        }
    }
    for (row, span) in of_rows {
        events.rows[row as usize].span = span;
    }
    by_bytes
}

fn count(events: &Events, joins: &mut Joins) {
    let has_messages = events.rows.iter().any(|row| row.kind == EventKind::Send);
    let mut unjoined: BTreeMap<&'static str, u64> = BTreeMap::new();
    for span in &events.spans {
        joins.spans += 1;
        if span.is_call() {
            joins.calls += 1;
            joins.calls_by_bytes += u64::from(span.by_bytes);
        }
        joins.bytes += u64::from(span.by_bytes);
        match span.placed {
            Placed::Thread => joins.thread += 1,
            Placed::Process if !span.by_bytes => joins.process += 1,
            Placed::Nowhere if !span.by_bytes => {
                *unjoined.entry("spans of processes of which nothing else is known").or_insert(0) += 1;
            }
            _ => {}
        }
        if span.is_call() && !span.by_bytes && has_messages {
            *unjoined.entry("client and server spans whose ids no recorded message carries").or_insert(0) +=
                1;
        }
    }
    for (reason, number) in unjoined {
        *joins.unjoined.entry(reason).or_insert(0) += number;
    }
}

/// True for events that the order of their thread does not concern.
pub(crate) fn is_span(row: &Row) -> bool {
    matches!(row.kind, EventKind::SpanStart | EventKind::SpanEnd)
}
