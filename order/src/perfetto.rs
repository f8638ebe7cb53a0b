//! Writes an order in Chrome's trace format, which Perfetto reads: a track for each thread, a slice
//! for each event, asynchronous slices for spans, and flows from causes to effects.

use std::io::{self, Write};

use astracer_model::event::EventKind;
use serde_json::{Value, json};

use super::links::Links;
use super::select::Selection;
use super::text::{Stamps, details, place, time};

/// The length of an event's slice, ns, unless the next event of its thread comes sooner. A slice
/// without a length is not seen, and flows need one.
const LENGTH: u64 = 1_000;

/// Writes the events of a selection.
///
/// # Errors
///
/// Fails if `out` does.
pub fn write(links: &Links<'_>, chosen: &Selection, out: &mut impl Write) -> io::Result<()> {
    let order = links.order();
    let (events, rows) = (&order.events, order.events.rows());
    let mut file = Entries { out, is_first: true };
    let start = chosen.events.iter().map(|&event| time(order, event)).min().unwrap_or(0);
    let since = |time: u64| micros(time - start);
    let begin = Stamps::of(order).show(start);
    writeln!(
        file.out,
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"start\":\"{begin}\"}},\"traceEvents\":["
    )?;
    for (index, process) in (1u32..).zip(events.processes()) {
        let host = &events.hosts()[process.host as usize];
        let name = if process.name.is_empty() { host.clone() } else { format!("{} on {host}", process.name) };
        file.write(&json!({"ph": "M", "name": "process_name", "pid": index, "args": {"name": name}}))?;
    }
    for (index, thread) in (1u32..).zip(events.threads()) {
        let pid = thread.process + 1;
        let args = json!({"name": &*thread.name});
        file.write(&json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": index, "args": args}))?;
    }
    let lengths = lengths(links, chosen);
    for &event in &chosen.events {
        let row = &rows[event as usize];
        let (pid, tid) = (events.thread(row).process + 1, row.thread + 1);
        let at = since(time(order, event));
        let text = details(order, row);
        let name = if row.kind == EventKind::Log { &text } else { row.kind.name() };
        let args = json!({
            "id": row.id, "details": &text, "place": place(order, row),
            "order": order.positions[event as usize], "recorded_ns": row.time,
        });
        file.write(&json!({
            "ph": "X", "cat": row.kind.name(), "name": name, "pid": pid, "tid": tid, "ts": at,
            "dur": micros(lengths[event as usize]), "args": args,
        }))?;
        let phase = match row.kind {
            EventKind::SpanStart => Some("b"),
            EventKind::SpanEnd => Some("e"),
            _ => None,
        };
        if let (Some(phase), Some(span)) = (phase, events.spans().get(row.span as usize)) {
            file.write(&json!({
                "ph": phase, "cat": "span", "name": &text, "id": format!("{}-{}", span.trace, span.id),
                "pid": pid, "tid": tid, "ts": at,
            }))?;
        }
        for link in chosen.causes(event) {
            let from = &rows[link.before as usize];
            let kind = link.kind.map_or("transitive", |kind| kind.name());
            let id = format!("{}-{}", from.id, row.id);
            file.write(&json!({
                "ph": "s", "cat": kind, "name": kind, "id": id, "pid": events.thread(from).process + 1,
                "tid": from.thread + 1, "ts": since(time(order, link.before)),
            }))?;
            file.write(&json!({
                "ph": "f", "bp": "e", "cat": kind, "name": kind, "id": id, "pid": pid, "tid": tid, "ts": at,
            }))?;
        }
    }
    file.out.write_all(b"\n]}\n")
}

/// The length of each event's slice: up to the next on its thread, at most [`LENGTH`].
fn lengths(links: &Links<'_>, chosen: &Selection) -> Vec<u64> {
    let order = links.order();
    let mut lengths = vec![LENGTH; order.events.len()];
    let mut by_time = chosen.events.clone();
    by_time.sort_by_key(|&event| (order.events.rows()[event as usize].thread, time(order, event)));
    for pair in by_time.windows(2) {
        let [one, next] = [pair[0], pair[1]].map(|event| &order.events.rows()[event as usize]);
        if one.thread == next.thread {
            let gap = time(order, pair[1]).saturating_sub(time(order, pair[0]));
            lengths[pair[0] as usize] = gap.clamp(1, LENGTH);
        }
    }
    lengths
}

/// Microseconds since the first event, which a double holds exactly to the nanosecond; since 1970
/// it would not.
fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

struct Entries<'w, W: Write> {
    out: &'w mut W,
    is_first: bool,
}

impl<W: Write> Entries<'_, W> {
    fn write(&mut self, entry: &Value) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_first, false) {
            self.out.write_all(b",\n")?;
        }
        serde_json::to_writer(&mut *self.out, entry).map_err(io::Error::from)
    }
}
