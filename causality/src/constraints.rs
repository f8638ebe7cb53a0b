//! Which event must precede which, and why.
//!
//! | kind | before | after |
//! |---|---|---|
//! | PO | an event | the next of its thread |
//! | LN | a record of a log without threads | the next of its writer |
//! | FS | a fork | the start of its child |
//! | EJ | the end of a thread | a join with it |
//! | CA | the n-th connect of a connection | its n-th accept |
//! | SR | every send whose bytes a receive has | the receive |
//! | VC | an event that a vector clock knows | the event with the clock |
//! | SP | the start of a span | its end, its children's starts, its sends and its records |

use std::collections::HashMap;

use astracer_model::event::EventKind;
use rapidhash::fast::RandomState;

use crate::edge::{Edge, EdgeKind, Found, Unmatched, Why};
use crate::points::{NONE, Points};
use crate::streams;

/// Finds all constraints.
pub(crate) fn find(events: &Points, of_ids: Vec<Edge>) -> Found {
    let mut found = Found::default();
    program_order(events, &mut found);
    let pair = |thread: u32, of_child: u32| (thread, of_child);
    // The n-th fork of a child made its n-th start; a child that was started once has one maker.
    let forks = by_key(events, EventKind::Fork, |row| pair(row.child, 0));
    let starts = by_key(events, EventKind::Start, |row| pair(row.thread, 0));
    zip(&forks, &starts, EdgeKind::ForkStart, [Why::NoStart, Why::NoFork], &mut found);
    joins(events, &mut found);
    let channel = |row: &crate::points::Point| pair(events.same_channel(row.channel), 0);
    let connects = by_key(events, EventKind::Connect, channel);
    let accepts = by_key(events, EventKind::Accept, channel);
    zip(&connects, &accepts, EdgeKind::ConnectAccept, [Why::NoAccept, Why::NoConnect], &mut found);
    streams::find(events, &mut found);
    found.edges.extend(of_ids);
    found.unmatched.sort_unstable_by_key(|unmatched| unmatched.event);
    found
}

fn program_order(events: &Points, found: &mut Found) {
    let rows = events.rows();
    let mut order: Vec<u32> = (0..rows.len() as u32).collect();
    order.retain(|&index| rows[index as usize].chain != NONE);
    order.sort_unstable_by_key(|&index| {
        let row = &rows[index as usize];
        (row.chain, row.rank, index)
    });
    vector_clocks(events, &order, found);
    let is_pair = |pair: &&[u32]| rows[pair[0] as usize].chain == rows[pair[1] as usize].chain;
    let edges = order.windows(2).filter(is_pair);
    let kind = |chain: u32| match events.threads[chain as usize].is_log {
        true => EdgeKind::Line,
        false => EdgeKind::ProgramOrder,
    };
    found.edges.extend(edges.map(|pair| Edge {
        kind: kind(rows[pair[0] as usize].chain),
        before: pair[0],
        after: pair[1],
    }));
}

/// Each part of a vector clock that grew since the event before names an event that is known.
/// `order` has the events of each thread in order.
fn vector_clocks(events: &Points, order: &[u32], found: &mut Found) {
    let row = |index: u32| &events.rows()[index as usize];
    let threads = order.chunk_by(|&one, &other| row(one).chain == row(other).chain);
    let threads = threads.filter(|own| own.iter().any(|&index| row(index).clock.1 > 0));
    let own: HashMap<u32, &[u32], RandomState> = threads.map(|own| (row(own[0]).chain, own)).collect();
    for (&thread, &events_of) in &own {
        let mut known: HashMap<u32, u64, RandomState> = HashMap::default();
        for &after in events_of {
            for &(other, count) in events.clock_of(row(after)) {
                let before = known.entry(other).or_insert(0);
                if other == thread || count <= *before {
                    continue;
                }
                *before = count;
                let others = own.get(&other).copied().unwrap_or_default();
                let at = others.partition_point(|&index| row(index).rank <= count);
                if let Some(&before) = at.checked_sub(1).and_then(|at| others.get(at)) {
                    found.edges.push(Edge { kind: EdgeKind::VectorClock, before, after });
                }
            }
        }
    }
}

type Groups = HashMap<(u32, u32), Vec<u32>, RandomState>;

/// The events of a kind by a key, each group in order.
fn by_key(events: &Points, kind: EventKind, key: impl Fn(&crate::points::Point) -> (u32, u32)) -> Groups {
    let rows = events.rows();
    let mut groups = Groups::default();
    for (index, row) in (0..).zip(rows).filter(|(_, row)| row.kind == kind) {
        groups.entry(key(row)).or_default().push(index);
    }
    for group in groups.values_mut() {
        group.sort_unstable_by_key(|&index| (rows[index as usize].rank, index));
    }
    groups
}

/// The n-th event before precedes the n-th after.
fn zip(before: &Groups, after: &Groups, kind: EdgeKind, [first, second]: [Why; 2], found: &mut Found) {
    let none = Vec::new();
    for (key, befores) in before {
        let afters = if key.0 == NONE { &none } else { after.get(key).unwrap_or(&none) };
        let pairs = befores.iter().zip(afters);
        found.edges.extend(pairs.map(|(&before, &after)| Edge { kind, before, after }));
        let rest = befores.get(afters.len()..).unwrap_or_default();
        found.unmatched.extend(rest.iter().map(|&event| Unmatched { event, why: first }));
    }
    for (key, afters) in after {
        let befores = if key.0 == NONE { 0 } else { before.get(key).map_or(0, Vec::len) };
        let rest = afters.get(befores..).unwrap_or_default();
        found.unmatched.extend(rest.iter().map(|&event| Unmatched { event, why: second }));
    }
}

/// The n-th join with a thread waited for its n-th end. All joins with a thread that ended once
/// waited for that end.
fn joins(events: &Points, found: &mut Found) {
    let ends = by_key(events, EventKind::End, |row| (row.thread, 0));
    for ((child, _), joins) in by_key(events, EventKind::Join, |row| (row.child, 0)) {
        let ends = ends.get(&(child, 0)).map_or(&[][..], |ends| ends);
        for (at, &join) in joins.iter().enumerate() {
            match ends.get(if ends.len() == 1 { 0 } else { at }) {
                Some(&before) => {
                    found.edges.push(Edge { kind: EdgeKind::EndJoin, before, after: join });
                }
                None => found.unmatched.push(Unmatched { event: join, why: Why::NoEnd }),
            }
        }
    }
}
