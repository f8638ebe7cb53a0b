//! Files that are read whole: regular ones, up to a size.
//!
//! Opening a FIFO waits until another process opens its other end, and reading a device may never
//! end. A setting that names one by mistake must not stop a service.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::path::Path;

/// Opens a regular file for reading, through links.
///
/// # Errors
///
/// If it cannot be opened, or is something else: the error says what.
pub fn open(path: &Path) -> io::Result<File> {
    // Before it is opened, since that alone may wait.
    check(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file of at most `max` bytes.
///
/// # Errors
///
/// As for [`open`], and if the file is longer.
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {max} bytes")));
    }
    Ok(bytes)
}

/// As [`read`], for text.
///
/// # Errors
///
/// As for [`read`], and if the bytes are not UTF-8.
pub fn read_text(path: &Path, max: u64) -> io::Result<String> {
    String::from_utf8(read(path, max)?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
}

fn check(found: &Metadata) -> io::Result<()> {
    if found.is_file() {
        return Ok(());
    }
    let what = if found.is_dir() { "a folder" } else { "a pipe, a device or a socket" };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("not a regular file, but {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_within_the_bound_are_read() {
        let folder = std::env::temp_dir().join(format!("astracer-files-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("file");
        fs::write(&path, "four").expect("written");
        assert_eq!(read_text(&path, 4).expect("text"), "four");
        assert_eq!(read(&path, 3).expect_err("too long").kind(), io::ErrorKind::FileTooLarge);
        let error = read(&folder, 4).expect_err("a folder");
        assert!(error.to_string().contains("a folder"), "{error}");
        assert_eq!(open(&folder.join("none")).expect_err("nothing").kind(), io::ErrorKind::NotFound);
        #[cfg(unix)]
        {
            let error = open(Path::new("/dev/null")).expect_err("a device");
            assert!(error.to_string().contains("a device"), "{error}");
            let link = folder.join("link");
            std::os::unix::fs::symlink(&path, &link).expect("a link");
            assert_eq!(read_text(&link, 4).expect("text"), "four");
        }
        fs::remove_dir_all(&folder).expect("removed");
    }
}
