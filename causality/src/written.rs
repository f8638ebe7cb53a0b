//! Joins log records to the `write(2)` calls that wrote them, which tells their threads and their
//! exact places among the other events.
//!
//! A log belongs to the path that ends like its name. Its records and the writes to that path are
//! aligned from the end, because a log that was kept may have lost its beginning. Each write must
//! begin with the text of its record, as far as it was recorded.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use astracer_recording::intern::{Interner, Symbol};
use rapidhash::fast::RandomState;
use serde::Serialize;

use crate::log_row::{LogRow, Written};
use crate::pipes::{self, Piped};
use crate::points::{NONE, Point, Points, line_number};

/// Marks a write whose file is not known to be a log.
pub(crate) const UNREAD: u32 = NONE - 1;

/// The number of records that were joined, by evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Joins {
    /// Log records that a traced call wrote.
    pub write: u64,
    /// Log records that follow the start of their span, by its ids.
    pub ids: u64,
    /// Log records of a trace that name none of its spans, which orders nothing.
    pub traces: u64,
    /// Spans whose ids a message carries.
    pub bytes: u64,
    /// Spans and log records on the line of a thread that other files tell of.
    pub thread: u64,
    /// Spans beside a process that other files tell of, without better evidence.
    pub process: u64,
    /// All spans.
    pub spans: u64,
    /// Spans of clients and servers.
    pub calls: u64,
    /// Those whose ids a message carries.
    pub calls_by_bytes: u64,
    /// Connections whose ends know each other by different addresses, counted by the server's two.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub translated: BTreeMap<String, u64>,
    /// Counts of the rest, by the reason why it was not joined.
    pub unjoined: BTreeMap<&'static str, u64>,
    /// Log records of such a log that no traced call wrote.
    pub before_first_write: u64,
    /// Writes to a log whose text is not in it.
    pub unknown_writes: u64,
    /// Logs that were written to by several paths, so that none was chosen.
    pub ambiguous_logs: u64,
}

/// Joins what can be joined. The records of other logs remain in `records`, and with
/// `keeps_unwritten` those of traced logs that no traced call wrote.
pub(crate) fn join(
    events: &mut Points,
    records: &mut Vec<LogRow>,
    written: &mut [Written],
    paths: &Interner,
    keeps_unwritten: bool,
) -> Joins {
    let mut joins = Joins::default();
    let rows = &events.rows;
    // By the place of the call: the reader delivers a call once it has returned.
    written.sort_by_key(|write| {
        let row = &rows[write.row as usize];
        (write.path, row.time, row.file, row.sequence)
    });
    let mut by_name: HashMap<&str, Vec<Symbol>, RandomState> = HashMap::default();
    for (at, path) in (0..).zip(paths.names()) {
        by_name.entry(file_name(path)).or_default().push(Symbol(at));
    }
    let files: Vec<Arc<str>> = events.files.clone();
    let pipes = pipes::pipes(written, paths);
    let mut from = 0;
    let mut rest = Vec::new();
    while let Some(first) = records.get(from) {
        let file = first.file;
        let len = records[from..].iter().take_while(|record| record.file == file).count();
        let own = &records[from..from + len];
        from += len;
        let name = &files[file as usize];
        let candidates = by_name.get(file_name(name)).map_or(&[][..], |paths| paths);
        match best(name, candidates, paths) {
            Best::One(path) => {
                let begin = written.partition_point(|write| write.path < path);
                let end = written.partition_point(|write| write.path <= path);
                let unwritten = align(events, own, &written[begin..end], false, &mut joins);
                joins.before_first_write += unwritten.len() as u64;
                if keeps_unwritten {
                    rest.extend(unwritten);
                }
            }
            Best::Several => {
                joins.ambiguous_logs += 1;
                rest.extend_from_slice(own);
            }
            Best::None => match pipes::find(events, own, &pipes) {
                Some(Piped { writes, records, is_wrapped }) => {
                    let (own, behind) = own.split_at(records);
                    let mut unwritten = align(events, own, &writes, is_wrapped, &mut joins);
                    unwritten.extend_from_slice(behind);
                    joins.before_first_write += unwritten.len() as u64;
                    if keeps_unwritten {
                        rest.extend(unwritten);
                    }
                }
                None => rest.extend_from_slice(own),
            },
        }
    }
    *records = rest;
    joins
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

enum Best {
    None,
    One(Symbol),
    Several,
}

/// The path that shares the most folders with a log's name, from the end.
fn best(name: &str, candidates: &[Symbol], paths: &Interner) -> Best {
    let shared =
        |path: &str| path.rsplit('/').zip(name.rsplit('/')).take_while(|(one, other)| one == other).count();
    let most = candidates.iter().map(|&path| shared(paths.name(path))).max().unwrap_or(0);
    let mut found = candidates.iter().filter(|&&path| shared(paths.name(path)) == most);
    match (found.next(), found.next()) {
        (Some(&path), None) => Best::One(path),
        (Some(_), Some(_)) => Best::Several,
        (None, _) => Best::None,
    }
}

/// Records before the last one that are tried: threads that write at once may be traced in another
/// order than their bytes have in the file.
const WINDOW: usize = 64;

/// Gives each write its records, from the last. Returns the records that no traced call wrote, as
/// before strace attached. A record that `is_wrapped` has more than the bytes that were written.
fn align(
    events: &mut Points,
    records: &[LogRow],
    writes: &[Written],
    is_wrapped: bool,
    joins: &mut Joins,
) -> Vec<LogRow> {
    let mut is_used = vec![false; records.len()];
    let mut top = records.len();
    for write in writes.iter().rev() {
        while top > 0 && is_used[top - 1] {
            top -= 1;
        }
        let row = events.rows[write.row as usize];
        let Some(range) = written_by(events, records, &is_used[..top], &row, is_wrapped) else {
            joins.unknown_writes += 1;
            continue;
        };
        for (number, at) in range.enumerate() {
            let record = &records[at];
            let mut own = row;
            (own.text, own.log_file, own.log_line, own.channel) =
                (record.text, record.file, line_number(record.line), NONE);
            (own.ids, own.log) = (record.ids, record.log);
            if number == 0 {
                events.rows[write.row as usize] = own;
            } else {
                events.rows.push(own);
            }
            joins.write += 1;
            is_used[at] = true;
        }
    }
    records.iter().zip(is_used).filter(|(_, is_used)| !is_used).map(|(record, _)| record.clone()).collect()
}

/// The records of one write among those that are left. Sizes may differ, because a log that was
/// kept may have been edited; then the last record counts if it begins like the write.
fn written_by(
    events: &Points,
    records: &[LogRow],
    is_used: &[bool],
    row: &Point,
    is_wrapped: bool,
) -> Option<Range<usize>> {
    let known = events.text(row).as_bytes();
    let len = |at: usize| u64::from(records[at].text.1);
    let text = |at: usize| records[at].bytes(events);
    if is_wrapped {
        let line = pipes::first_line(events.text(row));
        let window = is_used.len().saturating_sub(WINDOW)..is_used.len();
        let has = |at: usize| std::str::from_utf8(text(at)).is_ok_and(|text| text.contains(line));
        let found = window.rev().find(|&at| !is_used[at] && !line.is_empty() && has(at))?;
        return Some(found..found + 1);
    }
    let starts = |at: usize| {
        let text = text(at);
        let len = known.len().min(text.len());
        len > 0 && known.get(..len) == text.get(..len)
    };
    // A record's text has no line end.
    let fits = |len: u64| (len..=len + 2).contains(&row.bytes);
    let last = is_used.len().checked_sub(1)?;
    if starts(last) && fits(len(last)) {
        return Some(last..last + 1);
    }
    let window = (is_used.len().saturating_sub(WINDOW)..last).rev().filter(|&at| !is_used[at]);
    let mut exact = window.filter(|&at| starts(at) && fits(len(at)));
    let is_whole = known.len() as u64 == row.bytes;
    if let Some(at) = exact.next()
        && (is_whole || !starts(last))
    {
        return Some(at..at + 1);
    }
    if starts(last) {
        return Some(last..last + 1);
    }
    // A write of several records begins with the first of them.
    let (mut at, mut bytes) = (is_used.len(), 0u64);
    while at > 0 && !is_used[at - 1] && bytes < row.bytes {
        at -= 1;
        bytes += len(at) + 1;
        if starts(at) && bytes.abs_diff(row.bytes) <= 1 {
            return Some(at..is_used.len());
        }
    }
    None
}
