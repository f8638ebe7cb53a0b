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

use astracer_causality::causes::{Causes, Clocking};
use astracer_causality::clocks::HostClock;
use astracer_causality::edge::{Edge, EdgeKind, Unmatched};
use astracer_causality::graph;
use astracer_causality::intake::Collected;
use astracer_causality::points::Events;
use serde::Serialize;

mod cycles;
mod drop;
pub mod goal;
pub mod links;
mod online;
pub mod page;
pub mod perfetto;
pub mod reason;
mod repair;
pub mod select;
pub mod shiviz;
pub mod text;
pub mod vectors;

pub use goal::{Goal, Soft};

/// The options of [`order`].
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which of the orders that exist is wanted.
    pub goal: Goal,
    /// The treatment of clocks.
    pub clocking: Clocking,
    /// True to leave out the least certain constraints if they contradict each other.
    pub drop_cycles: bool,
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
    /// next, and the last precedes the first. Empty if all constraints can be kept.
    pub cycles: Vec<Vec<u32>>,
    /// The constraints that were left out so that an order exists.
    pub dropped: Vec<Edge>,
    /// The length of the longest chain of constraints that ends at each event, from 0. Empty if no
    /// order exists.
    pub clocks: Vec<u32>,
    /// All events in order; empty if no order exists.
    pub sequence: Vec<u32>,
    /// The position of each event in [`Self::sequence`].
    pub positions: Vec<u32>,
    /// The pairs of events that follow each other by time, and those that keep their order.
    pub soft: Soft,
    /// The clock of each host.
    pub host_clocks: Vec<HostClock>,
    /// The recorded time of each event, less what its host's clock runs ahead.
    pub aligned_times: Vec<u64>,
    /// The time of each event that contradicts no constraint and is closest to
    /// [`Self::aligned_times`]. Empty if no order exists.
    pub times: Vec<u64>,
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
pub fn order(collected: Collected, options: &Options) -> Order {
    let Causes { events, mut edges, unmatched, host_clocks, aligned_times, .. } =
        Causes::find(collected, &options.clocking);
    let graph_of =
        |edges: &[Edge]| graph::Graph::new(events.len(), edges.iter().map(|edge| (edge.before, edge.after)));
    let mut graph = graph_of(&edges);
    let mut levels = graph.levels();
    let (mut cycles, mut dropped) = (Vec::new(), Vec::new());
    if levels.is_none() {
        cycles = cycles::shortest(&graph);
        if options.drop_cycles {
            (edges, dropped) = drop::acyclic(edges, events.len(), &aligned_times);
            graph = graph_of(&edges);
            levels = graph.levels();
        }
    }
    let mut order = Order {
        cycles,
        dropped,
        clocks: Vec::new(),
        sequence: Vec::new(),
        positions: Vec::new(),
        soft: Soft::default(),
        events,
        edges,
        unmatched,
        host_clocks,
        aligned_times,
        times: Vec::new(),
    };
    let Some(clocks) = levels else { return order };
    let times = &order.aligned_times;
    let (sequence, soft) = match options.goal {
        Goal::Concurrency => goal::by_clock(&clocks, times, &order.events),
        Goal::Time => goal::by_time(&graph, times, &order.events),
    };
    order.times = repair::repaired(&graph, &sequence, times);
    order.positions = graph::positions(&sequence);
    (order.clocks, order.sequence, order.soft) = (clocks, sequence, soft);
    order
}

impl Order {
    /// True if the constraints that were kept do not contradict each other.
    pub fn exists(&self) -> bool {
        self.sequence.len() == self.events.len()
    }

    /// The number of events whose time contradicted a constraint, and the largest shift that
    /// repaired them, in nanoseconds.
    pub fn moved(&self) -> (u64, u64) {
        let shifts = self.times.iter().zip(&self.aligned_times).map(|(new, old)| new.abs_diff(*old));
        shifts.filter(|&shift| shift > 0).fold((0, 0), |(count, most), shift| (count + 1, most.max(shift)))
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
