//! Vector clocks: how many events of each line an event knows of.
//!
//! A line is a chain of events of one thread, each after the one before it by a constraint. A
//! thread has several lines if not all of its events are ordered, as with spans that were only
//! drawn on it.

use std::collections::HashMap;
use std::rc::Rc;

use rapidhash::fast::RandomState;

use super::links::Links;

/// The lines of an order.
#[derive(Debug)]
pub struct Lines {
    /// The line of each event.
    of: Vec<u32>,
    /// The thread of each line with events.
    threads: Vec<u32>,
    /// The number of lines, with those of junctions.
    all: usize,
}

/// The junctions that are looked at in search of an event before them.
const JUNCTIONS_MAX: usize = 64;

/// The nearest events before an event over junctions.
fn over_junctions(links: &Links<'_>, event: u32) -> Vec<u32> {
    let order = links.order();
    let (mut found, mut queue) = (Vec::new(), vec![event]);
    for _ in 0..JUNCTIONS_MAX {
        let Some(node) = queue.pop() else { break };
        for before in links.into(node).map(|edge| edge.before).take(JUNCTIONS_MAX) {
            let list = if order.is_junction(before) { &mut queue } else { &mut found };
            list.push(before);
        }
    }
    found
}

impl Lines {
    /// Divides the events into lines. The order must exist.
    pub fn new(links: &Links<'_>) -> Self {
        const NONE: u32 = u32::MAX;
        let order = links.order();
        let mut of = vec![NONE; order.schedule.len()];
        let (mut last, mut threads) = (Vec::new(), Vec::new());
        for &event in &order.sequence {
            let thread = order.thread_of(event);
            let is_last = |&before: &u32| {
                let line = of[before as usize];
                order.thread_of(before) == thread && line != NONE && last[line as usize] == before
            };
            // Constraints are sorted by kind, so that the order of a thread comes first.
            let direct = || links.into(event).map(|edge| edge.before).filter(|&at| !order.is_junction(at));
            let before =
                direct().find(is_last).or_else(|| over_junctions(links, event).into_iter().find(is_last));
            let line = before.map_or(threads.len() as u32, |before| of[before as usize]);
            if before.is_none() {
                threads.push(thread);
                last.push(event);
            }
            last[line as usize] = event;
            of[event as usize] = line;
        }
        // Each junction hands on what it knows, on a line without events.
        let lines = threads.len();
        for (line, own) in (lines as u32..).zip(&mut of[order.events.len()..]) {
            *own = line;
        }
        Self { of, threads, all: lines + order.schedule.len() - order.events.len() }
    }

    /// The line of an event.
    pub fn of(&self, event: u32) -> u32 {
        self.of[event as usize]
    }

    /// The number of lines.
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// True without events.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// A name without white space for each line: the thread's name, with the process or a number
    /// if several would have the same.
    pub fn names(&self, links: &Links<'_>) -> Vec<String> {
        let events = &links.order().events;
        let plain = |text: &str| text.replace(|char: char| char.is_whitespace() || char.is_control(), "_");
        let thread = |line: u32| &events.threads()[line as usize];
        let mut uses: HashMap<&str, Vec<u32>, RandomState> = HashMap::default();
        for &of in &self.threads {
            let threads = uses.entry(&thread(of).name).or_default();
            if !threads.contains(&of) {
                threads.push(of);
            }
        }
        let mut taken: HashMap<String, u32, RandomState> = HashMap::default();
        let name = |&of: &u32| {
            let (own, process) = (thread(of), &events.processes()[thread(of).process as usize]);
            let is_shared = uses.get(&*own.name).is_some_and(|threads| threads.len() > 1);
            let name = match (own.name.is_empty(), is_shared) {
                (true, _) => plain(&process.name),
                (false, true) => format!("{}/{}", plain(&process.name), plain(&own.name)),
                (false, false) => plain(&own.name),
            };
            let name = if name.is_empty() { "thread".to_owned() } else { name };
            let used = taken.entry(name.clone()).or_insert(0);
            *used += 1;
            if *used == 1 { name } else { format!("{name}#{used}") }
        };
        self.threads.iter().map(name).collect()
    }
}

/// The events of other lines that are known on a line: line and number, sorted by line.
pub type Known = Rc<Vec<(u32, u32)>>;

/// The clock of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The event's line.
    pub line: u32,
    /// The number of counted events on the line up to this one.
    pub number: u32,
    /// Those on other lines.
    pub known: Known,
}

impl Clock {
    /// The number of events of a line that are known.
    pub fn of(&self, line: u32) -> u32 {
        if line == self.line {
            return self.number;
        }
        let found = self.known.binary_search_by_key(&line, |&(line, _)| line);
        found.map_or(0, |at| self.known[at].1)
    }
}

/// Computes clocks along an order, event by event. A clock is kept only until the last event that
/// depends on it.
#[derive(Debug)]
pub struct Clocks<'l> {
    links: &'l Links<'l>,
    lines: &'l Lines,
    /// The clock of each line's latest event.
    latest: Vec<(u32, Known)>,
    /// The place in the schedule up to which clocks are known.
    place: usize,
    /// Clocks that later events on other lines take, with the number of those events.
    sent: HashMap<u32, (u32, u32, Known), RandomState>,
}

impl<'l> Clocks<'l> {
    /// Begins before the first event.
    pub fn new(links: &'l Links<'l>, lines: &'l Lines) -> Self {
        let latest = vec![(0, Known::default()); lines.all];
        Self { links, lines, latest, place: 0, sent: HashMap::default() }
    }

    /// The clock of the next event of the order. An event that is not counted hands on what it
    /// knows.
    pub fn step(&mut self, event: u32, is_counted: bool) -> Clock {
        let order = self.links.order();
        while let Some(&node) = order.schedule.get(self.place).filter(|&&node| node != event) {
            debug_assert!(order.is_junction(node), "all events of the order are stepped through");
            self.place += 1;
            self.advance(node, false);
        }
        self.place += 1;
        self.advance(event, is_counted)
    }

    fn advance(&mut self, event: u32, is_counted: bool) -> Clock {
        let line = self.lines.of(event);
        let mut merged: Option<Vec<(u32, u32)>> = None;
        for edge in self.links.into(event) {
            let from = self.lines.of(edge.before);
            if from == line {
                continue;
            }
            let Some((uses, number, known)) = self.sent.get_mut(&edge.before) else { continue };
            let before = merged.take().unwrap_or_else(|| self.latest[line as usize].1.to_vec());
            merged = Some(union(&before, known, (from, *number), line));
            *uses -= 1;
            if *uses == 0 {
                self.sent.remove(&edge.before);
            }
        }
        let (number, known) = &mut self.latest[line as usize];
        *number += u32::from(is_counted);
        if let Some(merged) = merged {
            *known = Rc::new(merged);
        }
        let clock = Clock { line, number: *number, known: Rc::clone(known) };
        let uses = self.links.out(event).filter(|edge| self.lines.of(edge.after) != line).count() as u32;
        if uses > 0 {
            self.sent.insert(event, (uses, clock.number, Rc::clone(&clock.known)));
        }
        clock
    }
}

/// All that is known by either, without the own line.
fn union(one: &[(u32, u32)], other: &[(u32, u32)], sender: (u32, u32), own: u32) -> Vec<(u32, u32)> {
    let mut all = Vec::with_capacity(one.len().max(other.len()) + 1);
    let (mut one, mut other) = (one.iter().copied().peekable(), other.iter().copied().peekable());
    let mut sender = (sender.1 > 0).then_some(sender);
    loop {
        let heads = [one.peek().copied(), other.peek().copied(), sender];
        let Some(line) = heads.iter().flatten().map(|&(line, _)| line).min() else { return all };
        let here = |head: Option<(u32, u32)>| head.filter(|&(own, _)| own == line);
        let most = heads.into_iter().filter_map(here).map(|(_, number)| number).max().unwrap_or(0);
        if here(heads[0]).is_some() {
            one.next();
        }
        if here(heads[1]).is_some() {
            other.next();
        }
        if here(sender).is_some() {
            sender = None;
        }
        if line != own {
            all.push((line, most));
        }
    }
}
