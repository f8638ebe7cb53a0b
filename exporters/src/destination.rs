//! Interface of every destination.

use std::fmt::Debug;
use std::time::Duration;

use astracer_model::Span;

use crate::counts::Counter;
use crate::error::ExportError;

/// A destination for spans. Calls block until the spans have arrived or are given up.
pub trait Destination: Send + Sync + Debug {
    /// Sends spans, of any number of traces in any order, in as many requests as needed.
    ///
    /// # Errors
    ///
    /// The first error if spans were lost. Other requests of the call may have succeeded; [`counter`](Self::counter)
    /// has the numbers.
    fn send(&self, spans: &[Span<'_>]) -> Result<Delivery, ExportError>;

    /// Sends spans without retries and without waiting. Spans that a retry could still deliver are left to the caller:
    /// they are not counted.
    ///
    /// By default this is [`send`](Self::send), for destinations that know no retries.
    fn try_send(&self, spans: &[Span<'_>]) -> Attempt {
        match self.send(spans) {
            Ok(delivery) => Attempt { delivery, settled: spans.len(), ..Attempt::default() },
            Err(error) => Attempt { settled: spans.len(), error: Some(error), ..Attempt::default() },
        }
    }

    /// Returns a handle to the counts since the start, which outlives the destination.
    fn counter(&self) -> Counter;

    /// Makes what was accepted durable where that is this side's matter: files are synced, a spool is drained.
    ///
    /// # Errors
    ///
    /// If that failed.
    fn flush(&self) -> Result<(), ExportError> {
        Ok(())
    }

    /// Looks for the cause of a failed send, possibly with a connection of its own, and returns an error that says more.
    /// For tools: nothing here calls it.
    fn diagnose(&self, error: ExportError) -> ExportError {
        error
    }

    /// Shuts down within `timeout`. Waits between attempts end; spans sent later are lost, and counted.
    ///
    /// # Errors
    ///
    /// If the shutdown failed or took too long.
    fn shut_down(&self, timeout: Duration) -> Result<(), ExportError>;
}

/// Outcome of a call without errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// Spans that were accepted.
    pub accepted: u64,
    /// Spans that the destination rejected.
    pub rejected: u64,
    /// The destination's message: the reason of rejections, or a warning.
    pub message: String,
}

impl Delivery {
    /// Returns a delivery of `accepted` and `rejected` spans without a message.
    pub fn new(accepted: u64, rejected: u64) -> Self {
        Delivery { accepted, rejected, message: String::new() }
    }

    /// Returns the delivery of all these spans.
    pub(crate) fn all(spans: &[Span<'_>]) -> Self {
        Delivery::new(spans.len() as u64, 0)
    }

    /// Adds another delivery; its message replaces this one's unless it is empty.
    #[cfg(feature = "_send")]
    pub(crate) fn add(&mut self, other: Delivery) {
        self.accepted += other.accepted;
        self.rejected += other.rejected;
        if !other.message.is_empty() {
            self.message = other.message;
        }
    }
}

/// Outcome of [`Destination::try_send`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// Spans that were accepted and rejected.
    pub delivery: Delivery,
    /// Leading spans of the call whose outcome is final: accepted, rejected, or lost and counted. The others were not
    /// delivered, and may be sent again.
    pub settled: usize,
    /// The reason why some spans were lost, or are left to the caller.
    pub error: Option<ExportError>,
    /// Time until the next attempt can succeed; zero if it is unknown.
    pub retry_in: Duration,
}

impl<D: Destination + ?Sized> Destination for Box<D> {
    fn send(&self, spans: &[Span<'_>]) -> Result<Delivery, ExportError> {
        (**self).send(spans)
    }

    fn try_send(&self, spans: &[Span<'_>]) -> Attempt {
        (**self).try_send(spans)
    }

    fn counter(&self) -> Counter {
        (**self).counter()
    }

    fn flush(&self) -> Result<(), ExportError> {
        (**self).flush()
    }

    fn diagnose(&self, error: ExportError) -> ExportError {
        (**self).diagnose(error)
    }

    fn shut_down(&self, timeout: Duration) -> Result<(), ExportError> {
        (**self).shut_down(timeout)
    }
}
