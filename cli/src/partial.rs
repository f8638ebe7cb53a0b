//! Outputs that are not complete: hidden files beside their targets.
//!
//! Such a file disappears unless it gets its target's name. Destructors see to that, but the second
//! Ctrl-C ends the process without them; so the paths of all of them are known here, and
//! [`remove_all`] removes what they name. Only a process that is killed, or a machine that stops,
//! leaves a `.astracer-*.partial`, which may be deleted.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::NamedTempFile;

static PATHS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A panic while the lock is held leaves a set that is still right, or names a file that is gone.
fn paths() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file without its name yet. Dropping it removes it.
pub(crate) struct Partial {
    file: NamedTempFile,
    /// Dropped after the file.
    _known: Known,
}

/// A path in the set.
#[derive(Debug)]
pub(crate) struct Known(PathBuf);

impl Known {
    /// A file of ours that is there.
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
    /// A hidden file in the target's folder, so that it can be renamed and that no reader takes it
    /// for a recording.
    pub(crate) fn beside(target: &Path) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".astracer-").suffix(".partial");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            // As for any other new file, which the umask restricts; without it nobody else could
            // read the file.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        // Under the lock: no file is there that the set does not know.
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

    /// Gives the file its name, in place of an older one. What fails leaves neither a trace nor the
    /// older file changed.
    pub(crate) fn persist(self, target: &Path) -> io::Result<()> {
        self.file.persist(target).map(drop).map_err(|error| error.error)
    }

    /// Removes the file.
    pub(crate) fn close(self) -> io::Result<()> {
        self.file.close()
    }
}

/// Removes all partial files, and keeps others from being made: the process is about to end.
pub(crate) fn remove_all() {
    let paths = paths();
    for path in paths.iter() {
        // One that has just been dropped is gone; for others nothing more can be done.
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
