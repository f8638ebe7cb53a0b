//! The folder: numbered file names, and the sizes of the complete files.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use astracer_model::destination::{ErrorKind, ExportError};

/// The file extensions. Files with any of them count, whatever compression is set now.
const EXTENSIONS: [&str; 3] = ["jsonl", "jsonl.gz", "jsonl.zst"];

/// The number of names that are tried. Other processes may have created files since the folder was
/// listed.
const TAKEN_MAX: u32 = 1_000;

/// A complete file.
#[derive(Debug)]
struct Complete {
    path: PathBuf,
    bytes: u64,
}

/// The files with our prefix in a folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    prefix: String,
    extension: &'static str,
    /// Complete files, oldest first.
    complete: VecDeque<Complete>,
    complete_bytes: u64,
    last_number: u64,
    /// The file that was created last.
    current: PathBuf,
    deleted: u64,
}

impl Folder {
    pub(super) fn open(path: PathBuf, prefix: &str, extension: &'static str) -> Result<Self, ExportError> {
        let failed = |error: io::Error| ExportError::file(path.display().to_string(), &error);
        if prefix.is_empty() || prefix.contains(['/', '\\']) {
            let detail = format!("invalid file name prefix `{prefix}`");
            return Err(ExportError::new(ErrorKind::File, path.display().to_string(), detail));
        }
        fs::create_dir_all(&path).map_err(failed)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Some(number) = entry.file_name().to_str().and_then(|name| number(name, prefix)) else {
                continue;
            };
            let metadata = entry.metadata().map_err(failed)?;
            if metadata.is_file() {
                found.push((number, Complete { path: entry.path(), bytes: metadata.len() }));
            }
        }
        found.sort_by_key(|&(number, _)| number);
        let last_number = found.last().map_or(0, |&(number, _)| number);
        let complete: VecDeque<_> = found.into_iter().map(|(_, file)| file).collect();
        Ok(Folder {
            prefix: prefix.to_owned(),
            extension,
            complete_bytes: complete.iter().map(|file| file.bytes).sum(),
            complete,
            last_number,
            current: PathBuf::new(),
            deleted: 0,
            path,
        })
    }

    pub(super) fn target(&self) -> String {
        self.path.display().to_string()
    }

    /// The total size of the complete files in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.complete_bytes
    }

    pub(super) fn deleted(&self) -> u64 {
        self.deleted
    }

    /// Creates the next file.
    pub(super) fn create(&mut self) -> Result<(File, &Path), ExportError> {
        for _ in 0..TAKEN_MAX {
            self.last_number += 1;
            let name = format!("{}-{:08}.{}", self.prefix, self.last_number, self.extension);
            self.current = self.path.join(name);
            // In append mode, a file that somebody truncates gets no hole.
            match OpenOptions::new().append(true).create_new(true).open(&self.current) {
                Ok(file) => return Ok((file, &self.current)),
                // Another process writes to this folder too.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(ExportError::file(self.current.display().to_string(), &error)),
            }
        }
        let detail = format!("the next {TAKEN_MAX} file names are taken");
        Err(ExportError::new(ErrorKind::File, self.target(), detail))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// True if the file created last still exists.
    pub(super) fn has_current(&self) -> bool {
        self.current.exists()
    }

    /// Removes the file created last, which is empty.
    pub(super) fn discard(&mut self) {
        // The number is not used again, so a file that cannot be removed does no harm.
        let _ = fs::remove_file(std::mem::take(&mut self.current));
    }

    /// Records that the file created last is complete.
    pub(super) fn completed(&mut self, bytes: u64) {
        self.complete_bytes += bytes;
        self.complete.push_back(Complete { path: std::mem::take(&mut self.current), bytes });
    }

    /// Forgets complete files that somebody has removed.
    pub(super) fn look_again(&mut self) {
        self.complete.retain(|file| file.path.exists());
        self.complete_bytes = self.complete.iter().map(|file| file.bytes).sum();
    }

    /// Deletes the oldest complete file; false if there is none.
    pub(super) fn delete_oldest(&mut self) -> Result<bool, ExportError> {
        let Some(oldest) = self.complete.front() else { return Ok(false) };
        match fs::remove_file(&oldest.path) {
            Ok(()) => self.deleted += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(ExportError::file(oldest.path.display().to_string(), &error)),
        }
        self.complete_bytes -= oldest.bytes;
        self.complete.pop_front();
        Ok(true)
    }

    /// Syncs the names of new files to the disk. Does nothing on systems where folders cannot be
    /// opened.
    pub(super) fn sync(&self) {
        let _ = File::open(&self.path).and_then(|folder| folder.sync_all());
    }
}

/// The number in a file name, if this module could have made the name.
fn number(name: &str, prefix: &str) -> Option<u64> {
    let (digits, extension) = name.strip_prefix(prefix)?.strip_prefix('-')?.split_once('.')?;
    let ours = EXTENSIONS.contains(&extension) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if ours { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_have_numbers() {
        assert_eq!(number("traces-00000012.jsonl", "traces"), Some(12));
        assert_eq!(number("traces-123456789.jsonl.zst", "traces"), Some(123_456_789));
        for other in [
            "traces-00000012.json",
            "traces-.jsonl",
            "traces-+1.jsonl",
            "other-00000012.jsonl",
            "traces.jsonl",
        ] {
            assert_eq!(number(other, "traces"), None, "{other}");
        }
    }
}
