//! Prints the log records of all files as one log.

use std::io::{self, BufWriter, Write};

use astracer_model::event::EventKind;
use astracer_order::links::Links;
use astracer_order::select::Selection;
use astracer_order::text::{Stamps, time};
use astracer_order::vectors::{Clocks, Lines};

use super::BUFFER_BYTES;
use crate::failure::Failure;
use crate::output::{escaped, lines_escaped};
use crate::stdout;

/// Prints the records of a selection, each whole after its time, host and process.
pub(super) fn print(links: &Links<'_>, lines: &Lines, chosen: &Selection) -> Result<(), Failure> {
    let rows = links.order().events.rows();
    if !chosen.events.iter().any(|&event| rows[event as usize].kind == EventKind::Log) {
        return Err(Failure::Job("there are no log records to merge; give the logs too".to_owned()));
    }
    let print = || -> io::Result<()> {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, stdout::open()?);
        write(links, lines, chosen, &mut out)?;
        out.flush()
    };
    print().map_err(|error| Failure::output(&error))
}

fn write(links: &Links<'_>, lines: &Lines, chosen: &Selection, out: &mut impl Write) -> io::Result<()> {
    let order = links.order();
    let events = &order.events;
    let stamps = Stamps::of(order);
    let mut clocks = Clocks::new(links, lines);
    // The record above, with its line and number.
    let mut above: Option<(u32, u32, u32)> = None;
    for &event in &order.sequence {
        let clock = clocks.step(event, true);
        let row = &events.rows()[event as usize];
        if row.kind != EventKind::Log || !chosen.is_chosen[event as usize] {
            continue;
        }
        let unordered = above.filter(|&(_, line, number)| clock.of(line) < number);
        let mark = match unordered {
            None => ' ',
            Some((above, ..)) if links.missing(above, event).is_empty() => '~',
            Some(_) => '?',
        };
        above = Some((event, clock.line, clock.number));
        let process = &*events.process(row).name;
        // A process without a name is known by its thread.
        let process = if process.is_empty() { &*events.thread(row).name } else { process };
        let (time, host, process) =
            (stamps.show(time(order, event)), escaped(events.host(row)), escaped(process));
        writeln!(out, "{mark} {time} {host} {process} | {}", lines_escaped(events.text(row).trim_end()))?;
    }
    Ok(())
}
