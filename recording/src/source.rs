//! Sources of recordings: files, folders, archives and compressed streams.
//!
//! [`read`] walks a folder in sorted order and opens tar archives and gz, xz and zst streams,
//! however they are nested. It detects the format of each contained file and passes the file to
//! that format's reader. Nothing is written to disk: names inside archives are only labels.
//!
//! ```text
//! path -> walk -> unpack -> detect -> astracer_formats::read -> Sink
//!                   ^  |
//!                   +--+  archives in archives
//! ```

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use astracer_formats::logs::Reading;
use astracer_model::files;
use astracer_model::problem::Problem;
use astracer_model::sink::{Content, Record, Sink, Wants};
use astracer_model::span::Span;
use astracer_model::text::escaped;
use astracer_model::time::UnixNanos;
use astracer_model::{EventFormat, Format, LogFormat};

mod framed;
mod gzip;
mod label;
mod meter;
mod patient;
mod peek;
mod tail;
mod unpack;
mod walk;
mod whole;

use patient::Patient;
use tail::Tail;
use unpack::{Refusal, Unpack};
use walk::{Found, Walk};
use whole::Whole;

pub use walk::loses_nothing;

/// The reason why a file that was given twice is skipped.
pub const REPEATED: &str = "it was read before";

/// Bounds on the resources that reading a source may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes after decompression, over the whole source. Reading stops at the limit. Uncompressed
    /// files do not count.
    pub expanded_bytes_max: u64,
    /// Bounds on one record. The nesting limit also applies to archives in archives. These are
    /// never opened deeper than 8 levels, because each open decompressor holds its window in
    /// memory.
    pub records: astracer_formats::Limits,
}

impl Default for Limits {
    /// 64 GiB expanded, and the defaults of the readers.
    fn default() -> Self {
        Self { expanded_bytes_max: 64 << 30, records: astracer_formats::Limits::default() }
    }
}

/// Options for reading a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The format of every contained file; if `None`, it is detected from each file's content.
    /// Archives are opened in either case.
    pub format: Option<Format>,
    /// The forms of logs that their content does not state.
    pub logs: astracer_formats::logs::Options,
    /// Bounds on resources.
    pub limits: Limits,
    /// Wait at the end of a plain file of log lines for what is written to it.
    pub follow: bool,
}

/// A summary of the files that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The files with traces, in the order read.
    pub files: Vec<FileSummary>,
    /// The files with log records, in the order read; empty unless the sink
    /// [wants them](astracer_model::sink::Wants::logs).
    pub log_files: Vec<LogFileSummary>,
    /// The files with events, in the order read; empty unless the sink
    /// [wants them](astracer_model::sink::Wants::events).
    pub event_files: Vec<EventFileSummary>,
    /// Bytes read, before decompression.
    pub stored_bytes: u64,
}

/// One file with log records.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogFileSummary {
    /// The file's name, including the archives that contain it.
    pub name: Arc<str>,
    /// The format, detected or given.
    pub format: LogFormat,
    /// Bytes read, after decompression.
    pub expanded_bytes: u64,
    /// The number of records read from the file.
    pub records: u64,
    /// The layout and the parts of times that were assumed.
    pub reading: Reading,
    /// The earliest and the latest time of a record.
    pub times: Option<(UnixNanos, UnixNanos)>,
    /// Records of the severities of errors and above.
    pub errors: u64,
    /// Records of the severities of warnings.
    pub warnings: u64,
}

/// One file with events.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventFileSummary {
    /// The file's name, including the archives that contain it.
    pub name: Arc<str>,
    /// The detected format.
    pub format: EventFormat,
    /// Bytes read, after decompression.
    pub expanded_bytes: u64,
    /// The number of events read from the file.
    pub events: u64,
}

/// One file with traces.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSummary {
    /// The file's name, including the archives that contain it: `run.tar.xz/spans/nn.json`.
    pub name: Arc<str>,
    /// The format, detected or given.
    pub format: Format,
    /// Bytes read, after decompression.
    pub expanded_bytes: u64,
    /// The number of spans read from the file. A file of OTLP requests may hold log records too.
    pub spans: u64,
}

/// Reads a file, a folder or an archive to its end; `-` is the standard input.
///
/// Files without traces are [skipped](Sink::skipped) with a reason, and so are hidden files and
/// links to something that is read anyway. A file that cannot be read, ends early or exceeds a
/// limit is a [`Problem`], which is reported after the valid spans before it.
///
/// # Errors
///
/// If the path does not exist or cannot be opened, or if it contains no trace file.
pub fn read(path: &Path, options: &Options, sink: &mut dyn Sink) -> Result<Summary, SourceError> {
    read_unless(path, options, None, sink)
}

/// Like [`read`], but also ends soon after `stop` returns true while it waits for the standard
/// input or a pipe. The sink should report [stopped](Sink::stopped) then too, because the data read
/// so far ends there.
///
/// # Errors
///
/// As [`read`].
pub fn read_waiting(
    path: &Path,
    options: &Options,
    stop: &dyn Fn() -> bool,
    sink: &mut dyn Sink,
) -> Result<Summary, SourceError> {
    read_unless(path, options, Some(stop), sink)
}

fn read_unless(
    path: &Path,
    options: &Options,
    stop: Option<&dyn Fn() -> bool>,
    sink: &mut dyn Sink,
) -> Result<Summary, SourceError> {
    let (stored, expanded) = (Cell::new(0), Cell::new(0));
    let mut unpack = Unpack::new(options, sink, &stored, &expanded);
    let unreadable = |error| SourceError::open(path, error);
    if is_standard_input(path) {
        let input: Box<dyn Read> = match stop {
            Some(stop) => Box::new(Patient::new(|| Ok(io::stdin().lock()), stop).map_err(unreadable)?),
            None => Box::new(io::stdin().lock()),
        };
        unpack.input(input, &"standard input".into(), Some(SystemTime::now()));
        return finish(unpack, path);
    }
    let walk = Walk::new(path).map_err(unreadable)?;
    if let Some(lone) = walk.lone_file() {
        if options.follow && lone.metadata().is_ok_and(|metadata| metadata.is_file()) {
            let tail = Box::new(Tail::open(lone).map_err(unreadable)?);
            unpack.input(tail, &label::of_path(lone), changed(lone));
            return finish(unpack, path);
        }
        let stop = stop.filter(|_| lone.metadata().is_ok_and(|metadata| !metadata.is_file()));
        let input: Box<dyn Read> = match stop {
            Some(stop) => {
                let pipe = lone.to_owned();
                Box::new(Patient::new(move || files::open_input(&pipe), stop).map_err(unreadable)?)
            }
            None => Box::new(Whole::open(lone).map_err(unreadable)?),
        };
        unpack.input(input, &label::of_path(lone), changed(lone));
        return finish(unpack, path);
    }
    for found in walk {
        if unpack.is_over() {
            break;
        }
        match found {
            Found::File { path, bytes } => {
                let before = stored.get();
                match Whole::open(&path) {
                    Ok(file) => unpack.input(Box::new(file), &label::of_path(&path), changed(&path)),
                    Err(error) => unpack.unreadable(&label::of_path(&path), 0, &error),
                }
                // A skipped file is read only at its beginning, but progress displays expect all of
                // its bytes.
                stored.set(stored.get().max(before + bytes));
            }
            Found::Skipped { path, reason } => unpack.skip(&label::of_path(&path), &reason),
            Found::Unreadable { path, error } => unpack.unreadable(&label::of_path(&path), 0, &error),
        }
    }
    finish(unpack, path)
}

/// The time of a file's last change; `None` if the system does not know it.
fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}

fn finish(unpack: Unpack<'_>, path: &Path) -> Result<Summary, SourceError> {
    let interrupted = unpack.is_interrupted();
    let (summary, first_refusal) = unpack.finish();
    let is_empty = summary.files.is_empty() && summary.log_files.is_empty() && summary.event_files.is_empty();
    if is_empty && !interrupted {
        return Err(SourceError(Kind::Unrecognised { path: label::of_path(path), first_refusal }));
    }
    Ok(summary)
}

/// A file of a source, and what its first bytes show.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Surveyed {
    /// The file.
    pub path: PathBuf,
    /// Its name in reports.
    pub name: Arc<str>,
    /// The content; `None` if the file will be skipped.
    pub content: Option<Content>,
    /// True for an archive, whose other members were not looked at.
    pub is_archive: bool,
    /// The reason for skipping it.
    pub reason: String,
}

/// Looks at the first bytes of each file of a path, with the content that a sink which wants
/// everything would be given.
///
/// # Errors
///
/// If the path does not exist or cannot be opened.
pub fn survey(path: &Path, options: &Options) -> Result<Vec<Surveyed>, SourceError> {
    struct First {
        name: Arc<str>,
        content: Option<Content>,
        is_archive: bool,
        reason: String,
    }

    impl Sink for First {
        fn span(&mut self, _: Span<'_>, _: Record<'_>) {}

        fn file(&mut self, file: &Arc<str>, content: Content) {
            (self.content, self.is_archive) = (Some(content), *file != self.name);
        }

        fn wants(&self) -> Wants {
            Wants { logs: true, events: true }
        }

        fn problem(&mut self, problem: Problem) {
            self.reason = problem.detail;
        }

        fn skipped(&mut self, file: &Arc<str>, reason: &str) {
            self.is_archive |= *file != self.name;
            reason.clone_into(&mut self.reason);
        }

        fn stopped(&self) -> bool {
            self.content.is_some()
        }
    }

    let unreadable = |error| SourceError::open(path, error);
    let mut all = Vec::new();
    for found in Walk::new(path).map_err(unreadable)? {
        let (path, reason) = match found {
            Found::File { path, .. } => (path, String::new()),
            Found::Skipped { path, reason } => (path, reason),
            Found::Unreadable { path, error } => (path, error.to_string()),
        };
        let name = label::of_path(&path);
        let mut seen = First { name, content: None, is_archive: false, reason };
        if seen.reason.is_empty() {
            let (stored, expanded) = (Cell::new(0), Cell::new(0));
            let name = Arc::clone(&seen.name);
            match files::open(&path) {
                Ok(file) => Unpack::new(options, &mut seen, &stored, &expanded).input(
                    Box::new(file),
                    &name,
                    changed(&path),
                ),
                Err(error) => seen.reason = error.to_string(),
            }
        }
        let First { name, content, is_archive, reason } = seen;
        all.push(Surveyed { path, name, content, is_archive, reason });
    }
    Ok(all)
}

/// The number of bytes that [`read`] will report as [progress](Sink::progress) for a path: the
/// stored sizes of its files. `None` if the size is unknown in advance, as for the standard input
/// and pipes.
pub fn stored_size(path: &Path) -> Option<u64> {
    if is_standard_input(path) {
        return None;
    }
    let walk = Walk::new(path).ok()?;
    if let Some(lone) = walk.lone_file() {
        return lone.metadata().ok().filter(|metadata| metadata.is_file()).map(|metadata| metadata.len());
    }
    Some(walk.map(|found| if let Found::File { bytes, .. } = found { bytes } else { 0 }).sum())
}

fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The reason why a source yielded no traces.
#[derive(Debug)]
pub struct SourceError(Kind);

#[derive(Debug)]
enum Kind {
    Open { path: Arc<str>, error: io::Error },
    Unrecognised { path: Arc<str>, first_refusal: Option<Refusal> },
}

impl SourceError {
    fn open(path: &Path, error: io::Error) -> Self {
        Self(Kind::Open { path: label::of_path(path), error })
    }

    /// Returns true if the path does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(&self.0, Kind::Open { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }

    /// Returns true if the source was read but contains no trace file.
    pub fn is_unrecognised(&self) -> bool {
        matches!(self.0, Kind::Unrecognised { .. })
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Open { path, error } if error.kind() == io::ErrorKind::NotFound => {
                let path = escaped(path);
                write!(f, "'{path}' does not exist; check the path, or use '-' for the standard input")
            }
            Kind::Open { path, error } => {
                write!(f, "can't open '{}': {error}; check the path and its permissions", escaped(path))
            }
            Kind::Unrecognised { path, first_refusal } => {
                write!(f, "no traces in '{}'", escaped(path))?;
                let Some(Refusal { name, reason, format_may_help }) = first_refusal else { return Ok(()) };
                let (name, reason) = (escaped(name), escaped(reason));
                if name == escaped(path) {
                    write!(f, ": {reason}")?;
                } else {
                    write!(f, "; the first skipped file is '{name}': {reason}")?;
                }
                if *format_may_help {
                    let names: Vec<_> = Format::ALL.iter().map(|format| format.name()).collect();
                    write!(
                        f,
                        "; if it does contain traces, name their format with --format: {}",
                        names.join(", ")
                    )?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for SourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Kind::Open { error, .. } => Some(error),
            Kind::Unrecognised { .. } => None,
        }
    }
}
