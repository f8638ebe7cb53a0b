//! Shows answers: the relation of two events with its chain, and selected events.

use std::fmt::Write as _;

use astracer_causality::edge::{Certainty, Edge, EdgeKind};
use astracer_order::Order;
use astracer_order::evidence::{ByClocks, Missing};
use astracer_order::links::Link;
use astracer_order::links::{Links, Relation};
use astracer_order::text::{Stamps, time};
use serde::Serialize;

use super::ask::{Answer, Between, Found};
use super::clocks::length;
use super::inside;
use super::line::line;
use super::report::Report;
use crate::output::{self, count, escaped};

/// Causes that are listed of an event.
const CAUSES_SHOWN: usize = 3;

/// The report with the answers, for `--json`.
#[derive(Serialize)]
pub(super) struct Answered<'a> {
    #[serde(flatten)]
    report: &'a Report<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    between: Option<BetweenJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    selected: Option<Selected>,
}

#[derive(Serialize)]
struct BetweenJson<'a> {
    a: u64,
    b: u64,
    relation: &'a Relation,
    /// The evidence for the chain, as on the screen.
    #[serde(skip_serializing_if = "Option::is_none")]
    certainty: Option<String>,
    /// The evidence that the two lack to be called concurrent.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<MissingJson>,
    /// The two by their hosts' clocks, where nothing else orders them.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_clocks: Option<ByClocksJson>,
    /// From the cause to the effect.
    chain: Vec<Step>,
    /// A chain through another process, between two events of one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    through: Vec<Step>,
    /// The events after the earlier and before the later one.
    inside: Vec<inside::OfHost<'a>>,
}

#[derive(Serialize)]
struct MissingJson {
    /// The processes whose messages are missing.
    processes: Vec<String>,
    says: String,
}

#[derive(Serialize)]
struct ByClocksJson {
    /// By how much A is earlier than B; negative if it is later.
    earlier_ns: i64,
    /// The largest error; absent if both are of one clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    within_ns: Option<u64>,
}

/// An event of a chain.
#[derive(Serialize)]
struct Step {
    event: u64,
    #[serde(rename = "type")]
    kind: &'static str,
    thread: String,
    time_ns: u64,
    file: String,
    line: u64,
    text: String,
    /// The constraint by which the event follows the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'static str>,
}

#[derive(Serialize)]
struct Selected {
    /// The ids, in order.
    events: Vec<u64>,
    /// Links from causes on other threads.
    links: Vec<LinkJson>,
}

#[derive(Serialize)]
struct LinkJson {
    before: u64,
    after: u64,
    /// `transitive` over events that were not selected.
    kind: &'static str,
}

fn name(link: &Link) -> &'static str {
    link.kind.map_or("transitive", EdgeKind::name)
}

impl<'a> Answered<'a> {
    pub(super) fn new(report: &'a Report<'a>, links: &Links<'a>, answer: &'a Answer) -> Self {
        let order = links.order();
        let rows = order.events.rows();
        let id = |event: u32| rows[event as usize].id;
        let step = |event: u32, by: Option<EdgeKind>| {
            let row = &rows[event as usize];
            Step {
                event: row.id,
                kind: row.kind.name(),
                thread: order.events.thread(row).name.clone(),
                time_ns: time(order, event),
                file: order.events.files()[row.file as usize].to_string(),
                line: row.line.into(),
                text: order.events.text(row).to_owned(),
                by: by.map(EdgeKind::name),
            }
        };
        let between = answer.between.as_ref().map(|between| {
            let steps = |chain: &[Edge]| -> Vec<Step> {
                let first = chain.first().map(|edge| step(edge.before, None));
                let rest = chain.iter().map(|edge| step(edge.after, Some(edge.kind)));
                first.into_iter().chain(rest).collect()
            };
            let (one, other) = (between.one.event, between.other.event);
            let is_unknown = between.relation == Relation::Unknown;
            let missing = is_unknown.then(|| links.missing(one, other));
            let by_clocks = is_unknown.then(|| ByClocks::new(order, one, other)).flatten();
            BetweenJson {
                a: id(between.one.event),
                b: id(between.other.event),
                relation: &between.relation,
                certainty: (!between.chain.is_empty()).then(|| certainty(order, &between.chain)),
                missing: missing.map(|missing| MissingJson {
                    processes: process_names(order, &missing),
                    says: lacking(order, &missing),
                }),
                by_clocks: by_clocks.map(|by| ByClocksJson { earlier_ns: by.earlier, within_ns: by.within }),
                chain: steps(&between.chain),
                through: steps(&between.through),
                inside: inside::json(order, &between.inside),
            }
        });
        let chosen = &answer.chosen;
        let link =
            |link: &Link| LinkJson { before: id(link.before), after: id(link.after), kind: name(link) };
        let selected = chosen.is_partial().then(|| Selected {
            events: chosen.events.iter().map(|&event| id(event)).collect(),
            links: chosen.links.iter().map(link).collect(),
        });
        Self { report, between, selected }
    }
}

/// The answers for people; `None` if nothing was asked, or if files hold the selection.
pub(super) fn text(links: &Links<'_>, answer: &Answer, is_written: bool) -> Option<String> {
    if let Some(between) = &answer.between {
        return Some(relation(links, between));
    }
    (answer.chosen.is_partial() && !is_written).then(|| selected(links, answer))
}

fn relation(links: &Links<'_>, between: &Between) -> String {
    let order = links.order();
    let (stamps, width) = (Stamps::of(order), output::width());
    let mut text = String::new();
    for (name, Found { event, of }) in [("A", between.one), ("B", between.other)] {
        let which = if of > 1 { format!(", the first of {} that fit", count(of)) } else { String::new() };
        let row = &order.events.rows()[event as usize];
        let _ = writeln!(text, "{name}{which}: on {}", escaped(&order.events.thread(row).name));
        let _ = writeln!(text, "{}", line(order, stamps, event, "", width));
    }
    let _ = match between.relation {
        Relation::Same => writeln!(text, "A and B are the same event."),
        Relation::Before => writeln!(text, "A is before B: it may have caused B."),
        Relation::After => writeln!(text, "A is after B: B may have caused it."),
        Relation::Concurrent => {
            writeln!(text, "A and B are concurrent: neither can have caused the other.")
        }
        Relation::Unknown => writeln!(text, "{}", unknown(links, between)),
    };
    // Between events of one process, the way through others says more than its own order.
    let is_through = !between.through.is_empty();
    let chain = if is_through { &between.through } else { &between.chain };
    let Some(first) = chain.first() else { return text };
    let _ = write!(text, "Certainty: {}", certainty(order, &between.chain));
    let _ = match is_through {
        true => writeln!(text, "; through other processes: {}.", certainty(order, chain)),
        false => writeln!(text, "."),
    };
    let _ = writeln!(
        text,
        "The shortest chain of causes{} has {}:",
        if is_through { " through other processes" } else { "" },
        output::plural(chain.len() as u64 + 1, "event")
    );
    let thread = |event: u32| escaped(&order.events.thread(&order.events.rows()[event as usize]).name);
    let _ = writeln!(text, "on {}", thread(first.before));
    let _ = writeln!(text, "{}", line(order, stamps, first.before, "", width));
    let mut at = 0;
    while let Some(edge) = chain.get(at) {
        // The last of several steps on one thread is shown.
        let run = chain[at..].iter().take_while(|edge| edge.kind == EdgeKind::ProgramOrder).count();
        let edge = chain.get(at + run.saturating_sub(1)).unwrap_or(edge);
        if run > 1 {
            let _ = writeln!(text, "      ... {} of this thread", output::plural(run as u64 - 1, "event"));
        } else if run == 0 {
            let _ = writeln!(text, "{} {}", verb(edge.kind), thread(edge.after));
        }
        let _ = writeln!(text, "{}", line(order, stamps, edge.after, "", width));
        at += run.max(1);
    }
    text + &inside::text(order, &between.inside, between.lists_all)
}

/// The sentence for two events that are neither ordered nor concurrent for certain.
fn unknown(links: &Links<'_>, between: &Between) -> String {
    let order = links.order();
    let (one, other) = (between.one.event, between.other.event);
    let [first, second] = [one, other].map(|event| &order.events.rows()[event as usize]);
    let why = if order.events.is_one_log(first, second) {
        let is_first = order.positions[one as usize] < order.positions[other as usize];
        let earlier = if is_first { "A" } else { "B" };
        format!("the records of their log state no thread; in their log, {earlier} is the earlier line")
    } else {
        lacking(order, &links.missing(one, other))
    };
    let mut text = format!("A and B are not known to be ordered: {}", escaped(&why));
    let Some(by) = ByClocks::new(order, one, other) else { return text };
    let within = by.within.map_or_else(String::new, |within| format!(" (within {})", length(within)));
    let _ = match by.earlier {
        0 => write!(text, "; by the clocks, A and B are at the same time{within}"),
        1.. => write!(text, "; by the clocks, A is {} earlier{within}", length(by.earlier.unsigned_abs())),
        _ => write!(text, "; by the clocks, B is {} earlier{within}", length(by.earlier.unsigned_abs())),
    };
    text
}

/// The names of processes; a process without a name is known by its host.
fn process_names(order: &Order, missing: &Missing) -> Vec<String> {
    let name = |&process: &u32| {
        let process = &order.events.processes()[process as usize];
        let host = &order.events.hosts()[process.host as usize];
        if process.name.is_empty() { host.clone() } else { process.name.clone() }
    };
    let mut names: Vec<String> = missing.processes.iter().map(name).collect();
    names.dedup();
    names
}

/// The evidence that two events lack.
fn lacking(order: &Order, missing: &Missing) -> String {
    let names = process_names(order, missing).join(" and ");
    if missing.is_unplaced {
        return format!("the records of {names} state no thread");
    }
    if missing.is_one_process {
        return format!("both are of {names}, and the thread of one is not known");
    }
    let messages = format!("no messages of {names} were recorded");
    match missing.is_one_trace {
        true => format!("{messages}, and not every call of {names} has a span of its callee"),
        false => messages,
    }
}

/// The weakest certainty of a chain: "by ids and bytes". Nesting relies on clocks, so the corrected
/// ones are named.
fn certainty(order: &Order, chain: &[Edge]) -> String {
    let is = |certainty: Certainty| chain.iter().any(|edge| edge.kind.certainty() == certainty);
    if !is(Certainty::Nesting) {
        return match (is(Certainty::Ids), is(Certainty::Bytes)) {
            (true, true) => "by ids and bytes",
            (true, false) => Certainty::Ids.describe(),
            (false, true) => Certainty::Bytes.describe(),
            (false, false) => Certainty::Stated.describe(),
        }
        .to_owned();
    }
    let host = |event: u32| order.events.process(&order.events.rows()[event as usize]).host;
    let mut hosts: Vec<u32> = chain.iter().flat_map(|edge| [host(edge.before), host(edge.after)]).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let mut text = Certainty::Nesting.describe().to_owned();
    for host in hosts.iter().filter(|_| hosts.len() > 1) {
        let Some(clock) = order.host_clocks.get(*host as usize).filter(|clock| clock.ahead != 0) else {
            continue;
        };
        let within = clock.within.map_or_else(String::new, |within| format!(" (within {})", length(within)));
        let name = escaped(&order.events.hosts()[*host as usize]);
        let by = length(clock.ahead.unsigned_abs());
        let _ = write!(text, "; the clock of {name} is corrected by {by}{within}");
    }
    text
}

/// Leads from an event to its effect on another thread.
fn verb(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::ForkStart => "started",
        EdgeKind::EndJoin => "was awaited by",
        EdgeKind::ConnectAccept => "was accepted by",
        EdgeKind::SendReceive => "was received by",
        EdgeKind::VectorClock => "is known to the clock of",
        EdgeKind::Report => "is named as a cause by",
        EdgeKind::Call | EdgeKind::BeforeCall => "called",
        EdgeKind::Return => "returned to",
        EdgeKind::Began => "had begun before the return to",
        EdgeKind::Id => "is named by its id in",
        EdgeKind::Span | EdgeKind::ProgramOrder | EdgeKind::Line => "then, on",
    }
}

/// The selected events in order, each with its causes on other threads.
fn selected(links: &Links<'_>, answer: &Answer) -> String {
    let order = links.order();
    let (stamps, width) = (Stamps::of(order), output::width());
    let chosen = &answer.chosen;
    let mut text = format!(
        "{} of {} events, in order; <- names the causes on other threads, in brackets if events between were not selected\n",
        count(chosen.events.len() as u64),
        count(order.events.len() as u64)
    );
    let mut above = None;
    for &event in &chosen.events {
        let row = &order.events.rows()[event as usize];
        if above != Some(row.thread) {
            let _ = writeln!(text, "{}", escaped(&order.events.thread(row).name));
        }
        above = Some(row.thread);
        let causes = chosen.causes(event);
        let mut from: Vec<String> = causes
            .iter()
            .take(CAUSES_SHOWN)
            .map(|link| {
                let id = order.events.rows()[link.before as usize].id;
                if link.kind.is_some() { id.to_string() } else { format!("[{id}]") }
            })
            .collect();
        if causes.len() > CAUSES_SHOWN {
            from.push(format!("{} more", count((causes.len() - CAUSES_SHOWN) as u64)));
        }
        let from = if from.is_empty() { String::new() } else { format!("<- {}: ", from.join(", ")) };
        let _ = writeln!(text, "{}", line(order, stamps, event, &from, width));
    }
    text
}
