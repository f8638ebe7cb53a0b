//! A receiver of OTLP that writes what it gets to files: how users of any language record a workload.
//!
//! Each address takes everything: gRPC and HTTP, told apart by the first bytes of a connection; protobuf and JSON; plain,
//! gzip and zstd. So 4317 and 4318 are a matter of what senders expect.
//!
//! ```text
//! connection -> http (HTTP's answers) -+-> body (limits, decompression) -> record (text of spans) -> Files
//!               grpc (gRPC's answers) -+
//! ```
//!
//! A request is answered when its lines are written: what was answered with success is in a file. Spans are not decoded
//! into objects on the way; a request's text is made from its bytes in one pass.
//!
//! # Limits
//!
//! Connections, requests that are read at a time, and the bytes of each are bounded (see [`Limits`]), so memory is. A
//! request beyond the bounds waits, or is refused; each refusal is counted by reason in [`Received`]. When the files
//! reach their own limit, requests are answered so that senders try again later.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use astracer_exporters::{Destination as _, ExportError, Files};
use tokio::sync::watch;

mod answer;
mod body;
mod counts;
mod grpc;
mod http;
mod record;
mod server;

pub use counts::{Received, Refusal};

/// Bounds on what senders can make the receiver hold.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of a request, before and after decompression: 16 MiB.
    pub message_bytes_max: usize,
    /// Connections at a time; more wait to be accepted: 256.
    pub connections_max: usize,
    /// Requests whose bodies are read at a time; more wait: 16.
    pub requests_max: usize,
    /// How long a request's head, and then its body, may take to arrive: 30 s each.
    pub arrival_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes_max: 16 << 20,
            connections_max: 256,
            requests_max: 16,
            arrival_max: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// Takes this many bytes for the largest request.
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes;
        self
    }
}

/// Why a receiver could not be started.
#[derive(Debug)]
pub struct StartError {
    address: Option<SocketAddr>,
    error: std::io::Error,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "can't listen on {address}: {}", self.error),
            None => write!(f, "can't start: {}", self.error),
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
    shared: Arc<server::Shared>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    /// Listens on each address (port 0 is any free one) and writes to `files`.
    ///
    /// # Errors
    ///
    /// If an address can't be listened on.
    pub fn start(addresses: &[SocketAddr], limits: Limits, files: Files) -> Result<Self, StartError> {
        let failed = |error| StartError { address: None, error };
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
        let shared = Arc::new(server::Shared::new(limits, files));
        let (stop, stopped) = watch::channel(false);
        let run = {
            let shared = Arc::clone(&shared);
            move || runtime.block_on(server::run(listeners, shared, stopped))
        };
        let thread =
            std::thread::Builder::new().name("otlp-receiver".to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { addresses, shared, stop, thread: Some(thread) })
    }

    /// Where it listens, in the order of the addresses that were asked for.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What came so far.
    pub fn received(&self) -> Received {
        self.shared.counts.read()
    }

    /// Bytes of all files, as stored.
    pub fn total_bytes(&self) -> u64 {
        self.shared.files.total_bytes()
    }

    /// Takes no new connections and requests, answers those that are under way (for some seconds at most), and completes
    /// the last file.
    ///
    /// # Errors
    ///
    /// If the last file can't be completed.
    pub fn stop(mut self) -> Result<Received, ExportError> {
        self.end();
        self.shared.files.shut_down(Duration::ZERO)?;
        Ok(self.shared.counts.read())
    }

    fn end(&mut self) {
        // Nobody listens any more if the thread has ended, which then is what is wanted.
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.end();
    }
}
