//! A part of the events, with the causality between them: where a chain of constraints leads over
//! events that were left out, a transitive link takes its place.

use std::collections::HashMap;

use rapidhash::fast::RandomState;

use super::junctions;
use super::links::{Link, Links};
use super::vectors::{Clock, Clocks, Lines};

/// Events of an order, and the links between them.
#[derive(Debug)]
pub struct Selection {
    /// The events, in order.
    pub events: Vec<u32>,
    /// True for the events that are part of it, by event.
    pub is_chosen: Vec<bool>,
    /// The causes on other lines, by effect. A transitive link is left out if others imply it.
    pub links: Vec<Link>,
}

impl Selection {
    /// The events that are marked. The order must exist.
    pub fn new(links: &Links<'_>, lines: &Lines, is_chosen: Vec<bool>) -> Self {
        let order = links.order();
        let is = |node: u32| is_chosen.get(node as usize) == Some(&true);
        let events = order.sequence.iter().copied().filter(|&event| is_chosen[event as usize]).collect();
        let mut found: Vec<Link> = order
            .edges
            .iter()
            .filter(|edge| !order.is_junction(edge.before) && !order.is_junction(edge.after))
            .map(|edge| Link { after: edge.after, before: edge.before, kind: Some(edge.kind) })
            .chain(junctions::links(order))
            .filter(|link| is(link.before) && is(link.after))
            .filter(|link| lines.of(link.before) != lines.of(link.after))
            .collect();
        found.sort_unstable();
        found.dedup_by_key(|link| (link.after, link.before));
        if is_chosen.contains(&false) {
            let more = transitive(links, lines, &is_chosen, &found);
            found.extend(more);
            found.sort_unstable();
        }
        Self { events, is_chosen, links: found }
    }

    /// All events.
    pub fn all(links: &Links<'_>, lines: &Lines) -> Self {
        Self::new(links, lines, vec![true; links.order().events.len()])
    }

    /// True if events were left out.
    pub fn is_partial(&self) -> bool {
        self.is_chosen.len() != self.events.len()
    }

    /// The causes of an event on other lines.
    pub fn causes(&self, event: u32) -> &[Link] {
        let first = self.links.partition_point(|link| link.after < event);
        let len = self.links[first..].partition_point(|link| link.after == event);
        &self.links[first..first + len]
    }
}

/// Links over events that were left out: an event has learned of them since the one before it on
/// its line, and no other of its causes knew of them.
fn transitive(links: &Links<'_>, lines: &Lines, is_chosen: &[bool], direct: &[Link]) -> Vec<Link> {
    let mut clocks = Clocks::new(links, lines);
    // By line and number.
    let mut numbered: HashMap<(u32, u32), (u32, Clock), RandomState> = HashMap::default();
    let mut found = Vec::new();
    for &event in &links.order().sequence {
        let is_own = is_chosen[event as usize];
        let clock = clocks.step(event, is_own);
        if !is_own {
            continue;
        }
        let before = numbered.get(&(clock.line, clock.number - 1)).map(|(_, clock)| clock);
        let is_same = before.is_some_and(|before| std::rc::Rc::ptr_eq(&before.known, &clock.known));
        let news: Vec<_> = clock
            .known
            .iter()
            .filter(|_| !is_same)
            .filter(|&&(line, number)| before.is_none_or(|before| before.of(line) < number))
            .filter_map(|&key| numbered.get(&key))
            .collect();
        // The most that any of these causes knows of each line.
        let mut most: HashMap<u32, u32, RandomState> = HashMap::default();
        for &(line, number) in news.iter().flat_map(|(_, its)| its.known.iter()) {
            let known = most.entry(line).or_default();
            *known = number.max(*known);
        }
        for (cause, own) in &news {
            let is_direct =
                direct.binary_search_by_key(&(event, *cause), |link| (link.after, link.before)).is_ok();
            let is_implied = most.get(&own.line).is_some_and(|&known| known >= own.number);
            if !is_direct && !is_implied {
                found.push(Link { after: event, before: *cause, kind: None });
            }
        }
        numbered.insert((clock.line, clock.number), (event, clock));
    }
    found
}
