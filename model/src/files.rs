//! The one place where files are opened for reading.
//!
//! Opening a FIFO waits until another process opens its other end, and reading a device may never
//! end. A setting that names one by mistake must not stop a service, so [`open`] takes only regular
//! files. [`open_input`] also takes pipes, for inputs that another program may write while they are
//! read. `cargo xtask tidy` finds other ways to open files.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::path::Path;

/// Opens a regular file for reading, through links. This never waits for another process.
///
/// # Errors
///
/// If it cannot be opened, or is something else: the error says what.
pub fn open(path: &Path) -> io::Result<File> {
    // Before it is opened, since opening a device may have an effect.
    check(&fs::metadata(path)?)?;
    let mut options = OpenOptions::new();
    options.read(true);
    // Something else may have got the name meanwhile.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let file = options.open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// Opens a regular file, a pipe or a terminal for reading. Opening a named pipe waits until another
/// process writes to it, and so may each read.
///
/// # Errors
///
/// If it cannot be opened, or is a folder or another device: the error says what.
pub fn open_input(path: &Path) -> io::Result<File> {
    match open(path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && may_wait(path) => File::open(path),
        opened => opened,
    }
}

/// True for a pipe, and for a terminal.
fn may_wait(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::io::IsTerminal as _;
        use std::os::unix::fs::FileTypeExt as _;

        let Ok(found) = fs::metadata(path).map(|found| found.file_type()) else { return false };
        found.is_fifo() || found.is_char_device() && File::open(path).is_ok_and(|file| file.is_terminal())
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
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
    let what = if found.is_dir() { "a folder" } else { special(found) };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("not a regular file, but {what}")))
}

#[cfg(unix)]
fn special(found: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;

    let found = found.file_type();
    if found.is_fifo() {
        "a pipe"
    } else if found.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(not(unix))]
fn special(_: &Metadata) -> &'static str {
    "a pipe or a device"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends of a pipe have a name in `/dev/fd`.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_pipe_is_an_input_and_a_device_is_not() {
        use std::os::fd::AsRawFd as _;

        let (reader, mut writer) = io::pipe().expect("a pipe");
        io::Write::write_all(&mut writer, b"four").expect("written");
        drop(writer);
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        let error = open(Path::new(&path)).expect_err("a pipe");
        assert!(error.to_string().contains("a pipe"), "{error}");
        let mut text = String::new();
        open_input(Path::new(&path)).expect("an input").read_to_string(&mut text).expect("text");
        assert_eq!(text, "four");
        for path in ["/dev/zero", "/dev/null", "/dev"] {
            let error = open_input(Path::new(path)).expect_err(path);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }

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
            fs::remove_file(&path).expect("removed");
            assert_eq!(open(&link).expect_err("dangling").kind(), io::ErrorKind::NotFound);
        }
        fs::remove_dir_all(&folder).expect("removed");
    }
}
