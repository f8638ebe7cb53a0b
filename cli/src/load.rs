//! Reads a workload for a command, with progress, Ctrl-C, folding of names, and a record of what
//! was wrong with the input.

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use astracer_causality::intake as causality;
use astracer_formats::logs;
use astracer_model::{Format, Sink, Span, TraceId};
use astracer_recording::recording::{Intake, Keep, Recording};
use astracer_recording::source;
use astracer_tuner::known::is_added;
use astracer_tuner::names::NameFolding;
use astracer_tuner::tail::Outcomes;
use astracer_tuner::{Grouping, Stop, Workload};

use crate::failure::Failure;
use crate::interrupt;
use crate::output;
use crate::probe;
use crate::progress::Progress;
use crate::source::{LogReading, Reading, Source};

mod input;

use input::File;
pub(crate) use input::{Input, ProblemCount};

/// The number of examples shown for each kind of problem, also in JSON.
pub(crate) const EXAMPLES: usize = 3;

/// A recording, and what was read for it.
pub(crate) struct Loaded {
    pub(crate) recording: Recording,
    pub(crate) input: Input,
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

/// As [`load_keeping`], for commands that read logs too. The recording may have logs alone.
pub(crate) fn load_with_logs(
    args: &Source,
    keep: Keep,
    logs: &LogReading,
    stop: Stop<'_>,
) -> Result<Loaded, Failure> {
    let options = logs.options();
    let zone = options.zone.clone();
    let loaded = interrupt::answer_at_once_while_reading(stop, || read(args, keep, options, stop))?;
    let Loaded { recording, input } = loaded;
    let input = input.with_logs(&recording, &zone);
    input.check_logs(args.reading.bounds.strict, false)?;
    Ok(Loaded { recording, input })
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
    let (folding, progress) =
        (RefCell::new(NameFolding::new(args.template())), Progress::reading(&args.paths));
    let mut intake = intake(args, keep, &folding, &progress, stop);
    let files = read_paths(args, logs, stop, &mut intake)?;
    progress.finish();
    let recording = intake.finish();
    // If reading or joining was stopped, the recording has no traces.
    if stop.is_asked() {
        return Err(Failure::Interrupted);
    }
    let is_empty = recording.trace_count() == 0 && recording.logs().len() == 0;
    let input = input(args, files, &recording, &folding, is_empty)?;
    Ok(Loaded { recording, input })
}

fn intake<'i>(
    args: &Source,
    keep: Keep,
    folding: &'i RefCell<NameFolding>,
    progress: &'i Progress,
    stop: Stop<'i>,
) -> Intake<'i> {
    let intake = Intake::new(keep)
        .examples(EXAMPLES)
        .stop_when(move || stop.is_asked())
        .progress_to(|bytes| progress.inc(bytes));
    if args.naming.folds() {
        intake.rename_with(|raw, out| folding.borrow_mut().fold(raw, out))
    } else {
        intake
    }
}

/// Describes what was read, and checks it.
fn input(
    args: &Source,
    files: Vec<File>,
    recording: &Recording,
    folding: &RefCell<NameFolding>,
    is_empty: bool,
) -> Result<Input, Failure> {
    let folded_names = args.naming.folds().then(|| folding.borrow().folded());
    let (skipped, skipped_count) = recording.skipped();
    let input = Input::new(&args.paths, files, recording.problems(), skipped, skipped_count, folded_names)
        .of_sample(recording);
    input.check(args.reading.bounds.strict, is_empty)?;
    Ok(input)
}

fn read_paths(
    args: &Source,
    logs: logs::Options,
    stop: Stop<'_>,
    sink: &mut dyn Sink,
) -> Result<Vec<File>, Failure> {
    let options = source::Options { logs, ..args.reading.options() };
    let (mut files, mut refused) = (Vec::new(), None);
    for path in &args.paths {
        let asked = || stop.is_asked();
        match source::read_waiting(path, &options, &asked, sink) {
            Ok(summary) => {
                files.extend(summary.files.iter().map(File::new));
                files.extend(summary.log_files.iter().map(File::of_logs));
                files.extend(summary.event_files.iter().map(File::of_events));
            }
            // Among logs it is named like any other file that was not read.
            Err(error) if error.is_unrecognised() && sink.wants().logs => {
                refused.get_or_insert(error);
            }
            Err(error) => return Err(Failure::Job(error.to_string())),
        }
    }
    match refused {
        Some(error) if files.is_empty() => Err(Failure::Job(error.to_string())),
        _ => Ok(files),
    }
}

/// A recording of spans alone, or with log records and system calls.
pub(crate) enum Causal {
    Spans(Box<Recording>),
    All(Box<causality::Collected>),
}

/// Reads a workload with its system calls and, with options for them, its log records. A signal
/// ends the process.
pub(crate) fn load_causes(
    args: &Source,
    keep: Keep,
    logs: Option<&LogReading>,
    watch: Option<Box<Watch<'_>>>,
    stop: Stop<'_>,
) -> Result<(Causal, Input), Failure> {
    interrupt::answer_at_once_while_reading(stop, || read_causes(args, keep, logs, watch, stop))
}

fn read_causes(
    args: &Source,
    keep: Keep,
    logs: Option<&LogReading>,
    watch: Option<Box<Watch<'_>>>,
    stop: Stop<'_>,
) -> Result<(Causal, Input), Failure> {
    args.check()?;
    let (folding, progress) =
        (RefCell::new(NameFolding::new(args.template())), Progress::reading(&args.paths));
    let mut intake = intake(args, keep, &folding, &progress, stop);
    if let Some(watch) = watch {
        intake = intake.watch_with(watch);
    }
    let intake = causality::Intake::of(intake).with_writes();
    let mut intake = if logs.is_some() { intake } else { intake.without_logs() };
    let options = logs.map(LogReading::options).unwrap_or_default();
    let zone = options.zone.clone();
    let files = read_paths(args, options, stop, &mut intake)?;
    progress.finish();
    let found = match intake.spans_only() {
        Ok(recording) => Causal::Spans(Box::new(recording)),
        Err(intake) => Causal::All(Box::new(intake.finish())),
    };
    if stop.is_asked() {
        return Err(Failure::Interrupted);
    }
    let (recording, is_empty) = match &found {
        Causal::Spans(recording) => (&**recording, recording.trace_count() == 0),
        Causal::All(collected) => (&collected.recording, collected.events.is_empty()),
    };
    let input = input(args, files, recording, &folding, is_empty)?;
    let input = if logs.is_some() { input.with_logs(recording, &zone) } else { input };
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
    let absent = key.absent(recording);
    let added_later = key.attributes().into_iter().filter(|name| is_added(name) && !absent.contains(name));
    let of_key = of_key.chain(added_later.map(|name| {
        let name = output::escaped(&name);
        format!("key attribute {name} is added at export, so keys in a service lack it unless its own code sets it")
    }));
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

/// A trace id as its recorder is likely to have written it: 16 digits if it fits in 64 bits,
/// else 32.
pub(crate) fn trace_id(id: TraceId) -> String {
    u64::try_from(id.0).map_or_else(|_| id.to_string(), |id| format!("{id:016x}"))
}

/// Nanoseconds since the epoch as date and time of day.
pub(crate) fn utc(unix_ns: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(unix_ns)).to_string()
}
