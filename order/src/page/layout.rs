//! Places of events on the page: a row for each thread, under its process and host, and a column
//! for each moment.
//!
//! Time runs from left to right. Gaps are drawn by their logarithm, because bursts of microseconds
//! and pauses of seconds have to fit into one picture. Within one moment, each event is drawn to
//! the right of its causes.

use std::collections::HashMap;

use crate::goal::Goal;
use crate::links::Links;
use crate::select::Selection;
use crate::text::time;
use crate::vectors::Lines;

/// The distance of an event from its cause at the same moment, and of clocks.
const STEP: f64 = 7.0;
/// The width of a gap of a microsecond, and of each doubling of it.
const DOUBLING: f64 = 1.6;
/// Wider pictures are scaled down.
const WIDTH_MAX: f64 = 30_000.0;
const MARGIN: f64 = 14.0;
/// The height of a row.
pub(super) const ROW: f64 = 20.0;
/// The least distance of the labels of the axis.
const TICK: f64 = 130.0;

/// Where everything is.
pub(super) struct Layout {
    /// By event; events that were not chosen are at 0.
    pub(super) x: Vec<f64>,
    /// By thread; threads without events have none.
    pub(super) rows: Vec<Option<f64>>,
    pub(super) labels: Vec<Label>,
    pub(super) ticks: Vec<(f64, u64)>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The name beside a row, or the heading of a process.
pub(super) struct Label {
    /// The index of the thread; `None` for a heading.
    pub(super) thread: Option<u32>,
    pub(super) text: String,
}

impl Layout {
    pub(super) fn new(links: &Links<'_>, lines: &Lines, chosen: &Selection, goal: Goal) -> Self {
        let (rows, labels) = rows(links, chosen);
        let (x, ticks, width) = columns(links, lines, chosen, goal);
        let height = (labels.len() as f64 + 1.0) * ROW;
        Self { x, rows, labels, ticks, width, height }
    }

    /// The vertical place of a thread.
    pub(super) fn y(&self, thread: u32) -> f64 {
        self.rows.get(thread as usize).copied().flatten().unwrap_or(0.0)
    }
}

/// Rows of threads by host, process and first event.
fn rows(links: &Links<'_>, chosen: &Selection) -> (Vec<Option<f64>>, Vec<Label>) {
    let order = links.order();
    let events = &order.events;
    let mut first: Vec<Option<usize>> = vec![None; events.threads().len()];
    for (place, &event) in chosen.events.iter().enumerate() {
        let thread = events.rows()[event as usize].thread as usize;
        first[thread] = first[thread].or(Some(place));
    }
    // By the first event: of the host, of the process, of the thread.
    let own = |thread: u32| &events.threads()[thread as usize];
    let host = |thread: u32| events.processes()[own(thread).process as usize].host;
    let mut threads: Vec<u32> = (0..first.len() as u32).filter(|&at| first[at as usize].is_some()).collect();
    threads.sort_by_key(|&thread| first[thread as usize]);
    let (mut hosts, mut processes) = (HashMap::new(), HashMap::new());
    for (place, &thread) in threads.iter().enumerate() {
        hosts.entry(host(thread)).or_insert(place);
        processes.entry(own(thread).process).or_insert(place);
    }
    threads.sort_by_key(|&thread| (hosts[&host(thread)], processes[&own(thread).process]));
    let (mut rows, mut labels) = (vec![None; first.len()], Vec::new());
    let mut above = None;
    for thread in threads {
        let own = &events.threads()[thread as usize];
        if above != Some(own.process) {
            let process = &events.processes()[own.process as usize];
            let host = &events.hosts()[process.host as usize];
            let text =
                if process.name.is_empty() { host.clone() } else { format!("{} on {host}", process.name) };
            labels.push(Label { thread: None, text });
        }
        above = Some(own.process);
        rows[thread as usize] = Some((labels.len() as f64 + 1.5) * ROW);
        labels.push(Label { thread: Some(thread), text: own.name.clone() });
    }
    (rows, labels)
}

/// The horizontal place of each event, labels of the axis, and the width.
fn columns(
    links: &Links<'_>,
    lines: &Lines,
    chosen: &Selection,
    goal: Goal,
) -> (Vec<f64>, Vec<(f64, u64)>, f64) {
    let order = links.order();
    let mut x = vec![0.0; order.events.len()];
    let moment = |event: u32| match goal {
        Goal::Time => time(order, event),
        Goal::Concurrency => u64::from(order.clocks[event as usize]),
    };
    // In the order, so that causes come first within each moment.
    let mut by_time: Vec<u32> = chosen.events.clone();
    by_time.sort_by_key(|&event| moment(event));
    let mut moments: Vec<(f64, u64)> = Vec::new();
    let (mut at, mut end, mut now) = (MARGIN, MARGIN, None);
    let mut last_on_line = vec![f64::NEG_INFINITY; lines.len()];
    for event in by_time {
        let own = moment(event);
        if now != Some(own) {
            let gap = match (goal, now) {
                (_, None) => 0.0,
                (Goal::Concurrency, Some(before)) => STEP * (own - before) as f64,
                (Goal::Time, Some(before)) => STEP + DOUBLING * ((own - before) as f64 / 1e3).ln_1p(),
            };
            at = end + gap;
            now = Some(own);
            moments.push((at, own));
        }
        let line = lines.of(event) as usize;
        let causes = chosen.causes(event).iter().map(|link| x[link.before as usize] + STEP);
        let here = causes.fold(at.max(last_on_line[line] + STEP), f64::max);
        // A cause with a later time does not push its effect: the arrow back shows the
        // contradiction.
        let here = if here > end.max(at) + STEP { end.max(at) } else { here };
        (x[event as usize], last_on_line[line]) = (here, here);
        end = end.max(here);
    }
    let scale = (WIDTH_MAX / (end + MARGIN)).min(1.0);
    x.iter_mut().for_each(|x| *x *= scale);
    let mut ticks: Vec<(f64, u64)> = Vec::new();
    for (at, moment) in moments {
        let at = at * scale;
        if ticks.last().is_none_or(|&(last, _)| at - last >= TICK) {
            ticks.push((at, moment));
        }
    }
    let width = ((end + MARGIN) * scale).max(ticks.last().map_or(0.0, |&(at, _)| at + TICK));
    (x, ticks, width)
}
