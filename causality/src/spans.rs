//! Ties messages and log records to spans by the ids that they carry, and the spans of event files
//! to their parents.

use std::collections::BTreeMap;

use astracer_model::event::EventKind;
use astracer_model::ids::{SpanId, TraceId};

use crate::edge::{Edge, EdgeKind};
use crate::points::{NONE, Placed, Points, SpanRow};
use crate::written::Joins;

/// Points that belong together by ids.
#[derive(Debug, Default)]
pub(crate) struct Ties {
    pub(crate) edges: Vec<Edge>,
}

/// Spans by their ids. Short trace ids are the low half of long ones.
struct ById(Vec<(u64, SpanId, u32)>);

impl ById {
    fn new(events: &Points) -> Self {
        let key = |(at, span): (u32, &SpanRow)| (span.trace.0 as u64, span.id, at);
        let mut all: Vec<_> = (0..).zip(&events.spans).map(key).collect();
        all.sort_unstable();
        Self(all)
    }

    fn find(&self, trace: TraceId, id: SpanId) -> impl Iterator<Item = u32> + '_ {
        let key = (trace.0 as u64, id);
        let from = self.0.partition_point(|own| (own.0, own.1) < key);
        self.0[from..].iter().take_while(move |own| (own.0, own.1) == key).map(|own| own.2)
    }
}

/// Ties what belongs together, and counts it.
pub(crate) fn tie(events: &mut Points, joins: &mut Joins) -> Ties {
    let mut ties = Ties::default();
    for (index, row) in (0..).zip(&events.rows) {
        let Some(span) = events.spans.get_mut(row.span as usize) else { continue };
        match row.kind {
            EventKind::SpanStart => span.start = index,
            EventKind::SpanEnd => span.end = index,
            _ => {}
        }
    }
    // A recording's spans get their edges by rules; those of event files state only ids.
    let is_recorded = recorded(events);
    if events.ids.is_empty() && is_recorded.iter().all(|&is| is) {
        count(events, joins);
        return ties;
    }
    let by_id = ById::new(events);
    let mut children: Vec<(u32, u32)> = Vec::new();
    for (at, span) in (0u32..).zip(&events.spans) {
        for &parent in events.parents(span) {
            children.extend(
                by_id.find(span.trace, parent).filter(|&parent| parent != at).map(|parent| (parent, at)),
            );
        }
    }
    children.sort_unstable();
    for &(parent, child) in children.iter().filter(|&&(_, child)| !is_recorded[child as usize]) {
        let (before, after) = (events.spans[parent as usize].start, events.spans[child as usize].start);
        ties.edges.extend(edge(EdgeKind::Call, before, after));
    }
    for (span, _) in events.spans.iter().zip(&is_recorded).filter(|(_, is_recorded)| !**is_recorded) {
        ties.edges.extend(edge(EdgeKind::Span, span.start, span.end));
    }
    let by_bytes = carried(events, &by_id, &children, &mut ties, joins);
    for at in by_bytes {
        events.spans[at as usize].by_bytes = true;
    }
    count(events, joins);
    ties
}

/// Which spans are those of a recording.
fn recorded(events: &Points) -> Vec<bool> {
    let mut is_recorded = vec![false; events.spans.len()];
    for &span in events.span_of_index.iter().filter(|&&span| span != NONE) {
        is_recorded[span as usize] = true;
    }
    is_recorded
}

fn edge(kind: EdgeKind, before: u32, after: u32) -> Option<Edge> {
    (before != NONE && after != NONE).then_some(Edge { kind, before, after })
}

/// Ties messages and records. Returns the spans that messages carry.
fn carried(
    events: &mut Points,
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
        for (number, &(trace, id)) in events.ids_of(row).iter().enumerate() {
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
            let SpanRow { start, end, .. } = spans[span as usize];
            if row.kind != EventKind::Receive {
                ties.edges.extend(edge(EdgeKind::Id, start, index));
            }
            // A record that the span's own process wrote while it was open precedes its end.
            let is_within = end != NONE && near(&span) && row.time <= events.rows[end as usize].time;
            if row.kind == EventKind::Log && is_within {
                ties.edges.extend(edge(EdgeKind::Id, index, end));
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

fn count(events: &Points, joins: &mut Joins) {
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
                *unjoined.entry("spans whose process has no log or strace here").or_insert(0) += 1;
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
