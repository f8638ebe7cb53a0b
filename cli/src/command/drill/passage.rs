//! The way from the bad server to the user's server, where arrivals are counted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use astracer_exporters::{Attempt, Destination, ExportError};
use astracer_formats::{Limits, otlp_proto};
use astracer_model::sink::Record;
use astracer_model::{Problem, Sink, Span, TraceId};
use astracer_testing::Reply;

use super::now;

/// The time limit of a request to the user's server.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The spans of a trace.
const SPANS_PER_TRACE: u64 = 10;

/// The trace of a span: the drill, the fault, and a number.
pub(super) fn trace(drill: u64, fault: usize, number: u64) -> TraceId {
    TraceId(u128::from(drill) << 64 | (fault as u128) << 56 | u128::from(number / SPANS_PER_TRACE))
}

/// The fault during which a span was made.
fn fault(trace: TraceId) -> usize {
    (trace.0 >> 56) as usize & 0xff
}

/// The spans of one fault that the user's server accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrivals {
    pub(super) spans: u64,
    /// Spans that were accepted more than once.
    pub(super) twice: u64,
    /// The longest time from a span's end to its acceptance.
    pub(super) longest: Duration,
}

#[derive(Debug, Default)]
struct State {
    /// The number of times that each span was accepted, by its number.
    seen: Vec<u8>,
    arrivals: Vec<Arrivals>,
    error: Option<ExportError>,
}

pub(super) struct Passage {
    to: Box<dyn Destination>,
    state: Mutex<State>,
}

impl Passage {
    pub(super) fn new(to: Box<dyn Destination>) -> Self {
        Passage { to, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the spans of a request to the user's server, and returns its answer.
    pub(super) fn take(&self, body: &[u8]) -> Reply {
        let mut spans = Spans::default();
        let limits = Limits { record_bytes_max: body.len(), ..Limits::default() };
        otlp_proto::read(&mut &*body, &"request".into(), &limits, &mut spans);
        let Attempt { outcome, settled, .. } = self.to.try_send(&spans.0, TIMEOUT);
        let mut state = self.lock();
        let rejected = outcome.delivery.rejected + outcome.lost.total();
        if settled < spans.0.len() || (outcome.delivery.accepted == 0 && outcome.lost.total() > 0) {
            // The accepted ones come again with the rest.
            state.accept(&spans.0[..settled.min(outcome.delivery.accepted as usize)]);
            let may_retry = outcome.error.as_ref().is_none_or(ExportError::may_retry);
            state.error = outcome.error;
            return Reply::status(if may_retry { 503 } else { 400 });
        }
        if rejected == 0 {
            state.accept(&spans.0);
            return Reply { status: 200, body: Vec::new() };
        }
        // It does not name the spans that it rejected.
        state.accept(&spans.0[..outcome.delivery.accepted as usize]);
        state.error = outcome.error;
        Reply { status: 200, body: partial_success(rejected) }
    }

    /// True if the user's server has accepted nothing yet.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().seen.is_empty()
    }

    /// Returns the arrivals of each of the first faults.
    pub(super) fn arrivals(&self, faults: usize) -> Vec<Arrivals> {
        let mut arrivals = self.lock().arrivals.clone();
        arrivals.resize(faults, Arrivals::default());
        arrivals
    }

    /// The last reason for which the user's server did not accept spans.
    pub(super) fn error(&self) -> Option<ExportError> {
        self.lock().error.clone()
    }
}

impl State {
    fn accept(&mut self, spans: &[Span<'_>]) {
        let now = now();
        for span in spans {
            let number = span.span_id.0 as usize;
            if self.seen.len() <= number {
                self.seen.resize(number + 1, 0);
            }
            let fault = fault(span.trace_id);
            if self.arrivals.len() <= fault {
                self.arrivals.resize(fault + 1, Arrivals::default());
            }
            let arrivals = &mut self.arrivals[fault];
            match self.seen[number] {
                0 => {
                    arrivals.spans += 1;
                    let made = span.end.map_or(now.0, |end| end.0);
                    let took = Duration::from_nanos(now.0.saturating_sub(made));
                    arrivals.longest = arrivals.longest.max(took);
                }
                1 => arrivals.twice += 1,
                _ => {}
            }
            self.seen[number] = self.seen[number].saturating_add(1);
        }
    }
}

/// `ExportTraceServiceResponse` of OTLP with this number of rejected spans.
fn partial_success(rejected: u64) -> Vec<u8> {
    let (mut number, mut left) = (Vec::new(), rejected);
    while left >= 0x80 {
        number.push((left & 0x7f | 0x80) as u8);
        left >>= 7;
    }
    number.push(left as u8);
    // Field 1, a message of this length; in it field 1, a number.
    [&[0x0a, number.len() as u8 + 1, 0x08][..], &number].concat()
}

#[derive(Default)]
struct Spans(Vec<Span<'static>>);

impl Sink for Spans {
    fn span(&mut self, span: Span<'_>, _record: Record<'_>) {
        self.0.push(span.into_owned());
    }

    // The load makes only spans that can be read.
    fn problem(&mut self, _problem: Problem) {}

    fn skipped(&mut self, _file: &Arc<str>, _reason: &str) {}
}

#[cfg(test)]
mod tests {
    use astracer_exporters::{Counter, Delivery, DeliveryReport, ErrorKind};
    use astracer_model::{SpanId, UnixNanos};

    use super::*;

    /// Answers as it is told.
    #[derive(Debug)]
    struct Answers(Mutex<Vec<DeliveryReport>>);

    impl Destination for Answers {
        fn deliver(&self, _: &[Span<'_>]) -> DeliveryReport {
            self.0.lock().unwrap().remove(0)
        }

        fn counter(&self) -> Counter {
            Counter::default()
        }

        fn shut_down(&self, _: Duration) -> Result<(), ExportError> {
            Ok(())
        }
    }

    #[test]
    fn each_span_that_is_accepted_counts_once() {
        let spans = [(0, 1), (0, 2), (3, 3)].map(|(fault, number)| Span {
            trace_id: trace(u64::MAX, fault, number),
            span_id: SpanId(number),
            end: Some(UnixNanos(now().0 - 2_000_000_000)),
            ..Span::default()
        });
        let mut body = Vec::new();
        otlp_proto::write_request(&mut body, &spans);
        let refused = ExportError::new(ErrorKind::BadRequest, "t", "no");
        let answers = vec![
            DeliveryReport::lost(refused, 3),
            DeliveryReport::delivered(Delivery::new(3, 0)),
            DeliveryReport::delivered(Delivery::new(3, 0)),
            DeliveryReport::delivered(Delivery::new(1, 2)),
        ];
        let passage = Passage::new(Box::new(Answers(Mutex::new(answers))));
        assert_eq!(passage.take(&body), Reply::status(400));
        assert_eq!(passage.arrivals(4), [Arrivals::default(); 4]);
        assert_eq!(passage.error().map(|error| error.kind()), Some(ErrorKind::BadRequest));
        assert_eq!([passage.take(&body), passage.take(&body)], [Reply::status(200), Reply::status(200)]);
        // Field 1: a message of 2 bytes; in it field 1 = 2.
        assert_eq!(passage.take(&body), Reply { status: 200, body: b"\x0a\x02\x08\x02".to_vec() });
        let found: Vec<_> = passage.arrivals(4).iter().map(|found| (found.spans, found.twice)).collect();
        assert_eq!(found, [(2, 2), (0, 0), (0, 0), (1, 1)]);
        assert!(passage.arrivals(1)[0].longest >= Duration::from_secs(2));
        assert_eq!(partial_success(300), b"\x0a\x03\x08\xac\x02");
    }
}
