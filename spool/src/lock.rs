//! A lock on a file that one process at a time can hold.

use std::fs::File;
use std::io;

/// A lock on an open file or folder, held until it is dropped.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks the file, without waiting.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if this process or another has already locked it; otherwise
    /// the system's error.
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
        // The lock belongs to the open file, which stays open as long as any copy of the handle
        // exists. A child that this process has forked holds a copy until it executes its own
        // program. Without this unlock, the next user would find the folder locked until then. If
        // unlocking fails, closing the file releases the lock.
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
        // A copy as a forked child holds it.
        let _copy = lock.0.try_clone().unwrap();
        assert_eq!(take().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        take().unwrap();
    }
}
