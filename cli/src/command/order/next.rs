//! The end of the first screen: the limits of this order, and the commands to type next.

use std::fmt::Write as _;
use std::path::PathBuf;

use astracer_model::event::EventKind;
use astracer_order::Order;

use crate::output::shown;

/// Longer arguments are replaced by a name.
const ARGUMENTS_MAX: usize = 30;

/// Sentences for the screen.
pub(super) fn steps(paths: &[PathBuf], order: &Order) -> String {
    let mut text = String::new();
    let events = &order.events;
    let process = |event: u32| events.thread(&events.rows()[order.shown(event) as usize]).process;
    let joins = order.edges.iter().any(|edge| process(edge.before) != process(edge.after));
    if events.processes().len() > 1 && !joins {
        text.push_str(
            "no cause between processes is known: this is an order by clocks\n  \
             add what strace -f -ttt -T -yy -s 512 -o FILE records of each process, or spans and \
             records with trace ids (docs/order.md)\n",
        );
    }
    let arguments: Vec<_> = paths.iter().map(|path| shown(path)).collect();
    let arguments = arguments.join(" ");
    let arguments =
        if arguments.len() > ARGUMENTS_MAX || arguments.contains('\\') { "LOGS" } else { &arguments };
    let last = |kind: Option<EventKind>| {
        let fits = |event: &&u32| kind.is_none_or(|kind| events.rows()[**event as usize].kind == kind);
        order.sequence.iter().rev().find(fits).map(|&event| events.rows()[event as usize].id)
    };
    let log = last(Some(EventKind::Log));
    let mut lines: Vec<(String, &str)> = Vec::new();
    if log.is_some() {
        lines.push(("--merged".to_owned(), "all log records as one log"));
    }
    if let Some(id) = log.or(last(None)) {
        lines.push((format!("--cause-of {id}"), "all that may have caused an event"));
    }
    lines.push(("--between A B".to_owned(), "A may have caused B, or not"));
    lines.push(("--html order.html".to_owned(), "the space-time diagram"));
    let widest = lines.iter().map(|(option, _)| option.len()).max().unwrap_or(0);
    text.push_str("next:\n");
    for (option, what) in lines {
        let _ = writeln!(text, "  astracer order {arguments} {option:widest$}  {what}");
    }
    text
}
