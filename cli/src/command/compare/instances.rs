//! Opens files of instances, compressed or not.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use astracer_compare::file::InstancesFile;
use astracer_tuner::Stop;
use flate2::bufread::MultiGzDecoder;

use crate::bounded::open_input;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{escaped, plural, shown};

/// The prefix by which a file's kind is recognised.
const BEGINNING: u64 = 64 << 10;

/// Reads files of instances. `None` if the first path is not one.
pub(super) fn read(paths: &[&PathBuf], stop: Stop<'_>) -> Result<Option<InstancesFile>, Failure> {
    if !paths.first().is_some_and(|path| is_one(path)) {
        return Ok(None);
    }
    let read = || {
        let mut all = InstancesFile::default();
        for (run, path) in (0..).zip(paths) {
            let failed = |error: String| Failure::Job(format!("{}: {error}", shown(path)));
            if !is_one(path) {
                return Err(failed("not a file of instances, but the first one is".to_owned()));
            }
            let input = open(path).map_err(|error| failed(error.to_string()))?;
            all.read(input, run).map_err(|error| failed(error.to_string()))?;
        }
        all.sort();
        Ok(Some(all))
    };
    interrupt::answer_at_once_while_reading(stop, read)
}

/// The number of lines that are not JSON, and a line of text for each file that has some.
pub(super) fn unreadable(file: &InstancesFile, paths: &[&PathBuf]) -> (u64, String) {
    let (lines, examples) = file.unreadable();
    let mut text = String::new();
    if lines > 0 {
        let _ = writeln!(text, "skipped: {} without an instance", plural(lines, "line"));
    }
    for (run, error) in examples {
        let path = paths.get(*run as usize).map_or_else(String::new, |path| shown(path));
        let _ = writeln!(text, "  {path}: {}", escaped(&error.to_string()));
    }
    (lines, text)
}

/// True for a regular file that begins with an instance. Errors show when it is read.
fn is_one(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    let mut beginning = Vec::new();
    let read = open(path).and_then(|input| input.take(BEGINNING).read_to_end(&mut beginning));
    read.is_ok() && InstancesFile::is_one(&beginning)
}

fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let mut input = BufReader::new(open_input(path)?);
    let magic = input.fill_buf()?;
    Ok(if magic.starts_with(&[0x1f, 0x8b]) {
        Box::new(BufReader::new(MultiGzDecoder::new(input)))
    } else if magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Box::new(BufReader::new(zstd::Decoder::with_buffer(input)?))
    } else {
        Box::new(input)
    })
}
