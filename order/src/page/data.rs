//! The events as text, one a line, which people read without scripts and the script otherwise; and
//! the numbers that the script draws from.

use std::fmt::Write as _;

use astracer_model::event::EventKind;
use astracer_model::text::escaped;
use astracer_report::names::{line, shortened};
use astracer_report::numbers::count;
use maud::{Markup, PreEscaped, html};
use serde_json::json;

use super::Diagram;
use super::layout::columns;
use crate::text::{Stamps, details, place, time};

/// The bytes of all events' texts: with more, long ones are shortened.
const TEXT_MAX: usize = 2_000_000;
/// The letters of a text, from the most to the fewest that are tried.
const LETTERS: [usize; 7] = [8_000, 2_000, 1_000, 500, 250, 150, 90];
/// The letters of a thread's and of a host's name, and of a file's.
const NAME: usize = 48;

pub(super) fn listed(diagram: &Diagram<'_>) -> Markup {
    let texts: Vec<String> = {
        let order = diagram.links.order();
        diagram
            .chosen
            .events
            .iter()
            .map(|&event| details(order, &order.events.rows()[event as usize]))
            .collect()
    };
    let fits = |&letters: &usize| texts.iter().map(|text| text.len().min(letters)).sum::<usize>() <= TEXT_MAX;
    let letters = LETTERS.into_iter().find(fits).unwrap_or(LETTERS[LETTERS.len() - 1]);
    let are_cut = texts.iter().any(|text| text.chars().nth(letters).is_some());
    html! {
        h2 { "Events in order" }
        @if are_cut { p.note { "Records of more than " (count(letters as u64)) " letters are shortened here; --out FILE has them in full." } }
        details {
            summary { (count(texts.len() as u64)) " events as text: time, thread, kind, id, file and line, record" }
            pre #events tabindex="0" { (lines(diagram, &texts, letters)) }
        }
        script #data type="application/json" { (PreEscaped(numbers(diagram))) }
    }
}

fn lines(diagram: &Diagram<'_>, texts: &[String], letters: usize) -> String {
    let order = diagram.links.order();
    let stamps = Stamps::of(order);
    let mut all = String::new();
    for (&event, text) in diagram.chosen.events.iter().zip(texts) {
        let row = &order.events.rows()[event as usize];
        let [shown, stated] = [time(order, event), order.stated(event)].map(|time| stamps.clock(time));
        // Text cannot hold tabs or line ends: they are escaped.
        let _ = writeln!(
            all,
            "{}\t{}\t{}\t{}\t{}\t{}{}",
            shown,
            shortened(&line(&order.events.thread(row).name), NAME),
            row.kind.name(),
            row.id,
            shortened(&line(&place(order, row)), NAME),
            shortened(text, letters),
            if stated == shown { String::new() } else { format!(" (recorded {stated})") },
        );
    }
    all
}

/// The shape of an event.
fn shape(kind: EventKind) -> u8 {
    match kind {
        EventKind::Log => 0,
        EventKind::Send => 1,
        EventKind::Receive => 2,
        _ => 3,
    }
}

/// Hosts, processes and threads; by event its thread, shape, severity, place, and how many events
/// ago the one before it on its line was; arrows and spans. `<` is escaped, as it could end the
/// element.
fn numbers(diagram: &Diagram<'_>) -> String {
    let (order, chosen) = (diagram.links.order(), diagram.chosen);
    let events = &order.events;
    let row = |event: u32| &events.rows()[event as usize];
    let mut number = vec![None; events.len()];
    chosen.events.iter().zip(0u32..).for_each(|(&event, at)| number[event as usize] = Some(at));
    let of = |event: u32| number.get(event as usize).copied().flatten();
    // Threads of one process follow each other, by their first event.
    let mut first: Vec<Option<usize>> = vec![None; events.threads().len()];
    for (at, &event) in chosen.events.iter().enumerate() {
        first[row(event).thread as usize].get_or_insert(at);
    }
    let mut threads: Vec<u32> =
        (0..first.len() as u32).filter(|&thread| first[thread as usize].is_some()).collect();
    threads.sort_by_key(|&thread| first[thread as usize]);
    let mut places = vec![0; events.threads().len()];
    threads.iter().enumerate().for_each(|(at, &thread)| places[thread as usize] = at);
    let thread = |&thread: &u32| {
        let own = &events.threads()[thread as usize];
        (own.process, shortened(&line(&own.name), NAME))
    };
    // An empty name stays empty: the host's stands for it.
    let process = |process: &astracer_causality::points::Process| {
        (process.host, shortened(&escaped(&process.name), NAME))
    };
    let mut last = vec![None; diagram.lines.len()];
    let before = |(at, &event): (usize, &u32)| {
        let last = &mut last[diagram.lines.of(event) as usize];
        // The records of a log that states no threads do not cause each other.
        if events.is_one_log(row(event), row(event)) {
            return 0;
        }
        last.replace(at).map_or(0, |before| at - before)
    };
    let before: Vec<usize> = chosen.events.iter().enumerate().map(before).collect();
    let links: Vec<(u32, u32, u8)> = chosen
        .links
        .iter()
        .filter_map(|link| Some((of(link.before)?, of(link.after)?, u8::from(link.kind.is_none()))))
        .collect();
    let spans: Vec<(u32, u32)> =
        events.spans().iter().filter_map(|span| Some((of(span.start)?, of(span.end)?))).collect();
    let x = columns(diagram.links, diagram.lines, chosen, diagram.goal);
    let by_event = |of: &dyn Fn(u32) -> u64| chosen.events.iter().map(|&event| of(event)).collect::<Vec<_>>();
    let data = json!({
        "hosts": events.hosts().iter().map(|host| shortened(&line(host), NAME)).collect::<Vec<_>>(),
        "processes": events.processes().iter().map(process).collect::<Vec<_>>(),
        "threads": threads.iter().map(thread).collect::<Vec<_>>(),
        "thread": by_event(&|event| places[row(event).thread as usize] as u64),
        "shape": by_event(&|event| shape(row(event).kind).into()),
        "level": by_event(&|event| order.severity(row(event)).number().into()),
        "place": by_event(&|event| order.positions[event as usize].into()),
        "x": by_event(&|event| x[event as usize].round() as u64),
        "before": before,
        "links": links,
        "spans": spans,
    });
    data.to_string().replace('<', "\\u003c")
}
