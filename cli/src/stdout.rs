//! Standard output that tells whether it takes what is written.
//!
//! Rust's own handle takes everything that is written to an output that is open for reading only,
//! and says that all is well. A command that says that it printed its result has printed it, so
//! that is an error here. One that was closed when the process began (`>&-`) can't be told from
//! `/dev/null`, which Rust opens in its place before `main`.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};

/// True if a person reads along.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Standard output for writing, without a buffer.
///
/// # Errors
///
/// If nothing can be written there.
#[cfg(unix)]
pub(crate) fn open() -> io::Result<File> {
    use std::os::fd::AsFd as _;

    let mut file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    // This tells whether the file is open for writing.
    let _ = file.write(&[])?;
    Ok(file)
}

/// Standard output for writing.
#[cfg(windows)]
pub(crate) fn open() -> io::Result<File> {
    use std::os::windows::io::AsHandle as _;

    io::stdout().as_handle().try_clone_to_owned().map(File::from)
}
