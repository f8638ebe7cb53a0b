//! The constraints of an order as a graph that is walked in both directions, and the causal
//! relation of two events.

use std::collections::VecDeque;
use std::sync::OnceLock;

use serde::Serialize;

use super::Order;
use super::evidence::{Evidence, Missing};
use astracer_causality::edge::{Certainty, Edge, EdgeKind};

/// The constraints into and out of each event.
#[derive(Debug)]
pub struct Links<'o> {
    order: &'o Order,
    into: Lists,
    out: Lists,
    /// Computed for the first question.
    evidence: OnceLock<Evidence>,
}

/// Indices of edges by event.
#[derive(Debug)]
struct Lists {
    first: Vec<u32>,
    edges: Vec<u32>,
}

impl Lists {
    fn new(nodes: usize, edges: &[Edge], end: impl Fn(&Edge) -> u32) -> Self {
        let mut first = vec![0u32; nodes + 1];
        edges.iter().for_each(|edge| first[end(edge) as usize + 1] += 1);
        for at in 0..nodes {
            first[at + 1] += first[at];
        }
        let (mut next, mut sorted) = (first.clone(), vec![0; edges.len()]);
        for (index, edge) in (0..).zip(edges) {
            let at = &mut next[end(edge) as usize];
            sorted[*at as usize] = index;
            *at += 1;
        }
        Self { first, edges: sorted }
    }

    fn of(&self, event: u32) -> &[u32] {
        &self.edges[self.first[event as usize] as usize..self.first[event as usize + 1] as usize]
    }
}

/// The relation of one event to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Relation {
    /// They are one event.
    Same,
    /// The first is a cause of the second.
    Before,
    /// The second is a cause of the first.
    After,
    /// Neither is a cause of the other: whatever could have led from one to the other was recorded.
    Concurrent,
    /// No chain of causes is known, but one may not have been recorded.
    Unknown,
}

/// A cause on another line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// The effect.
    pub after: u32,
    /// The cause.
    pub before: u32,
    /// The constraint; `None` for a chain of constraints over events that were left out.
    pub kind: Option<EdgeKind>,
}

/// The direction of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// From an event to its causes.
    Causes,
    /// From an event to its effects.
    Effects,
}

impl<'o> Links<'o> {
    /// The constraints of an order.
    pub fn new(order: &'o Order) -> Self {
        let nodes = order.schedule.len();
        Self {
            order,
            into: Lists::new(nodes, &order.edges, |edge| edge.after),
            out: Lists::new(nodes, &order.edges, |edge| edge.before),
            evidence: OnceLock::new(),
        }
    }

    /// The order.
    pub fn order(&self) -> &'o Order {
        self.order
    }

    /// The constraints after which an event comes.
    pub fn into(&self, event: u32) -> impl Iterator<Item = &'o Edge> + '_ {
        self.into.of(event).iter().map(|&index| &self.order.edges[index as usize])
    }

    /// The constraints that begin with an event.
    pub fn out(&self, event: u32) -> impl Iterator<Item = &'o Edge> + '_ {
        self.out.of(event).iter().map(|&index| &self.order.edges[index as usize])
    }

    /// The evidence that two events lack to be called concurrent.
    pub fn missing(&self, one: u32, other: u32) -> Missing {
        let events = &self.order.events;
        self.evidence.get_or_init(|| Evidence::new(events)).missing(events, one, other)
    }

    /// The relation of `one` to `other`, with a chain of constraints from the cause to the effect:
    /// of those whose weakest certainty is the strongest, one with as few events as possible. The
    /// order must exist.
    pub fn between(&self, one: u32, other: u32) -> (Relation, Vec<Edge>) {
        let position = |event: u32| self.order.positions.get(event as usize).copied().unwrap_or(0);
        if one == other {
            return (Relation::Same, Vec::new());
        }
        let is_turned = position(one) > position(other);
        let (cause, effect) = if is_turned { (other, one) } else { (one, other) };
        match Certainty::ALL.iter().find_map(|&weakest| self.chain(cause, effect, weakest, false)) {
            None if self.missing(one, other).is_empty() => (Relation::Concurrent, Vec::new()),
            None => (Relation::Unknown, Vec::new()),
            Some(chain) => (if is_turned { Relation::After } else { Relation::Before }, chain),
        }
    }

    /// For a chain of events of one process, a chain between its ends that leads through another
    /// process, chosen as in [`Self::between`]. Empty if there is none, or if the chain leaves its
    /// process.
    pub fn through_others(&self, chain: &[Edge]) -> Vec<Edge> {
        let (Some(first), Some(last)) = (chain.first(), chain.last()) else { return Vec::new() };
        let (cause, effect) = (first.before, last.after);
        let home = self.process(cause);
        if chain.iter().any(|edge| self.process(edge.after) != home) {
            return Vec::new();
        }
        Certainty::ALL
            .iter()
            .find_map(|&weakest| self.chain(cause, effect, weakest, true))
            .unwrap_or_default()
    }

    /// The events after `cause` and before `effect` by causes, in order, without these two.
    pub fn inside(&self, cause: u32, effect: u32) -> Vec<u32> {
        let after = self.all(cause, Toward::Effects);
        let before = self.all(effect, Toward::Causes);
        let is_inside = |&event: &u32| {
            after[event as usize] && before[event as usize] && event != cause && event != effect
        };
        self.order.sequence.iter().copied().filter(is_inside).collect()
    }

    fn process(&self, node: u32) -> u32 {
        self.order.events.threads()[self.order.thread_of(node) as usize].process
    }

    /// A chain with as few events as possible of constraints that are at least as certain as
    /// `weakest`, and that leaves the cause's process if it `must_leave` it. Only nodes between the
    /// two in the order can be part of it.
    fn chain(&self, cause: u32, effect: u32, weakest: Certainty, must_leave: bool) -> Option<Vec<Edge>> {
        const NEW: u32 = u32::MAX;
        let places = &self.order.places;
        let (from, to) = (*places.get(cause as usize)?, *places.get(effect as usize)?);
        let home = self.process(cause);
        // The number of events up to each node, before and after the chain has left the process;
        // the edge that leads to it, and whether the chain had left before that edge.
        let mut reached = vec![[(u32::MAX, NEW, false); 2]; (to.checked_sub(from)? + 1) as usize];
        reached.first_mut()?[0] = (0, NEW, false);
        let mut queue = VecDeque::from([(cause, false, 0)]);
        while let Some((node, has_left, events)) = queue.pop_front() {
            if node == effect && has_left == must_leave {
                break;
            }
            if reached[(places[node as usize] - from) as usize][usize::from(has_left)].0 < events {
                continue;
            }
            for &index in self.out.of(node) {
                let edge = &self.order.edges[index as usize];
                let place = places[edge.after as usize].checked_sub(from).map(|place| place as usize);
                let Some(known) = place.and_then(|place| reached.get_mut(place)) else { continue };
                let leaves = must_leave && (has_left || self.process(edge.after) != home);
                let known = &mut known[usize::from(leaves)];
                let is_junction = self.order.is_junction(edge.after);
                let next = events + u32::from(!is_junction);
                if edge.kind.certainty() > weakest || !edge.kind.is_cause() || known.0 <= next {
                    continue;
                }
                *known = (next, index, has_left);
                // Nobody sees junctions, so they add nothing to a chain's length.
                match is_junction {
                    true => queue.push_front((edge.after, leaves, next)),
                    false => queue.push_back((edge.after, leaves, next)),
                }
            }
        }
        let (mut chain, mut node, mut has_left) = (Vec::new(), effect, must_leave);
        while node != cause || has_left {
            let (_, by, had_left) = reached[(places[node as usize] - from) as usize][usize::from(has_left)];
            let edge = *self.order.edges.get(by as usize)?;
            chain.push(edge);
            (node, has_left) = (edge.before, had_left);
        }
        chain.reverse();
        Some(collapsed(self.order, &chain))
    }

    /// Marks the events that are at most `hops` constraints away from an event, and itself.
    pub fn reach(&self, event: u32, toward: Toward, hops: u32) -> Vec<bool> {
        self.walk(event, toward, hops, |_| true)
    }

    /// Marks all causes or effects of an event, and itself.
    pub fn all(&self, event: u32, toward: Toward) -> Vec<bool> {
        self.walk(event, toward, u32::MAX, EdgeKind::is_cause)
    }

    fn walk(&self, event: u32, toward: Toward, hops: u32, fits: impl Fn(EdgeKind) -> bool) -> Vec<bool> {
        let mut is_reached = vec![false; self.order.schedule.len()];
        is_reached[event as usize] = true;
        let mut queue = VecDeque::from([(event, 0)]);
        while let Some((event, distance)) = queue.pop_front() {
            if distance == hops {
                continue;
            }
            let indices = if toward == Toward::Causes { self.into.of(event) } else { self.out.of(event) };
            for &index in indices {
                let edge = &self.order.edges[index as usize];
                let next = if toward == Toward::Causes { edge.before } else { edge.after };
                if fits(edge.kind) && !std::mem::replace(&mut is_reached[next as usize], true) {
                    // A step over a junction is one step.
                    match self.order.is_junction(next) {
                        true => queue.push_front((next, distance)),
                        false => queue.push_back((next, distance + 1)),
                    }
                }
            }
        }
        is_reached.truncate(self.order.events.len());
        is_reached
    }
}

/// The edges of a path with the two or more edges over junctions as one, of the least certain kind.
pub(crate) fn collapsed(order: &Order, path: &[Edge]) -> Vec<Edge> {
    let mut found = Vec::with_capacity(path.len());
    let mut over: Option<Edge> = None;
    for &edge in path {
        let one = over.take().map_or(edge, |over| {
            let is_weaker = edge.kind.certainty() >= over.kind.certainty();
            let kind = if is_weaker { edge.kind } else { over.kind };
            Edge { before: over.before, after: edge.after, kind }
        });
        if order.is_junction(edge.after) {
            over = Some(one);
        } else {
            found.push(one);
        }
    }
    found
}
