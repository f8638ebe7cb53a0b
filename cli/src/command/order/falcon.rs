//! Writes the ordered events as Falcon's JSON lines.

use std::io::Write as _;

use astracer_causality::edge::Edge;
use astracer_formats::events::falcon::{TimeUnit, write_line};
use astracer_model::event::Event;
use astracer_model::time::UnixNanos;
use astracer_order::Order;
use astracer_order::select::Selection;
use serde_json::json;

use crate::failure::Failure;
use crate::outputs::Output;

/// Lines are written in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

/// Writes the events of a selection in order.
pub(super) fn write(file: &Output, order: &Order, chosen: &Selection) -> Result<(), Failure> {
    let open = file.open()?;
    let mut writer = open.writer()?;
    let rows = order.events.rows();
    let unit = TimeUnit::of(rows.iter().map(|row| UnixNanos(row.time)));
    let causes = causes(order, chosen);
    let mut text = Vec::new();
    for &index in &chosen.events {
        let row = &rows[index as usize];
        let threads = order.events.threads();
        let mut event = Event::new(row.kind, UnixNanos(row.time), &*order.events.thread(row).name);
        event.id = Some(row.id);
        event.host = order.events.host(row).into();
        event.process = (&*order.events.process(row).name).into();
        event.child = threads.get(row.child as usize).map_or("", |thread| &*thread.name).into();
        event.channel = order.events.channels().get(row.channel as usize).cloned();
        event.bytes = row.bytes;
        event.text = order.events.text(row).into();
        if let Some(span) = order.events.spans().get(row.span as usize) {
            let ids = std::iter::once(&span.id).chain(order.events.parents(span));
            event.contexts = ids.map(|&id| (span.trace, id)).collect();
        }
        write_line(&mut text, &event, unit, |text| {
            // A cause on another thread; of several sends, the last.
            let cause = causes.get(index as usize).copied().flatten();
            let dependency = cause.map(|cause| rows[cause as usize].id);
            let mut more = json!({
                "order": order.positions[index as usize],
                "clock": order.clocks[index as usize],
                "file": &*order.events.files()[row.file as usize],
                "line": row.line,
            });
            if let Some(dependency) = dependency {
                more["dependency"] = dependency.into();
            }
            let more = more.to_string();
            text.push(b',');
            text.extend_from_slice(&more.as_bytes()[1..more.len() - 1]);
        });
        if text.len() > PIECE_BYTES {
            writer.write_all(&text).map_err(|error| file.failure(&error))?;
            text.clear();
        }
    }
    writer.write_all(&text).and_then(|()| writer.flush()).map_err(|error| file.failure(&error))?;
    open.complete()
}

/// The cause of each event on another thread: the last in order. If events were left out, a chain
/// over them is a cause too.
fn causes(order: &Order, chosen: &Selection) -> Vec<Option<u32>> {
    let mut causes = vec![None; order.events.len()];
    let place = |event: u32| order.positions[event as usize];
    let mut add = |before: u32, after: u32| {
        let cause: &mut Option<u32> = &mut causes[after as usize];
        if cause.is_none_or(|known| place(known) < place(before)) {
            *cause = Some(before);
        }
    };
    for &Edge { before, after, .. } in order.edges.iter().filter(|edge| edge.kind.is_dependency()) {
        if chosen.is_chosen[before as usize] && chosen.is_chosen[after as usize] {
            add(before, after);
        }
    }
    for link in chosen.links.iter().filter(|link| link.kind.is_none()) {
        add(link.before, link.after);
    }
    causes
}
