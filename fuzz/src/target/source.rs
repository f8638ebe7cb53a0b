//! The guarantees of a source of recordings on any file: no panic, no more expanded bytes than the
//! limit allows, a summary that agrees with the spans that the sink received, and the same result
//! the second time.

use std::cell::RefCell;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;

use astracer_model::problem::Problem;
use astracer_model::sink::{Record, Sink};
use astracer_model::span::Span;
use astracer_recording::source::{self, Limits, Options, Summary};
use tempfile::NamedTempFile;

/// Small enough for a seed of a few hundred bytes to be a bomb.
const LIMITS: Limits = Limits {
    expanded_bytes_max: 64 << 10,
    records: astracer_formats::Limits { record_bytes_max: 16 << 10, nesting_max: 10 },
};

pub(super) fn check(data: &[u8]) {
    let options = Options { limits: LIMITS, ..Options::default() };
    let first = with_file(data, |path| read(path, &options));
    // Unpacking is slow, so only some inputs are read a second time.
    if data.len().is_multiple_of(4) {
        assert_eq!(first, with_file(data, |path| read(path, &options)), "the second time");
    }
    let (Ok(summary), seen) = first else { return };
    assert_eq!(summary.files.iter().map(|file| file.spans).sum::<u64>(), seen.spans, "spans in the summary");
    assert!(summary.stored_bytes <= data.len() as u64, "stored bytes: {}", summary.stored_bytes);
    // Plain files do not count towards the limit, and no plain file can be longer than the input.
    let expanded: u64 = summary.files.iter().map(|file| file.expanded_bytes).sum();
    assert!(expanded <= LIMITS.expanded_bytes_max + data.len() as u64, "expanded bytes: {expanded}");
}

#[derive(Debug, Default, PartialEq)]
struct Collected {
    spans: u64,
    problems: Vec<Problem>,
    skipped: Vec<(Arc<str>, String)>,
}

impl Sink for Collected {
    fn span(&mut self, _span: Span<'_>, _record: Record<'_>) {
        self.spans += 1;
    }

    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    fn skipped(&mut self, file: &Arc<str>, reason: &str) {
        self.skipped.push((Arc::clone(file), reason.to_owned()));
    }
}

fn read(path: &std::path::Path, options: &Options) -> (Result<Summary, String>, Collected) {
    let mut seen = Collected::default();
    let result = source::read(path, options, &mut seen);
    (result.map_err(|error| error.to_string()), seen)
}

/// The entry point takes a path, so each thread has one file, which is rewritten for each input.
fn with_file<T>(data: &[u8], use_path: impl FnOnce(&std::path::Path) -> T) -> T {
    thread_local! {
        static FILE: RefCell<NamedTempFile> = RefCell::new(NamedTempFile::new().expect("a temporary file"));
    }
    FILE.with_borrow_mut(|file| {
        fill(file, data).expect("room for a temporary file");
        use_path(file.path())
    })
}

fn fill(file: &mut NamedTempFile, data: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(data)?;
    file.as_file().set_len(data.len() as u64)
}
