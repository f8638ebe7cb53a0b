//! `--merged` of logs alone: the records are printed while the files are read.
//!
//! Spans, system calls and messages may order records otherwise than their times do. Logs alone do
//! not, so a merge of streams gives the same order in bounded memory.

use std::collections::HashSet;
use std::fs;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use astracer_causality::points::LOCAL;
use astracer_formats::logs;
use astracer_model::Problems;
use astracer_model::log::{LogRecord, Severity};
use astracer_model::sink::{Content, Record};
use astracer_order::text::Stamps;
use astracer_recording::merging::{self, Kept, Merged, Stream};
use astracer_recording::origin::{Written, hosts_of_files, program, stated};
use astracer_recording::sets;
use astracer_recording::source::{self, Surveyed};
use astracer_recording::stem::stem;
use astracer_tuner::Stop;

use super::estimated::Estimated;
use super::members;
use super::merged::{self, Form, Line, Printer};
use super::{Aim, Order, report};
use crate::failure::Failure;
use crate::interrupt;
use crate::load::Input;
use crate::output;

/// One record on its way from its reader to the printer.
struct Item {
    time: Option<u64>,
    host: Arc<str>,
    process: Arc<str>,
    severity: Severity,
    body: Box<str>,
}

/// Prints the merged log. False if it takes the whole order: because of other options, or because
/// not all files are logs.
pub(super) fn run(
    args: &Order,
    hosts: &[String],
    paths: &[PathBuf],
    options: &source::Options,
    stop: Stop<'_>,
) -> Result<bool, Failure> {
    let is_plain = args.goal == Aim::Time
        && args.offsets.is_empty()
        && args.same.is_empty()
        && args.clock_pattern.is_none()
        && !args.bounds.strict
        && [&args.out, &args.shiviz, &args.perfetto, &args.html].into_iter().all(Option::is_none)
        && !args.ask.is_any();
    let refused = || match args.merge.follow {
        true => Err(Failure::Usage(
            "--follow takes logs alone, without questions, selections, --strict and other outputs".to_owned(),
        )),
        false => Ok(false),
    };
    let Some(form) = args.merge.merged.filter(|_| is_plain) else { return refused() };
    let Some(streams) = streams(hosts, paths, options)? else { return refused() };
    interrupt::answer_at_once(stop)?;
    let host = |number: usize, log: &LogRecord<'_>, file: &Arc<str>| {
        streams.host(&streams.streams[number].host, &stated(&log.resource).host, file).into()
    };
    let clocks = match args.raw_times {
        true => Estimated::default(),
        false => Estimated::of(&streams.streams, options, &host),
    };
    clocks.says().iter().for_each(|says| output::note(says));
    let mut printer = Printer::new(form, Stamps::default()).map_err(|error| Failure::output(&error))?;
    let (mut above, mut failed, mut count) = (None, None, 0u64);
    let make = |number: usize, log: &LogRecord<'_>, record: Record<'_>| {
        item(args, form, &clocks, &streams.streams[number].host, &streams, log, record)
    };
    let merged = merging::merge(&streams.streams, options, &make, |kept| {
        let Some(kept) = kept else {
            failed = printer.flush().err();
            return failed.is_none();
        };
        let Kept { writer, item: Item { time, host, process, severity, body }, .. } = kept;
        let is_ordered = above.replace(writer).is_none_or(|above| above == writer);
        let line = Line { time, host: &host, process: &process, severity, body: &body };
        count += 1;
        failed = printer.line(if is_ordered { ' ' } else { '?' }, &line).err();
        failed.is_none()
    });
    let late =
        failed.map_or_else(|| printer.flush(), Err).map_err(|error: io::Error| Failure::output(&error));
    Failure::after(late, told(args, paths, &merged, count))?;
    Ok(true)
}

/// Notes on standard error behind the log.
fn told(args: &Order, paths: &[PathBuf], merged: &Merged, count: u64) -> Result<(), Failure> {
    let input = Input::of_events(paths, &[], &merged.files, &[], &merged.problems, &merged.skipped);
    input.warn();
    merged.steps.iter().for_each(|steps| output::note(&report::steps(steps)));
    match merged.failed.first() {
        Some(failed) => Err(Failure::Job(failed.clone())),
        None if count == 0 && !args.merge.is_filter() => Err(merged::nothing()),
        None => Ok(()),
    }
}

/// The streams of all paths, and the hosts that files state by their place.
struct Streams {
    streams: Vec<Stream>,
    of_files: std::collections::HashMap<Arc<str>, String>,
}

impl Streams {
    /// The host of a record: as the user gives it, as the record states it, or by its file's place.
    fn host<'h>(&'h self, given: &'h str, own: &'h str, file: &Arc<str>) -> &'h str {
        match (given, own, self.of_files.get(file)) {
            ("", "", Some(host)) => host,
            ("", "", None) => LOCAL,
            ("", host, _) => host,
            (given, ..) => given,
        }
    }
}

/// Groups the files of all paths. `None` if any is no log, or if there are too many.
fn streams(
    hosts: &[String],
    paths: &[PathBuf],
    options: &source::Options,
) -> Result<Option<Streams>, Failure> {
    let mut found: Vec<(&str, Surveyed)> = Vec::new();
    let mut streams: Vec<Stream> = Vec::new();
    let (mut seen, mut skipped) = (HashSet::new(), Vec::new());
    for (host, path) in hosts.iter().zip(paths) {
        if path.as_os_str() == "-"
            || fs::metadata(path).is_ok_and(|about| !about.is_file() && !about.is_dir())
        {
            // A pipe can be read only once, so it is taken for a log.
            streams.push(Stream { host: host.clone(), files: vec![path.clone()] });
            continue;
        }
        let files = source::survey(path, options).map_err(|error| Failure::Job(error.to_string()))?;
        for file in files {
            let true_path = fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
            if !seen.insert((host, true_path)) {
                continue;
            }
            match file.content {
                Some(Content::Logs(_)) if !file.is_archive => found.push((host, file)),
                None if !file.is_archive => {
                    if !source::loses_nothing(&file.reason) {
                        skipped.push((file.name, file.reason));
                    }
                }
                _ => return Ok(None),
            }
        }
    }
    let names: Vec<String> = found.iter().map(|(host, file)| format!("{host}={}", file.name)).collect();
    streams.extend(sets::grouped(&names).into_iter().map(|group| Stream {
        host: found[group[0]].0.to_owned(),
        files: group.iter().map(|&at| found[at].1.path.clone()).collect(),
    }));
    let named: Vec<_> = found.iter().map(|(_, file)| (Arc::clone(&file.name), Written::Beside)).collect();
    if !(1..=merging::STREAMS_MAX).contains(&streams.len()) {
        return Ok(None);
    }
    // Named now, because the end may be far away.
    Input::of_events(&[], &[], &[], &[], &Problems::default(), &skipped).warn();
    Ok(Some(Streams { streams, of_files: hosts_of_files(&named) }))
}

/// The item of a record, if it is wanted.
fn item(
    args: &Order,
    form: Form,
    clocks: &Estimated,
    given: &str,
    streams: &Streams,
    log: &LogRecord<'_>,
    record: Record<'_>,
) -> Option<Kept<Item>> {
    let file = &record.place.file;
    let own = stated(&log.resource);
    let host = streams.host(given, &own.host, file);
    let ahead = clocks.ahead(host);
    let time = log.when().map(|time| time.0.saturating_add_signed(ahead.saturating_neg()));
    if args.merge.is_filter() {
        let text = String::from_utf8_lossy(record.bytes);
        if !args.merge.wants(log.severity, time.unwrap_or(0), log.trace_id, &text) {
            return None;
        }
    }
    let program = program(&log.resource);
    let set;
    let process = match &*program {
        "" => {
            set = sets::of(file).0;
            stem(&set)
        }
        program => program,
    };
    let writer =
        BuildHasherDefault::<DefaultHasher>::default().hash_one((host, process, &*own.process, &*log.thread));
    let body = match form {
        Form::Text => merged::body(log),
        Form::Jsonl => members::members(log, file, record.place.line),
    };
    let severity = log.severity;
    let item = Item { time, host: host.into(), process: process.into(), severity, body: body.into() };
    Some(Kept { writer, ahead, item })
}

/// The options of reading.
pub(super) fn options(args: &Order) -> source::Options {
    let logs = logs::Options { clock_pattern: args.clock_pattern.clone(), ..args.logs.options() };
    source::Options { logs, follow: args.merge.follow, ..args.bounds.options() }
}
