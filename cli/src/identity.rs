//! Recognises a file under any name, so that no output overwrites an input.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
#[cfg(unix)]
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::output::shown;
use crate::probe;

/// Identifies a file: by device and inode on Unix, by its canonical path elsewhere.
#[cfg(unix)]
pub(crate) type Identity = (u64, u64);
#[cfg(not(unix))]
pub(crate) type Identity = PathBuf;

#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it may fail")]
pub(crate) fn identity(metadata: &Metadata, _path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
pub(crate) fn identity(_metadata: &Metadata, path: &Path) -> Option<Identity> {
    fs::canonicalize(path).ok()
}

pub(crate) fn identity_of(path: &Path) -> Option<Identity> {
    identity(&fs::metadata(path).ok()?, path)
}

/// The identity of an open file; `path` is where it was opened.
pub(crate) fn identity_of_open(file: &File, path: &Path) -> Option<Identity> {
    identity(&file.metadata().ok()?, path)
}

pub(crate) fn input_identity(input: &Path) -> Option<Identity> {
    if is_standard(input) { standard_input() } else { identity_of(input) }
}

/// True if the input is this file, or a folder that contains it at any depth.
pub(crate) fn holds(input: &Path, file: &Identity) -> bool {
    if input_identity(input).as_ref() == Some(file) {
        return true;
    }
    if is_standard(input) || !input.is_dir() {
        return false;
    }
    // The reader skips files that are not recordings, such as the parameters of an earlier run.
    entries(input)
        .find(|entry| identity_of(entry).as_ref() == Some(file))
        .is_some_and(|file| probe::is_recording(&file))
}

/// All entries below a folder that the reader would visit: links are followed, hidden entries are
/// skipped, and each folder is listed once so that cyclic links end.
pub(crate) fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let mut seen = HashSet::from([identity_of(folder)]);
    let mut folders = vec![folder.to_owned()];
    let mut found = Vec::new();
    std::iter::from_fn(move || {
        loop {
            if let Some(path) = found.pop() {
                return Some(path);
            }
            let inside = fs::read_dir(folders.pop()?);
            for path in inside.into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path()) {
                if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
                    continue;
                }
                if path.is_dir() && seen.insert(identity_of(&path)) {
                    folders.push(path.clone());
                }
                found.push(path);
            }
        }
    })
}

#[cfg(unix)]
fn standard(stream: std::os::fd::BorrowedFd<'_>) -> Option<Identity> {
    let file = File::from(stream.try_clone_to_owned().ok()?);
    let metadata = file.metadata().ok()?;
    // Writing to a terminal or pipe overwrites nothing.
    if metadata.is_file() { identity(&metadata, Path::new("-")) } else { None }
}

#[cfg(unix)]
pub(crate) fn standard_input() -> Option<Identity> {
    standard(std::os::fd::AsFd::as_fd(&io::stdin()))
}

#[cfg(unix)]
pub(crate) fn standard_output() -> Option<Identity> {
    standard(std::os::fd::AsFd::as_fd(&io::stdout()))
}

#[cfg(unix)]
pub(crate) fn standard_error() -> Option<Identity> {
    standard(std::os::fd::AsFd::as_fd(&io::stderr()))
}

#[cfg(not(unix))]
pub(crate) fn standard_error() -> Option<Identity> {
    None
}

#[cfg(not(unix))]
pub(crate) fn standard_input() -> Option<Identity> {
    None
}

#[cfg(not(unix))]
pub(crate) fn standard_output() -> Option<Identity> {
    None
}

pub(crate) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Refuses to print the result into a recording that is being read. Standard error is not checked,
/// because the error message itself would be written there.
pub(crate) fn printed_apart<'p>(inputs: impl IntoIterator<Item = &'p PathBuf>) -> Result<(), Failure> {
    let Some(output) = standard_output() else { return Ok(()) };
    match inputs.into_iter().find(|input| holds(input, &output)) {
        Some(input) => Err(Failure::Usage(format!(
            "standard output is the input file {}, which would be damaged; choose another file",
            shown(input)
        ))),
        None => Ok(()),
    }
}
