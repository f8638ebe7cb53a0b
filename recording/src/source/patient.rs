//! Interruptible reading of inputs that may block: the standard input, and named pipes.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// The interval at which `stop` is polled while no data arrives.
const ASK_EACH: Duration = Duration::from_millis(20);
/// The size of one read.
const CHUNK_BYTES: usize = 64 << 10;
/// The capacity of the queue between the reading thread and the consumer, in chunks.
const CHUNKS_MAX: usize = 4;

/// An input that ends when `stop` returns true, even if no data arrives. A thread of its own blocks
/// on the input. After a stop that thread is not joined, because it may block forever.
pub(super) struct Patient<'s> {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    read: usize,
    stop: &'s dyn Fn() -> bool,
}

impl<'s> Patient<'s> {
    /// Opens and reads the input on another thread.
    pub(super) fn new<R: Read>(
        open: impl FnOnce() -> io::Result<R> + Send + 'static,
        stop: &'s dyn Fn() -> bool,
    ) -> io::Result<Self> {
        let (sender, chunks) = sync_channel(CHUNKS_MAX);
        thread::Builder::new().name("input".to_owned()).spawn(move || pass_on(open, &sender))?;
        Ok(Self { chunks, chunk: Vec::new(), read: 0, stop })
    }
}

/// Forwards the input until it ends or fails, or until the receiver is dropped.
fn pass_on<R: Read>(open: impl FnOnce() -> io::Result<R>, sender: &SyncSender<io::Result<Vec<u8>>>) {
    let mut input = match open() {
        Ok(input) => input,
        Err(error) => return drop(sender.send(Err(error))),
    };
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        let next = match input.read(&mut chunk) {
            Ok(0) => return,
            Ok(bytes) => {
                chunk.truncate(bytes);
                Ok(chunk)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_last = next.is_err();
        if sender.send(next).is_err() || is_last {
            return;
        }
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.read == self.chunk.len() {
            match self.chunks.recv_timeout(ASK_EACH) {
                Ok(chunk) => (self.chunk, self.read) = (chunk?, 0),
                Err(RecvTimeoutError::Timeout) if (self.stop)() => return Ok(0),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
        }
        let bytes = out.len().min(self.chunk.len() - self.read);
        out[..bytes].copy_from_slice(&self.chunk[self.read..][..bytes]);
        self.read += bytes;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn all_bytes_come_and_then_the_error_or_the_end() {
        let bytes: Vec<u8> = (0..300_000u32).map(|number| number as u8).collect();
        let never: &dyn Fn() -> bool = &|| false;
        let content = bytes.clone();
        let mut read = Vec::new();
        let mut whole = Patient::new(move || Ok(io::Cursor::new(content)), never).expect("a thread");
        assert_eq!(whole.read_to_end(&mut read).expect("no error"), bytes.len());
        assert_eq!(read, bytes);
        let open = || Err::<io::Empty, _>(io::Error::other("no such pipe"));
        let mut failing = Patient::new(open, never).expect("a thread");
        assert_eq!(failing.read(&mut [0]).expect_err("it fails").to_string(), "no such pipe");
    }

    #[test]
    fn one_without_an_end_ends_when_asked() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let asked = AtomicBool::new(false);
        let stop = || asked.swap(true, Ordering::Relaxed);
        let mut input = Patient::new(move || Ok(reader), &stop).expect("a thread");
        assert_eq!(input.read(&mut [0]).expect("no error"), 0);
        assert!(asked.load(Ordering::Relaxed));
        drop(writer);
    }
}
