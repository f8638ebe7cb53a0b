//! The space-time diagram as one self-contained page: a line for each thread, events in order, and
//! arrows from causes to effects on other threads.

use astracer_model::event::EventKind;
use astracer_model::log::Severity;
use astracer_report::names::line;
use astracer_report::numbers::count;
use astracer_report::page::{Page, sortable};
use maud::{Markup, PreEscaped, html};

use super::goal::Goal;
use super::links::Link;
use super::links::Links;
use super::select::Selection;
use super::text::{Stamps, details, place, time, untimed};
use super::vectors::Lines;
use astracer_causality::edge::EdgeKind;
use astracer_causality::points::Process;

mod by_process;
mod layout;

use layout::{Layout, ROW};

/// With more events, processes are drawn instead of threads.
pub const EVENTS_MAX: usize = 20_000;
/// The width of a character of a log record.
const CHARACTER: f64 = 4.8;
/// The least number of characters of a record that are drawn.
const SAID_LEAST: usize = 4;

/// The contents of the page.
#[derive(Clone, Copy, Debug)]
pub struct Diagram<'a> {
    /// The recording's name.
    pub title: &'a str,
    /// The order's constraints.
    pub links: &'a Links<'a>,
    /// The order's lines.
    pub lines: &'a Lines,
    /// The events to draw.
    pub chosen: &'a Selection,
    /// Which order it is.
    pub goal: Goal,
    /// Sentences above it: contradictions, clocks, errors.
    pub notes: &'a [String],
}

/// The page as HTML. Text from the recording is escaped.
pub fn page(diagram: &Diagram<'_>) -> String {
    let title = format!("astracer order: {}", diagram.title);
    let body = html! {
        h1 { "Order of " (diagram.title) }
        @if !diagram.notes.is_empty() {
            ul.notes { @for note in diagram.notes { li { (note) } } }
        }
        @if diagram.chosen.events.len() > EVENTS_MAX {
            (by_process::body(diagram))
        } @else {
            (body(diagram))
        }
    };
    Page { title: &title, css: include_str!("page/page.css"), sortable: true }.html(&body)
}

fn body(diagram: &Diagram<'_>) -> Markup {
    let Diagram { links, lines, chosen, goal, .. } = *diagram;
    let order = links.order();
    let layout = Layout::new(links, lines, chosen, goal);
    let stamps = Stamps::of(order);
    html! {
        p.note {
            (count(chosen.events.len() as u64))
            @if chosen.is_partial() { " of " (count(order.events.len() as u64)) }
            " events. "
            @match goal {
                Goal::Time => { "Time runs to the right; gaps are drawn by their logarithm. " }
                Goal::Concurrency => { "Each event is as far left as its causes allow. " }
            }
            "An arrow leads from a cause to its effect on another thread; it is dashed if events between them are not shown. "
            "Point at an event for its details, click on it for its causes and effects."
        }
        p.note { @for kind in kinds(diagram) { span.key style=(format!("background:{}", colour(kind))) {} (kind.name()) } }
        div.bar hidden {
            label { "Find " input #find type="search"; }
            label {
                "Severity " select #level {
                    option value="0" { "all events" }
                    option value=(Severity::WARN.number()) { "warnings and errors" }
                    option value=(Severity::ERROR.number()) { "errors" }
                }
            }
            label {
                "Process " select #process {
                    option value="" { "all" }
                    @for (number, name) in processes(diagram) { option value=(number) { (name) } }
                }
            }
            output #found {}
        }
        div.diagram {
            div.threads {
                @for label in &layout.labels {
                    div.process[label.thread.is_none()] title=(line(&label.text)) { (line(&label.text)) }
                }
            }
            div.plot { (drawing(diagram, &layout, stamps)) }
        }
        h2 { "Events in order" }
        (table(diagram, stamps))
        script #causes type="application/json" { (PreEscaped(causes(diagram))) }
        script { (PreEscaped(include_str!("page/find.js"))) }
    }
}

/// The processes that have events here, with their hosts.
fn processes(diagram: &Diagram<'_>) -> Vec<(u32, String)> {
    let events = &diagram.links.order().events;
    let mut is_used = vec![false; events.processes().len()];
    let process = |event: u32| events.thread(&events.rows()[event as usize]).process;
    diagram.chosen.events.iter().for_each(|&event| is_used[process(event) as usize] = true);
    let used = (0u32..).zip(events.processes()).filter(|&(number, _)| is_used[number as usize]);
    let name = |(number, process): (u32, &Process)| {
        let host = &events.hosts()[process.host as usize];
        let name = if process.name.is_empty() { host.clone() } else { format!("{} on {host}", process.name) };
        (number, line(&name).into_owned())
    };
    used.map(name).collect()
}

/// The class of an event by its severity.
fn level(severity: Severity) -> &'static str {
    match severity {
        severity if severity >= Severity::ERROR => " error",
        severity if severity >= Severity::WARN => " warn",
        _ => "",
    }
}

fn kinds(diagram: &Diagram<'_>) -> impl Iterator<Item = EventKind> {
    let rows = diagram.links.order().events.rows();
    let mut is_used = [false; EventKind::ALL.len()];
    diagram.chosen.events.iter().for_each(|&event| is_used[rows[event as usize].kind as usize] = true);
    EventKind::ALL.iter().copied().zip(is_used).filter(|&(_, is)| is).map(|(kind, _)| kind)
}

/// The colours of the style sheet.
fn colour(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Log => "#c85000",
        EventKind::Send => "#27b",
        EventKind::Receive => "#5ad",
        EventKind::Connect | EventKind::Accept => "#086",
        EventKind::Start | EventKind::Fork => "#7a2",
        EventKind::End | EventKind::Join => "#a33",
        EventKind::SpanStart | EventKind::SpanEvent | EventKind::SpanEnd => "#84b",
    }
}

fn drawing(diagram: &Diagram<'_>, layout: &Layout, stamps: Stamps) -> Markup {
    let Diagram { links, chosen, goal, .. } = *diagram;
    let order = links.order();
    let rows = order.events.rows();
    let number = |value: f64| format!("{value:.1}");
    let y = |event: u32| layout.y(rows[event as usize].thread);
    let x = |event: u32| layout.x[event as usize];
    let said = said(diagram, layout);
    html! {
        svg.order width=(number(layout.width)) height=(number(layout.height)) {
            defs {
                marker #head viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" orient="auto" {
                    path d="M0 1 L8 4 L0 7 z" fill="context-stroke" {}
                }
            }
            @for &(at, moment) in &layout.ticks {
                line.tick x1=(number(at)) x2=(number(at)) y1=(ROW) y2=(number(layout.height)) {}
                text.when x=(number(at)) y="13" {
                    @match goal { Goal::Time => (stamps.clock(moment)), Goal::Concurrency => (moment) }
                }
            }
            @for label in &layout.labels {
                @if let Some(thread) = label.thread {
                    line.thread x1="0" x2=(number(layout.width)) y1=(number(layout.y(thread))) y2=(number(layout.y(thread))) {}
                }
            }
            @for span in order.events.spans() {
                @let (start, end) = (span.start, span.end);
                @if [start, end].iter().all(|&event| chosen.is_chosen.get(event as usize) == Some(&true)) && x(end) >= x(start) {
                    rect.span x=(number(x(start))) y=(number(y(start) + 3.0)) width=(number(x(end) - x(start))) height="4" {
                        title { (details(order, &rows[start as usize])) " " (span.id) " of trace " (span.trace) }
                    }
                }
            }
            @for bundle in bundles(diagram) {
                @let (from, to) = (bundle.link.before, bundle.link.after);
                @for &(first, last) in &bundle.sheaves {
                    line.sheaf x1=(number(x(first))) x2=(number(x(last))) y1=(number(y(first))) y2=(number(y(last))) {}
                }
                line class=(format!("arrow {}", bundle.link.kind.map_or("far", EdgeKind::name))) marker-end="url(#head)"
                    data-a=(order.positions[from as usize]) data-b=(order.positions[to as usize])
                    x1=(number(x(from))) y1=(number(y(from))) x2=(number(x(to))) y2=(number(y(to))) {
                    @if bundle.count > 1 { title { (count(bundle.count)) " messages" } }
                }
            }
            @for (event, text) in &said {
                text.said x=(number(x(*event) + 4.0)) y=(number(y(*event) - 4.0)) { (text) }
            }
            @for &event in &chosen.events {
                @let row = &rows[event as usize];
                circle class=(format!("event {}{}", row.kind.name(), level(order.severity(row)))) id=(format!("e{}", order.positions[event as usize]))
                    cx=(number(x(event))) cy=(number(y(event))) r="3" {
                    title {
                        (row.kind.name()) " " (details(order, row)) "\n" (stamps.show(time(order, event)))
                        @if order.stated(event) != time(order, event) { " (recorded " (stamps.show(order.stated(event))) ")" } " on "
                        (line(&order.events.thread(row).name)) ", id " (row.id) ", " (line(&place(order, row)))
                    }
                }
            }
        }
    }
}

/// The text of log records that has space up to the next record of its thread.
fn said(diagram: &Diagram<'_>, layout: &Layout) -> Vec<(u32, String)> {
    let order = diagram.links.order();
    let rows = order.events.rows();
    let mut next = vec![layout.width; order.events.threads().len()];
    let mut logs: Vec<u32> = diagram.chosen.events.clone();
    logs.retain(|&event| rows[event as usize].kind == EventKind::Log);
    logs.sort_by(|&a, &b| layout.x[b as usize].total_cmp(&layout.x[a as usize]));
    let mut said = Vec::new();
    for event in logs {
        let row = &rows[event as usize];
        let here = layout.x[event as usize];
        let space = ((next[row.thread as usize] - here - 6.0) / CHARACTER).max(0.0) as usize;
        next[row.thread as usize] = here;
        let text = details(order, row);
        let text = untimed(row.kind, &text);
        if space >= SAID_LEAST {
            said.push((event, text.chars().take(space).collect()));
        }
    }
    said
}

/// Several links that are drawn as one arrow.
struct Bundle {
    link: Link,
    count: u64,
    /// The first and the last of the events that were bundled.
    sheaves: Vec<(u32, u32)>,
}

/// Arrows: the sends of one thread that one receive needs are one arrow, from the last; the
/// receives of one thread from one send are one, to the first.
fn bundles(diagram: &Diagram<'_>) -> Vec<Bundle> {
    let order = diagram.links.order();
    let place = |event: u32| order.positions[event as usize];
    let thread = |event: u32| order.events.rows()[event as usize].thread;
    let mut bundles: Vec<Bundle> = Vec::new();
    let mut links = diagram.chosen.links.clone();
    links.sort_by_key(|link| (link.after, thread(link.before), link.kind, place(link.before)));
    for same in links.chunk_by(|a, b| {
        (a.after, a.kind, thread(a.before)) == (b.after, b.kind, thread(b.before)) && a.kind.is_some()
    }) {
        let [first, .., last] = same else {
            bundles.extend(same.iter().map(|&link| Bundle { link, count: 1, sheaves: Vec::new() }));
            continue;
        };
        let sheaves = vec![(first.before, last.before)];
        bundles.push(Bundle { link: *last, count: same.len() as u64, sheaves });
    }
    bundles.sort_by_key(|bundle| {
        (bundle.link.before, thread(bundle.link.after), bundle.link.kind, place(bundle.link.after))
    });
    let mut merged: Vec<Bundle> = Vec::with_capacity(bundles.len());
    for bundle in bundles {
        let same = merged.last_mut().filter(|above| {
            let key = |bundle: &Bundle| (bundle.link.before, bundle.link.kind, thread(bundle.link.after));
            key(above) == key(&bundle) && bundle.link.kind.is_some() && bundle.sheaves.is_empty()
        });
        match same {
            Some(above) => {
                above.count += 1;
                above.sheaves.push((above.link.after, bundle.link.after));
            }
            None => merged.push(bundle),
        }
    }
    merged
}

/// Pairs of cause and effect for the script, by place in the order: arrows, and the next event of
/// each line.
fn causes(diagram: &Diagram<'_>) -> String {
    let Diagram { links, lines, chosen, .. } = *diagram;
    let place = |event: u32| links.order().positions[event as usize];
    let mut last = vec![None; lines.len()];
    let mut pairs: Vec<[u32; 2]> =
        chosen.links.iter().map(|link| [place(link.before), place(link.after)]).collect();
    for &event in &chosen.events {
        let last = &mut last[lines.of(event) as usize];
        let row = &links.order().events.rows()[event as usize];
        if links.order().events.is_one_log(row, row) {
            continue;
        }
        pairs.extend(last.map(|before| [place(before), place(event)]));
        *last = Some(event);
    }
    serde_json::to_string(&pairs).unwrap_or_default()
}

fn table(diagram: &Diagram<'_>, stamps: Stamps) -> Markup {
    let Diagram { links, chosen, .. } = *diagram;
    let order = links.order();
    let rows = order.events.rows();
    sortable(&html! {
        tr {
            th { "order" } th { "id" } th.left { "time" } th.left { "thread" } th.left { "kind" } th.left { "severity" }
            th.left { "details" }
            th.left { "file and line" } th.left { "causes" }
        }
        @for &event in &chosen.events {
            @let row = &rows[event as usize];
            @let severity = order.severity(row);
            tr id=(format!("t{}", row.id)) class=(level(severity).trim_start()) data-event=(order.positions[event as usize])
                data-level=(severity.number()) data-process=(order.events.thread(row).process) {
                td { a href=(format!("#e{}", order.positions[event as usize])) { (order.positions[event as usize]) } }
                td { (row.id) } td.left { (stamps.show(time(order, event))) }
                td.left { (line(&order.events.thread(row).name)) } td.left { (row.kind.name()) } td.left { (severity.word()) }
                td.said { (details(order, row)) } td.left { (line(&place(order, row))) }
                td.left {
                    @for link in chosen.causes(event) {
                        @let id = rows[link.before as usize].id;
                        a href=(format!("#t{id}")) { (id) } " "
                    }
                }
            }
        }
    })
}
