//! Questions about an order: the relation of two events, and selections of events.

use std::time::UNIX_EPOCH;

use astracer_causality::edge::Edge;
use astracer_model::event::EventKind;
use astracer_order::Order;
use astracer_order::links::{Links, Relation, Toward};
use astracer_order::select::Selection;
use astracer_order::text::time;
use astracer_order::vectors::Lines;
use clap::Args as ClapArgs;

use crate::failure::Failure;
use crate::output::{count, escaped};
use crate::values;

use super::merged::TraceIds;

mod name;

pub(super) use name::{EventName, Found, event, find, find_by_time};

/// Names that a message lists.
const NAMES_SHOWN: usize = 8;

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Questions and selections")]
pub(super) struct Ask {
    /// Say whether A is before or after B, with the most certain chain of causes and its evidence;
    /// concurrent with it, if the messages of both processes were recorded; or not known to be
    /// ordered.
    #[arg(long, num_args = 2, value_names = ["A", "B"], value_parser = event)]
    between: Option<Vec<EventName>>,

    /// Select the events that are at most --hops constraints before or after EVENT.
    #[arg(long, value_name = "EVENT", value_parser = event)]
    around: Option<EventName>,

    /// The greatest distance from the event of --around.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "around")]
    hops: u32,

    /// With --between, list all events after A and before B by causes, by host.
    #[arg(long, requires = "between")]
    all: bool,

    /// Select EVENT and all events that may have caused it.
    #[arg(long, value_name = "EVENT", value_parser = event)]
    cause_of: Option<EventName>,

    /// Select EVENT and all events that it may have caused.
    #[arg(long, value_name = "EVENT", value_parser = event)]
    effect_of: Option<EventName>,

    /// Select events from this one on in the order, or from this time on: in UTC, or since the
    /// first event, as in 250ms.
    #[arg(long, value_name = "EVENT|TIME", value_parser = moment)]
    from: Option<Moment>,

    /// Select events up to this one in the order, or up to this time.
    #[arg(long, value_name = "EVENT|TIME", value_parser = moment)]
    to: Option<Moment>,

    /// Select events of these kinds, such as LOG,SND,RCV.
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = kind)]
    only: Vec<EventKind>,

    /// Select events of this process, or of one host's as in web/nginx. May be repeated.
    #[arg(long, value_name = "NAME")]
    process: Vec<String>,
}

impl Ask {
    /// True if a question is asked or a selection made.
    pub(super) fn is_any(&self) -> bool {
        let Self { between, around, hops: _, all: _, cause_of, effect_of, from, to, only, process } = self;
        between.is_some()
            || around.is_some()
            || cause_of.is_some()
            || effect_of.is_some()
            || from.is_some()
            || to.is_some()
            || !(only.is_empty() && process.is_empty())
    }
}

/// An event or a time.
#[derive(Clone, Debug)]
enum Moment {
    Event(EventName),
    /// Nanoseconds since 1970.
    At(u64),
    /// Nanoseconds since the first event.
    After(u64),
}

fn moment(text: &str) -> Result<Moment, String> {
    if let Ok(found) = humantime::parse_rfc3339_weak(text) {
        let since = found.duration_since(UNIX_EPOCH).ok();
        let ns = since.and_then(|since| u64::try_from(since.as_nanos()).ok());
        return ns.map(Moment::At).ok_or_else(|| format!("'{text}' is out of range: use 1970 to 2554"));
    }
    if text.starts_with(|first: char| first.is_ascii_digit())
        && text.ends_with(|last: char| last.is_ascii_alphabetic())
        && let Ok(length) = values::length(text)
    {
        return Ok(Moment::After(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)));
    }
    event(text).map(Moment::Event).map_err(|error| {
        format!("{error}; or a time, as in 2026-11-27T10:05:00Z, or since the first event, as in 250ms")
    })
}

fn kind(text: &str) -> Result<EventKind, String> {
    EventKind::from_name(text).ok_or_else(|| {
        let names: Vec<_> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("invalid kind of event '{}': use {}", escaped(text), names.join(", "))
    })
}

/// The answer.
pub(super) struct Answer {
    pub(super) between: Option<Between>,
    pub(super) chosen: Selection,
}

/// The relation of two events.
pub(super) struct Between {
    pub(super) one: Found,
    pub(super) other: Found,
    pub(super) relation: Relation,
    /// The most certain chain, and of these the shortest.
    pub(super) chain: Vec<Edge>,
    /// A chain through another process, between two events of one; else empty.
    pub(super) through: Vec<Edge>,
    /// The events after the earlier and before the later one, in order.
    pub(super) inside: Vec<u32>,
    /// True to list them.
    pub(super) lists_all: bool,
}

/// Answers the questions. The order must exist. `trace` selects the events of a trace.
pub(super) fn answer(
    ask: &Ask,
    trace: Option<&TraceIds>,
    links: &Links<'_>,
    lines: &Lines,
) -> Result<Answer, Failure> {
    let order = links.order();
    let between = match ask.between.as_deref() {
        Some([one, other]) => {
            let (one, other) = (find(order, one)?, find(order, other)?);
            let (relation, chain) = links.between(one.event, other.event);
            let through = links.through_others(&chain);
            let ends = chain.first().zip(chain.last());
            let inside = ends.map(|(first, last)| links.inside(first.before, last.after)).unwrap_or_default();
            Some(Between { one, other, relation, chain, through, inside, lists_all: ask.all })
        }
        _ => None,
    };
    Ok(Answer { between, chosen: Selection::new(links, lines, chosen(ask, trace, links)?) })
}

fn chosen(ask: &Ask, trace: Option<&TraceIds>, links: &Links<'_>) -> Result<Vec<bool>, Failure> {
    let order = links.order();
    let rows = order.events.rows();
    let mut is_chosen = vec![true; rows.len()];
    let mut keep = |is_kept: &dyn Fn(usize) -> bool| {
        (0..rows.len()).for_each(|at| is_chosen[at] &= is_kept(at));
    };
    if let Some(name) = &ask.around {
        let event = find(order, name)?.event;
        let (before, after) =
            (links.reach(event, Toward::Causes, ask.hops), links.reach(event, Toward::Effects, ask.hops));
        keep(&|at| before[at] || after[at]);
    }
    if let Some(name) = &ask.cause_of {
        let causes = links.all(find(order, name)?.event, Toward::Causes);
        keep(&|at| causes[at]);
    }
    if let Some(name) = &ask.effect_of {
        let effects = links.all(find(order, name)?.event, Toward::Effects);
        keep(&|at| effects[at]);
    }
    if let Some(ids) = trace {
        keep(&|at| ids.fit_event(order, &rows[at]));
    }
    let first = || (0..rows.len() as u32).map(|event| time(order, event)).min().unwrap_or(0);
    for (moment, is_from) in [(&ask.from, true), (&ask.to, false)] {
        let limit = match moment {
            None => continue,
            Some(Moment::Event(name)) => {
                let limit = order.positions[find(order, name)?.event as usize];
                keep(&|at| {
                    let place = order.positions[at];
                    if is_from { place >= limit } else { place <= limit }
                });
                continue;
            }
            Some(Moment::At(time)) => *time,
            Some(Moment::After(length)) => first().saturating_add(*length),
        };
        keep(&|at| {
            let time = time(order, at as u32);
            if is_from { time >= limit } else { time <= limit }
        });
    }
    if !ask.only.is_empty() {
        keep(&|at| ask.only.contains(&rows[at].kind));
    }
    if !ask.process.is_empty() {
        let chosen = processes(ask, order)?;
        keep(&|at| chosen[order.events.thread(&rows[at]).process as usize]);
    }
    if !is_chosen.contains(&true) {
        return Err(Failure::Job(format!(
            "the selection has none of the {} events; widen it",
            count(rows.len() as u64)
        )));
    }
    Ok(is_chosen)
}

/// The processes that the user names.
fn processes(ask: &Ask, order: &Order) -> Result<Vec<bool>, Failure> {
    let events = &order.events;
    // A process without a name is known by its host.
    let names = events.processes().iter().map(|process| {
        let host = &events.hosts()[process.host as usize];
        let own = if process.name.is_empty() { host.clone() } else { process.name.clone() };
        [format!("{host}/{own}"), own]
    });
    let names: Vec<[String; 2]> = names.collect();
    if let Some(name) = ask.process.iter().find(|name| !names.iter().any(|known| known.contains(name))) {
        let mut known: Vec<&str> = names.iter().map(|[_, own]| &**own).collect();
        known.sort_unstable();
        known.dedup();
        let more = known.len().saturating_sub(NAMES_SHOWN);
        known.truncate(NAMES_SHOWN);
        let more = if more > 0 { format!(" and {} more", count(more as u64)) } else { String::new() };
        let text = format!("no process is named '{name}'; the names are {}{more}", known.join(", "));
        return Err(Failure::Job(escaped(&text).into()));
    }
    Ok(names.iter().map(|known| ask.process.iter().any(|name| known.contains(name))).collect())
}
