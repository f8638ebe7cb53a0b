//! Tickets for flushes and the shutdown: the point up to which a caller waits, and the result.

/// The point up to which a caller of flush or shutdown waits, and the counts when it began to wait.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    pub(super) number: u64,
    pub(super) lost: u64,
    pub(super) failures: u64,
}

/// The reason why a flush or shutdown failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitError {
    pub timed_out: bool,
    /// Spans that the caller waited for and that are still queued or being exported.
    pub left: u64,
    /// Spans that were lost while the caller waited.
    pub lost: u64,
    pub last_error: Option<String>,
}
