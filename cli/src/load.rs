//! Reads a workload for a command, with progress, Ctrl-C, folding of names, and a record of what
//! was wrong with the input.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use astracer_causality::intake as causality;
use astracer_formats::detect::OTHER_SIGNALS;
use astracer_formats::logs;
use astracer_model::{Format, ProblemKind, Problems, Sink, Span, TraceId};
use astracer_recording::convert::Converted;
use astracer_recording::recording::{self, Intake, Keep, Recording};
use astracer_recording::source::{self, EventFileSummary, FileSummary, LogFileSummary};
use astracer_tuner::names::{Folded, NameFolding};
use astracer_tuner::tail::Outcomes;
use astracer_tuner::{Grouping, Stop, Workload};
use serde::Serialize;

use crate::failure::Failure;
use crate::interrupt;
use crate::output;
use crate::probe;
use crate::progress::Progress;
use crate::source::{LogReading, Reading, Source, limit_hint};

/// The number of examples shown for each kind of problem, also in JSON.
pub(crate) const EXAMPLES: usize = 3;
/// The number of skipped files that are named.
const SKIPPED_SHOWN: usize = 3;
/// The longest list of paths that is shown in full, in bytes.
const PATHS_SHOWN: usize = 120;

/// A recording, and what was read for it.
pub(crate) struct Loaded {
    pub(crate) recording: Recording,
    pub(crate) input: Input,
}

/// The files of a workload, and what was wrong with them.
#[derive(Debug, Serialize)]
pub(crate) struct Input {
    paths: Vec<String>,
    files: Vec<File>,
    skipped: Vec<Skipped>,
    skipped_count: u64,
    problems: Vec<ProblemCount>,
    folded_names: Option<Folded>,
}

#[derive(Debug, Serialize)]
struct File {
    name: String,
    format: &'static str,
    expanded_bytes: u64,
    spans: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_records: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<u64>,
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

/// Reads a workload.
pub(crate) fn load(args: &Source, stop: Stop<'_>) -> Result<Loaded, Failure> {
    load_keeping(args, Keep::default(), stop)
}

/// Reads a workload with the parts of spans that `keep` asks for, beside their times and names. A
/// signal ends the process.
pub(crate) fn load_keeping(args: &Source, keep: Keep, stop: Stop<'_>) -> Result<Loaded, Failure> {
    interrupt::answer_at_once_while_reading(stop, || read(args, keep, logs::Options::default(), stop))
}

/// As [`load_keeping`], for commands that read logs too.
pub(crate) fn load_with_logs(
    args: &Source,
    keep: Keep,
    logs: &LogReading,
    stop: Stop<'_>,
) -> Result<Loaded, Failure> {
    interrupt::answer_at_once_while_reading(stop, || read(args, keep, logs.options(), stop))
}

/// Reads another workload after something was found, so a signal must not end the process.
pub(crate) fn load_beside(args: &Source, labels: &[String], stop: Stop<'_>) -> Result<Loaded, Failure> {
    let keep = Keep { labels: labels.to_vec(), ..Keep::default() };
    read(args, keep, logs::Options::default(), stop)
}

/// Sees each span with its name and format; see [`Intake::watch_with`].
pub(crate) type Watch<'w> = dyn FnMut(&Span<'_>, &str, Option<Format>) + 'w;

fn read(args: &Source, keep: Keep, logs: logs::Options, stop: Stop<'_>) -> Result<Loaded, Failure> {
    args.check()?;
    let folding = RefCell::new(NameFolding::new(args.template()));
    let progress = Progress::reading(&args.paths);
    let mut intake = Intake::new(keep)
        .examples(EXAMPLES)
        .stop_when(|| stop.is_asked())
        .progress_to(|bytes| progress.inc(bytes));
    if args.naming.folds() {
        intake = intake.rename_with(|raw, out| folding.borrow_mut().fold(raw, out));
    }
    let files = read_paths(args, logs, stop, &mut intake)?;
    progress.finish();
    let recording = intake.finish();
    // If reading or joining was stopped, the recording has no traces.
    if stop.is_asked() {
        return Err(Failure::Interrupted);
    }
    let folded_names = args.naming.folds().then(|| folding.borrow().folded());
    let (skipped, skipped_count) = recording.skipped();
    let input = Input::new(&args.paths, files, recording.problems(), skipped, skipped_count, folded_names);
    input.check(args.reading.bounds.strict, recording.trace_count() == 0)?;
    Ok(Loaded { recording, input })
}

fn read_paths(
    args: &Source,
    logs: logs::Options,
    stop: Stop<'_>,
    sink: &mut dyn Sink,
) -> Result<Vec<File>, Failure> {
    let options = source::Options { logs, ..args.reading.options() };
    let mut files = Vec::new();
    for path in &args.paths {
        let asked = || stop.is_asked();
        let summary = source::read_waiting(path, &options, &asked, sink)
            .map_err(|error| Failure::Job(error.to_string()))?;
        files.extend(summary.files.iter().map(File::new));
        files.extend(summary.log_files.iter().map(File::of_logs));
        files.extend(summary.event_files.iter().map(File::of_events));
    }
    Ok(files)
}

/// A recording of spans alone, or with log records and system calls.
pub(crate) enum Causal {
    Spans(Box<Recording>),
    All(Box<causality::Collected>),
}

/// Reads a workload with its system calls and, if `with_logs`, its log records. A signal ends the
/// process.
pub(crate) fn load_causes(
    args: &Source,
    keep: Keep,
    with_logs: bool,
    watch: Option<Box<Watch<'_>>>,
    stop: Stop<'_>,
) -> Result<(Causal, Input), Failure> {
    interrupt::answer_at_once_while_reading(stop, || read_causes(args, keep, with_logs, watch, stop))
}

fn read_causes(
    args: &Source,
    keep: Keep,
    with_logs: bool,
    watch: Option<Box<Watch<'_>>>,
    stop: Stop<'_>,
) -> Result<(Causal, Input), Failure> {
    args.check()?;
    let folding = RefCell::new(NameFolding::new(args.template()));
    let progress = Progress::reading(&args.paths);
    let mut intake = Intake::new(keep)
        .examples(EXAMPLES)
        .stop_when(|| stop.is_asked())
        .progress_to(|bytes| progress.inc(bytes));
    if args.naming.folds() {
        intake = intake.rename_with(|raw, out| folding.borrow_mut().fold(raw, out));
    }
    if let Some(watch) = watch {
        intake = intake.watch_with(watch);
    }
    let intake = causality::Intake::of(intake);
    let mut intake = if with_logs { intake } else { intake.without_logs() };
    let files = read_paths(args, logs::Options::default(), stop, &mut intake)?;
    progress.finish();
    let found = match intake.spans_only() {
        Ok(recording) => Causal::Spans(Box::new(recording)),
        Err(intake) => Causal::All(Box::new(intake.finish())),
    };
    if stop.is_asked() {
        return Err(Failure::Interrupted);
    }
    let folded_names = args.naming.folds().then(|| folding.borrow().folded());
    let (recording, is_empty) = match &found {
        Causal::Spans(recording) => (&**recording, recording.trace_count() == 0),
        Causal::All(collected) => (&collected.recording, collected.events.is_empty()),
    };
    let (skipped, skipped_count) = recording.skipped();
    let input = Input::new(&args.paths, files, recording.problems(), skipped, skipped_count, folded_names);
    input.check(args.reading.bounds.strict, is_empty)?;
    Ok((found, input))
}

/// Fails early, before other work, if a recording cannot be opened or holds no traces.
pub(crate) fn try_to_read(path: &Path, reading: &Reading, stop: Stop<'_>) -> Result<(), Failure> {
    if is_read_once(path) {
        return Ok(());
    }
    probe::first(path, &reading.options(), stop).map_err(|error| Failure::Job(error.to_string()))
}

/// True for standard input and pipes under any name, which can be read only once.
pub(crate) fn is_read_once(path: &Path) -> bool {
    path.as_os_str() == "-" || path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// Warnings about attributes in keys and policies that the recording does not have, or that
/// policies in a service do not see.
pub(crate) fn absent(key: &Grouping, recording: &Recording, outcomes: Option<&Outcomes>) -> Vec<String> {
    let of_key = key.absent(recording).into_iter().map(|name| {
        let name = output::escaped(&name);
        format!("key attribute {name} is on no root span or resource in this recording; the key is the same without it")
    });
    let of_policies = outcomes.map(Outcomes::absent).unwrap_or_default().into_iter().map(|name| {
        let name = output::escaped(name);
        format!("policy attribute {name} is on no span in this recording (lists are not supported)")
    });
    let added = outcomes.map(Outcomes::added).unwrap_or_default().into_iter().map(|name| {
        let name = output::escaped(name);
        format!(
            "policy attribute {name} is added at export, so policies in a service do not see it unless its own code sets it"
        )
    });
    of_key.chain(of_policies).chain(added).collect()
}

/// Reduces a recording to what replays need.
pub(crate) fn workload(
    args: &Source,
    recording: &Recording,
    key: &Grouping,
    stop: Stop<'_>,
) -> Result<Workload, Failure> {
    let key = key.clone().with_template(args.template());
    Workload::unless_stopped(recording, &key, stop).ok_or(Failure::Interrupted)
}

impl File {
    fn new(summary: &FileSummary) -> Self {
        Self {
            name: summary.name.to_string(),
            format: summary.format.name(),
            expanded_bytes: summary.expanded_bytes,
            spans: summary.spans,
            log_records: None,
            events: None,
        }
    }

    fn of_logs(summary: &LogFileSummary) -> Self {
        Self {
            name: summary.name.to_string(),
            format: summary.format.name(),
            expanded_bytes: summary.expanded_bytes,
            spans: 0,
            log_records: Some(summary.records),
            events: None,
        }
    }
}

impl File {
    fn of_events(summary: &EventFileSummary) -> Self {
        Self {
            name: summary.name.to_string(),
            format: summary.format.name(),
            expanded_bytes: summary.expanded_bytes,
            spans: 0,
            log_records: None,
            events: Some(summary.events),
        }
    }
}

impl Input {
    fn new(
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
        }
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
        let shown = skipped.iter().take(SKIPPED_SHOWN);
        let shown = shown.map(|(file, reason)| Skipped { file: file.to_string(), reason: reason.clone() });
        input.skipped = shown.collect();
        input
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
            let _ = writeln!(text, "skipped: {} without traces", output::plural(others, "file"));
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

/// A trace id as its recorder is likely to have written it: 16 digits if it fits in 64 bits,
/// else 32.
pub(crate) fn trace_id(id: TraceId) -> String {
    u64::try_from(id.0).map_or_else(|_| id.to_string(), |id| format!("{id:016x}"))
}

/// Nanoseconds since the epoch as date and time of day.
pub(crate) fn utc(unix_ns: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(unix_ns)).to_string()
}
