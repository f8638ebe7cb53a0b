//! One order of what several processes wrote that respects cause and effect.
//!
//! ```text
//! files -> intake -> events -> constraints -> goal -> Order
//!                                  |
//!                                  +-> cycles, if no order exists
//! ```
//!
//! The events and the goals are those of Falcon (Neves et al., DSN 2018). Instead of a general
//! solver, minimal clocks are longest paths, and the order by recorded time is a search for the
//! largest set of soft constraints within strongly connected components.

use serde::Serialize;

mod constraints;
mod cycles;
pub mod edges;
pub mod events;
pub mod goal;
pub mod graph;
pub mod intake;
mod online;
mod streams;
pub mod written;

pub use edges::{Edge, EdgeKind, Unmatched, Why};
pub use events::{Events, Row};
pub use goal::{Goal, Soft};
pub use intake::Intake;

/// The options of [`order`].
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which of the orders that exist is wanted.
    pub goal: Goal,
}

/// The result: events, constraints between them, and an order, from which every report, page and
/// file is drawn. Numbers of events are indices into [`Events::rows`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Order {
    /// The events, with their threads, processes, hosts and files.
    pub events: Events,
    /// The constraints: each event `before` happened before `after`, for the reason `kind`. Ordered
    /// by kind, then by the later event.
    pub edges: Vec<Edge>,
    /// Events that lack their counterpart, with the reason.
    pub unmatched: Vec<Unmatched>,
    /// A short cycle of each group of events that contradict each other: each event precedes the
    /// next, and the last precedes the first. Empty if an order exists.
    pub cycles: Vec<Vec<u32>>,
    /// The length of the longest chain of constraints that ends at each event, from 0. Empty if no
    /// order exists.
    pub clocks: Vec<u32>,
    /// All events in order; empty if no order exists.
    pub sequence: Vec<u32>,
    /// The position of each event in [`Self::sequence`].
    pub positions: Vec<u32>,
    /// The pairs of consecutive times, and those that keep their order.
    pub soft: Soft,
}

/// The number of constraints of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// The name of the kind.
    pub name: &'static str,
    /// The number.
    pub count: u64,
}

/// Finds the order of all events.
pub fn order(events: Events, options: &Options) -> Order {
    let edges::Found { edges, unmatched } = constraints::find(&events);
    let graph = graph::Graph::new(events.len(), edges.iter().map(|edge| (edge.before, edge.after)));
    let mut order = Order {
        cycles: Vec::new(),
        clocks: Vec::new(),
        sequence: Vec::new(),
        positions: Vec::new(),
        soft: Soft::default(),
        events,
        edges,
        unmatched,
    };
    let Some(clocks) = graph.levels() else {
        order.cycles = cycles::shortest(&graph);
        return order;
    };
    let times: Vec<u64> = order.events.rows().iter().map(|row| row.time).collect();
    let (sequence, soft) = match options.goal {
        Goal::Concurrency => goal::by_clock(&clocks, &times, &order.events),
        Goal::Time => goal::by_time(&graph, &times, &order.events),
    };
    order.positions = graph::positions(&sequence);
    (order.clocks, order.sequence, order.soft) = (clocks, sequence, soft);
    order
}

impl Order {
    /// True if the constraints do not contradict each other.
    pub fn exists(&self) -> bool {
        self.cycles.is_empty()
    }

    /// The number of constraints of each kind that occurs.
    pub fn constraint_counts(&self) -> Vec<Counted> {
        let count = |kind: EdgeKind| self.edges.iter().filter(|edge| edge.kind == kind).count() as u64;
        let counts = EdgeKind::ALL.iter().map(|&kind| Counted { name: kind.name(), count: count(kind) });
        counts.filter(|counted| counted.count > 0).collect()
    }

    /// The number of events with a cause on another thread.
    pub fn dependencies(&self) -> u64 {
        let mut is_caused = vec![false; self.events.len()];
        for edge in self.edges.iter().filter(|edge| edge.kind.is_dependency()) {
            is_caused[edge.after as usize] = true;
        }
        is_caused.into_iter().filter(|&is| is).count() as u64
    }
}
