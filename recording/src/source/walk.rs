//! The files of a folder, in sorted order.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(super) const HIDDEN: &str = "hidden";
const NO_FILE: &str = "neither a file nor a folder";
const LINK: &str = "link to a file or folder that was already read";

/// True for the reasons of skipped entries that hold no data of their own.
pub fn loses_nothing(reason: &str) -> bool {
    matches!(reason, HIDDEN | NO_FILE | LINK | super::REPEATED | "empty" | "blank")
}

/// An entry of a folder.
pub(super) enum Found {
    /// A file and its size.
    File { path: PathBuf, bytes: u64 },
    /// An entry that is not read.
    Skipped { path: PathBuf, reason: String },
    /// An entry that the operating system refuses to open or describe.
    Unreadable { path: PathBuf, error: io::Error },
}

/// Walks a folder and its subfolders. Links are followed, but nothing is visited twice, so a cycle
/// of links ends.
pub(super) struct Walk {
    root: PathBuf,
    root_is_folder: bool,
    /// Entries to visit; the next one is last.
    ahead: Vec<PathBuf>,
    /// Canonical paths of the folders and files visited so far.
    seen: HashSet<PathBuf>,
}

impl Walk {
    /// # Errors
    ///
    /// If the path does not exist or cannot be inspected.
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        let root_is_folder = fs::metadata(root)?.is_dir();
        Ok(Self { root: root.to_owned(), root_is_folder, ahead: vec![root.to_owned()], seen: HashSet::new() })
    }

    /// The given path, if it is not a folder. It may be a pipe or a device.
    pub(super) fn lone_file(&self) -> Option<&Path> {
        (!self.root_is_folder).then_some(&self.root)
    }

    fn look(&mut self, path: PathBuf) -> io::Result<Option<Found>> {
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if is_hidden && path != self.root {
            return Ok(Some(Found::Skipped { path, reason: HIDDEN.to_owned() }));
        }
        let metadata = fs::metadata(&path)?;
        if !metadata.is_dir() && !metadata.is_file() {
            return Ok(Some(Found::Skipped { path, reason: NO_FILE.to_owned() }));
        }
        let true_path = fs::canonicalize(&path)?;
        if self.seen.contains(&true_path) {
            let reason = LINK.to_owned();
            return Ok(Some(Found::Skipped { path, reason }));
        }
        self.seen.insert(true_path);
        if metadata.is_file() {
            return Ok(Some(Found::File { path, bytes: metadata.len() }));
        }
        let mut children =
            fs::read_dir(&path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        children.sort_unstable_by(|a, b| b.cmp(a));
        self.ahead.append(&mut children);
        Ok(None)
    }
}

impl Iterator for Walk {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        while let Some(path) = self.ahead.pop() {
            match self.look(path.clone()) {
                Ok(Some(found)) => return Some(found),
                Ok(None) => {}
                Err(error) => return Some(Found::Unreadable { path, error }),
            }
        }
        None
    }
}
