//! All processes, or the threads of a few, in one picture: the events of each stretch of time as
//! one mark.

use std::collections::{BTreeMap, BTreeSet};

use astracer_model::event::EventKind;
use astracer_model::log::Severity;
use astracer_report::chart::{legend, pc};
use astracer_report::names::{line, short, shortened};
use astracer_report::numbers::count;
use astracer_report::page::table as page_table;
use maud::{Markup, html};

use super::Diagram;
use crate::goal::Goal;
use crate::text::{Stamps, time};

/// The stretches of time in the picture.
const STRETCHES: u64 = 160;
/// Rows of the picture: the processes or threads with the most events.
const ROWS: usize = 8;
/// With fewer processes, each thread has a row.
const PROCESSES_MIN: usize = 3;
/// The height of a row, in pixels.
const HIGH: f64 = 29.0;
/// Processes in the table.
const PROCESSES_SHOWN: usize = 500;
/// The letters of a process's name over its row.
const LETTERS: usize = 44;

/// The events of a process by stretch: all, and those of severity error.
type Marks = BTreeMap<u64, (u64, u64)>;

fn name(diagram: &Diagram<'_>, process: u32) -> String {
    let events = &diagram.links.order().events;
    let own = &events.processes()[process as usize];
    let host = &events.hosts()[own.host as usize];
    if own.name.is_empty() {
        line(host).into_owned()
    } else {
        line(&format!("{} on {host}", own.name)).into_owned()
    }
}

/// A sentence, and a row for each of the busiest processes.
pub(super) fn picture(diagram: &Diagram<'_>) -> Markup {
    let (order, chosen) = (diagram.links.order(), diagram.chosen);
    let events = &order.events;
    let moment = |event: u32| match diagram.goal {
        Goal::Time => time(order, event),
        Goal::Concurrency => u64::from(order.clocks[event as usize]),
    };
    let times = || chosen.events.iter().map(|&event| moment(event));
    let (start, end) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
    let stretch = |event: u32| {
        let part = u128::from(moment(event) - start) * u128::from(STRETCHES - 1);
        (part / u128::from((end - start).max(1))) as u64
    };
    let process = |event: u32| events.thread(&events.rows()[event as usize]).process;
    let processes = chosen.events.iter().map(|&event| process(event)).collect::<BTreeSet<u32>>().len();
    let are_threads = processes < PROCESSES_MIN;
    let row = |event: u32| if are_threads { events.rows()[event as usize].thread } else { process(event) };
    let mut marks: BTreeMap<u32, Marks> = BTreeMap::new();
    for &event in &chosen.events {
        let (all, errors) = marks.entry(row(event)).or_default().entry(stretch(event)).or_default();
        *all += 1;
        *errors += u64::from(order.severity(&events.rows()[event as usize]) >= Severity::ERROR);
    }
    let crossing = chosen.links.iter().filter(|link| process(link.before) != process(link.after)).count();
    let most = marks.values().flat_map(|marks| marks.values()).map(|of| of.0).max().unwrap_or(1) as f64;
    let total = |marks: &Marks| marks.values().map(|of| of.0).sum::<u64>();
    let mut rows: Vec<(&u32, &Marks)> = marks.iter().collect();
    rows.sort_by_key(|(process, marks)| (std::cmp::Reverse(total(marks)), **process));
    let moment = |at: u64| match diagram.goal {
        Goal::Time => Stamps::default().clock(at),
        Goal::Concurrency => at.to_string(),
    };
    let label = |row: u32| match are_threads {
        true => line(&events.threads()[row as usize].name).into_owned(),
        false => name(diagram, row),
    };
    let has_errors = marks.values().flat_map(|marks| marks.values()).any(|of| of.1 > 0);
    let key = [("fill-good", "events"), ("fill-bad", "with errors")];
    let shown = rows.len().min(ROWS);
    html! {
        p {
            (count(processes as u64)) @if processes == 1 { " process. " } @else { " processes. " }
            @if processes > 1 {
                @if crossing == 0 { "No message or id joins two of them, so only their clocks order them." }
                @else { (count(crossing as u64)) " causes lead from one to another. Events that no chain of causes joins may have happened in either order." }
            }
        }
        @if has_errors { (legend(&key)) }
        svg.clip height=(HIGH * shown as f64 + 18.0) role="img" aria-label="Events of each process or thread over time" {
            @for (row, (process, marks)) in rows.iter().take(ROWS).enumerate() {
                @let bottom = (row + 1) as f64 * HIGH;
                line.line-grid x1="0" x2="100%" y1=(bottom) y2=(bottom) {}
                @for (&at, &(all, errors)) in *marks {
                    @let high = 2.0 + 10.0 * (all as f64).ln_1p() / most.ln_1p();
                    rect class=(if errors > 0 { "fill-bad" } else { "fill-good" }) x=(pc(at as f64 / STRETCHES as f64 * 100.0))
                        width=(pc(100.0 / STRETCHES as f64)) y=(format!("{:.1}", bottom - high)) height=(format!("{high:.1}")) {}
                }
                text.strong x="0" y=(bottom - 15.0) { (shortened(&label(**process), LETTERS)) }
            }
            text x="0" y=(HIGH * shown as f64 + 14.0) { (moment(start)) }
            text x="100%" y=(HIGH * shown as f64 + 14.0) text-anchor="end" { (moment(end)) }
        }
        @if rows.len() > shown { p.note { "The " (shown) @if are_threads { " threads" } @else { " processes" } " with the most events are drawn." } }
    }
}

/// The processes with their numbers of events by kind.
pub(super) fn table(diagram: &Diagram<'_>) -> Markup {
    let events = &diagram.links.order().events;
    let mut kinds: BTreeMap<u32, [u64; EventKind::ALL.len()]> = BTreeMap::new();
    for &event in &diagram.chosen.events {
        let row = &events.rows()[event as usize];
        kinds.entry(events.thread(row).process).or_default()[row.kind as usize] += 1;
    }
    let is_used = |at: usize| kinds.values().any(|counts| counts[at] > 0);
    let used: Vec<_> = EventKind::ALL.iter().zip(0usize..).filter(|&(_, at)| is_used(at)).collect();
    html! {
        h2 { "Processes" }
        (page_table("Processes", &html! {
            tr { th { "process" } th { "events" } @for (kind, _) in &used { th { (kind.name()) } } }
            @for (&process, counts) in kinds.iter().take(PROCESSES_SHOWN) {
                tr {
                    td.name { (short(&name(diagram, process))) } td { (count(counts.iter().sum())) }
                    @for (_, at) in &used { td { (count(counts[*at])) } }
                }
            }
        }))
        (astracer_report::page::more(kinds.len(), PROCESSES_SHOWN))
    }
}
