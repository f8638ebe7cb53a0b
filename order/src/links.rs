//! The constraints of an order as a graph that is walked in both directions, and the causal
//! relation of two events.

use std::collections::VecDeque;

use serde::Serialize;

use super::Order;
use astracer_causality::edge::{Edge, EdgeKind};

/// The constraints into and out of each event.
#[derive(Debug)]
pub struct Links<'o> {
    order: &'o Order,
    into: Lists,
    out: Lists,
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
    /// Neither is a cause of the other.
    Concurrent,
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

    /// The relation of `one` to `other`, with a chain of as few constraints as possible from the
    /// cause to the effect. The order must exist.
    pub fn between(&self, one: u32, other: u32) -> (Relation, Vec<Edge>) {
        let position = |event: u32| self.order.positions.get(event as usize).copied().unwrap_or(0);
        if one == other {
            return (Relation::Same, Vec::new());
        }
        let is_turned = position(one) > position(other);
        let (cause, effect) = if is_turned { (other, one) } else { (one, other) };
        match (self.chain(cause, effect), is_turned) {
            (None, _) => (Relation::Concurrent, Vec::new()),
            (Some(chain), false) => (Relation::Before, chain),
            (Some(chain), true) => (Relation::After, chain),
        }
    }

    /// A shortest chain of constraints between two events. Only events between the two in the order
    /// can be part of it.
    fn chain(&self, cause: u32, effect: u32) -> Option<Vec<Edge>> {
        const NEW: u32 = u32::MAX;
        let positions = &self.order.places;
        let (from, to) = (*positions.get(cause as usize)?, *positions.get(effect as usize)?);
        let mut reached_by = vec![NEW; (to.checked_sub(from)? + 1) as usize];
        let mut queue = VecDeque::from([cause]);
        'search: while let Some(event) = queue.pop_front() {
            for &index in self.out.of(event) {
                let next = self.order.edges[index as usize].after;
                let place = positions[next as usize].checked_sub(from).map(|place| place as usize);
                if let Some(by) = place.and_then(|place| reached_by.get_mut(place))
                    && *by == NEW
                {
                    *by = index;
                    if next == effect {
                        break 'search;
                    }
                    queue.push_back(next);
                }
            }
        }
        let (mut chain, mut event) = (Vec::new(), effect);
        while event != cause {
            let by = reached_by[(positions[event as usize] - from) as usize];
            let edge = *self.order.edges.get(by as usize)?;
            chain.push(edge);
            event = edge.before;
        }
        chain.reverse();
        Some(collapsed(self.order, &chain))
    }

    /// Marks the events that are at most `hops` constraints away from an event, and itself.
    pub fn reach(&self, event: u32, toward: Toward, hops: u32) -> Vec<bool> {
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
                if !std::mem::replace(&mut is_reached[next as usize], true) {
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

/// The edges of a path with the two or more edges over junctions as one, of the kind of the last.
pub(crate) fn collapsed(order: &Order, path: &[Edge]) -> Vec<Edge> {
    let mut found = Vec::with_capacity(path.len());
    let mut from = None;
    for &edge in path {
        let before = from.take().unwrap_or(edge.before);
        if order.is_junction(edge.after) {
            from = Some(before);
        } else {
            found.push(Edge { before, ..edge });
        }
    }
    found
}
