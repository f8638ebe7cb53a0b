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

use astracer_causality::causes::{Causes, Clocking, Junction};
use astracer_causality::clocks::HostClock;
use astracer_causality::edge::{Edge, EdgeKind, Unmatched};
use astracer_causality::graph;
use astracer_causality::intake::Collected;
use astracer_causality::points::Points;
use astracer_recording::stop::Pulse;
use serde::Serialize;

mod cycles;
mod drop;
pub mod evidence;
pub mod goal;
mod junctions;
pub mod links;
mod online;
pub mod page;
pub mod perfetto;
pub mod reason;
pub mod records;
mod repair;
pub mod select;
pub mod shiviz;
pub mod text;
pub mod vectors;

pub use goal::{Goal, Soft};

/// The recorded time of an outlier that is farther from its causes and effects does not count, in
/// nanoseconds.
const FAR: u64 = 1_000_000_000;

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
/// file is drawn. Numbers of events are indices into [`Points::rows`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Order {
    /// The events, with their threads, processes, hosts and files.
    pub events: Points,
    /// The constraints: each event `before` happened before `after`, for the reason `kind`. Ordered
    /// by kind, then by the later event. Some lead over junctions, which have numbers behind those
    /// of all events.
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
    /// Nodes of the graph behind all events; nothing shows them.
    pub(crate) junctions: Vec<Junction>,
    /// All nodes in order.
    pub(crate) schedule: Vec<u32>,
    /// The position of each node in [`Self::schedule`].
    pub(crate) places: Vec<u32>,
    /// The facts of log records, by their numbers.
    pub(crate) logs: Vec<records::LogFacts>,
    /// The clock of each host.
    pub host_clocks: Vec<HostClock>,
    /// The recorded time of each event, less what its host's clock runs ahead.
    pub aligned_times: Vec<u64>,
    /// The time of each event that contradicts no constraint: that of
    /// [`Self::aligned_times`] for as many events as possible. Empty if no order exists.
    pub times: Vec<u64>,
    /// Events whose recorded times contradict more than one other event.
    pub outliers: Vec<u32>,
}

/// The number of constraints of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// The name of the kind.
    pub name: &'static str,
    /// The number.
    pub count: u64,
}

/// Finds the order of all events. `None` if the pulse stopped the work.
pub fn order(collected: Collected, options: &Options, pulse: &mut Pulse<'_>) -> Option<Order> {
    let logs = records::of(&collected.recording);
    let (causes, _) = Causes::find(collected, &options.clocking, pulse)?;
    let Causes { events, mut edges, unmatched, junctions, host_clocks, aligned_times, .. } = causes;
    let points = events.len();
    let nodes = points + junctions.len();
    let all_times: Vec<u64> =
        aligned_times.iter().copied().chain(junctions.iter().map(|junction| junction.time)).collect();
    let graph_of =
        |edges: &[Edge]| graph::Graph::new(nodes, edges.iter().map(|edge| (edge.before, edge.after)));
    let mut graph = graph_of(&edges);
    let mut any_order = graph.any_order();
    let (mut cycles, mut dropped) = (Vec::new(), Vec::new());
    if any_order.is_none() {
        cycles = cycles::shortest(&graph);
        cycles.iter_mut().for_each(|cycle| cycle.retain(|&node| (node as usize) < points));
        if options.drop_cycles {
            (edges, dropped) = drop::acyclic(edges, nodes, &all_times);
            dropped = junctions::shown(&dropped, &graph, points);
            graph = graph_of(&edges);
            any_order = graph.any_order();
        }
    }
    let mut order = Order {
        cycles,
        dropped,
        clocks: Vec::new(),
        sequence: Vec::new(),
        positions: Vec::new(),
        soft: Soft::default(),
        schedule: Vec::new(),
        places: Vec::new(),
        events,
        edges,
        unmatched,
        junctions,
        logs,
        host_clocks,
        aligned_times,
        times: Vec::new(),
        outliers: Vec::new(),
    };
    let Some(any_order) = any_order else { return Some(order) };
    let clocks = graph.levels(points, &any_order);
    // A junction is no event: it comes as soon as it may, and delays nothing.
    let times = finer_times(&graph, &any_order, &order.events, &order.aligned_times);
    let repaired = repair::repaired(&graph, &any_order, &times);
    let mut ranks: Vec<u64> = times.iter().copied().chain(vec![0; nodes - points]).collect();
    // A stamp that is far off would hold up all that follows it.
    for &event in &repaired.outliers {
        let (rank, time) = (&mut ranks[event as usize], repaired.times[event as usize]);
        if rank.abs_diff(time) > FAR {
            *rank = time;
        }
    }
    let (schedule, soft) = match options.goal {
        Goal::Concurrency => goal::by_clock(&graph, &clocks, &ranks, &order.events),
        Goal::Time => goal::by_time(&graph, &ranks, &order.events),
    };
    (order.times, order.outliers) = (repaired.times, repaired.outliers);
    order.places = graph::positions(&schedule);
    order.sequence = schedule.iter().copied().filter(|&node| (node as usize) < points).collect();
    order.positions = graph::positions(&order.sequence);
    (order.clocks, order.schedule, order.soft) = (clocks, schedule, soft);
    order.clocks.truncate(points);
    Some(order)
}

/// The times of points, each as late as its causes want it and the resolution of its log allows: a
/// record of 09:00:00 may be of 09:00:00.9. In `order` every edge leads forward.
fn finer_times(graph: &graph::Graph, order: &[u32], events: &Points, aligned: &[u64]) -> Vec<u64> {
    let mut times = aligned.to_vec();
    if events.rows().iter().all(|row| row.resolution == 0) {
        return times;
    }
    for &node in order {
        let Some(&time) = times.get(node as usize) else { continue };
        for &to in graph.next(node).iter().filter(|&&to| (to as usize) < aligned.len()) {
            let (own, resolution) = (aligned[to as usize], events.rows()[to as usize].resolution);
            if times[to as usize] < time && time - own <= resolution {
                times[to as usize] = time;
            }
        }
    }
    times
}

impl Order {
    /// True if the constraints that were kept do not contradict each other.
    pub fn exists(&self) -> bool {
        self.sequence.len() == self.events.len()
    }

    /// The thread of a node; that of its span for a junction.
    pub(crate) fn thread_of(&self, node: u32) -> u32 {
        self.events.rows()[self.shown(node) as usize].thread
    }

    /// The event that stands for a node where people see it: the start of the span of a junction.
    pub fn shown(&self, node: u32) -> u32 {
        match (node as usize).checked_sub(self.events.len()) {
            Some(junction) => self.junctions[junction].start,
            None => node,
        }
    }

    /// True for a node that no one sees.
    pub(crate) fn is_junction(&self, node: u32) -> bool {
        node as usize >= self.events.len()
    }

    /// The number of events whose time contradicted a constraint, and the largest shift that
    /// repaired them, in nanoseconds.
    pub fn moved(&self) -> (u64, u64) {
        let shifts = (0..self.times.len()).filter_map(|event| self.shift(event as u32));
        shifts.fold((0, 0), |(count, most), shift| (count + 1, most.max(shift)))
    }

    /// By how many nanoseconds the time of an event was repaired; `None` if it was not. A log's
    /// time is cut: it says no more than its last digit.
    pub fn shift(&self, event: u32) -> Option<u64> {
        let shift = self.times.get(event as usize)?.abs_diff(self.aligned_times[event as usize]);
        Some(shift).filter(|&shift| shift > self.events.rows()[event as usize].resolution)
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
