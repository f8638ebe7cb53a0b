//! A file that is being written.

use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use astracer_model::files;

/// The time between two looks at a file that has not grown.
const LOOK_EACH: Duration = Duration::from_millis(100);

/// Reads a file, and what is written to it afterwards. While there is nothing more, a read waits
/// briefly and fails with [`io::ErrorKind::WouldBlock`]. A file that was shortened is read from its
/// start, and so is the new file where one was renamed.
pub(super) struct Tail {
    path: PathBuf,
    file: File,
    read: u64,
}

impl Tail {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: files::open(path)?, read: 0 })
    }

    /// Opens the file that has the path now, if it is another one.
    fn renewed(&mut self) -> io::Result<bool> {
        let (Ok(now), own) = (self.path.metadata(), self.file.metadata()?) else { return Ok(false) };
        if is_same(&now, &own) {
            if own.len() >= self.read {
                return Ok(false);
            }
            self.file.rewind()?;
        } else {
            self.file = files::open(&self.path)?;
        }
        self.read = 0;
        Ok(true)
    }
}

#[cfg(unix)]
fn is_same(one: &std::fs::Metadata, other: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(_: &std::fs::Metadata, _: &std::fs::Metadata) -> bool {
    true
}

impl Read for Tail {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut has_waited = false;
        loop {
            let count = self.file.read(out)?;
            if count > 0 || out.is_empty() {
                self.read += count as u64;
                return Ok(count);
            }
            if self.renewed()? {
                continue;
            }
            // The format of an empty file shows only later.
            if has_waited && self.read > 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            thread::sleep(LOOK_EACH);
            has_waited = true;
        }
    }
}
