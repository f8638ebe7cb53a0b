//! Too many events for a line of each thread: processes, with the events of each stretch of time as
//! one mark, and the messages between two stretches as one arrow.

use std::collections::BTreeMap;

use astracer_model::event::EventKind;
use astracer_report::names::line;
use astracer_report::numbers::count;
use astracer_report::page::sortable;
use maud::{Markup, html};

use super::layout::ROW;
use super::{Diagram, EVENTS_MAX};
use crate::goal::Goal;
use crate::text::{Stamps, time};

/// The width of the picture, and of a stretch of time.
const WIDTH: f64 = 1_600.0;
const STRETCH: f64 = 8.0;
const MARGIN: f64 = 10.0;
const ROWS: f64 = 2.0 * ROW;
/// Arrows that are drawn: those with the most messages.
const ARROWS_MAX: usize = 4_000;

pub(super) fn body(diagram: &Diagram<'_>) -> Markup {
    let Diagram { links, chosen, goal, .. } = *diagram;
    let order = links.order();
    let events = &order.events;
    let moment = |event: u32| match goal {
        Goal::Time => time(order, event),
        Goal::Concurrency => u64::from(order.clocks[event as usize]),
    };
    let times = || chosen.events.iter().map(|&event| moment(event));
    let (start, end) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
    let stretches = (WIDTH / STRETCH) as u64;
    let stretch = |event: u32| {
        u128::from(moment(event) - start) * u128::from(stretches - 1) / u128::from((end - start).max(1))
    };
    let process = |event: u32| events.thread(&events.rows()[event as usize]).process;
    let mut marks: BTreeMap<(u32, u128), u64> = BTreeMap::new();
    let mut kinds: BTreeMap<u32, [u64; EventKind::ALL.len()]> = BTreeMap::new();
    for &event in &chosen.events {
        *marks.entry((process(event), stretch(event))).or_insert(0) += 1;
        let counts = kinds.entry(process(event)).or_insert([0; EventKind::ALL.len()]);
        counts[events.rows()[event as usize].kind as usize] += 1;
    }
    let mut arrows: BTreeMap<[(u32, u128); 2], u64> = BTreeMap::new();
    for link in &chosen.links {
        let ends = [link.before, link.after].map(|event| (process(event), stretch(event)));
        if ends[0].0 != ends[1].0 {
            *arrows.entry(ends).or_insert(0) += 1;
        }
    }
    let all = arrows.len();
    let mut arrows: Vec<_> = arrows.into_iter().collect();
    arrows.sort_by_key(|&(ends, number)| (std::cmp::Reverse(number), ends));
    arrows.truncate(ARROWS_MAX);
    let mut order_of: Vec<u32> = kinds.keys().copied().collect();
    let key = |process: u32| {
        let own = &events.processes()[process as usize];
        (&events.hosts()[own.host as usize], &own.name, process)
    };
    order_of.sort_by_key(|&process| key(process));
    let rows: BTreeMap<u32, f64> =
        order_of.iter().enumerate().map(|(at, &process)| (process, (at as f64 + 1.5) * ROWS)).collect();
    let y = |process: u32| rows.get(&process).copied().unwrap_or(0.0);
    let x = |stretch: u128| MARGIN + (stretch as f64 + 0.5) * STRETCH;
    let height = (rows.len() as f64 + 1.0) * ROWS;
    let width = WIDTH + 2.0 * MARGIN;
    let stamps = Stamps::of(order);
    let name = |process: u32| {
        let (host, name, _) = key(process);
        if name.is_empty() {
            line(host).into_owned()
        } else {
            line(&format!("{name} on {host}")).into_owned()
        }
    };
    html! {
        p.note {
            (count(chosen.events.len() as u64)) " events are too many for a line of each thread (at most "
            (count(EVENTS_MAX as u64)) "): a mark is all events of a process in one stretch of time, an arrow all messages between two "
            "stretches. Select events (--around, --cause-of, --from, --to, --only, --process) to see threads."
            @if all > arrows.len() { " Of " (count(all as u64)) " arrows, the " (count(arrows.len() as u64)) " with the most messages are drawn." }
        }
        div.wide { svg width=(width) height=(height) {
            text.when x=(MARGIN) y="13" { @match goal { Goal::Time => (stamps.show(start)), Goal::Concurrency => (start) } }
            text.when x=(width - MARGIN) y="13" text-anchor="end" {
                @match goal { Goal::Time => (stamps.show(end)), Goal::Concurrency => (end) }
            }
            @for (&process, &at) in &rows {
                line.thread x1="0" x2=(width) y1=(at) y2=(at) {}
                text.when x="2" y=(at - 14.0) { (name(process)) }
            }
            @for &([from, to], number) in &arrows {
                line.arrow x1=(x(from.1)) y1=(y(from.0)) x2=(x(to.1)) y2=(y(to.0))
                    stroke-width=(format!("{:.1}", 0.4 + (number as f64).ln_1p() * 0.3)) {
                    title { (count(number)) " messages" }
                }
            }
            @for (&(process, stretch), &number) in &marks {
                circle.event cx=(x(stretch)) cy=(y(process)) r=(format!("{:.1}", (1.0 + (number as f64).ln_1p() * 0.6).min(6.0))) {
                    title { (count(number)) " events of " (name(process)) }
                }
            }
        } }
        h2 { "Processes" }
        (sortable(&html! {
            tr { th { "process" } th { "events" } @for kind in EventKind::ALL { th { (kind.name()) } } }
            @for process in order_of {
                @let counts = kinds.get(&process).copied().unwrap_or_default();
                tr {
                    td.name { (name(process)) } td { (count(counts.iter().sum())) }
                    @for number in counts { td { (count(number)) } }
                }
            }
        }))
    }
}
