//! A disk in memory whose failures are controlled by tests.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskFile};

/// A disk in memory. Clones share its content.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, Content>,
    /// The maximum total size of all files; `None` is unlimited.
    capacity: Option<usize>,
    fails_reads: bool,
    fails_writes: bool,
    fails_syncs: bool,
    fails_cuts: bool,
    /// The number of changes until the process is killed; `None` if it is not.
    changes_left: Option<usize>,
    is_killed: bool,
    lock: Arc<()>,
}

impl State {
    /// Begins a change of the disk; an error if the process was killed before it.
    fn change(&mut self) -> io::Result<()> {
        match &mut self.changes_left {
            Some(0) => self.is_killed = true,
            Some(left) => *left -= 1,
            None => {}
        }
        if self.is_killed { Err(io::Error::other("killed")) } else { Ok(()) }
    }
}

#[derive(Clone, Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    /// The number of bytes that survive a power loss, if the name does.
    synced: usize,
    /// True if the folder was synced after the file was created.
    has_name: bool,
}

impl MemoryDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Limits the total size of all files.
    pub fn set_capacity(&self, bytes: Option<usize>) {
        self.state().capacity = bytes;
    }

    /// Makes reads fail.
    pub fn fail_reads(&self, fails: bool) {
        self.state().fails_reads = fails;
    }

    /// Makes writes fail.
    pub fn fail_writes(&self, fails: bool) {
        self.state().fails_writes = fails;
    }

    /// Makes syncs fail.
    pub fn fail_syncs(&self, fails: bool) {
        self.state().fails_syncs = fails;
    }

    /// Makes truncations fail.
    pub fn fail_cuts(&self, fails: bool) {
        self.state().fails_cuts = fails;
    }

    /// Kills the process after this number of further changes of the disk: none after them is made.
    pub fn kill_after(&self, changes: usize) {
        self.state().changes_left = Some(changes);
    }

    /// True if a change was not made because the process was killed before it.
    pub fn is_killed(&self) -> bool {
        self.state().is_killed
    }

    /// Returns the names and contents of all files.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        self.state().files.iter().map(|(name, content)| (name.clone(), content.bytes.clone())).collect()
    }

    /// Replaces the content of a file.
    pub fn set(&self, name: &str, bytes: Vec<u8>) {
        self.state().files.insert(name.to_owned(), Content { synced: bytes.len(), bytes, has_name: true });
    }

    /// Returns a copy of this disk after a power loss. For each file, `kept` receives the number of
    /// synced bytes and of all bytes, and returns how many survive. If the file's name was not
    /// synced, none of its bytes count as synced, and the file is gone if none survive.
    pub fn after_power_loss(&self, mut kept: impl FnMut(usize, usize) -> usize) -> Self {
        let state = self.state();
        let files = state.files.iter().filter_map(|(name, content)| {
            let synced = if content.has_name { content.synced } else { 0 };
            let bytes = kept(synced, content.bytes.len()).clamp(synced, content.bytes.len());
            let left = Content { bytes: content.bytes[..bytes].to_vec(), synced: bytes, has_name: true };
            (content.has_name || bytes > 0).then(|| (name.clone(), left))
        });
        let files = files.collect();
        MemoryDisk(Arc::new(Mutex::new(State { files, ..State::default() })))
    }
}

impl Disk for MemoryDisk {
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        let lock = Arc::clone(&self.state().lock);
        // One reference is the disk's own, and one is this clone.
        if Arc::strong_count(&lock) > 2 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(Box::new(lock)) }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state().files.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        if state.fails_writes {
            return Err(io::Error::other("EIO"));
        }
        state.change()?;
        if state.files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.files.insert(name.to_owned(), Content::default());
        Ok(Box::new(MemoryFile { disk: self.clone(), name: name.to_owned() }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        if !self.contains(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Box::new(MemoryFile { disk: self.clone(), name: name.to_owned() }))
    }

    fn contains(&self, name: &str) -> bool {
        self.state().files.contains_key(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        state.files.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.fails_syncs {
            return Err(io::Error::other("EIO"));
        }
        state.files.values_mut().for_each(|content| content.has_name = true);
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: MemoryDisk,
    name: String,
}

impl MemoryFile {
    fn with<R>(&self, f: impl FnOnce(&mut Content) -> R) -> io::Result<R> {
        self.disk.state().files.get_mut(&self.name).map(f).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl DiskFile for MemoryFile {
    fn bytes(&mut self) -> io::Result<u64> {
        self.with(|content| content.bytes.len() as u64)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if self.disk.state().fails_reads {
            return Err(io::Error::other("EIO"));
        }
        self.with(|content| {
            let rest = content.bytes.get(offset as usize..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            count
        })
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        state.change()?;
        if state.fails_writes {
            return Err(io::Error::other("EIO"));
        }
        let used: usize = state.files.values().map(|content| content.bytes.len()).sum();
        let room = state.capacity.map_or(usize::MAX, |capacity| capacity.saturating_sub(used));
        drop(state);
        let taken = self.with(|content| {
            let offset = offset as usize;
            let inside = content.bytes.len().saturating_sub(offset).min(bytes.len());
            let taken = bytes.len().min(inside.saturating_add(room));
            content.bytes.resize(content.bytes.len().max(offset + taken), 0);
            content.bytes[offset..offset + taken].copy_from_slice(&bytes[..taken]);
            taken
        })?;
        if taken < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        if self.disk.state().fails_cuts {
            return Err(io::Error::other("EIO"));
        }
        self.disk.state().change()?;
        self.with(|content| {
            content.bytes.truncate(bytes as usize);
            content.synced = content.synced.min(content.bytes.len());
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.disk.state().fails_syncs {
            return Err(io::Error::other("EIO"));
        }
        self.with(|content| content.synced = content.bytes.len())
    }
}
