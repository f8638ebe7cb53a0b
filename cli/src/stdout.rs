//! Standard output that reports when it cannot be written.
//!
//! Rust's own handle ignores write errors on a descriptor that is open for reading only. Here they
//! are errors, because a command that succeeds must have printed its result. A standard output that
//! was closed before the process began (`>&-`) is an error, too. Rust opens `/dev/null` in place of
//! it before `main`, and its flags do not distinguish it from `/dev/null` as Python's
//! `subprocess.DEVNULL` opens it. So the descriptor is looked at before Rust's runtime starts.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
#[cfg(unix)]
use std::sync::atomic::{AtomicBool, Ordering};

/// True if standard output was closed when the process began.
#[cfg(unix)]
static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

#[cfg(unix)]
ctor::declarative::ctor! {
    // Safe before `main`: one system call and one store.
    #[ctor(unsafe)]
    fn look_at_stdout() {
        let is_closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
        WAS_CLOSED.store(is_closed, Ordering::Relaxed);
    }
}

/// True if standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// True if standard output was closed when the process began. Its names, such as `/dev/stdout`,
/// then lead to the null device.
#[cfg(unix)]
pub(crate) fn was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

#[cfg(windows)]
pub(crate) fn was_closed() -> bool {
    false
}

/// Unbuffered standard output.
///
/// # Errors
///
/// If it cannot be written.
#[cfg(unix)]
pub(crate) fn open() -> io::Result<File> {
    use std::os::fd::AsFd as _;

    if was_closed() {
        return Err(io::Error::other("it is closed; leave `>&-` out, or use `>/dev/null`"));
    }
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
