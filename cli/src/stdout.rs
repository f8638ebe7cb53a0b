//! Standard output as it was when the process began.
//!
//! Rust's own handle takes everything that is written to an output that is closed or open for reading only, and says that all is
//! well; and Rust opens `/dev/null` in the place of a closed one before `main`. A command that says that it printed its result
//! has printed it, so both are errors here.

use std::fs::File;
use std::io;

/// Standard output for writing, without a buffer.
///
/// # Errors
///
/// If nothing can be written there.
#[cfg(unix)]
pub(crate) fn open() -> io::Result<File> {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    #[cfg(target_os = "linux")]
    if start::was_closed() {
        return Err(io::Error::other("it is closed"));
    }
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

/// The look at the descriptor before Rust's start.
#[cfg(target_os = "linux")]
mod start {
    use std::sync::atomic::{AtomicBool, Ordering};

    static CLOSED: AtomicBool = AtomicBool::new(false);

    /// Run by the system's loader before Rust's start, for which no safe way is there.
    #[expect(
        unsafe_code,
        reason = "a function in this section runs before main; it calls nothing of Rust's library"
    )]
    #[used]
    #[unsafe(link_section = ".init_array")]
    static LOOK: extern "C" fn() = look;

    extern "C" fn look() {
        let is_closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
        CLOSED.store(is_closed, Ordering::Relaxed);
    }

    pub(super) fn was_closed() -> bool {
        CLOSED.load(Ordering::Relaxed)
    }
}
