//! The files that a command read: their facts, and what was wrong with them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use astracer_formats::detect::OTHER_SIGNALS;
use astracer_formats::logs;
use astracer_model::{ProblemKind, Problems};
use astracer_recording::convert::Converted;
use astracer_recording::recording::{self, Recording};
use astracer_recording::source::{self, EventFileSummary, FileSummary, LogFileSummary};
use astracer_tuner::names::Folded;
use serde::Serialize;

use super::utc;
use crate::failure::Failure;
use crate::output;
use crate::source::limit_hint;

/// The number of skipped files that are named.
const SKIPPED_SHOWN: usize = 3;
/// The number of skipped files that are named on standard error, or in JSON.
const SKIPPED_MAX: usize = 100;
/// The number of files of logs that are described.
const LOGS_SHOWN: usize = 10;
/// The longest list of paths that is shown in full, in bytes.
const PATHS_SHOWN: usize = 120;

/// "2 of 3".
fn part([some, all]: [u64; 2]) -> String {
    format!("{} of {}", output::count(some), output::count(all))
}

/// Advice about a log that was not recognised.
const LAYOUT_ADVICE: &str =
    "if a file is a log, state its layout with --layout '[GLOB=]PATTERN' (docs/recordings.md)";

/// The files of a workload, and what was wrong with them.
#[derive(Debug, Serialize)]
pub(crate) struct Input {
    paths: Vec<String>,
    files: Vec<File>,
    skipped: Vec<Skipped>,
    skipped_count: u64,
    problems: Vec<ProblemCount>,
    folded_names: Option<Folded>,
    /// True for a command that reads logs too.
    #[serde(skip)]
    reads_logs: bool,
    /// The zone of times that state none.
    log_zone: String,
    /// Log records and their traces, if both were read.
    log_traces: Option<LogTraces>,
    /// Whether traces have weights (`ot=th`), so that what was kept is not the traffic.
    is_sample: bool,
    /// If only some traces have a weight, their number and that of all.
    #[serde(skip)]
    some_weighted: Option<[u64; 2]>,
}

/// The log records that were read beside traces.
#[derive(Clone, Copy, Debug, Serialize)]
struct LogTraces {
    records: u64,
    /// Records that state no trace.
    without: u64,
    /// Records that state a trace that is not here.
    elsewhere: u64,
}

impl LogTraces {
    fn of(recording: &Recording) -> Option<Self> {
        let stated = recording.logs_stated();
        let records = recording.logs().len() as u64;
        let found = Self { records, without: stated.none, elsewhere: stated.elsewhere };
        (records > 0 && recording.trace_count() > 0).then_some(found)
    }

    /// A sentence, which is a warning if no record belongs to a trace.
    fn line(self) -> String {
        let Self { records, without, elsewhere } = self;
        let warning = if without + elsewhere == records { "warning: " } else { "" };
        let (without, elsewhere, records) =
            (output::count(without), output::count(elsewhere), output::plural(records, "log record"));
        format!("{warning}{without} of {records} state no trace, {elsewhere} state one that is not here\n")
    }
}

#[derive(Debug, Serialize)]
pub(super) struct File {
    name: String,
    format: &'static str,
    expanded_bytes: u64,
    spans: u64,
    #[serde(flatten)]
    log: Option<Log>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<u64>,
}

/// Facts about a file of logs.
#[derive(Debug, Serialize)]
struct Log {
    log_records: u64,
    layout: String,
    /// Lines that are part of a record; 0 for formats that are not lines.
    lines: u64,
    /// The earliest and the latest time, in UTC.
    first: Option<String>,
    last: Option<String>,
    /// The parts of times that the file does not state.
    assumed: Vec<&'static str>,
    /// True if a layout is stated for the file that none of its first lines follows.
    layout_unfit: bool,
    errors: u64,
    warnings: u64,
}

impl Log {
    fn new(summary: &LogFileSummary) -> Self {
        let assumed = summary.reading.assumed;
        let parts = [
            (assumed.zone, "zone"),
            (assumed.year, "year"),
            (assumed.date, "date"),
            (assumed.start, "start"),
            (assumed.day_or_month, "order of day and month"),
        ];
        let layout = match &*summary.reading.layout {
            "" => summary.format.name(),
            layout => layout,
        };
        Self {
            log_records: summary.records,
            layout: layout.to_owned(),
            lines: summary.reading.lines,
            first: summary.times.map(|(first, _)| utc(first.0)),
            last: summary.times.map(|(_, last)| utc(last.0)),
            assumed: parts.into_iter().filter(|&(is, _)| is).map(|(_, name)| name).collect(),
            layout_unfit: summary.reading.is_layout_unfit,
            errors: summary.errors,
            warnings: summary.warnings,
        }
    }

    /// The facts as a line of text: `3 records (log4j), 2026-05-14T09:00:00.000Z to 09:00:02.000Z`.
    fn line(&self) -> String {
        let mut line = format!("{} ({})", output::plural(self.log_records, "record"), self.layout);
        match (&self.first, &self.last) {
            (Some(first), Some(last)) if first == last => {
                let _ = write!(line, ", all at {first}");
            }
            (Some(first), Some(last)) => {
                let same_day = first.split_once('T').filter(|(day, _)| last.starts_with(day));
                let last = same_day.map_or(&**last, |(day, _)| &last[day.len() + 1..]);
                let _ = write!(line, ", {first} to {last}");
            }
            _ => line.push_str(", without times"),
        }
        for (number, noun) in [(self.errors, "error"), (self.warnings, "warning")] {
            if number > 0 {
                let _ = write!(line, ", {}", output::plural(number, noun));
            }
        }
        if !self.assumed.is_empty() {
            let _ = write!(line, "; assumed: {}", self.assumed.join(", "));
        }
        if self.layout_unfit {
            line.push_str("; none of its first lines follows the layout stated");
        }
        line
    }
}

#[derive(Debug, Serialize)]
struct Skipped {
    file: String,
    reason: String,
}

/// A kind of problem, with the number of its cases.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ProblemCount {
    pub(crate) kind: &'static str,
    pub(crate) describe: &'static str,
    pub(crate) count: u64,
    pub(crate) loses_data: bool,
    pub(crate) examples: Vec<String>,
    /// Remedies for the problem, for messages.
    #[serde(skip)]
    pub(crate) hints: Vec<&'static str>,
}

impl File {
    pub(super) fn new(summary: &FileSummary) -> Self {
        Self {
            name: summary.name.to_string(),
            format: summary.format.name(),
            expanded_bytes: summary.expanded_bytes,
            spans: summary.spans,
            log: None,
            events: None,
        }
    }

    pub(super) fn of_logs(summary: &LogFileSummary) -> Self {
        Self {
            name: summary.name.to_string(),
            format: summary.format.name(),
            expanded_bytes: summary.expanded_bytes,
            spans: 0,
            log: Some(Log::new(summary)),
            events: None,
        }
    }

    pub(super) fn of_events(summary: &EventFileSummary) -> Self {
        Self {
            name: summary.name.to_string(),
            format: summary.format.name(),
            expanded_bytes: summary.expanded_bytes,
            spans: 0,
            log: None,
            events: Some(summary.events),
        }
    }
}

impl Input {
    pub(super) fn new(
        paths: &[PathBuf],
        files: Vec<File>,
        problems: &Problems,
        skipped: &[recording::Skipped],
        skipped_count: u64,
        folded_names: Option<Folded>,
    ) -> Self {
        let counts = problems.counts().map(|(kind, count)| ProblemCount {
            kind: kind.slug(),
            describe: kind.describe(),
            count,
            loses_data: kind.loses_data(),
            examples: problems
                .examples()
                .iter()
                .filter(|problem| problem.kind == kind)
                .map(|problem| format!("{}: {}", problem.place, problem.detail))
                .collect(),
            hints: match kind {
                ProblemKind::Limit => problems.limits().filter_map(limit_hint).collect(),
                _ => Vec::new(),
            },
        });
        Self {
            paths: paths.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
            files,
            skipped: skipped
                .iter()
                .map(|skipped| Skipped { file: skipped.file.to_string(), reason: skipped.reason.clone() })
                .collect(),
            skipped_count,
            problems: counts.collect(),
            folded_names,
            reads_logs: false,
            log_zone: logs::Zone::default().to_string(),
            is_sample: false,
            some_weighted: None,
            log_traces: None,
        }
    }

    /// The same with facts about the log records of a recording, and the zone of those that state
    /// none.
    pub(crate) fn with_logs(self, recording: &Recording, zone: &logs::Zone) -> Self {
        let log_traces = LogTraces::of(recording);
        Self { reads_logs: true, log_zone: zone.to_string(), log_traces, ..self }
    }

    /// The input of a conversion.
    pub(crate) fn of_conversion(paths: &[PathBuf], files: &[FileSummary], converted: &Converted) -> Self {
        Self::new(
            paths,
            files.iter().map(File::new).collect(),
            &converted.problems,
            &converted.skipped,
            converted.skipped_count,
            None,
        )
    }

    /// The input of `order`: files of events.
    pub(crate) fn of_events(
        paths: &[PathBuf],
        files: &[EventFileSummary],
        log_files: &[LogFileSummary],
        span_files: &[FileSummary],
        problems: &Problems,
        skipped: &[(Arc<str>, String)],
    ) -> Self {
        let files = files.iter().map(File::of_events);
        let files = files.chain(log_files.iter().map(File::of_logs)).chain(span_files.iter().map(File::new));
        let mut input = Self::new(paths, files.collect(), problems, &[], skipped.len() as u64, None);
        let shown = skipped.iter().take(SKIPPED_MAX);
        let shown = shown.map(|(file, reason)| Skipped { file: file.to_string(), reason: reason.clone() });
        input.skipped = shown.collect();
        input
    }

    /// One line for each file of logs: how many records of which layout it gave, from when to when.
    pub(crate) fn logs(&self) -> String {
        let logs: Vec<_> =
            self.files.iter().filter_map(|file| Some((&file.name, file.log.as_ref()?))).collect();
        let mut text = String::new();
        for (name, log) in logs.iter().take(LOGS_SHOWN) {
            let _ = writeln!(text, "{}: {}", output::escaped(name), log.line());
        }
        if logs.len() > LOGS_SHOWN {
            let (_, rest) = logs.split_at(LOGS_SHOWN);
            let sum = |of: fn(&Log) -> u64| rest.iter().map(|(_, log)| of(log)).sum();
            let _ = writeln!(
                text,
                "{} more: {}, {}, {} (--json lists them)",
                output::plural(rest.len() as u64, "file"),
                output::plural(sum(|log| log.log_records), "record"),
                output::plural(sum(|log| log.errors), "error"),
                output::plural(sum(|log| log.warnings), "warning"),
            );
        }
        let zoneless = logs.iter().filter(|(_, log)| log.assumed.contains(&"zone")).count() as u64;
        if zoneless > 0 {
            let _ = writeln!(
                text,
                "the times of {} state no zone and are read as {}; --log-zone names another",
                output::plural(zoneless, "file"),
                self.log_zone
            );
        }
        text.extend(self.log_traces.map(LogTraces::line));
        text
    }

    fn left_unread(&self) -> impl Iterator<Item = &Skipped> {
        self.skipped.iter().filter(|skipped| !source::loses_nothing(&skipped.reason))
    }

    /// Files that a command of logs did not read although they hold something, with the reasons.
    fn unread(&self) -> impl Iterator<Item = String> {
        self.left_unread().map(|skipped| {
            format!("{}: {}", output::escaped(&skipped.file), output::escaped(&skipped.reason))
        })
    }

    /// Names the files that were not read on standard error, in case nobody looks at the end of a
    /// report.
    pub(crate) fn name_unread(&self) {
        for skipped in self.left_unread() {
            output::note(&format!("warning: not read: {}", output::escaped(&skipped.file)));
        }
    }

    /// Lines for standard error, where the result is not a report: files that were not read, and
    /// parts of others.
    pub(crate) fn warn(&self) {
        let named = self.unread().count() as u64;
        self.unread().for_each(|unread| output::note(&format!("warning: not read: {unread}")));
        if named > 0 {
            output::note(LAYOUT_ADVICE);
        }
        let more = self.skipped_count.saturating_sub(self.skipped.len() as u64);
        if more > 0 {
            output::note(&format!("warning: not read: {}", output::plural(more, "more file")));
        }
        for file in &self.files {
            if let Some(log) = file.log.as_ref().filter(|log| log.layout_unfit) {
                let (name, layout) = (output::escaped(&file.name), &log.layout);
                output::note(&format!(
                    "warning: {name}: read as {layout}; no line follows the layout stated"
                ));
            }
        }
        for problem in self.problems.iter().filter(|problem| problem.loses_data) {
            let example = problem.examples.first().map_or("", |example| example);
            let count = output::count(problem.count);
            output::note(&format!(
                "warning: {}: {count}, such as {}",
                problem.describe,
                output::escaped(example)
            ));
        }
    }

    /// The message of a command of logs that found no event.
    pub(crate) fn without_events(&self) -> String {
        let mut text = format!("no events in {}", self.shown());
        let (unread, mut problems) = (self.unread().next(), self.problems.iter());
        if let Some(unread) = &unread {
            let _ = write!(text, "\n{unread}\n{LAYOUT_ADVICE}");
        }
        if let Some(problem) = problems.find(|problem| !problem.examples.is_empty()) {
            let _ = write!(text, "\n{}: {}", problem.describe, output::escaped(&problem.examples[0]));
        }
        text
    }

    /// As [`Self::check`], for commands that read logs: also fails with `strict` if a file was not
    /// read.
    pub(crate) fn check_logs(&self, strict: bool, no_spans: bool) -> Result<(), Failure> {
        let unread: Vec<_> = self.unread().map(|unread| format!("not read: {unread}")).collect();
        if strict && !unread.is_empty() {
            return Err(Failure::Job(format!(
                "{}\n{LAYOUT_ADVICE}, or omit --strict to use the rest",
                unread.join("\n")
            )));
        }
        self.check(strict, no_spans)
    }

    /// Fails if there are no spans, or with `strict` if any data was lost.
    pub(crate) fn check(&self, strict: bool, no_spans: bool) -> Result<(), Failure> {
        let example = |problem: &ProblemCount| {
            let example = problem.examples.first().map_or("", |example| example);
            let hints: String = problem.hints.iter().map(|hint| format!("; {hint}")).collect();
            format!("{}: {}{hints}", problem.describe, output::escaped(example))
        };
        let losses: Vec<_> = self.problems.iter().filter(|problem| problem.loses_data).map(example).collect();
        if strict && !losses.is_empty() {
            return Err(Failure::Job(format!("{}\nomit --strict to use the rest", losses.join("\n"))));
        }
        if no_spans {
            // Prefer a problem that an option solves: input cut at a limit also looks truncated.
            let by_limit = self.problems.iter().find(|problem| !problem.hints.is_empty());
            let first = by_limit.or(self.problems.first());
            let reason =
                first.map_or_else(String::new, |problem| format!("\nfirst problem: {}", example(problem)));
            return Err(Failure::Job(format!("no spans in {}{reason}", self.shown())));
        }
        Ok(())
    }

    /// The paths as the user wrote them.
    pub(crate) fn paths(&self) -> &[String] {
        &self.paths
    }

    /// The first line of a report: the recording, its format and its files.
    pub(crate) fn heading(&self) -> String {
        let mut formats: Vec<_> = self.files.iter().map(|file| file.format).collect();
        formats.sort_unstable();
        formats.dedup();
        let files = output::plural(self.files.len() as u64, "file");
        format!("{} ({}, {files})\n", self.shown(), formats.join(", "))
    }

    /// The paths as one line of text: all of them if they fit, else the first.
    fn shown(&self) -> String {
        let all = self.paths.join(", ");
        match self.paths.split_first() {
            Some((first, rest)) if !rest.is_empty() && all.len() > PATHS_SHOWN => {
                format!("{} and {} more", output::escaped(first), rest.len())
            }
            _ => output::escaped(&all).into_owned(),
        }
    }

    /// The path as the argument of another command; a placeholder if it is long or there are
    /// several.
    pub(crate) fn arguments(&self) -> String {
        match &self.paths[..] {
            [path] if path.len() <= PATHS_SHOWN && !path.contains(char::is_whitespace) => {
                output::escaped(path).into_owned()
            }
            _ => "RECORDING".to_owned(),
        }
    }

    /// The problems as JSON shows them.
    pub(crate) fn problems(&self) -> &[ProblemCount] {
        &self.problems
    }

    /// One line for each kind of problem, without the examples that `inspect` shows.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let problems = self.problems.iter().filter(|problem| problem.loses_data).map(|problem| {
            let hints: String = problem.hints.iter().map(|hint| format!("; {hint}")).collect();
            let count = output::count(problem.count);
            format!(
                "{count} parts of the input were left out ({}); inspect lists them{hints}",
                problem.describe
            )
        });
        problems.collect()
    }

    /// The same with whether traces have weights.
    pub(super) fn of_sample(self, recording: &Recording) -> Self {
        let counts = [recording.traces_with_threshold(), recording.trace_count()].map(|count| count as u64);
        Self {
            is_sample: recording.is_weighted(),
            some_weighted: (counts[0] < counts[1]).then_some(counts),
            ..self
        }
    }

    /// Whether traces have weights.
    pub(crate) fn is_sample(&self) -> bool {
        self.is_sample
    }

    /// Whether all traces have weights, so that this is certainly a sample.
    pub(crate) fn is_all_weighted(&self) -> bool {
        self.is_sample && self.some_weighted.is_none()
    }

    /// A warning for commands that need all traces and count each once. If some traces have no
    /// weight, everything may have been exported.
    pub(crate) fn sample_warning(&self) -> Option<String> {
        let says = match self.some_weighted {
            None => "the recording is itself a sample with weights (ot=th), and each of its traces counts once here; use a \
                     recording of all traces"
                .to_owned(),
            Some(counts) => format!(
                "{} traces have weights (ot=th), and each trace counts once here; if the recording is a sample, use one of \
                 all traces",
                part(counts)
            ),
        };
        self.is_sample.then_some(says)
    }

    /// A hint for commands that have `--weights`, which estimates `what`.
    pub(crate) fn sample_hint(&self, what: &str) -> Option<String> {
        let says = match self.some_weighted {
            None => "these traces have weights (ot=th), so the figures are of what was kept;".to_owned(),
            Some(counts) => {
                format!("{} traces have weights (ot=th); if the recording is a sample,", part(counts))
            }
        };
        self.is_sample.then(|| format!("{says} --weights estimates {what}"))
    }

    /// Lines at the end of a report: folded names, skipped files, and problems with examples.
    pub(crate) fn footing(&self) -> String {
        let more = |text: &mut String, all: u64, shown: usize| {
            if all > shown as u64 {
                let _ = writeln!(text, "  ... and {} more", output::count(all - shown as u64));
            }
        };
        let mut text = String::new();
        if let Some(folded) = self.folded_names.as_ref().filter(|folded| folded.raw_names > 0) {
            let _ = writeln!(
                text,
                "ids: {} folded into {}, {} of them into {}; --names raw keeps them apart",
                output::plural(folded.raw_names, "name"),
                output::count(folded.names),
                output::count(folded.largest_raw_names),
                output::brief(folded.largest.as_deref().unwrap_or_default()),
            );
        }
        // Logs may lie beside traces, so they are counted and not listed.
        let is_signal = |skipped: &&Skipped| skipped.reason == OTHER_SIGNALS;
        let signals = self.skipped.iter().filter(is_signal).count() as u64;
        if signals > 0 {
            let _ = writeln!(text, "not read: {} of OTLP logs or metrics", output::plural(signals, "file"));
        }
        let others = self.skipped_count - signals;
        if others > 0 {
            let files = output::plural(others, "file");
            let _ = match self.reads_logs {
                true => writeln!(text, "not read: {files}"),
                false => writeln!(text, "skipped: {files} without traces"),
            };
            let named = self.skipped.iter().filter(|skipped| !is_signal(skipped));
            let named: Vec<_> = named.take(SKIPPED_SHOWN).collect();
            for skipped in &named {
                let _ = writeln!(
                    text,
                    "  {}: {}",
                    output::escaped(&skipped.file),
                    output::escaped(&skipped.reason)
                );
            }
            more(&mut text, others, named.len());
            if self.reads_logs && self.unread().next().is_some() {
                let _ = writeln!(text, "  {LAYOUT_ADVICE}");
            }
        }
        for problem in &self.problems {
            let _ = writeln!(text, "problem: {}: {}", problem.describe, output::count(problem.count));
            for hint in &problem.hints {
                let _ = writeln!(text, "  ({hint})");
            }
            for example in &problem.examples {
                let _ = writeln!(text, "  {}", output::escaped(example));
            }
            more(&mut text, problem.count, problem.examples.len());
        }
        text
    }
}
