//! The events between two others by causes, by host.

use std::fmt::Write as _;

use astracer_order::Order;
use astracer_order::text::Stamps;
use serde::Serialize;

use super::line::line;
use crate::output::{self, count, escaped};

/// The events of one host.
#[derive(Serialize)]
pub(super) struct OfHost<'o> {
    host: &'o str,
    /// The ids, in order.
    events: Vec<u64>,
}

/// The events by host, in the order of their first ones.
fn hosts<'o>(order: &'o Order, inside: &[u32]) -> Vec<(&'o str, Vec<u32>)> {
    let mut found: Vec<(&str, Vec<u32>)> = Vec::new();
    let mut of_host = vec![usize::MAX; order.events.hosts().len()];
    for &event in inside {
        let host = order.events.process(&order.events.rows()[event as usize]).host as usize;
        if of_host[host] == usize::MAX {
            of_host[host] = found.len();
            found.push((&order.events.hosts()[host], Vec::new()));
        }
        found[of_host[host]].1.push(event);
    }
    found
}

/// For `--json`.
pub(super) fn json<'o>(order: &'o Order, inside: &[u32]) -> Vec<OfHost<'o>> {
    let id = |event: u32| order.events.rows()[event as usize].id;
    let own =
        |(host, events): (&'o str, Vec<u32>)| OfHost { host, events: events.into_iter().map(id).collect() };
    hosts(order, inside).into_iter().map(own).collect()
}

/// The number of events of each host, or all of them.
pub(super) fn text(order: &Order, inside: &[u32], lists_all: bool) -> String {
    let hosts = hosts(order, inside);
    if hosts.is_empty() {
        return "Nothing lies between them by causes.\n".to_owned();
    }
    let named =
        |(host, events): &(&str, Vec<u32>)| format!("{} {}", escaped(host), count(events.len() as u64));
    let counts: Vec<_> = hosts.iter().map(named).collect();
    let lie = if inside.len() == 1 { "lies" } else { "lie" };
    let hint = if lists_all { ":" } else { " (--all lists them)." };
    let mut text = format!(
        "Between them {lie} {} by causes: {}{hint}\n",
        output::plural(inside.len() as u64, "event"),
        counts.join(", ")
    );
    if lists_all {
        let (stamps, width) = (Stamps::of(order), output::width());
        for (host, events) in hosts {
            let _ = writeln!(text, "on {}", escaped(host));
            for event in events {
                let _ = writeln!(text, "{}", line(order, stamps, event, "", width));
            }
        }
    }
    text
}
