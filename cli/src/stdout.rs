//! Standard output that reports when it cannot be written.
//!
//! Rust's own handle ignores write errors on a descriptor that is open for reading only. Here they
//! are errors, because a command that succeeds must have printed its result. A standard output that
//! was closed before the process began (`>&-`) looks like `/dev/null`, which Rust opens in its
//! place before `main`.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};

/// True if standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Unbuffered standard output.
///
/// # Errors
///
/// If it cannot be written.
#[cfg(unix)]
pub(crate) fn open() -> io::Result<File> {
    use std::os::fd::AsFd as _;

    let mut file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    // An empty write fails if the file is not open for writing.
    let _ = file.write(&[])?;
    Ok(file)
}

/// Unbuffered standard output.
#[cfg(windows)]
pub(crate) fn open() -> io::Result<File> {
    use std::os::windows::io::AsHandle as _;

    io::stdout().as_handle().try_clone_to_owned().map(File::from)
}
