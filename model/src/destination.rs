//! The interface between code that has spans to send and the code that sends them: exporters
//! implement [`Destination`], as consumers of recordings implement [`Sink`](crate::Sink).

mod counts;
mod error;

use std::fmt::Debug;
use std::time::Duration;

pub use crate::span::Span;

pub use self::counts::{Asking, Counter, Counts, Delivery, LostSpans};
pub use self::error::{ErrorKind, ExportError};

/// A destination for spans. Calls block until the spans are delivered or given up.
pub trait Destination: Send + Sync + Debug {
    /// Sends spans, of any number of traces in any order, in as many requests as needed. The
    /// outcome accounts for each span.
    fn deliver(&self, spans: &[Span<'_>]) -> DeliveryReport;

    /// Sends spans as [`deliver`](Self::deliver) does.
    ///
    /// # Errors
    ///
    /// The first error if spans were lost. Other requests of the call may have succeeded.
    fn send(&self, spans: &[Span<'_>]) -> Result<Delivery, ExportError> {
        self.deliver(spans).into_result()
    }

    /// Sends spans once, without waiting for a destination that is down. A request takes at most
    /// `timeout`, and at most the destination's own limit. Spans that a retry could still deliver
    /// are left to the caller and not counted.
    ///
    /// By default this is [`deliver`](Self::deliver), for destinations without retries.
    fn try_send(&self, spans: &[Span<'_>], timeout: Duration) -> Attempt {
        let _ = timeout;
        Attempt { outcome: self.deliver(spans), settled: spans.len(), retry_in: Duration::ZERO }
    }

    /// Returns the size in bytes up to which small calls should be joined, because each costs a
    /// round trip; 0 if joining gains nothing, or if there is no [`try_whole`](Self::try_whole).
    fn join_bytes(&self) -> usize {
        0
    }

    /// Sends spans once and in one request, for a caller that can split them. Like
    /// [`try_send`](Self::try_send), except that a request that is refused or too large leaves all
    /// spans to the caller, uncounted, with the reason.
    fn try_whole(&self, spans: &[Span<'_>], timeout: Duration) -> Attempt {
        self.try_send(spans, timeout)
    }

    /// Returns a handle to the counts since the start. It outlives the destination.
    fn counter(&self) -> Counter;

    /// Returns how many calls to run concurrently: more than one if each call waits for a response.
    fn in_flight(&self) -> usize {
        1
    }

    /// Makes accepted spans durable if this process stores them: files and a spool are synced. A
    /// spool may still contain spans that its destination has not accepted.
    ///
    /// # Errors
    ///
    /// If syncing failed.
    fn flush(&self) -> Result<(), ExportError> {
        Ok(())
    }

    /// Returns settings that were ignored because they cannot be used, such as a misspelled
    /// environment variable, each with the default that is used instead.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns, as a sentence with counts, what the destination accepted and did not pass on: the
    /// dead letters, losses and damage of a spool. `None` if there is nothing of the kind.
    fn undelivered(&self) -> Option<String> {
        None
    }

    /// Looks for the cause of a failed send, possibly with a connection of its own, and returns a
    /// more specific error. For tools; nothing else calls it.
    fn diagnose(&self, error: ExportError) -> ExportError {
        error
    }

    /// Announces that the process ends within this time. A destination at which no server was ever
    /// reached stops its retries after one more attempt. One that waits for its server shortens a
    /// pause that would last longer, so that it tries once more half a second before the end.
    /// Further spans may still be sent.
    fn end_soon(&self, within: Duration) {
        let _ = within;
    }

    /// Shuts down within `timeout`. Waits between attempts end. Spans that are sent later are lost,
    /// and counted as lost.
    ///
    /// # Errors
    ///
    /// If the shutdown failed or took too long.
    fn shut_down(&self, timeout: Duration) -> Result<(), ExportError>;
}

/// The outcome of a call: each span is accepted, rejected or lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryReport {
    /// Spans that were accepted and rejected.
    pub delivery: Delivery,
    /// Spans that were lost.
    pub lost: LostSpans,
    /// The first reason why spans were lost.
    pub error: Option<ExportError>,
}

impl DeliveryReport {
    /// Returns the outcome of a call that delivered everything.
    pub fn delivered(delivery: Delivery) -> Self {
        DeliveryReport { delivery, ..DeliveryReport::default() }
    }

    /// Returns the outcome of a call that lost `spans` spans.
    pub fn lost(error: ExportError, spans: u64) -> Self {
        let mut outcome = DeliveryReport::default();
        outcome.lose(error, spans);
        outcome
    }

    /// Adds the loss of spans.
    pub fn lose(&mut self, error: ExportError, spans: u64) {
        self.lost.add(error.kind(), spans);
        self.error.get_or_insert(error);
    }

    /// Returns the delivery if nothing was lost.
    ///
    /// # Errors
    ///
    /// The first error of the call.
    pub fn into_result(self) -> Result<Delivery, ExportError> {
        match self.error {
            Some(error) => Err(error),
            None if self.lost.total() > 0 => {
                let (kind, spans) = self.lost.iter().next().unwrap_or((ErrorKind::ExporterFailed, 0));
                Err(ExportError::new(kind, "the destination", format!("{spans} spans were lost")))
            }
            None => Ok(self.delivery),
        }
    }
}

/// The outcome of [`Destination::try_send`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// The outcome of the settled spans. Its error may also be the reason why the other spans are
    /// left to the caller.
    pub outcome: DeliveryReport,
    /// The number of leading spans of the call whose outcome is final: accepted, rejected, or lost
    /// and counted. The others were not delivered and may be sent again.
    pub settled: usize,
    /// The time until the next attempt can succeed; zero if it is unknown.
    pub retry_in: Duration,
}

impl<D: Destination + ?Sized> Destination for Box<D> {
    fn deliver(&self, spans: &[Span<'_>]) -> DeliveryReport {
        (**self).deliver(spans)
    }

    fn try_send(&self, spans: &[Span<'_>], timeout: Duration) -> Attempt {
        (**self).try_send(spans, timeout)
    }

    fn join_bytes(&self) -> usize {
        (**self).join_bytes()
    }

    fn try_whole(&self, spans: &[Span<'_>], timeout: Duration) -> Attempt {
        (**self).try_whole(spans, timeout)
    }

    fn counter(&self) -> Counter {
        (**self).counter()
    }

    fn in_flight(&self) -> usize {
        (**self).in_flight()
    }

    fn flush(&self) -> Result<(), ExportError> {
        (**self).flush()
    }

    fn warnings(&self) -> Vec<String> {
        (**self).warnings()
    }

    fn undelivered(&self) -> Option<String> {
        (**self).undelivered()
    }

    fn diagnose(&self, error: ExportError) -> ExportError {
        (**self).diagnose(error)
    }

    fn end_soon(&self, within: Duration) {
        (**self).end_soon(within);
    }

    fn shut_down(&self, timeout: Duration) -> Result<(), ExportError> {
        (**self).shut_down(timeout)
    }
}
