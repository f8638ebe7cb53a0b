//! Access to the files of a spool, through a trait, so that tests can make every operation fail.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::lock::FileLock;

/// A folder of files.
pub trait Disk: Send + Debug {
    /// Locks the folder for this process until the value is dropped.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if another process holds it.
    fn lock(&self) -> io::Result<Box<dyn Send + std::marker::Sync>>;

    /// Returns the names of all files.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates a new file.
    ///
    /// # Errors
    ///
    /// If the file exists or cannot be created.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Returns true if the file is in the folder. An open file may have been removed.
    fn contains(&self, name: &str) -> bool;

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// If it cannot be removed.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names of new files durable.
    ///
    /// # Errors
    ///
    /// If the folder cannot be synced.
    fn sync(&self) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: Send + Debug {
    /// Returns the length in bytes.
    ///
    /// # Errors
    ///
    /// If the length cannot be read.
    fn bytes(&mut self) -> io::Result<u64>;

    /// Reads at an offset until `buffer` is full or the file ends; returns the number of bytes
    /// read.
    ///
    /// # Errors
    ///
    /// If reading fails.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all bytes at an offset.
    ///
    /// # Errors
    ///
    /// If writing fails. Some of the bytes may have been written.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes two consecutive parts at an offset.
    ///
    /// # Errors
    ///
    /// As [`write_at`](Self::write_at).
    fn write_both_at(&mut self, offset: u64, parts: [&[u8]; 2]) -> io::Result<()> {
        self.write_at(offset, &parts.concat())
    }

    /// Truncates the file to a length.
    ///
    /// # Errors
    ///
    /// If truncating fails.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;

    /// Makes the content durable.
    ///
    /// # Errors
    ///
    /// If syncing fails. It is then unknown which content is durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A folder of the file system.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Opens a folder, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// If it cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        Ok(Folder(path.to_owned()))
    }

    /// Opens an existing folder.
    ///
    /// # Errors
    ///
    /// If it does not exist or cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::read_dir(path)?;
        Ok(Folder(path.to_owned()))
    }
}

/// Refuses a folder, a pipe or a device, or a link to nothing. Some of them open, and then fail or
/// wait at the first read.
fn check_regular(path: &Path, prefix: &str) -> io::Result<()> {
    let is = match (path.metadata(), path.symlink_metadata()) {
        (Ok(metadata), _) if metadata.is_file() => return Ok(()),
        (Ok(metadata), _) if metadata.is_dir() => "a folder",
        (Ok(_), _) => "a pipe, socket or device",
        (Err(_), Ok(metadata)) if metadata.is_symlink() => "a link to a missing file",
        // Opening it says what is wrong.
        (Err(_), _) => return Ok(()),
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{prefix}is {is}, not a regular file")))
}

impl Disk for Folder {
    fn lock(&self) -> io::Result<Box<dyn Send + std::marker::Sync>> {
        let path = self.0.join("lock");
        check_regular(&path, "lock: ")?;
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
        Ok(Box::new(FileLock::take(file)?))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.0)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().create_new(true).read(true).write(true).open(self.0.join(name))?;
        Ok(Box::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let path = self.0.join(name);
        check_regular(&path, "")?;
        Ok(Box::new(OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn contains(&self, name: &str) -> bool {
        self.0.join(name).symlink_metadata().is_ok()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        // On systems where folders cannot be opened, there is nothing to sync.
        File::open(&self.0).map_or(Ok(()), |folder| folder.sync_all())
    }
}

impl DiskFile for File {
    fn bytes(&mut self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.seek(SeekFrom::Start(offset))?;
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset))?;
        self.write_all(bytes)
    }

    fn write_both_at(&mut self, offset: u64, parts: [&[u8]; 2]) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset))?;
        let mut slices = parts.map(IoSlice::new);
        let mut left = &mut slices[..];
        // Empty slices at the front would make a write of zero bytes look like an error.
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match self.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
