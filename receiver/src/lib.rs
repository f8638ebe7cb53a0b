//! An OTLP receiver that writes requests to files. It records the workload of services in any
//! language.
//!
//! Each address accepts everything: gRPC and HTTP, distinguished by the first bytes of a
//! connection; protobuf and JSON; uncompressed, gzip, deflate and zstd. So it does not matter to
//! the receiver whether senders use port 4317 or 4318.
//!
//! ```text
//! connection -> http (HTTP's answers) -+-> body -> record -+-> Files
//!               grpc (tonic's framing) +                   +-> Spooled (spans)
//! ```
//!
//! A request is answered after its lines have been written, so an acknowledged request is in a
//! file. Spans and log records are not decoded into objects on the way: the text of a request is
//! made from its bytes in one pass.
//!
//! # Limits
//!
//! Connections, bodies and times are limited (see [`Limits`]). Rejected requests are counted by
//! reason in [`Received`], and [`Receiver::events`] reports when the receiver starts and stops
//! rejecting. When the files reach their own limit or cannot be written, the response asks senders
//! to retry later.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use astracer_exporters::spool::FileLock;
use astracer_exporters::{Counts as Forwarded, Destination as _, ExportError, Files, Spooled};
use tokio::sync::watch;

mod answer;
mod body;
mod clients;
mod connections;
mod cors;
mod counts;
mod events;
mod grpc;
mod hosts;
mod http;
mod limits;
mod metrics;
mod record;
mod recording;
mod server;
mod shared;
mod signal;
mod tls;
mod token;
mod turns;
mod whole;

pub use counts::{Received, Refusal};
pub use events::Event;
pub use limits::Limits;
pub use recording::Recording;
pub use tls::Tls;
pub use token::Token;

/// The error of [`Receiver::start`].
#[derive(Debug)]
pub struct StartError {
    address: Option<SocketAddr>,
    error: std::io::Error,
}

impl StartError {
    /// Returns the address that cannot be listened on; `None` if the problem is the recording's
    /// folder.
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
    metrics_address: Option<SocketAddr>,
    shared: Arc<shared::Shared>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    /// A lock of the folder, held for as long as the receiver writes to it.
    _lock: Option<FileLock>,
}

/// Checks that a folder can be written, and locks it against a second receiver.
fn lock(folder: &Path) -> io::Result<Option<FileLock>> {
    let in_folder =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.to_string_lossy()));
    let probe = folder.join(".astracer-probe");
    // An earlier process may have left it behind.
    let _ = std::fs::remove_file(&probe);
    File::create_new(&probe).and_then(|_| std::fs::remove_file(&probe)).map_err(in_folder)?;
    // Locking the folder itself leaves no lock file among the recordings. On systems where folders
    // cannot be opened, there is no lock.
    let Ok(file) = File::open(folder) else { return Ok(None) };
    match FileLock::take(file) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(in_folder(io::Error::new(error.kind(), "another receiver writes to this folder")))
        }
        lock => Ok(lock.ok()),
    }
}

impl Receiver {
    /// Listens on each address (port 0 selects a free port) and records to files, and to a spool if
    /// there is one.
    ///
    /// # Errors
    ///
    /// If an address cannot be listened on, the folder cannot be written, or another receiver
    /// writes to it.
    pub fn start(
        addresses: &[SocketAddr],
        limits: Limits,
        recording: impl Into<Recording>,
    ) -> Result<Self, StartError> {
        let failed = |error| StartError { address: None, error };
        let recording = recording.into();
        let lock = lock(&recording.files.folder()).map_err(failed)?;
        let mut listeners = Vec::new();
        let listen = |address: SocketAddr| {
            let listen = || {
                let listener = std::net::TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(listener)
            };
            listen().map_err(|error| StartError { address: Some(address), error })
        };
        for &address in addresses {
            listeners.push(listen(address)?);
        }
        let figures = recording.metrics.map(listen).transpose()?;
        let metrics_address = figures.as_ref().and_then(|figures| figures.local_addr().ok());
        let addresses: Result<Vec<_>, _> = listeners.iter().map(std::net::TcpListener::local_addr).collect();
        let addresses = addresses.map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(shared::Shared::new(limits, recording, stopped));
        let run = {
            let shared = Arc::clone(&shared);
            move || runtime.block_on(server::run(listeners, figures, shared))
        };
        let thread =
            std::thread::Builder::new().name("otlp-receiver".to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { addresses, metrics_address, shared, stop, thread: Some(thread), _lock: lock })
    }

    /// Returns the addresses it listens on, in the order in which they were given.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the address of `/metrics` and `/health`, if there is one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Returns the counts so far.
    pub fn received(&self) -> Received {
        self.shared.counts.read()
    }

    /// Returns the state changes since the last call, such as when requests began to be rejected
    /// and when that ended.
    pub fn events(&self) -> Vec<Event> {
        self.shared.events.take()
    }

    /// Returns the total size of all files in bytes, as stored.
    pub fn total_bytes(&self) -> u64 {
        self.shared.files.total_bytes() + self.shared.logs.as_ref().map_or(0, Files::total_bytes)
    }

    /// Returns the number of acknowledged spans whose file somebody removed or shortened while it
    /// was being written.
    pub fn spans_removed(&self) -> u64 {
        self.shared.files.spans_removed()
    }

    /// Returns the number of acknowledged log records whose file somebody removed or shortened
    /// while it was being written.
    pub fn logs_removed(&self) -> u64 {
        self.shared.logs.as_ref().map_or(0, Files::spans_removed)
    }

    /// Returns the counts of forwarded spans, and the number of spans that wait in the spool;
    /// `None` for a receiver that does not forward.
    pub fn forwarded(&self) -> Option<(Forwarded, u64)> {
        self.shared.forward.as_ref().map(|spool| (spool.counter().read(), spool.pending()))
    }

    /// Returns the spool of a receiver that forwards.
    pub fn forward(&self) -> Option<&Spooled> {
        self.shared.forward.as_ref()
    }

    /// Forwards what waits in the spool, for at most `timeout`. Returns the number of spans that
    /// still wait; they stay on disk.
    pub fn drain(&self, timeout: Duration) -> u64 {
        self.shared.forward.as_ref().map_or(0, |spool| spool.drain(timeout))
    }

    /// Stops accepting connections and requests, answers requests in progress (for at most some
    /// seconds, and only while they keep arriving), and completes the last files. All counts are
    /// final then, except for the spans in the spool, which [`drain`](Self::drain) still forwards.
    ///
    /// # Errors
    ///
    /// If a last file cannot be completed.
    pub fn end(&mut self) -> Result<(), ExportError> {
        self.end_thread();
        let shut_down = |files: &Files| files.shut_down(Duration::ZERO);
        let logs = self.shared.logs.as_ref().map_or(Ok(()), shut_down);
        shut_down(&self.shared.files).and(logs)
    }

    /// [Ends](Self::end) the receiver, syncs the spool, and returns the counts.
    ///
    /// # Errors
    ///
    /// If the last file cannot be completed, or the spool cannot be synced.
    pub fn stop(mut self) -> Result<Received, ExportError> {
        let ended = self.end();
        let spooled = self.shared.forward.as_ref().map_or(Ok(()), |spool| spool.shut_down(Duration::ZERO));
        ended.and(spooled)?;
        Ok(self.received())
    }

    fn end_thread(&mut self) {
        // An error means that the thread has already ended, which is the goal.
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
