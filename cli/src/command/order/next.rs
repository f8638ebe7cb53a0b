//! The end of the first screen: the evidence to add, and commands that can be pasted into a shell.

use std::fmt::Write as _;
use std::path::PathBuf;

use astracer_model::event::EventKind;
use astracer_model::log::Severity;
use astracer_order::Order;
use astracer_report::page::Next;

use crate::shell::{again, quoted};

/// Longer arguments are set once, as the shell's own.
const ARGUMENTS_MAX: usize = 40;
/// Columns of a line of arguments, with its indent and the backslash behind it.
const COLUMNS: usize = 74;

/// Sentences for the screen. Commands have no comments, which not every shell reads.
pub(super) fn steps(paths: &[PathBuf], order: &Order) -> String {
    let mut text = String::new();
    let events = &order.events;
    let process = |event: u32| events.thread(&events.rows()[order.shown(event) as usize]).process;
    let joins = order.edges.iter().any(|edge| process(edge.before) != process(edge.after));
    if events.processes().len() > 1 && !joins {
        text.push_str(
            "for causes, add what strace -f -ttt -T -yy -s 512 -o FILE records of each process, or \
             spans and records with trace ids (docs/order.md)\n",
        );
    }
    let words: Vec<_> = paths.iter().map(|path| quoted(&path.to_string_lossy())).collect();
    let inline = words.join(" ");
    text.push_str("next, for a shell:\n");
    let is_short = inline.chars().count() <= ARGUMENTS_MAX;
    if !is_short {
        text.push_str(&set(&words));
    }
    let arguments = if is_short { &inline } else { "\"$@\"" };
    let rows = events.rows();
    let last = |fits: &dyn Fn(u32) -> bool| order.sequence.iter().rev().copied().find(|&event| fits(event));
    let is_log = |event: u32| rows[event as usize].kind == EventKind::Log;
    let is_error = |event: u32| order.severity(&rows[event as usize]) >= Severity::ERROR;
    let log = last(&is_log);
    let asked = last(&is_error).or(log).or(last(&|_| true));
    // Another process is more interesting than the same.
    let other = asked.and_then(|asked| {
        let of_others = |&&event: &&u32| process(event) != process(asked) && is_log(event) == is_log(asked);
        order.sequence.iter().find(of_others).or(order.sequence.first()).copied()
    });
    let id = |event: u32| rows[event as usize].id;
    let mut options = Vec::new();
    if log.is_some() {
        options.push("--merged".to_owned());
    }
    options.extend(asked.map(|event| format!("--cause-of {}", id(event))));
    let two = other.zip(asked).filter(|(one, event)| one != event);
    options.extend(two.map(|(one, event)| format!("--between {} {}", id(one), id(event))));
    options.push("--html order.html".to_owned());
    for option in options {
        let _ = writeln!(text, "  astracer order {arguments} {option}");
    }
    text
}

/// The same for the page: the causes of the last error or record, and all logs as one.
pub(super) fn of_page(order: &Order) -> Vec<Next> {
    let rows = order.events.rows();
    let last = |fits: &dyn Fn(u32) -> bool| order.sequence.iter().rev().copied().find(|&event| fits(event));
    let log = last(&|event| rows[event as usize].kind == EventKind::Log);
    let error = last(&|event| order.severity(&rows[event as usize]) >= Severity::ERROR);
    let causes = |purpose: &str, event: u32| {
        Next::new(purpose, again(&["--html"], &format!("--cause-of {}", rows[event as usize].id)))
    };
    let first = error.map(|event| causes("What led to the last error", event));
    let first = first.or_else(|| log.map(|event| causes("What led to the last record", event)));
    let merged = log.map(|_| Next::new("Read all logs as one", again(&["--html"], "--merged")));
    first.into_iter().chain(merged).collect()
}

/// The command that sets the shell's arguments, over several lines if need be.
fn set(words: &[String]) -> String {
    let mut text = "  set --".to_owned();
    let mut column = text.len();
    for word in words {
        let len = word.chars().count();
        if column + 1 + len > COLUMNS && column > 6 {
            text.push_str(" \\\n   ");
            column = 3;
        }
        text.push(' ');
        text.push_str(word);
        column += 1 + len;
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_arguments_is_broken() {
        let words: Vec<String> = (0..9).map(|at| format!("host{at}=logs/of/a/host/{at}")).collect();
        let text = set(&words);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let joined = text.replace("\\\n", "");
        assert_eq!(joined.split_whitespace().skip(2).collect::<Vec<_>>(), words);
    }
}
