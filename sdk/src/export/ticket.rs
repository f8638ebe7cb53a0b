//! Tickets for flushes and the shutdown: the point up to which a caller waits, and the result.

/// The point up to which a caller of flush or shutdown waits, and the counts when it began to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(super) number: u64,
    pub(super) lost: u64,
    pub(super) failures: u64,
}

/// The reason why a flush or shutdown failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaitError {
    pub(crate) timed_out: bool,
    /// Spans that the caller waited for and that are still queued or being exported.
    pub(crate) left: u64,
    /// Spans that were lost while the caller waited.
    pub(crate) lost: u64,
    pub(crate) last_error: Option<String>,
}
