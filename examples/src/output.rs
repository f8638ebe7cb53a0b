//! Standard output. If its reader is gone (`| head`), the example still runs to its end.

use std::io::{self, Write};

/// Standard output; discards text once the reader of a pipe is gone.
#[derive(Clone, Copy, Debug)]
pub struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_closed(io::stdout().write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_closed(io::stdout().flush(), ())
    }
}

fn unless_closed<T>(result: io::Result<T>, discarded: T) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(discarded),
        result => result,
    }
}
