//! Sends batches of spans to a server: shifts their times, limits the rate, and records progress.

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

/// Waits are cut into pieces of this length, so that Ctrl-C is noticed.
const WAIT_STEP: Duration = Duration::from_millis(50);

/// The server's answers so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) accepted: u64,
    pub(super) rejected: u64,
    /// The number of these that the `--resume` file counts.
    pub(super) noted: u64,
    /// Spans that the `--resume` file counts as sent but the recording does not have.
    pub(super) missing: u64,
    /// The greatest number of spans that the server may have accepted without an answer.
    pub(super) unanswered: u64,
}

pub(super) struct Writer<'w> {
    pub(super) destination: Arc<dyn Destination>,
    /// The time without an accepted batch after which sending ends. `--resume` can continue it
    /// later.
    pub(super) patience: Duration,
    /// True once the server has answered, even if only with rejections.
    pub(super) has_answered: bool,
    pub(super) shift_ns: i64,
    /// Spans that an earlier run sent.
    pub(super) skip: u64,
    pub(super) rate: Option<f64>,
    /// When the next spans may be sent; `None` if that is beyond the clock's range.
    pub(super) due: Cell<Option<Instant>>,
    pub(super) stop: Stop<'w>,
    pub(super) resume: Option<Resume>,
    pub(super) sent: Rc<Cell<Sent>>,
    /// The last message of the server in a successful response.
    pub(super) message: Rc<RefCell<String>>,
}

impl TraceWriter for Writer<'_> {
    fn trace(&mut self, spans: &[Span<'_>]) -> io::Result<()> {
        let known = usize::try_from(self.skip).unwrap_or(usize::MAX).min(spans.len());
        self.skip -= known as u64;
        let spans = &spans[known..];
        if spans.is_empty() {
            return Ok(());
        }
        if !self.wait() {
            return self.ended(0);
        }
        let owned = |span: &Span<'_>| shifted(span, self.shift_ns).into_owned();
        let spans: Arc<[Span<'static>]> = spans.iter().map(owned).collect();
        // Do not catch up after a pause, because the rate is a limit.
        self.due.set(self.due.get().map(|due| due.max(Instant::now())));
        let mut begin = 0;
        let mut last_progress = Instant::now();
        while begin < spans.len() {
            if let Some(resume) = &mut self.resume {
                resume.sending((spans.len() - begin) as u64)?;
            }
            let Some(attempt) = self.try_send(&spans, begin)? else {
                return self.ended((spans.len() - begin) as u64);
            };
            let Attempt { outcome: DeliveryReport { delivery, lost, error }, settled, retry_in } = attempt;
            let (is_lost, delivered) = (lost.total() > 0, delivery.accepted + delivery.rejected > 0);
            if settled > 0 {
                begin += settled;
                last_progress = Instant::now();
            }
            // The file counts spans from the beginning, so spans after a lost one cannot be
            // counted.
            self.answered(delivery, !is_lost)?;
            self.has_answered |= delivered || error.as_ref().is_some_and(is_answer);
            let Some(error) = error else { break };
            let patience = self.patience.saturating_sub(last_progress.elapsed());
            // Do not wait for a server that never answered: it is probably down, or another kind of
            // server.
            let may_go_on = error.may_retry() && self.has_answered && retry_in < patience;
            if is_lost || begin >= spans.len() || !may_go_on {
                // The cause may be a handshake, before which nothing is sent.
                let error = self.destination.diagnose(error);
                let left = if may_have_arrived(&error) { spans.len() - begin } else { 0 };
                self.ended(left as u64)?;
                return Err(io::Error::other(error));
            }
            if !self.wait_until(Instant::now() + retry_in.max(WAIT_STEP)) {
                let left = if may_have_arrived(&error) { spans.len() - begin } else { 0 };
                return self.ended(left as u64);
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.skip > 0 && !self.stop.is_asked() {
            // Keep the `--resume` file.
            self.sent.set(Sent { missing: self.skip, ..self.sent.get() });
            return Ok(());
        }
        match &mut self.resume {
            // An interrupted run keeps its `--resume` file.
            Some(resume) if !self.stop.is_asked() => resume.remove(),
            _ => Ok(()),
        }
    }
}

impl Writer<'_> {
    /// Records, at an early end, how many spans were sent without an answer.
    fn ended(&mut self, unanswered: u64) -> io::Result<()> {
        self.sent.set(Sent { unanswered, ..self.sent.get() });
        self.resume.as_mut().map_or(Ok(()), |resume| resume.unanswered(unanswered))
    }

    /// Sends once, on a separate thread so that Ctrl-C does not wait for a server that hangs.
    /// Returns `None` after Ctrl-C.
    fn try_send(&self, spans: &Arc<[Span<'static>]>, begin: usize) -> io::Result<Option<Attempt>> {
        let (result, done) = mpsc::sync_channel(1);
        let (destination, spans) = (Arc::clone(&self.destination), Arc::clone(spans));
        let send = move || {
            let attempt = destination.try_send(spans.get(begin..).unwrap_or_default(), Duration::MAX);
            // After Ctrl-C nobody receives the result.
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

    /// Counts spans that the server accepted or rejected. If `is_noted`, also records them in the
    /// `--resume` file.
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

    /// Waits until `due`; false if interrupted.
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

    /// Waits until the next spans may be sent; false if interrupted.
    fn wait(&self) -> bool {
        match self.due.get() {
            Some(due) => self.wait_until(due),
            // A rate near 0 puts the next span beyond the clock's range, so wait until Ctrl-C.
            None => self.wait_until(Instant::now() + Duration::from_secs(u64::from(u32::MAX))),
        }
    }
}

/// True if the server may have accepted a request that failed like this.
fn may_have_arrived(error: &ExportError) -> bool {
    use ErrorKind::{ConnectionLost, TimedOut, UnexpectedAnswer};
    matches!(error.kind(), ConnectionLost | TimedOut | UnexpectedAnswer)
}

/// False if the connection failed before the server answered.
fn is_answer(error: &ExportError) -> bool {
    use ErrorKind::{ConnectionLost, NothingListens, TimedOut, UnknownHost};
    let is_of_way = matches!(error.kind(), NothingListens | UnknownHost | ConnectionLost | TimedOut);
    !is_of_way || error.retry_after().is_some()
}

/// When the next spans may be sent after `spans` at this rate; `None` if that is beyond the clock's
/// range.
fn behind(due: Instant, spans: u64, rate: f64) -> Option<Instant> {
    due.checked_add(Duration::try_from_secs_f64(spans as f64 / rate).ok()?)
}

/// A span with all its times shifted.
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
