//! Logs that a process writes through a pipe: containers, services of systemd, `tee`.
//!
//! Nothing names the log that a pipe leads to, so its records are searched for the last lines that
//! were written to the pipe. A line of the log may have something before and after the bytes, as
//! the container's time.

use astracer_recording::intern::Interner;

use crate::log_row::{LogRow, Written};
use crate::points::Points;

/// Lines of a pipe that are searched for. All but one must be in the log.
const LINES: usize = 8;
/// Shorter lines do not count as evidence.
const LINE_LEAST: usize = 8;
/// Pipes that are tried.
const PIPES_MAX: usize = 64;
/// Records at the end of a log in which the last line of a pipe is searched.
const RECORDS_MAX: usize = 1 << 16;
/// Records before the last line's in which the others are searched.
const WINDOW: usize = 64;

/// True for the name of a pipe instead of a file's path.
pub(crate) fn is_pipe(path: &str) -> bool {
    !path.starts_with('/')
}

/// The writes to a log through pipes.
#[derive(Debug)]
pub(crate) struct Piped {
    /// The writes, by time.
    pub(crate) writes: Vec<Written>,
    /// The number of records up to the last of them.
    pub(crate) records: usize,
    /// True if a line of the log is more than the bytes that were written.
    pub(crate) is_wrapped: bool,
}

/// The writes to each pipe, from those that are sorted by path.
pub(crate) fn pipes<'w>(written: &'w [Written], paths: &Interner) -> Vec<&'w [Written]> {
    let of_paths = written.chunk_by(|one, other| one.path == other.path);
    of_paths.filter(|own| is_pipe(paths.name(own[0].path))).take(PIPES_MAX).collect()
}

/// Finds the pipes that lead to a log.
pub(crate) fn find(events: &Points, records: &[LogRow], pipes: &[&[Written]]) -> Option<Piped> {
    let mut found: Option<Piped> = None;
    for own in pipes {
        let Some((last, is_wrapped)) = leads_to(events, records, own) else { continue };
        let found = found.get_or_insert(Piped { writes: Vec::new(), records: 0, is_wrapped: false });
        found.writes.extend_from_slice(own);
        found.records = found.records.max(last + 1);
        found.is_wrapped |= is_wrapped;
    }
    let mut found = found?;
    found.writes.sort_by_key(|write| {
        let row = &events.rows[write.row as usize];
        (row.time, row.file, row.sequence)
    });
    Some(found)
}

/// The record of a pipe's last line, and whether it is more than that line; `None` if the pipe
/// leads elsewhere.
fn leads_to(events: &Points, records: &[LogRow], writes: &[Written]) -> Option<(usize, bool)> {
    let lines = writes.iter().rev().map(|write| first_line(events.text(&events.rows[write.row as usize])));
    let lines: Vec<&str> = lines.filter(|line| line.len() >= LINE_LEAST).take(LINES).collect();
    let record = |at: usize| std::str::from_utf8(records[at].bytes(events)).unwrap_or_default();
    let has = |at: usize, line: &str| record(at).contains(line);
    let first = records.len().saturating_sub(RECORDS_MAX);
    // The last line may have been lost with the end of the log.
    let (number, last) =
        lines.iter().take(2).enumerate().find_map(|(number, line)| {
            Some((number, (first..records.len()).rev().find(|&at| has(at, line))?))
        })?;
    let near = last.saturating_sub(WINDOW)..(last + WINDOW).min(records.len());
    let missing = lines.iter().filter(|line| !near.clone().any(|at| has(at, line))).count();
    let is_wrapped = !record(last).starts_with(lines[number]);
    (missing <= 1 && missing < lines.len().div_ceil(2)).then_some((last, is_wrapped))
}

/// The first line that a call wrote.
pub(crate) fn first_line(text: &str) -> &str {
    text.split('\n').next().unwrap_or_default().trim_end()
}
