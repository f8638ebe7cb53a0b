//! Batches of spans to a server: moved in time, paced, and noted.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use astracer_exporters::{Attempt, Delivery, DeliveryReport, Destination, ErrorKind, ExportError};
use astracer_formats::TraceWriter;
use astracer_model::{Span, UnixNanos};
use astracer_tuner::Stop;

use super::resume::Resume;

/// A wait is cut into such pieces, so that Ctrl-C is noticed.
const WAIT_STEP: Duration = Duration::from_millis(50);

/// The server's answers so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) accepted: u64,
    pub(super) rejected: u64,
    /// Of these, spans that the note of `--resume` counts.
    pub(super) noted: u64,
    /// Spans that the note counts as sent before, and that the recording does not have.
    pub(super) missing: u64,
}

pub(super) struct Writer<'w> {
    pub(super) destination: Arc<dyn Destination>,
    /// Longest time without an accepted batch before sending ends. `--resume` continues it later.
    pub(super) patience: Duration,
    /// The server has answered, if only that it takes nothing now.
    pub(super) has_answered: bool,
    pub(super) shift_ns: i64,
    /// Spans that a former call sent.
    pub(super) skip: u64,
    pub(super) rate: Option<f64>,
    /// The time before which no further spans are sent; `None` if there is none.
    pub(super) due: Cell<Option<Instant>>,
    pub(super) stop: Stop<'w>,
    pub(super) resume: Option<Resume>,
    pub(super) sent: Rc<Cell<Sent>>,
    /// The last message beside an acceptance.
    pub(super) message: Rc<RefCell<String>>,
}

impl TraceWriter for Writer<'_> {
    fn trace(&mut self, spans: &[Span<'_>]) -> io::Result<()> {
        let known = usize::try_from(self.skip).unwrap_or(usize::MAX).min(spans.len());
        self.skip -= known as u64;
        let spans = &spans[known..];
        if spans.is_empty() || !self.wait() {
            return Ok(());
        }
        let owned = |span: &Span<'_>| shifted(span, self.shift_ns).into_owned();
        let spans: Arc<[Span<'static>]> = spans.iter().map(owned).collect();
        // Time in which nothing was sent is not caught up: the rate is a limit.
        self.due.set(self.due.get().map(|due| due.max(Instant::now())));
        let mut begin = 0;
        let mut last_progress = Instant::now();
        while begin < spans.len() {
            let Some(attempt) = self.try_send(&spans, begin)? else { return Ok(()) };
            let Attempt { outcome: DeliveryReport { delivery, lost, error }, settled, retry_in } = attempt;
            let (is_lost, delivered) = (lost.total() > 0, delivery.accepted + delivery.rejected > 0);
            if settled > 0 {
                begin += settled;
                last_progress = Instant::now();
            }
            // The note counts from the beginning: behind a span that was lost it would name others.
            self.answered(delivery, !is_lost)?;
            self.has_answered |= delivered || error.as_ref().is_some_and(is_answer);
            let Some(error) = error else { break };
            let patience = self.patience.saturating_sub(last_progress.elapsed());
            // A server that never answered is not there, or is another.
            let may_go_on = error.may_retry() && self.has_answered && retry_in < patience;
            if is_lost || begin >= spans.len() || !may_go_on {
                return Err(io::Error::other(self.destination.diagnose(error)));
            }
            if !self.wait_until(Instant::now() + retry_in.max(WAIT_STEP)) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.skip > 0 && !self.stop.is_asked() {
            // The note stays.
            self.sent.set(Sent { missing: self.skip, ..self.sent.get() });
            return Ok(());
        }
        match &mut self.resume {
            // An interrupted run is not finished: its resume file stays.
            Some(resume) if !self.stop.is_asked() => resume.remove(),
            _ => Ok(()),
        }
    }
}

impl Writer<'_> {
    /// Sends once, on a thread of its own, so that Ctrl-C need not wait for a server that hangs:
    /// `None` then.
    fn try_send(&self, spans: &Arc<[Span<'static>]>, begin: usize) -> io::Result<Option<Attempt>> {
        let (result, done) = mpsc::sync_channel(1);
        let (destination, spans) = (Arc::clone(&self.destination), Arc::clone(spans));
        let send = move || {
            let attempt = destination.try_send(spans.get(begin..).unwrap_or_default(), Duration::MAX);
            // Nobody waits any more after Ctrl-C.
            let _ = result.send(attempt);
        };
        thread::Builder::new().name("send".to_owned()).spawn(send)?;
        loop {
            match done.recv_timeout(WAIT_STEP) {
                Ok(attempt) => return Ok(Some(attempt)),
                Err(RecvTimeoutError::Timeout) if self.stop.is_asked() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("the exporter panicked")),
            }
        }
    }

    /// Counts spans that the server has answered for, and notes them if the note can tell which
    /// they are.
    fn answered(&mut self, delivery: Delivery, is_noted: bool) -> io::Result<()> {
        let answered = delivery.accepted + delivery.rejected;
        let mut sent = self.sent.get();
        sent.accepted += delivery.accepted;
        sent.rejected += delivery.rejected;
        self.sent.set(sent);
        if let Some(rate) = self.rate {
            self.due.set(self.due.get().and_then(|due| behind(due, answered, rate)));
        }
        if !delivery.message.is_empty() {
            *self.message.borrow_mut() = delivery.message;
        }
        if let Some(resume) = self.resume.as_mut().filter(|_| answered > 0 && is_noted) {
            resume.note(answered)?;
            sent.noted = sent.accepted + sent.rejected;
            self.sent.set(sent);
        }
        Ok(())
    }

    /// Waits; false if the user wants no more.
    fn wait_until(&self, due: Instant) -> bool {
        loop {
            if self.stop.is_asked() {
                return false;
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(WAIT_STEP));
        }
    }

    /// Waits until the next spans are due; false if the user wants no more.
    fn wait(&self) -> bool {
        match self.due.get() {
            Some(due) => self.wait_until(due),
            // Later than the clock can tell: a rate near 0 waits until Ctrl-C.
            None => self.wait_until(Instant::now() + Duration::from_secs(u64::from(u32::MAX))),
        }
    }
}

/// False for a failure of the way to the server.
fn is_answer(error: &ExportError) -> bool {
    use ErrorKind::{ConnectionLost, NothingListens, TimedOut, UnknownHost};
    let is_of_way = matches!(error.kind(), NothingListens | UnknownHost | ConnectionLost | TimedOut);
    !is_of_way || error.retry_after().is_some()
}

/// The time that this number of spans takes at a rate a second, behind `due`; `None` if the clock
/// can't tell it.
fn behind(due: Instant, spans: u64, rate: f64) -> Option<Instant> {
    due.checked_add(Duration::try_from_secs_f64(spans as f64 / rate).ok()?)
}

/// A span with all its times moved.
fn shifted<'s>(span: &Span<'s>, by_ns: i64) -> Span<'s> {
    let shift = |time: UnixNanos| UnixNanos(time.0.saturating_add_signed(by_ns));
    let mut span = span.clone();
    span.start = span.start.map(shift);
    span.end = span.end.map(shift);
    for event in &mut span.events {
        event.time = shift(event.time);
    }
    span
}

#[cfg(test)]
mod tests {
    use astracer_model::span::Event;

    use super::*;

    #[test]
    fn spans_are_due_by_the_rate() {
        let now = Instant::now();
        assert_eq!(behind(now, 10, 5.0), Some(now + Duration::from_secs(2)));
        assert_eq!(behind(now, 1, 1e-300), None, "later than the clock can tell");
    }

    #[test]
    fn all_times_of_a_span_move_alike() {
        let event = Event { time: UnixNanos(150), ..Event::default() };
        let (start, end) = (Some(UnixNanos(100)), Some(UnixNanos(200)));
        let span = Span { start, end, events: vec![event], ..Span::default() };
        let times = |span: &Span<'_>| (span.start, span.end, span.events[0].time);
        let moved = |start, end, event| (Some(UnixNanos(start)), Some(UnixNanos(end)), UnixNanos(event));
        assert_eq!(times(&shifted(&span, 1_000)), moved(1_100, 1_200, 1_150));
        assert_eq!(times(&shifted(&span, -120)), moved(0, 80, 30));
        assert_eq!(shifted(&Span::default(), 5), Span::default());
    }
}
