//! Counts of spans by outcome.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::error::{ErrorKind, ExportError};
use crate::span::Span;

/// Counts since the start. They are read one by one, so during an export they may differ by the
/// spans in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Spans that the destination accepted.
    pub sent: u64,
    /// Spans that the destination rejected in requests that it otherwise accepted (OTLP's partial
    /// success).
    pub rejected: u64,
    /// Spans that were given up, or whose outcome is unknown.
    pub lost: LostSpans,
    /// Requests that were retries.
    pub retries: u64,
    /// The last failure, while requests wait for the destination to recover.
    pub waiting: Option<ExportError>,
    /// The last message in a successful response of the destination: why it rejected spans, or a
    /// warning. Empty if there was none.
    pub message: String,
}

/// Lost spans by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostSpans([u64; ErrorKind::ALL.len()]);

impl Default for LostSpans {
    fn default() -> Self {
        LostSpans([0; ErrorKind::ALL.len()])
    }
}

impl LostSpans {
    /// Returns the spans lost for one reason.
    pub fn of(&self, kind: ErrorKind) -> u64 {
        self.0[kind as usize]
    }

    /// Returns the spans lost for any reason.
    pub fn total(&self) -> u64 {
        // Saturates, because a destination may report any number.
        self.0.iter().fold(0, |sum, &spans| sum.saturating_add(spans))
    }

    /// Adds spans lost for one reason.
    pub fn add(&mut self, kind: ErrorKind, spans: u64) {
        let count = &mut self.0[kind as usize];
        *count = count.saturating_add(spans);
    }

    /// Iterates over the reasons with at least one lost span.
    pub fn iter(&self) -> impl Iterator<Item = (ErrorKind, u64)> + '_ {
        ErrorKind::ALL.iter().map(|&kind| (kind, self.of(kind))).filter(|&(_, count)| count > 0)
    }
}

/// The spans that a destination accepted or rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// Spans that were accepted.
    pub accepted: u64,
    /// Spans that the destination rejected.
    pub rejected: u64,
    /// The destination's message: why it rejected spans, or a warning.
    pub message: String,
}

impl Delivery {
    /// Returns a delivery of `accepted` and `rejected` spans without a message.
    pub fn new(accepted: u64, rejected: u64) -> Self {
        Delivery { accepted, rejected, message: String::new() }
    }

    /// Sets the destination's message.
    pub fn with_message(self, message: String) -> Self {
        Delivery { message, ..self }
    }

    /// Returns the delivery of all these spans.
    pub fn all(spans: &[Span<'_>]) -> Self {
        Delivery::new(spans.len() as u64, 0)
    }

    /// Adds another delivery; its message replaces this one's unless it is empty.
    pub fn add(&mut self, other: Delivery) {
        self.accepted += other.accepted;
        self.rejected += other.rejected;
        if !other.message.is_empty() {
            self.message = other.message;
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { sent, rejected, lost, .. } = self;
        write!(f, "{sent} spans sent, {rejected} rejected, {} lost", lost.total())?;
        for (index, (kind, count)) in lost.iter().enumerate() {
            write!(f, "{}{kind} {count}", if index == 0 { " (" } else { ", " })?;
        }
        if lost.total() > 0 { f.write_str(")") } else { Ok(()) }
    }
}

/// A handle to the counts of a destination. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<Cells>);

#[derive(Debug)]
struct Cells {
    sent: AtomicU64,
    rejected: AtomicU64,
    retries: AtomicU64,
    lost: [AtomicU64; ErrorKind::ALL.len()],
    waiting: Mutex<Option<ExportError>>,
    message: Mutex<String>,
    /// Requests that have no response yet, oldest first.
    asked: Mutex<VecDeque<Asked>>,
    asked_before: AtomicU64,
}

#[derive(Debug)]
struct Asked {
    number: u64,
    since: Instant,
    target: String,
}

/// A request without a response, until it is dropped: see [`Counter::ask`].
#[derive(Debug)]
pub struct Asking<'a> {
    counter: &'a Counter,
    number: u64,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.counter.asked().retain(|asked| asked.number != self.number);
    }
}

impl Default for Cells {
    fn default() -> Self {
        Cells {
            sent: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            lost: [const { AtomicU64::new(0) }; ErrorKind::ALL.len()],
            waiting: Mutex::default(),
            message: Mutex::default(),
            asked: Mutex::default(),
            asked_before: AtomicU64::new(0),
        }
    }
}

impl Counter {
    /// Returns the current counts.
    pub fn read(&self) -> Counts {
        let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Counts {
            sent: read(&self.0.sent),
            rejected: read(&self.0.rejected),
            lost: LostSpans(self.0.lost.each_ref().map(read)),
            retries: read(&self.0.retries),
            waiting: self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            message: self.0.message.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Returns the request that has had no response for the longest time, as a sentence with its
    /// target and that time.
    pub fn unanswered(&self) -> Option<String> {
        let asked = self.asked();
        let Asked { since, target, .. } = asked.front()?;
        Some(format!("{target}: the server has not answered for {:.1} s", since.elapsed().as_secs_f64()))
    }

    fn asked(&self) -> MutexGuard<'_, VecDeque<Asked>> {
        self.0.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request is sent to `target`, until the result is dropped.
    pub fn ask(&self, target: String) -> Asking<'_> {
        let number = self.0.asked_before.fetch_add(1, Ordering::Relaxed);
        self.asked().push_back(Asked { number, since: Instant::now(), target });
        Asking { counter: self, number }
    }

    /// Counts spans that the destination accepted or rejected. For implementations of
    /// [`Destination`](super::Destination).
    pub fn deliver(&self, delivery: &Delivery) {
        self.0.sent.fetch_add(delivery.accepted, Ordering::Relaxed);
        self.0.rejected.fetch_add(delivery.rejected, Ordering::Relaxed);
        if !delivery.message.is_empty() {
            self.0.message.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&delivery.message);
        }
    }

    /// Counts a request that is a retry.
    pub fn retry(&self) {
        self.0.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if requests wait for the destination to recover.
    pub fn waits(&self) -> bool {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Sets the failure for which requests wait; `None` once the destination has recovered.
    pub fn set_waiting(&self, cause: Option<ExportError>) {
        *self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner) = cause;
    }

    /// Counts lost spans. For implementations of [`Destination`](super::Destination).
    pub fn lose(&self, kind: ErrorKind, spans: u64) {
        self.0.lost[kind as usize].fetch_add(spans, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_listed_by_reason() {
        let counter = Counter::default();
        counter.deliver(&Delivery { accepted: 7, rejected: 2, ..Delivery::default() });
        counter.lose(ErrorKind::TimedOut, 3);
        counter.clone().lose(ErrorKind::Forbidden, 4);
        let counts = counter.read();
        assert_eq!((counts.sent, counts.rejected, counts.lost.total()), (7, 2, 7));
        assert_eq!(counts.lost.of(ErrorKind::TimedOut), 3);
        assert_eq!(counts.to_string(), "7 spans sent, 2 rejected, 7 lost (timed_out 3, forbidden 4)");
        assert_eq!(Counts::default().to_string(), "0 spans sent, 0 rejected, 0 lost");
        // An empty message does not replace the last one.
        counter.deliver(&Delivery { message: "odd".to_owned(), ..Delivery::default() });
        counter.deliver(&Delivery::default());
        assert_eq!(counter.read().message, "odd");
    }

    /// `LostSpans` indexes by the kind's discriminant.
    #[test]
    fn kinds_are_numbered_as_listed() {
        for (index, &kind) in ErrorKind::ALL.iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
