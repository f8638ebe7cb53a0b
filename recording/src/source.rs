//! Where recordings come from: files, folders, archives and compressed streams.
//!
//! [`read`] is the model's front door. It walks a folder in sorted order, opens tar archives and gz, xz and zst
//! streams however they are nested, finds each contained file's format from its content, and hands the file to that
//! format's reader. Nothing is written to disk: names inside archives are labels only.
//!
//! ```text
//! path -> walk -> unpack -> format::detect -> Format::read -> Sink
//!                   ^  |
//!                   +--+  archives in archives
//! ```

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use astracer_model::Format;
use astracer_model::sink::Sink;

mod label;
mod meter;
mod peek;
mod tarball;
mod unpack;
mod walk;

use unpack::{Refusal, Unpack};
use walk::{Found, Walk};

/// Bounds on the resources that reading a source may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes after decompression, over the whole source. A source that expands further is cut off there. Files that
    /// are stored plain do not count.
    pub expanded_bytes_max: u64,
    /// Bounds on one record. Its nesting limit applies to archives in archives too, which are never opened deeper than
    /// 8 levels, because each open decompressor holds its window.
    pub records: astracer_formats::Limits,
}

impl Default for Limits {
    /// 64 GiB expanded, and the defaults of the readers.
    fn default() -> Self {
        Self { expanded_bytes_max: 64 << 30, records: astracer_formats::Limits::default() }
    }
}

/// How to read a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The format of every contained file; `None` finds each one's from its content. Archives are opened either way.
    pub format: Option<Format>,
    /// What reading may use.
    pub limits: Limits,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The files that held traces, in the order read.
    pub files: Vec<FileSummary>,
    /// Bytes read as stored, before decompression.
    pub stored_bytes: u64,
}

/// One file that held traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSummary {
    /// Its name, with the archives that it lies in: `run.tar.xz/spans/nn.json`.
    pub name: Arc<str>,
    /// Its format, found or given.
    pub format: Format,
    /// Its size after decompression, as far as it was read.
    pub expanded_bytes: u64,
    /// Spans read from it.
    pub spans: u64,
}

/// Reads a file, a folder or an archive to its end; `-` is the standard input.
///
/// Files that hold no traces are [skipped](Sink::skipped) with the reason. Hidden files are skipped too, and so are
/// links that lead to something that is read anyway. What can't be read, ends early or is over a limit is a
/// [`Problem`](astracer_model::Problem) behind the good spans before it.
///
/// # Errors
///
/// If the path does not exist or can't be opened, or if nothing in it is a trace file.
pub fn read(path: &Path, options: &Options, sink: &mut dyn Sink) -> Result<Summary, SourceError> {
    let (stored, expanded) = (Cell::new(0), Cell::new(0));
    let mut unpack = Unpack::new(options, sink, &stored, &expanded);
    if is_standard_input(path) {
        unpack.input(Box::new(io::stdin().lock()), &"standard input".into());
        return finish(unpack, path);
    }
    let walk = Walk::new(path).map_err(|error| SourceError::open(path, error))?;
    if let Some(lone) = walk.lone_file() {
        let file = File::open(lone).map_err(|error| SourceError::open(path, error))?;
        unpack.input(Box::new(file), &label::of_path(lone));
        return finish(unpack, path);
    }
    for found in walk {
        if unpack.is_over() {
            break;
        }
        match found {
            Found::File { path, bytes } => {
                let before = stored.get();
                match File::open(&path) {
                    Ok(file) => unpack.input(Box::new(file), &label::of_path(&path)),
                    Err(error) => unpack.unreadable(&label::of_path(&path), 0, &error),
                }
                // A skipped file is read no further than its first bytes, but a display waits for all of them.
                stored.set(stored.get().max(before + bytes));
            }
            Found::Skipped { path, reason } => unpack.skip(&label::of_path(&path), &reason),
            Found::Unreadable { path, error } => unpack.unreadable(&label::of_path(&path), 0, &error),
        }
    }
    finish(unpack, path)
}

fn finish(unpack: Unpack<'_>, path: &Path) -> Result<Summary, SourceError> {
    let interrupted = unpack.is_interrupted();
    let (summary, first_refusal) = unpack.finish();
    if summary.files.is_empty() && !interrupted {
        return Err(SourceError(Kind::Unrecognised { path: label::of_path(path), first_refusal }));
    }
    Ok(summary)
}

/// Bytes that [`read`] will report as [progress](Sink::progress) on the way through a path: the sizes of its files as
/// stored. `None` if that can't be known beforehand, as for the standard input and pipes.
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

/// Why a source gave nothing at all.
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

    /// True if the path does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(&self.0, Kind::Open { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }

    /// True if the source was read, but nothing in it is a trace file.
    pub fn is_unrecognised(&self) -> bool {
        matches!(self.0, Kind::Unrecognised { .. })
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Open { path, error } if error.kind() == io::ErrorKind::NotFound => {
                write!(f, "'{path}' does not exist; check the path, or use '-' for the standard input")
            }
            Kind::Open { path, error } => write!(f, "can't open '{path}': {error}; check its permissions"),
            Kind::Unrecognised { path, first_refusal } => {
                write!(f, "no traces in '{path}'")?;
                match first_refusal {
                    Some(Refusal { name, reason }) if name == path => write!(f, ": {reason}")?,
                    Some(Refusal { name, reason }) => {
                        write!(f, "; the first file left out is '{name}': {reason}")?
                    }
                    None => {}
                }
                let names: Vec<_> = Format::ALL.iter().map(|format| format.name()).collect();
                write!(f, "; if it holds traces, name their format: {}", names.join(", "))
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
