//! What every place that spans can go to has in common.

use std::fmt::Debug;
use std::time::Duration;

use astracer_model::Span;

use crate::counts::Counter;
use crate::error::ExportError;

/// Takes spans somewhere. Each call returns when the spans are there, or are given up.
pub trait Destination: Send + Sync + Debug {
    /// Sends spans, in as many requests as it takes. They may be of any number of traces, in any order.
    ///
    /// # Errors
    ///
    /// The first error, if some spans are lost for good: what could be retried, was. The spans of other requests may
    /// have arrived; [`counter`](Destination::counter) says how many.
    fn send(&self, spans: &[Span<'_>]) -> Result<Delivery, ExportError>;

    /// Counts since the start. The handle stays valid after the destination is gone.
    fn counter(&self) -> Counter;

    /// Makes sure that what was sent stays, as far as that is this side's matter: writes files through to the disk.
    ///
    /// # Errors
    ///
    /// If that failed.
    fn flush(&self) -> Result<(), ExportError> {
        Ok(())
    }

    /// Ends: waits no longer than `timeout` for what is under way. Spans that come later are lost, and counted.
    ///
    /// # Errors
    ///
    /// If something could not be ended well, or not in time.
    fn shut_down(&self, timeout: Duration) -> Result<(), ExportError>;
}

/// What became of the spans of a call that did not fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// Spans that were accepted.
    pub accepted: u64,
    /// Spans that the far end said it rejected.
    pub rejected: u64,
    /// What the far end said beside that: why it rejected spans, or a warning.
    pub message: String,
}

impl Delivery {
    /// All of them.
    pub(crate) fn all(spans: &[Span<'_>]) -> Self {
        Delivery { accepted: spans.len() as u64, ..Delivery::default() }
    }
}

impl<D: Destination + ?Sized> Destination for Box<D> {
    fn send(&self, spans: &[Span<'_>]) -> Result<Delivery, ExportError> {
        (**self).send(spans)
    }

    fn counter(&self) -> Counter {
        (**self).counter()
    }

    fn flush(&self) -> Result<(), ExportError> {
        (**self).flush()
    }

    fn shut_down(&self, timeout: Duration) -> Result<(), ExportError> {
        (**self).shut_down(timeout)
    }
}
