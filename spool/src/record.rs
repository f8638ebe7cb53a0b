//! Records, their outcomes, and counts of both.

use std::fmt;
use std::io;

/// Identifies a record while it is under way. Later records have greater ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordId {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
}

/// A waiting record, as [`Spool::take`](crate::Spool::take) returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The record's identifier, for [`Spool::settle`](crate::Spool::settle).
    pub id: RecordId,
    /// The kind, defined by the user of the spool.
    pub kind: u32,
    /// The time of the append, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The number of spans in the payload.
    pub spans: u32,
    /// The number of leading spans of the payload that are already settled.
    pub settled: u32,
    /// The bytes that were appended.
    pub payload: Vec<u8>,
}

/// The outcome of an attempt to deliver a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement<'r> {
    /// The whole record was delivered.
    Delivered,
    /// The rest of the record was permanently rejected: it goes to the dead letters, with this
    /// reason.
    Rejected(&'r str),
    /// This many leading spans of the payload are settled, including those of earlier attempts. The
    /// record waits again until all of them are.
    Partly(u32),
    /// Like [`Settlement::Partly`], but some of the spans that this attempt has settled were
    /// permanently rejected. If `rejected` is not 0, the record goes to the dead letters.
    PartlyRejected {
        /// The number of leading spans of the payload that are settled, including earlier attempts.
        settled: u32,
        /// The number of rejected spans among those that this attempt has settled.
        rejected: u32,
        /// The reason for the rejection.
        reason: &'r str,
    },
    /// The record was delivered together with others, and some spans of them all were permanently
    /// rejected, unknown which. The record goes to the dead letters, even if `rejected` is 0.
    PerhapsRejected {
        /// The number of rejected spans that count as this record's.
        rejected: u32,
        /// The reason for the rejection.
        reason: &'r str,
    },
}

/// Spans by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) passed_on: u64,
    pub(crate) rejected: u64,
    pub(crate) expired: u64,
    pub(crate) damaged: u64,
    pub(crate) dropped: u64,
}

impl Ends {
    pub(crate) fn total(&self) -> u64 {
        let Ends { passed_on, rejected, expired, damaged, dropped } = *self;
        passed_on + rejected + expired + damaged + dropped
    }

    pub(crate) fn add(&mut self, other: Ends) {
        self.passed_on += other.passed_on;
        self.rejected += other.rejected;
        self.expired += other.expired;
        self.damaged += other.damaged;
        self.dropped += other.dropped;
    }
}

/// Spans by outcome since the spool was opened.
///
/// `found + appended = delivered + rejected + expired + damaged + dropped + pending` holds after
/// each call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Spans that an earlier process left.
    pub found: u64,
    /// Spans appended.
    pub appended: u64,
    /// Spans delivered.
    pub delivered: u64,
    /// Spans permanently rejected.
    pub rejected: u64,
    /// Spans given up because of their age.
    pub expired: u64,
    /// Spans in frames that were damaged or lost on disk.
    pub damaged: u64,
    /// Spans in segments that were removed to free space.
    pub dropped: u64,
    /// Spans that are waiting.
    pub pending: u64,
    /// Rejected spans that could not be stored as dead letters, or whose dead letters were removed
    /// to free space.
    pub dead_letters_lost: u64,
    /// Spans in the dead letters, also of earlier processes.
    pub dead_letters: u64,
    /// Failed disk operations whose only effect is duplicates or space that is not freed.
    pub disk_errors: u64,
}

impl Counts {
    /// Returns the spans that will not arrive, even if dead letters are sent again.
    pub fn lost(&self) -> u64 {
        self.expired + self.damaged + self.dropped + self.dead_letters_lost
    }
}

/// The state found by [`Spool::open`](crate::Spool::open).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// The number of waiting spans.
    pub spans: u64,
    /// The number of bytes of an unfinished frame that were truncated.
    pub torn_bytes: u64,
}

/// The reason why a record was not appended. The spool is unchanged.
#[derive(Debug)]
pub struct AppendError {
    pub(crate) full: Option<(u64, u64)>,
    pub(crate) io: Option<io::Error>,
}

impl AppendError {
    /// True if the size limit is reached.
    pub fn is_full(&self) -> bool {
        self.full.is_some()
    }
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.full, &self.io) {
            (Some((used, max)), _) => write!(f, "{used} of {max} bytes are used"),
            (_, Some(error)) => error.fmt(f),
            _ => f.write_str("the record cannot be appended"),
        }
    }
}

impl std::error::Error for AppendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.io.as_ref().map(|error| error as _)
    }
}
