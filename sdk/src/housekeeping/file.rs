//! Small files that are read and replaced as a whole.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// The maximum number of bytes read from a snapshot. 16 million keys would take 2 GiB; the default
/// 10,000 take 1.2 MiB.
const BYTES_MAX: u64 = 256 << 20;

pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Replaces the file by a rename, so that readers never see a part of it. A crash may leave the
/// temporary file `*.new` beside it.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let beside: PathBuf = path.with_file_name(name);
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let renamed = written.and_then(|()| fs::rename(&beside, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    renamed
}
