//! Random programs that fork, join, pause and daemonize, against the longest path of the graph of
//! their events; and programs of flows, whose ways must sum up to the local root's duration.

use astracer_baggage::critical_path::{CriticalPath, Measure, Note, zone};
use astracer_testing::{SplitMix, number, size};

const ZONES: [&str; 3] = ["f", "g", "h"];

/// A line of control, and what the model knows of it.
struct Line {
    note: Option<Note>,
    /// Its last event, and when that was.
    last: usize,
    at: u64,
    zones: Vec<usize>,
    /// The number of them that it has not entered itself.
    inherited: usize,
    children: Vec<usize>,
    waits_for: Option<usize>,
    is_paused: bool,
    /// When it became a daemon.
    daemon: Option<u64>,
    ended: bool,
}

/// The events, and for each the edges that lead to it.
struct Graph {
    edges: Vec<Vec<Edge>>,
}

struct Edge {
    from: usize,
    length: u64,
    zones: Vec<usize>,
}

impl Graph {
    fn event(&mut self, edges: Vec<Edge>) -> usize {
        self.edges.push(edges);
        self.edges.len() - 1
    }

    /// The longest path to an event if the time in a zone is multiplied by a factor.
    fn longest(&self, to: usize, zone: Option<usize>, factor: f64) -> f64 {
        let mut lengths = vec![0.0_f64; to + 1];
        for event in 0..=to {
            let length = |edge: &Edge| {
                let scale = if zone.is_some_and(|zone| edge.zones.contains(&zone)) { factor } else { 1.0 };
                lengths[edge.from] + edge.length as f64 * scale
            };
            lengths[event] = self.edges[event].iter().map(length).fold(0.0, f64::max);
        }
        lengths[to]
    }
}

struct Run {
    paths: CriticalPath,
    measure: Measure,
    random: SplitMix,
    now: u64,
    lines: Vec<Line>,
    graph: Graph,
    steps: Vec<String>,
}

impl Run {
    fn counts(&self, is_work: bool) -> u64 {
        u64::from(is_work || self.measure == Measure::Wall)
    }

    /// The edge from the last event of a line to now.
    fn own_edge(&self, line: &Line) -> Edge {
        let counted = match line {
            Line { daemon: Some(_), .. } => 0,
            line => (self.now - line.at) * self.counts(!line.is_paused),
        };
        Edge { from: line.last, length: counted, zones: line.zones.clone() }
    }

    fn advance(&mut self, number: usize) {
        let edge = self.own_edge(&self.lines[number]);
        let event = self.graph.event(vec![edge]);
        (self.lines[number].last, self.lines[number].at) = (event, self.now);
    }

    fn step(&mut self) {
        self.now += self.random.below(5);
        let number = self.random.index(self.lines.len());
        if self.lines[number].ended {
            return;
        }
        let (of, now) = (self.paths.clone(), self.now);
        let mut note = self.lines[number].note.take().unwrap();
        if let Some(child) = self.lines[number].waits_for {
            if self.lines[child].ended {
                self.join(number, child, &mut note);
            }
            self.lines[number].note = Some(note);
            return;
        }
        let kind = self.random.below(9);
        self.steps.push(format!("{now}: line {number}, step {kind}"));
        match kind {
            0 | 1 if self.lines.len() < 12 => {
                self.advance(number);
                let mut branch = note.fork(&of, now);
                self.now += self.random.below(4);
                branch.start_branch(&of, self.now, true);
                let parent = &self.lines[number];
                let lag = (self.now - now) * self.counts(false) * u64::from(parent.daemon.is_none());
                let zones = parent.zones.clone();
                let (daemon, from) = (parent.daemon, parent.last);
                let last = self.graph.event(vec![Edge { from, length: lag, zones: zones.clone() }]);
                let inherited = zones.len();
                let note = Some(branch);
                let line = Line { note, last, at: self.now, zones, inherited, daemon, ..Line::new() };
                self.lines.push(line);
                let child = self.lines.len() - 1;
                self.lines[number].children.push(child);
            }
            2 | 3 if !self.lines[number].children.is_empty() => {
                self.advance(number);
                note.wait_for_branch(&of, now);
                let at = self.random.index(self.lines[number].children.len());
                let child = self.lines[number].children.swap_remove(at);
                self.lines[number].waits_for = Some(child);
            }
            4 => {
                self.advance(number);
                let zone = self.random.index(ZONES.len());
                note.enter_function(&of, now, ZONES[zone]);
                self.lines[number].zones.push(zone);
            }
            // A branch does not exit functions that were entered before the fork.
            5 if self.lines[number].zones.len() > self.lines[number].inherited => {
                self.advance(number);
                note.exit_function(&of, now);
                self.lines[number].zones.pop();
            }
            6 => {
                self.advance(number);
                if self.lines[number].is_paused {
                    note.resume(&of, now);
                } else {
                    note.pause(&of, now);
                }
                self.lines[number].is_paused ^= true;
            }
            7 if self.random.one_in(6) && self.lines[number].daemon.is_none() => {
                self.advance(number);
                note.daemonize(&of, now);
                self.lines[number].daemon = Some(now);
            }
            8 if number > 0 => {
                self.advance(number);
                note.end(&of, now);
                self.lines[number].ended = true;
            }
            _ => {}
        }
        self.lines[number].note = Some(note);
    }

    /// The length of the way to JOIN is the longer one of those to WAIT and END, and the time since
    /// both.
    fn join(&mut self, number: usize, child: usize, note: &mut Note) {
        let (of, now) = (self.paths.clone(), self.now);
        self.steps.push(format!("{now}: line {number} joins {child}"));
        note.join(&of, now, self.lines[child].note.take().unwrap(), true);
        let (own, other) = (&self.lines[number], &self.lines[child]);
        let is_daemon = own.daemon.is_some() && other.daemon.is_some();
        let since = own.daemon.unwrap_or(own.at).max(other.daemon.unwrap_or(other.at));
        let length = (now - since) * self.counts(false) * u64::from(!is_daemon);
        let zones = || own.zones.clone();
        let edges = vec![
            Edge { from: own.last, length, zones: zones() },
            Edge { from: other.last, length, zones: zones() },
        ];
        let last = self.graph.event(edges);
        let line = &mut self.lines[number];
        (line.last, line.at, line.waits_for) = (last, now, None);
        if !is_daemon {
            line.daemon = None;
        }
    }

    fn check(&mut self, seed: u64) {
        let has_daemon = self.lines.iter().any(|line| line.daemon.is_some());
        for number in 0..self.lines.len() {
            if self.lines[number].ended || self.lines[number].waits_for.is_some() {
                continue;
            }
            self.advance(number);
            let line = &self.lines[number];
            let note = line.note.as_ref().unwrap();
            let found = note.nanos(&self.paths, self.now) as f64;
            let expected = self.graph.longest(line.last, None, 1.0);
            let place = || format!("seed {seed}, line {number}\n{}", self.steps.join("\n"));
            assert_eq!(found, expected, "{}", place());
            if self.measure == Measure::Wall && !has_daemon {
                assert_eq!(found, self.now as f64, "{}", place());
            }
            for (at, result) in note.experiments(&self.paths, self.now).iter().enumerate() {
                let expected = self.graph.longest(line.last, Some(at), at as f64 * 0.5);
                assert!((result.nanos - expected).abs() < 1e-6, "{} {expected} {}", result.nanos, place());
            }
        }
    }
}

impl Line {
    fn new() -> Self {
        Line {
            note: None,
            last: 0,
            at: 0,
            zones: Vec::new(),
            inherited: 0,
            children: Vec::new(),
            waits_for: None,
            is_paused: false,
            daemon: None,
            ended: false,
        }
    }
}

#[test]
fn random_programs_agree_with_the_longest_path() {
    let first = number("ASTRACER_SEED").unwrap_or(0);
    for seed in first..first + size(400, 20_000) {
        for measure in [Measure::Wall, Measure::Productive] {
            let paths = CriticalPath::new(measure);
            for (at, name) in ZONES.iter().enumerate() {
                paths.experiment(name, zone(*name), at as f64 * 0.5).unwrap();
            }
            let root = Line { note: Some(Note::start(&paths, 0, "root")), ..Line::new() };
            let graph = Graph { edges: vec![Vec::new()] };
            let random = SplitMix::new(seed);
            let mut run = Run { paths, measure, random, now: 0, lines: vec![root], graph, steps: Vec::new() };
            for _ in 0..(3 + seed as usize / 4).min(120) {
                run.step();
                run.check(seed);
            }
        }
    }
}
