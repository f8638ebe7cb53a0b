//! Sends spans in requests: encodes them once, splits requests that are too large, and counts the
//! outcomes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use astracer_model::Span;

use crate::availability::Availability;
use crate::compression::Compression;
use crate::learned::{Learned, is_about_compression};
use crate::sending::Sending;
use astracer_model::destination::{Attempt, DeliveryReport};
use astracer_model::destination::{Counter, Delivery};
use astracer_model::destination::{ErrorKind, ExportError};

/// Joined requests are this large. Four of them in flight carry 20 MB/s to a server that answers
/// after 200 ms.
const JOIN_BYTES: usize = 1 << 20;

/// The encoding and transport of requests.
pub(crate) trait Wire {
    /// A body that can be sent more than once.
    type Packed;

    /// Returns the endpoint, as shown in errors.
    fn target(&self) -> String;

    /// Appends a request with these spans.
    fn encode(&self, spans: &[Span<'_>], out: &mut Vec<u8>);

    /// Compresses an encoded request.
    fn pack(&self, body: Vec<u8>, compression: Compression) -> Self::Packed;

    /// Looks for the cause of an unclear failure, with a connection of its own.
    fn diagnose(&self, error: ExportError) -> ExportError {
        error
    }

    /// Sends a request of `spans` spans once.
    fn post(&self, body: &Self::Packed, spans: usize, timeout: Duration) -> Result<Delivery, ExportError>;
}

/// The state that every request-based destination has.
#[derive(Debug)]
pub(crate) struct Requests {
    timeout: Duration,
    bytes_max: usize,
    learned: Learned,
    /// The size of the last request, as a hint for the capacity of the next one.
    last_bytes: AtomicUsize,
    pub(crate) counter: Counter,
    pub(crate) availability: Availability,
    /// The kind of failure of the current outage, and its cause if that was found.
    diagnosed: Mutex<Option<(ErrorKind, Option<ExportError>)>>,
}

/// A call in progress.
struct Call<'c, W> {
    wire: &'c W,
    /// Our own limit, or one byte less than the smallest request of this call that the server found
    /// too large.
    bytes_max: usize,
    /// The compression of this call's requests.
    compression: Compression,
    /// The time at which the call is given up; `None` for a single attempt without waiting.
    deadline: Option<Duration>,
    /// The time limit of one attempt.
    timeout: Duration,
    outcome: DeliveryReport,
    settled: usize,
    /// True if the call came after the shutdown.
    is_late: bool,
    /// True if a refused request is left to the caller, who can split it.
    is_whole: bool,
}

impl Requests {
    pub(crate) fn new(sending: &Sending) -> Self {
        let counter = Counter::default();
        Requests {
            timeout: sending.timeout,
            bytes_max: sending.request_bytes_max,
            learned: Learned::new(sending.compression),
            last_bytes: AtomicUsize::new(0),
            availability: Availability::new(sending.retry, counter.clone()),
            counter,
            diagnosed: Mutex::default(),
        }
    }

    /// Sends spans with retries. A failed request does not prevent the others from being sent.
    pub(crate) fn deliver<W: Wire>(&self, wire: &W, spans: &[Span<'_>]) -> DeliveryReport {
        self.call(wire, spans, Some(self.availability.deadline()), self.timeout, false).outcome
    }

    /// Sends spans without retries. See [`Destination::try_send`](crate::Destination::try_send).
    pub(crate) fn try_send<W: Wire>(&self, wire: &W, spans: &[Span<'_>], timeout: Duration) -> Attempt {
        self.call(wire, spans, None, timeout.min(self.timeout), false)
    }

    /// Sends spans in one request. See [`Destination::try_whole`](crate::Destination::try_whole).
    pub(crate) fn try_whole<W: Wire>(&self, wire: &W, spans: &[Span<'_>], timeout: Duration) -> Attempt {
        self.call(wire, spans, None, timeout.min(self.timeout), true)
    }

    /// The size up to which small calls are joined.
    pub(crate) fn join_bytes(&self) -> usize {
        self.bytes_max.min(JOIN_BYTES).min(self.learned.bytes_max())
    }

    fn call<W: Wire>(
        &self,
        wire: &W,
        spans: &[Span<'_>],
        deadline: Option<Duration>,
        timeout: Duration,
        is_whole: bool,
    ) -> Attempt {
        let (outcome, is_late) = (DeliveryReport::default(), self.availability.is_closed());
        let (bytes_max, compression) = (self.bytes_max, self.learned.compression());
        let mut call =
            Call { wire, bytes_max, compression, deadline, timeout, outcome, settled: 0, is_late, is_whole };
        if !spans.is_empty() {
            self.send_some(&mut call, spans);
        }
        let is_left = call.settled < spans.len();
        let retry_in = if is_left { self.availability.retry_in() } else { Duration::ZERO };
        Attempt { outcome: call.outcome, settled: call.settled, retry_in }
    }

    /// Returns false if the call ends here and the remaining spans are left to the caller.
    fn send_some<W: Wire>(&self, call: &mut Call<'_, W>, spans: &[Span<'_>]) -> bool {
        let last = self.last_bytes.load(Ordering::Relaxed);
        let mut body = Vec::with_capacity(last + last / 4);
        call.wire.encode(spans, &mut body);
        self.last_bytes.store(body.len(), Ordering::Relaxed);
        let bytes = body.len();
        // A server that was seen to refuse requests of this size is not asked again, except for a
        // single span, which cannot be split.
        if spans.len() > 1 && bytes > self.learned.bytes_max() {
            drop(body);
            if call.is_whole {
                let detail =
                    format!("the server refused requests of more than {} bytes", self.learned.bytes_max());
                call.outcome.error = Some(ExportError::new(ErrorKind::TooLarge, call.wire.target(), detail));
                return false;
            }
            return self.send_halves(call, spans);
        }
        let used = call.compression;
        let sent = if bytes > call.bytes_max {
            drop(body);
            let detail = format!("one span takes {bytes} bytes; the limit is {}", call.bytes_max);
            Err(ExportError::new(ErrorKind::TooLarge, call.wire.target(), detail))
        } else {
            self.send_body(call, body, spans.len())
        };
        let error = match sent {
            Ok(delivery) => {
                self.learned.accepts(bytes);
                if used != self.learned.compression() {
                    self.learned.takes_only_plain();
                }
                self.counter.deliver(&delivery);
                call.outcome.delivery.add(delivery);
                call.settled += spans.len();
                return true;
            }
            Err(error) => error,
        };
        if is_about_compression(used, &error) {
            // Once: a refusal of the plain request is final.
            call.compression = Compression::None;
            return self.send_some(call, spans);
        }
        if error.kind() == ErrorKind::TooLarge {
            self.learned.refuses(bytes);
        }
        if call.is_whole {
            call.outcome.error = Some(error);
            return false;
        }
        if error.kind() == ErrorKind::TooLarge {
            // Lowering the limit avoids one request per span to a server that rejects everything.
            call.bytes_max = call.bytes_max.min(bytes.saturating_sub(1));
            if spans.len() > 1 {
                return self.send_halves(call, spans);
            }
        }
        // Spans that a shutdown prevents from being sent are also left to the caller, so that a
        // spool keeps them for the next process.
        if call.deadline.is_none() && (error.may_retry() || error.kind() == ErrorKind::ShutDown) {
            call.outcome.error.get_or_insert(error);
            return false;
        }
        self.counter.lose(error.kind(), spans.len() as u64);
        call.settled += spans.len();
        call.outcome.lose(error, spans.len() as u64);
        true
    }

    fn send_halves<W: Wire>(&self, call: &mut Call<'_, W>, spans: &[Span<'_>]) -> bool {
        let (first, second) = spans.split_at(spans.len() / 2);
        self.send_some(call, first) && self.send_some(call, second)
    }

    fn send_body<W: Wire>(
        &self,
        call: &Call<'_, W>,
        body: Vec<u8>,
        spans: usize,
    ) -> Result<Delivery, ExportError> {
        if self.availability.is_closed() {
            let error = ExportError::new(ErrorKind::ShutDown, call.wire.target(), "");
            return Err(if call.is_late { error } else { error.with_remedy("") });
        }
        let body = call.wire.pack(body, call.compression);
        let post = || {
            let asking = self.counter.ask(call.wire.target());
            let sent = call.wire.post(&body, spans, call.timeout);
            drop(asking);
            sent.map_err(|error| self.diagnose(call, error))
        };
        match call.deadline {
            Some(deadline) => self.availability.send(deadline, post),
            None => self.availability.send_once(post),
        }
    }

    /// Returns the cause of a failure. It is looked for when an outage begins, so that operators
    /// read it from the start, and kept for as long as attempts fail in the same way.
    fn diagnose<W: Wire>(&self, call: &Call<'_, W>, error: ExportError) -> ExportError {
        if !error.may_retry() {
            return error;
        }
        let known = || self.diagnosed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !self.counter.waits();
        if let Some((kind, cause)) = known().as_ref().filter(|_| !is_new)
            && *kind == error.kind()
        {
            return cause.clone().unwrap_or(error);
        }
        if call.deadline.is_none() || self.availability.is_closed() {
            return error;
        }
        let kind = error.kind();
        let found = call.wire.diagnose(error);
        *known() = Some((kind, (found.kind() != kind).then(|| found.clone())));
        found
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;

    use super::*;
    use crate::retry::Retry;

    /// A request consists of its spans' names. The closure makes the server's response from the
    /// number of spans.
    struct Answers<F>(F);

    impl<F: Fn(u64) -> Result<Delivery, ExportError>> Wire for Answers<F> {
        type Packed = Vec<u8>;

        fn target(&self) -> String {
            "t".to_owned()
        }

        fn encode(&self, spans: &[Span<'_>], out: &mut Vec<u8>) {
            spans.iter().for_each(|span| out.extend_from_slice(span.name.as_bytes()));
        }

        fn pack(&self, body: Vec<u8>, _: Compression) -> Vec<u8> {
            body
        }

        fn post(&self, _: &Vec<u8>, spans: usize, _: Duration) -> Result<Delivery, ExportError> {
            self.0(spans as u64)
        }
    }

    /// The advice to shut down later is only for spans that came after the shutdown.
    #[test]
    fn a_call_that_the_shutdown_cuts_off_was_there_in_time() {
        let requests = Requests::new(&Sending::new(4));
        let spans = ["a", "b"].map(|name| Span { name: name.into(), ..Span::default() });
        let error = |requests: &Requests| {
            // A server with a size limit, which the request exceeds during the shutdown.
            let server = Answers(|_| {
                requests.availability.close();
                Err(ExportError::new(ErrorKind::TooLarge, "t", ""))
            });
            let outcome = requests.deliver(&server, &spans);
            assert_eq!(outcome.lost.of(ErrorKind::ShutDown), 2);
            outcome.error.unwrap().to_string()
        };
        assert_eq!(error(&requests), "t: the exporter has been shut down");
        assert_eq!(
            error(&requests),
            "t: the exporter has been shut down; shut the exporter down only after the last span has ended"
        );
    }

    /// A port for gRPC. Each failure is as the connection happens to end.
    struct WrongPort {
        failures: RefCell<VecDeque<ErrorKind>>,
        diagnoses: Cell<u32>,
        waits_for: RefCell<Vec<Option<ErrorKind>>>,
        counter: Counter,
    }

    impl Wire for WrongPort {
        type Packed = ();

        fn target(&self) -> String {
            "t".to_owned()
        }

        fn encode(&self, _: &[Span<'_>], _: &mut Vec<u8>) {}

        fn pack(&self, _: Vec<u8>, _: Compression) {}

        fn diagnose(&self, error: ExportError) -> ExportError {
            self.diagnoses.set(self.diagnoses.get() + 1);
            match error.kind() {
                ErrorKind::TimedOut => error,
                _ => error.caused_by(ErrorKind::GrpcPort),
            }
        }

        fn post(&self, _: &(), _: usize, _: Duration) -> Result<Delivery, ExportError> {
            self.waits_for.borrow_mut().push(self.counter.read().waiting.map(|error| error.kind()));
            let kind = self.failures.borrow_mut().pop_front();
            kind.map_or(Ok(Delivery::new(1, 0)), |kind| Err(ExportError::new(kind, "t", "").retryable(None)))
        }
    }

    /// Issue: the cause was found at once, and replaced by the next attempt's bare error before it
    /// was printed.
    #[test]
    fn the_cause_of_an_outage_stays_while_attempts_fail_in_the_same_way() {
        use ErrorKind::{ConnectionLost, GrpcPort, TimedOut, UnexpectedAnswer};
        let retry = Retry::default().with_initial_delay(Duration::ZERO);
        let requests = Requests::new(&Sending { retry, ..Sending::new(4) });
        let failures =
            [UnexpectedAnswer, UnexpectedAnswer, ConnectionLost, ConnectionLost, TimedOut, TimedOut];
        let wire = WrongPort {
            failures: RefCell::new(failures.into()),
            diagnoses: Cell::new(0),
            waits_for: RefCell::default(),
            counter: requests.counter.clone(),
        };
        assert!(requests.deliver(&wire, &[Span::default()]).error.is_none());
        let seen = [None, Some(GrpcPort), Some(GrpcPort), Some(GrpcPort), Some(GrpcPort), Some(TimedOut)];
        assert_eq!(wire.waits_for.borrow()[..6], seen);
        assert_eq!(wire.diagnoses.get(), 3, "once for each way to fail");
        assert!(!requests.counter.waits());
    }

    /// A caller that joins requests splits them itself, once it knows the server's limit.
    #[test]
    fn a_whole_request_above_the_servers_limit_is_not_sent_again() {
        let requests = Requests::new(&Sending::new(1_000));
        let spans = ["a", "b", "c", "d"].map(|name| Span { name: name.into(), ..Span::default() });
        let posts = Cell::new(0);
        let takes_two = Answers(|spans| {
            posts.set(posts.get() + 1);
            match spans {
                0..=2 => Ok(Delivery::new(spans, 0)),
                _ => Err(ExportError::new(ErrorKind::TooLarge, "t", "")),
            }
        });
        let whole = |number: usize| {
            let attempt = requests.try_whole(&takes_two, &spans[..number], Duration::MAX);
            (attempt.settled, attempt.outcome.error.map(|error| error.kind()), posts.get())
        };
        // Until something is accepted, nothing is known.
        assert_eq!(whole(4), (0, Some(ErrorKind::TooLarge), 1));
        assert_eq!(requests.join_bytes(), 1_000);
        assert_eq!(whole(2), (2, None, 2));
        assert_eq!(whole(4), (0, Some(ErrorKind::TooLarge), 2));
        // A span is one byte here.
        assert_eq!((requests.join_bytes(), requests.counter.read().lost.total()), (3, 0));
    }

    /// The error that ends an attempt must not hide why an earlier span was lost.
    #[test]
    fn the_error_of_an_attempt_is_that_of_its_first_loss() {
        let requests = Requests::new(&Sending::new(4));
        let named = |name: &'static str| Span { name: name.into(), ..Span::default() };
        let spans = [named("a"), named("too large"), named("b"), named("c")];
        let sent = Cell::new(0);
        let takes_one = Answers(|spans| {
            sent.set(sent.get() + 1);
            match sent.get() {
                1 => Ok(Delivery::new(spans, 0)),
                _ => Err(ExportError::new(ErrorKind::Unavailable, "t", "").retryable(None)),
            }
        });
        let attempt = requests.try_send(&takes_one, &spans, Duration::MAX);
        assert_eq!((attempt.settled, attempt.outcome.lost.of(ErrorKind::TooLarge)), (2, 1));
        assert_eq!(attempt.outcome.error.map(|error| error.kind()), Some(ErrorKind::TooLarge));
    }
}
