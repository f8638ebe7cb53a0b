//! A file that one process at a time may hold.

use std::fs::File;
use std::io;

/// A lock of a file or of a folder that was opened, held until it is dropped.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks the file, without waiting.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if it is locked already, by this process or another; else the
    /// system's error.
    pub fn take(file: File) -> io::Result<Self> {
        match fs4::FileExt::try_lock(&file) {
            Ok(()) => Ok(FileLock(file)),
            Err(fs4::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(fs4::TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // The lock is the open file's, and the file stays open after its handle is dropped while a
        // copy of the handle is: a child that this process has forked holds a copy until it begins
        // its own program. The next user would find the folder locked. If unlocking fails, closing
        // the file unlocks it.
        let _ = fs4::FileExt::unlock(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_though_a_copy_of_its_file_is_open() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let take = || FileLock::take(path.reopen().unwrap());
        let lock = take().unwrap();
        // As a forked child holds it.
        let _copy = lock.0.try_clone().unwrap();
        assert_eq!(take().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        take().unwrap();
    }
}
