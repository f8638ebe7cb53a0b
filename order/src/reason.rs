//! Why events contradict each other: the likely reason, as far as the recording tells it.

use std::collections::{HashMap, HashSet};

use super::Order;
use astracer_causality::edge::{Edge, EdgeKind};
use astracer_causality::points::{NONE, Point};
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

/// The constraints between each event of a cycle and the next, the most certain of several.
pub fn edges_of(order: &Order, cycle: &[u32]) -> Vec<Option<Edge>> {
    let next = cycle.iter().cycle().skip(1);
    let steps: HashMap<(u32, u32), usize> = cycle.iter().copied().zip(next.copied()).zip(0..).collect();
    let mut found: Vec<Option<Edge>> = vec![None; cycle.len()];
    // The first event before each junction that an event of the cycle leads to.
    let mut over: HashMap<u32, Vec<u32>> = HashMap::new();
    for edge in order.edges.iter().chain(&order.dropped).filter(|edge| order.is_junction(edge.after)) {
        over.entry(edge.after).or_default().push(edge.before);
    }
    for &edge in order.edges.iter().chain(&order.dropped).filter(|edge| order.is_junction(edge.before)) {
        for &before in over.get(&edge.before).into_iter().flatten() {
            if let Some(&step) = steps.get(&(before, edge.after)) {
                found[step] = Some(Edge { before, ..edge });
            }
        }
    }
    for edge in order.edges.iter().chain(&order.dropped) {
        if let Some(&step) = steps.get(&(edge.before, edge.after)) {
            let known = &mut found[step];
            *known = (*known).into_iter().chain([*edge]).min_by_key(|edge| edge.kind);
        }
    }
    found
}

/// The likely reason of a cycle with these [`edges_of`] it.
pub fn reason(order: &Order, cycle: &[u32], edges: &[Option<Edge>]) -> Reason {
    let rows = order.events.rows();
    let row = |event: u32| &rows[event as usize];
    let of_cycle = |what: fn(&Point) -> u32| -> HashSet<u32> {
        cycle.iter().map(|&event| what(row(event))).filter(|&found| found != NONE).collect()
    };
    // Whether two events of a kind state the same channel or child, out of these.
    let is_twice = |kind: EventKind, what: fn(&Point) -> u32, of: &HashSet<u32>| {
        let mut seen = HashSet::new();
        let mut stated = rows.iter().filter(|row| row.kind == kind && of.contains(&what(row)));
        stated.any(|row| !seen.insert(what(row)))
    };
    let channels = of_cycle(|row| row.channel);
    if is_twice(EventKind::Connect, |row| row.channel, &channels) {
        return Reason::ReusedPort;
    }
    let is_lost = |event: u32| channels.contains(&row(event).channel);
    if order.unmatched.iter().any(|unmatched| is_lost(unmatched.event)) {
        return Reason::LostLines;
    }
    let children = of_cycle(|row| row.child);
    if is_twice(EventKind::Fork, |row| row.child, &children) {
        return Reason::ReusedPid;
    }
    let host = |event: u32| order.events.process(row(event)).host;
    let is_back = |edge: &Edge| {
        !matches!(edge.kind, EdgeKind::ProgramOrder | EdgeKind::Line)
            && host(edge.before) == host(edge.after)
            && row(edge.before).time > row(edge.after).time
    };
    if edges.iter().flatten().any(is_back) {
        return Reason::ClockSetBack;
    }
    Reason::Unknown
}
