//! Incomplete outputs: hidden files beside their targets.
//!
//! Such a file is removed unless it is renamed to its target. Destructors do this, but a second
//! Ctrl-C ends the process without running them, so the paths of all incomplete files are kept here
//! for [`remove_all`]. Only a killed process or a crashed machine leaves a `.astracer-*.partial`,
//! which may be deleted.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::NamedTempFile;

static PATHS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The set stays valid if a thread panics while it holds the lock: at worst it names a file that is
/// gone.
fn paths() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that has not been renamed to its target yet. Dropping it removes it.
pub(crate) struct Partial {
    file: NamedTempFile,
    /// Dropped after the file, so that the file is never unknown while it exists.
    _known: Known,
}

/// A path that [`remove_all`] removes.
#[derive(Debug)]
pub(crate) struct Known(PathBuf);

impl Known {
    /// Registers an existing file of ours.
    pub(crate) fn new(path: PathBuf) -> Self {
        paths().insert(path.clone());
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        paths().remove(&self.0);
    }
}

impl Partial {
    /// Creates a hidden file in the target's folder, where it can be renamed and no reader mistakes
    /// it for a recording.
    pub(crate) fn beside(target: &Path) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".astracer-").suffix(".partial");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            // The usual mode of a new file, restricted by the umask. The default of `tempfile`
            // would make it unreadable for other users.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        // The lock is held until the path is registered, so that no file exists unregistered.
        let mut paths = paths();
        let file = builder.tempfile_in(target.parent().unwrap_or_else(|| Path::new(".")))?;
        let path = file.path().to_owned();
        paths.insert(path.clone());
        Ok(Self { file, _known: Known(path) })
    }

    /// For writing.
    pub(crate) fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Renames the file to its target, replacing an older one. On failure the file is removed and
    /// the older one is unchanged.
    pub(crate) fn persist(self, target: &Path) -> io::Result<()> {
        self.file.persist(target).map(drop).map_err(|error| error.error)
    }

    /// Removes the file.
    pub(crate) fn close(self) -> io::Result<()> {
        self.file.close()
    }
}

/// Removes all incomplete files and blocks the creation of others, because the process is about to
/// end.
pub(crate) fn remove_all() {
    let paths = paths();
    for path in paths.iter() {
        // The file may just have been dropped, and other errors cannot be handled here.
        let _ = fs::remove_file(path);
    }
    std::mem::forget(paths);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_name_yet_is_known_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let target = folder.path().join("out");
        let known = |partial: &Partial| paths().contains(partial.file.path());
        let of_folder = || paths().iter().filter(|path| path.starts_with(folder.path())).count();
        let [dropped, closed, persisted] =
            [0; 3].map(|_| Partial::beside(&target).expect("a writable folder"));
        assert!(known(&dropped) && known(&closed) && known(&persisted));
        drop(dropped);
        closed.close().expect("removed");
        persisted.persist(&target).expect("renamed");
        assert_eq!(of_folder(), 0);
        let names: Vec<_> = fs::read_dir(folder.path()).expect("a folder").flatten().collect();
        assert_eq!(names.iter().map(|entry| entry.path()).collect::<Vec<_>>(), [target]);
    }
}
