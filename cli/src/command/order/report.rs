//! The report of an order: a screen, or JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use astracer_causality::written::Joins;
use astracer_order::{Order, Soft};
use astracer_recording::trend::Steps;
use serde::Serialize;

use super::believe;
use super::clocks::{self, Clock};
use super::contradictions;
use crate::load::{Input, utc};
use crate::output::{self, count};

/// The report as it is printed with `--json`.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    input: &'a Input,
    /// Events by kind.
    events: BTreeMap<&'static str, u64>,
    threads: u64,
    processes: u64,
    hosts: Vec<&'a str>,
    constraints: BTreeMap<&'static str, u64>,
    /// Events with a cause on another thread.
    dependencies: u64,
    unmatched: Vec<Unmatched>,
    left_out: &'a BTreeMap<&'static str, u64>,
    /// Log records joined, by evidence.
    joined: &'a Joins,
    order_exists: bool,
    /// The ids of the events of cycles.
    cycles: Vec<Vec<u64>>,
    /// Each cycle as sentences, with its likely reason.
    contradictions: Vec<String>,
    /// Constraints that were left out.
    dropped: Vec<Dropped>,
    soft: Soft,
    clock_max: Option<u32>,
    /// The hosts' clocks, if there are several hosts.
    clocks: Vec<Clock<'a>>,
    /// Logs whose times are out of the order of their lines, as sentences.
    steps: Vec<String>,
    /// Events whose times contradict a constraint, apart from clocks.
    moved: Moved,
    #[serde(skip)]
    order: &'a Order,
}

#[derive(Serialize)]
struct Dropped {
    kind: &'static str,
    before: u64,
    after: u64,
    says: String,
}

#[derive(Serialize)]
struct Moved {
    events: u64,
    /// The largest shift that repairs a time.
    largest_ns: u64,
}

#[derive(Serialize)]
struct Unmatched {
    event: u64,
    #[serde(rename = "type")]
    kind: &'static str,
    reason: String,
    file: String,
    line: u64,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        input: &'a Input,
        order: &'a Order,
        left_out: &'a BTreeMap<&'static str, u64>,
        joined: &'a Joins,
        steps: &[Steps],
    ) -> Self {
        let events = &order.events;
        let row = |index: u32| &events.rows()[index as usize];
        let unmatched = order.unmatched.iter().map(|unmatched| {
            let row = row(unmatched.event);
            let channel = events.channels().get(row.channel as usize);
            let channel = channel.map_or_else(String::new, |channel| format!(": {channel}"));
            Unmatched {
                event: row.id,
                kind: row.kind.name(),
                reason: format!("{}{channel}", unmatched.why),
                file: events.files()[row.file as usize].to_string(),
                line: row.line.into(),
            }
        });
        Self {
            input,
            events: events.kinds().map(|(kind, count)| (kind.name(), count)).collect(),
            threads: events.thread_count(),
            processes: events.processes().len() as u64,
            hosts: events.hosts().iter().map(String::as_str).collect(),
            constraints: order.constraint_counts().into_iter().map(|kind| (kind.name, kind.count)).collect(),
            dependencies: order.dependencies(),
            unmatched: unmatched.collect(),
            left_out,
            joined,
            order_exists: order.cycles.is_empty(),
            contradictions: order.cycles.iter().map(|own| contradictions::sentences(order, own)).collect(),
            dropped: order
                .dropped
                .iter()
                .map(|edge| Dropped {
                    kind: edge.kind.name(),
                    before: row(edge.before).id,
                    after: row(edge.after).id,
                    says: contradictions::sentence(order, edge),
                })
                .collect(),
            cycles: order.cycles.iter().map(|cycle| cycle.iter().map(|&at| row(at).id).collect()).collect(),
            soft: order.soft,
            clock_max: order.clocks.iter().max().copied(),
            clocks: clocks::of(order),
            steps: steps.iter().map(self::steps).collect(),
            moved: Moved { events: order.moved().0, largest_ns: order.moved().1 },
            order,
        }
    }

    /// Sentences on contradictions, clocks, errors and times out of order, for the page.
    pub(super) fn notes(&self) -> Vec<String> {
        let top = contradictions::dropped(self.order) + &believe::lines(self.order);
        let top: Vec<String> = top.lines().map(|line| line.trim_start().to_owned()).collect();
        let clocks = self.clocks.iter().map(|clock| clock.says.clone());
        let outliers = outliers(self.order).trim_end().to_owned();
        let outliers = Some(outliers).filter(|says| !says.is_empty());
        top.into_iter().chain(clocks).chain(self.steps.iter().cloned()).chain(outliers).collect()
    }

    /// The report for people.
    pub(super) fn screen(&self) -> String {
        let counts = |counts: &BTreeMap<&'static str, u64>| {
            let parts: Vec<_> =
                counts.iter().map(|(name, number)| format!("{name} {}", count(*number))).collect();
            parts.join(", ")
        };
        let mut text = contradictions::dropped(self.order) + &believe::lines(self.order);
        text.push_str(&self.input.heading());
        text.push_str(&self.input.logs());
        let _ = writeln!(
            text,
            "{} of {} on {}: {}",
            output::plural(self.events.values().sum(), "event"),
            output::plural(self.threads, "thread"),
            output::plural(self.hosts.len() as u64, "host"),
            counts(&self.events)
        );
        let _ = writeln!(text, "constraints: {}", counts(&self.constraints));
        text.push_str(&joined(self.joined));
        let mut reasons: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for (own, found) in self.unmatched.iter().zip(&self.order.unmatched) {
            *reasons.entry((own.kind, found.why.describe())).or_insert(0) += 1;
        }
        if !reasons.is_empty() {
            let _ = writeln!(text, "unmatched: {}", count(self.unmatched.len() as u64));
            for ((kind, reason), number) in reasons {
                let _ = writeln!(text, "  {kind}: {reason}: {}", count(number));
            }
        }
        for (reason, number) in self.left_out {
            let _ = writeln!(text, "left out: {reason}: {}", count(*number));
        }
        if !self.clocks.is_empty() {
            text.push_str("clocks:\n");
        }
        for clock in &self.clocks {
            let _ = writeln!(text, "  {}", clock.says);
        }
        for says in &self.steps {
            let _ = writeln!(text, "{says}");
        }
        text.push_str(&outliers(self.order));
        if self.moved.events > 0 {
            let _ = writeln!(
                text,
                "{} by recorded times; repaired times differ by at most {}",
                match self.moved.events {
                    1 => "1 event contradicts a cause".to_owned(),
                    some => format!("{} events contradict a cause", count(some)),
                },
                clocks::length(self.moved.largest_ns)
            );
        }
        if self.order.exists() {
            let _ = writeln!(
                text,
                "an order exists; it keeps {} of {} pairs of consecutive times",
                count(self.soft.kept),
                count(self.soft.total)
            );
        }
        text.push_str(&self.input.footing());
        text
    }
}

/// A sentence about the first event whose time contradicts several others.
fn outliers(order: &Order) -> String {
    let shifts = order.outliers.iter().filter_map(|&event| Some((event, order.shift(event)?)));
    let outliers: Vec<_> = shifts.collect();
    let Some(&(first, shift)) = outliers.first() else { return String::new() };
    format!(
        "warning: {}: the time {} contradicts its causes or effects by {} ({}); the event keeps its place \
         among them\n",
        output::escaped(&order.events.place(&order.events.rows()[first as usize])),
        utc(order.stated(first)),
        clocks::length(shift),
        output::plural(outliers.len() as u64, "such event"),
    )
}

/// A sentence about times that are out of the order of their lines.
pub(super) fn steps(steps: &Steps) -> String {
    let (file, line) = (output::escaped(&steps.first.file), steps.first.line);
    match steps.is_sorted {
        true => format!(
            "note: {file} is sorted, because several processes wrote it or its times step back often (first in line {line})"
        ),
        false => format!(
            "warning: {file}:{line}: the time {} is out of order beside {} ({} of this log); the line keeps its place",
            utc(steps.time),
            utc(steps.neighbour),
            output::plural(steps.count, "such record"),
        ),
    }
}

/// Counts of joins, by evidence.
fn joined(joins: &Joins) -> String {
    let mut text = String::new();
    let calls = format!(
        "spans to messages that carry their ids ({} of {} of clients and servers)",
        count(joins.calls_by_bytes),
        count(joins.calls)
    );
    let lines = [
        (joins.write, "log records to the calls that wrote them".to_owned()),
        (joins.ids, "log records to their spans, by ids".to_owned()),
        (joins.traces, "log records to their traces, by ids (this orders nothing)".to_owned()),
        (joins.bytes, calls),
        (joins.thread, "spans and records to their threads (orders starts among calls)".to_owned()),
        (joins.process, "spans to their processes only (this orders nothing)".to_owned()),
    ];
    for (number, what) in lines.into_iter().filter(|&(number, _)| number > 0) {
        let _ = writeln!(text, "joined: {} {what}", count(number));
    }
    for (pair, number) in &joins.translated {
        let number = output::plural(*number, "connection");
        let _ = writeln!(text, "joined: {number} by translated address: {}", output::escaped(pair));
    }
    for (reason, number) in &joins.unjoined {
        let _ = writeln!(text, "not joined: {} {reason}", count(*number));
    }
    text
}
