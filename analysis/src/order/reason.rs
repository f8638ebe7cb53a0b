//! Why events contradict each other: the likely reason, as far as the recording tells it.

use super::Order;
use super::edges::{Edge, EdgeKind};
use super::events::{NONE, Row};
use astracer_model::event::EventKind;

/// The likely reason of a contradiction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A connection's addresses and ports were used again.
    ReusedPort,
    /// A thread's number was used again.
    ReusedPid,
    /// The bytes of a connection do not add up.
    LostLines,
    /// An effect is stamped before its cause by one clock.
    ClockSetBack,
    /// None of these.
    Unknown,
}

impl Reason {
    /// As a text for people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::ReusedPort => "addresses and ports of this connection were used again",
            Self::ReusedPid => "the number of a thread was used again",
            Self::LostLines => "lines are missing: the bytes of this connection do not add up",
            Self::ClockSetBack => "a clock was set back: by one clock, an effect is earlier than its cause",
            Self::Unknown => "an event is missing, or stands in the file of another thread",
        }
    }
}

/// The constraint between two consecutive events of a cycle, the most certain of several.
pub fn edge_of(order: &Order, before: u32, after: u32) -> Option<Edge> {
    let all = order.edges.iter().chain(&order.dropped);
    all.filter(|edge| (edge.before, edge.after) == (before, after)).min_by_key(|edge| edge.kind).copied()
}

/// The likely reason of a cycle.
pub fn reason(order: &Order, cycle: &[u32]) -> Reason {
    let rows = order.events.rows();
    let row = |event: u32| &rows[event as usize];
    let of_cycle = |what: fn(&Row) -> u32| {
        let mut found: Vec<u32> = cycle.iter().map(|&event| what(row(event))).collect();
        found.retain(|&found| found != NONE);
        found
    };
    let channels = of_cycle(|row| row.channel);
    let opened = |channel: u32| {
        let is_open = |row: &&Row| row.channel == channel && row.kind == EventKind::Connect;
        rows.iter().filter(is_open).count()
    };
    if channels.iter().any(|&channel| opened(channel) > 1) {
        return Reason::ReusedPort;
    }
    let is_lost = |event: u32| channels.contains(&row(event).channel);
    if order.unmatched.iter().any(|unmatched| is_lost(unmatched.event)) {
        return Reason::LostLines;
    }
    let children = of_cycle(|row| row.child);
    let forks =
        |child: u32| rows.iter().filter(|row| row.kind == EventKind::Fork && row.child == child).count();
    if children.iter().any(|&child| forks(child) > 1) {
        return Reason::ReusedPid;
    }
    let host = |event: u32| order.events.process(row(event)).host;
    let is_back = |at: usize| {
        let (before, after) = (cycle[at], cycle[(at + 1) % cycle.len()]);
        let is_program =
            edge_of(order, before, after).is_some_and(|edge| edge.kind == EdgeKind::ProgramOrder);
        !is_program && host(before) == host(after) && row(before).time > row(after).time
    };
    if (0..cycle.len()).any(is_back) {
        return Reason::ClockSetBack;
    }
    Reason::Unknown
}
