//! The space-time diagram as one self-contained page: a line for each thread, events in order, and
//! arrows from causes to effects on other threads.
//!
//! Without scripts, the page has a picture of all processes, the clocks, and the events as text.
//! The script reads that text, and draws only the part of the diagram that is in its window.

use astracer_report::names::{short, shortened};
use astracer_report::numbers::count;
use astracer_report::page::{Next, Page, Tone, folded};
use maud::{Markup, html};

use super::goal::Goal;
use super::links::Links;
use super::select::Selection;
use super::vectors::Lines;

mod clocks;
mod data;
mod layout;
mod overview;

/// With more events, the page has no diagram of threads.
pub const EVENTS_MAX: usize = 20_000;
/// The notes of a page, and the letters of each.
const NOTES_SHOWN: usize = 100;
const NOTE: usize = 600;

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
    /// Commands to run next.
    pub next: &'a [Next],
}

/// The page as HTML. Text from the recording is escaped.
pub fn page(diagram: &Diagram<'_>) -> String {
    let order = diagram.links.order();
    let is_large = diagram.chosen.events.len() > EVENTS_MAX;
    let body = html! {
        @if is_large {
            p.warn {
                (count(diagram.chosen.events.len() as u64)) " events are too many for a line of each thread (at most "
                (count(EVENTS_MAX as u64)) "). Select events (--around, --cause-of, --from, --to, --only, --process) to see threads."
            }
            (overview::table(diagram))
        } @else {
            (viewer(diagram))
        }
        (clocks::lanes(order))
        @if !diagram.notes.is_empty() {
            h2 { "Notes" }
            ul { @for note in diagram.notes.iter().take(NOTES_SHOWN) { li { (shortened(note, NOTE)) } } }
        }
        @if !is_large { (data::listed(diagram)) }
    };
    let title = format!("astracer order: {}", short(diagram.title));
    let about = format!("astracer order · {}", short(diagram.title));
    Page {
        title: &title,
        about: &about,
        answer: &answer(diagram),
        picture: overview::picture(diagram),
        tone: if order.dropped.is_empty() { Tone::Plain } else { Tone::Bad },
        next: diagram.next,
        script: (!is_large).then_some(include_str!("page/view.js")),
    }
    .html(&body)
}

fn answer(diagram: &Diagram<'_>) -> String {
    let order = diagram.links.order();
    let (all, chosen) = (order.events.len() as u64, diagram.chosen.events.len() as u64);
    let events = match diagram.chosen.is_partial() {
        true => format!("{} of {} events", count(chosen), count(all)),
        false => format!("{} events", count(all)),
    };
    match order.dropped.len() {
        0 => format!("{events} in one order that respects every cause"),
        dropped => {
            format!("{events} in an order that ignores {} contradicting causes", count(dropped as u64))
        }
    }
}

/// The diagram, which the script fills.
fn viewer(diagram: &Diagram<'_>) -> Markup {
    html! {
        section #viewer hidden {
            h2 { "Threads" }
            div.bar {
                label { "Find " input #find type="search" size="24"; }
                label {
                    "Severity " select #level {
                        option value="0" { "all events" } option value="13" { "warnings and errors" } option value="17" { "errors" }
                    }
                }
                label { "Host " select #host { option value="" { "all" } } }
                span { button #in aria-label="Zoom in" { "+" } " " button #out aria-label="Zoom out" { "−" } " " button #fit { "Fit" } }
                output #found {}
            }
            canvas #strip.strip aria-label="All events by time; drag to move the window" {}
            div.stage {
                canvas #view tabindex="0" role="application" aria-label="Events by thread. Arrow keys move, plus and minus zoom, n and p go to the next and the previous event." {}
                aside #panel aria-live="polite" { p.note { "Select an event for its record, its causes and its effects." } }
            }
            (key(diagram.goal))
        }
    }
}

fn key(goal: Goal) -> Markup {
    html! {
        div.key {
            span { "● record" } span { "◆ warning" } span { "▲ error" } span { "▶ send" } span { "◀ receive" } span { "■ other" }
        }
        p.note {
            @match goal {
                Goal::Time => { "Time runs to the right; gaps are drawn by their logarithm. " }
                Goal::Concurrency => { "Each event is as far left as its causes allow. " }
            }
            "An arrow leads from a cause to its effect on another thread; it is dashed if events between them are not shown. "
            "Wheel: scroll; with Ctrl: zoom; with Shift: move. Drag or pinch on touch. Threads without events in the window are folded."
        }
        (folded("Keys", &html! { p { "← → ↑ ↓ move, + − zoom, 0 shows all, n and p select the next and the previous event, Escape clears." } }))
    }
}
