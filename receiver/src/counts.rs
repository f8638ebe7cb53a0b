//! Counts of received and refused requests.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a request was refused as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// Nothing in it could be read.
    Bad,
    /// It is over the limit on a message's bytes.
    TooLarge,
    /// It is of a type or compression that is not known here.
    Unsupported,
    /// It asked for something other than traces.
    WrongPath,
    /// It did not arrive whole, or not in time.
    Incomplete,
    /// The files are full, or can't be written; or the memory for bodies, or its client's share of
    /// it, was used up for too long.
    Overloaded,
}

impl Refusal {
    /// Every reason.
    pub const ALL: &'static [Self] =
        &[Self::Bad, Self::TooLarge, Self::Unsupported, Self::WrongPath, Self::Incomplete, Self::Overloaded];

    /// A stable name for machines.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::TooLarge => "too_large",
            Self::Unsupported => "unsupported",
            Self::WrongPath => "wrong_path",
            Self::Incomplete => "incomplete",
            Self::Overloaded => "no_room",
        }
    }
}

/// Numbers since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Requests that were recorded, as a whole or in part.
    pub requests: u64,
    /// Spans in files.
    pub spans: u64,
    /// Spans, or groups of them, that could not be read in requests that were otherwise recorded.
    pub rejected: u64,
    /// Requests refused, by reason, in the order of [`Refusal::ALL`].
    refused: [u64; Refusal::ALL.len()],
}

impl Received {
    /// Requests refused for one reason.
    pub fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason as usize]
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    requests: AtomicU64,
    spans: AtomicU64,
    rejected: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
}

impl Counts {
    pub(crate) fn recorded(&self, spans: u64, rejected: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.spans.fetch_add(spans, Ordering::Relaxed);
        self.rejected.fetch_add(rejected, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, reason: Refusal) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Received {
        let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Received {
            requests: read(&self.requests),
            spans: read(&self.spans),
            rejected: read(&self.rejected),
            refused: self.refused.each_ref().map(read),
        }
    }
}
