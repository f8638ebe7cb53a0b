//! Counts of received and rejected requests.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::signal::Signal;

/// The reason why a request was rejected as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// No span or log record in it could be read.
    Bad,
    /// It exceeds the size limit of a message.
    TooLarge,
    /// Its content type or compression is not supported.
    Unsupported,
    /// Its path is not the one for traces or logs, or the receiver records no logs.
    WrongPath,
    /// It did not arrive completely, or not in time.
    Incomplete,
    /// The files or the spool are full or cannot be written, or the memory for bodies (the total,
    /// or the client's share) was used up for too long.
    Overloaded,
    /// The receiver listens on loopback, and the request names a host that it does not know.
    Host,
    /// The receiver asks for a token, and the request has none or another one.
    Token,
}

impl Refusal {
    /// Every reason.
    pub const ALL: &'static [Self] = &[
        Self::Bad,
        Self::TooLarge,
        Self::Unsupported,
        Self::WrongPath,
        Self::Incomplete,
        Self::Overloaded,
        Self::Host,
        Self::Token,
    ];

    /// A stable, machine-readable name.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::TooLarge => "too_large",
            Self::Unsupported => "unsupported",
            Self::WrongPath => "wrong_path",
            Self::Incomplete => "incomplete",
            Self::Overloaded => "no_room",
            Self::Host => "host",
            Self::Token => "token",
        }
    }
}

/// Counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Requests that were recorded, completely or in part.
    pub requests: u64,
    /// Spans written to files.
    pub spans: u64,
    /// Spans, or groups of them, that could not be read in requests that were otherwise recorded.
    pub rejected: u64,
    /// Log records written to files.
    pub logs: u64,
    /// Log records, or groups of them, that could not be read in requests that were otherwise
    /// recorded.
    pub logs_rejected: u64,
    /// Connections whose TLS handshake failed, or did not end in time.
    pub failed_handshakes: u64,
    /// Rejected requests by reason, in the order of [`Refusal::ALL`].
    refused: [u64; Refusal::ALL.len()],
}

impl Received {
    /// Returns the number of requests rejected for one reason.
    pub fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason as usize]
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    requests: AtomicU64,
    spans: AtomicU64,
    rejected: AtomicU64,
    logs: AtomicU64,
    logs_rejected: AtomicU64,
    failed_handshakes: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
}

impl Counts {
    pub(crate) fn recorded(&self, signal: Signal, records: u64, rejected: u64) {
        let (of_records, of_rejected) = match signal {
            Signal::Traces => (&self.spans, &self.rejected),
            Signal::Logs => (&self.logs, &self.logs_rejected),
        };
        self.requests.fetch_add(1, Ordering::Relaxed);
        of_records.fetch_add(records, Ordering::Relaxed);
        of_rejected.fetch_add(rejected, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, reason: Refusal) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed_handshake(&self) {
        self.failed_handshakes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Received {
        let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Received {
            requests: read(&self.requests),
            spans: read(&self.spans),
            rejected: read(&self.rejected),
            logs: read(&self.logs),
            logs_rejected: read(&self.logs_rejected),
            failed_handshakes: read(&self.failed_handshakes),
            refused: self.refused.each_ref().map(read),
        }
    }
}
