//! Writes an order for ShiViz: the regular expression in the first line, an empty one because there
//! is only one execution, then each event with its vector clock.

use std::io::{self, Write};

use super::links::Links;
use super::select::Selection;
use super::text::{Stamps, describe, place, time};
use super::vectors::{Clocks, Lines};

/// The first line, in the syntax that JavaScript and other languages share.
pub const EXPRESSION: &str = r"(?<host>\S*) (?<clock>\{.*\})\n(?<time>\S*) (?<place>\S*) (?<event>.*)";

/// Writes the events of a selection, in order. Each line of events counts 1, 2, 3 ..., and a clock
/// names only the lines of which something is known.
///
/// # Errors
///
/// Fails if `out` does.
pub fn write(links: &Links<'_>, lines: &Lines, chosen: &Selection, out: &mut impl Write) -> io::Result<()> {
    let order = links.order();
    let stamps = Stamps::of(order);
    let names = lines.names(links);
    let keys: Vec<String> = names.iter().map(|name| serde_json::Value::from(&**name).to_string()).collect();
    let mut clocks = Clocks::new(links, lines);
    writeln!(out, "{EXPRESSION}\n")?;
    for &event in &order.sequence {
        let is_chosen = chosen.is_chosen[event as usize];
        let clock = clocks.step(event, is_chosen);
        if !is_chosen {
            continue;
        }
        let row = &order.events.rows()[event as usize];
        write!(out, "{} {{{}:{}", names[clock.line as usize], keys[clock.line as usize], clock.number)?;
        for &(line, number) in clock.known.iter() {
            write!(out, ",{}:{number}", keys[line as usize])?;
        }
        let place = place(order, row).replace(char::is_whitespace, "_");
        writeln!(out, "}}\n{} {place} {}", stamps.show(time(order, event)), describe(order, row))?;
    }
    Ok(())
}
