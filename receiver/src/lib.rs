//! A receiver of OTLP that writes what it gets to files: how users of any language record a
//! workload.
//!
//! Each address takes everything: gRPC and HTTP, told apart by the first bytes of a connection;
//! protobuf and JSON; plain, gzip, deflate and zstd. So 4317 and 4318 are a matter of what senders
//! expect.
//!
//! ```text
//! connection -> http (HTTP's answers) -+-> body (limits, decompression) -> record (text of spans) -+-> Files
//!               grpc (tonic's framing) +                                                           +-> Spooled
//! ```
//!
//! A request is answered when its lines are written: what was answered with success is in a file.
//! Spans are not decoded into objects on the way; a request's text is made from its bytes in one
//! pass.
//!
//! # Limits
//!
//! Connections, bodies and times are limited (see [`Limits`]). Refused requests are counted by
//! reason in [`Received`], and [`Receiver::events`] tells when the receiver begins and stops to
//! refuse. When the files reach their own limit or cannot be written, requests are answered so that
//! senders try again later.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use astracer_exporters::spool::FileLock;
use astracer_exporters::{Counts as Forwarded, Destination as _, ExportError};
use tokio::sync::watch;

mod answer;
mod body;
mod clients;
mod connections;
mod cors;
mod counts;
mod events;
mod grpc;
mod http;
mod limits;
mod record;
mod recording;
mod server;
mod shared;

pub use counts::{Received, Refusal};
pub use events::Event;
pub use limits::Limits;
pub use recording::Recording;

/// Error of [`Receiver::start`].
#[derive(Debug)]
pub struct StartError {
    address: Option<SocketAddr>,
    error: std::io::Error,
}

impl StartError {
    /// Returns the address that cannot be listened on; `None` if the recording's folder is the
    /// problem.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "can't listen on {address}: {}", self.error),
            None => write!(f, "can't record: {}", self.error),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// A receiver that runs on a thread of its own.
#[derive(Debug)]
pub struct Receiver {
    addresses: Vec<SocketAddr>,
    shared: Arc<shared::Shared>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    /// The folder, locked for as long as the receiver writes to it.
    _lock: Option<FileLock>,
}

/// Finds out whether a folder can be written, and locks it against a second receiver.
fn lock(folder: &Path) -> io::Result<Option<FileLock>> {
    let in_folder =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.to_string_lossy()));
    let probe = folder.join(".astracer-probe");
    File::create(&probe).and_then(|_| std::fs::remove_file(&probe)).map_err(in_folder)?;
    // A lock of the folder itself leaves no file among the recordings. Where folders cannot be
    // opened, there is none.
    let Ok(file) = File::open(folder) else { return Ok(None) };
    match FileLock::take(file) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(in_folder(io::Error::new(error.kind(), "another receiver writes to this folder")))
        }
        lock => Ok(lock.ok()),
    }
}

impl Receiver {
    /// Listens on each address (port 0 is any free one) and records to files, and to a spool if
    /// there is one.
    ///
    /// # Errors
    ///
    /// If an address can't be listened on, the folder can't be written, or another receiver writes
    /// to it.
    pub fn start(
        addresses: &[SocketAddr],
        limits: Limits,
        recording: impl Into<Recording>,
    ) -> Result<Self, StartError> {
        let failed = |error| StartError { address: None, error };
        let recording = recording.into();
        let lock = lock(&recording.files.folder()).map_err(failed)?;
        let mut listeners = Vec::new();
        for &address in addresses {
            let listen = || {
                let listener = std::net::TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(listener)
            };
            listeners.push(listen().map_err(|error| StartError { address: Some(address), error })?);
        }
        let addresses: Result<Vec<_>, _> = listeners.iter().map(std::net::TcpListener::local_addr).collect();
        let addresses = addresses.map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(shared::Shared::new(limits, recording, stopped));
        let run = {
            let shared = Arc::clone(&shared);
            move || runtime.block_on(server::run(listeners, shared))
        };
        let thread =
            std::thread::Builder::new().name("otlp-receiver".to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { addresses, shared, stop, thread: Some(thread), _lock: lock })
    }

    /// Where it listens, in the order of the addresses that were asked for.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the counts so far.
    pub fn received(&self) -> Received {
        self.shared.counts.read()
    }

    /// Returns what changed since the last call: when requests began to be refused, and when that
    /// was over.
    pub fn events(&self) -> Vec<Event> {
        self.shared.events.take()
    }

    /// Bytes of all files, as stored.
    pub fn total_bytes(&self) -> u64 {
        self.shared.files.total_bytes()
    }

    /// Returns spans that were acknowledged, and whose file was then removed by somebody while it
    /// was being written.
    pub fn spans_removed(&self) -> u64 {
        self.shared.files.spans_removed()
    }

    /// Returns the counts of spans that were passed on, and the number that wait in the spool;
    /// `None` for a receiver that does not forward.
    pub fn forwarded(&self) -> Option<(Forwarded, u64)> {
        self.shared.forward.as_ref().map(|spool| (spool.counter().read(), spool.pending()))
    }

    /// Passes on what waits in the spool, for `timeout` at most; returns the spans that still wait.
    /// They stay on disk.
    pub fn drain(&self, timeout: Duration) -> u64 {
        self.shared.forward.as_ref().map_or(0, |spool| spool.drain(timeout))
    }

    /// Takes no new connections and requests, answers those that are under way (for some seconds at
    /// most, and as long as they go on arriving), and completes the last file. All counts are final
    /// then, but for what waits in the spool, which [`drain`](Self::drain) still passes on.
    ///
    /// # Errors
    ///
    /// If the last file can't be completed.
    pub fn end(&mut self) -> Result<(), ExportError> {
        self.end_thread();
        self.shared.files.shut_down(Duration::ZERO)
    }

    /// [Ends](Self::end) it, syncs the spool, and returns the counts.
    ///
    /// # Errors
    ///
    /// If the last file can't be completed, or the spool can't be synced.
    pub fn stop(mut self) -> Result<Received, ExportError> {
        let ended = self.end();
        let spooled = self.shared.forward.as_ref().map_or(Ok(()), |spool| spool.shut_down(Duration::ZERO));
        ended.and(spooled)?;
        Ok(self.received())
    }

    fn end_thread(&mut self) {
        // Nobody listens any more if the thread has ended, which then is what is wanted.
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.end_thread();
    }
}
