//! loom models of the ring. Run by `cargo xtask loom`.

use loom::sync::Arc as LoomArc;
use loom::thread;
use opentelemetry::TraceFlags;

use super::*;
use crate::record::Ending;
use crate::test_callsite::METADATA;
use crate::trace_state::State;

const HOLD: Ticks = 10;

fn header() -> Header {
    Header {
        is_reweighed: false,
        trace_id: trace(),
        flags: TraceFlags::default(),
        state: State::EMPTY,
        began: 1,
        kept_by: KeepReason::HEAD,
        cut: 0,
    }
}

fn trace() -> TraceId {
    TraceId::from(7u128)
}

fn record(id: u64) -> Record {
    Record::new(&METADATA, (SpanId::from(id), SpanId::INVALID), 1, Ending { time: 2, busy: None }, 1)
}

/// A trace of one span, with capacity for more.
fn held(ring: &Ring) -> HeldTrace {
    let mut held = HeldTrace {
        trace: Box::new(ProvisionalTrace { header: header(), ..ProvisionalTrace::default() }),
        counted: Counted { spans: 1, ..Counted::default() },
        duration: 1,
        ended: 2,
        refused_by: None,
        came: 0,
    };
    held.buffer.append(record(1), None);
    assert!(ring.grow(&mut held.reservation, 1 << 16));
    held
}

fn ring() -> LoomArc<Ring> {
    LoomArc::new(Ring::new(1 << 20, HOLD, HOLD))
}

fn hold(ring: &Ring) -> Admission {
    ring.hold(held(ring), 2, &mut Vec::new())
}

/// A trace is requested while its root ends. The second of the two threads finds the other one's
/// work: the trace in the ring, or the request.
#[test]
fn loom_a_trace_requested_as_it_arrives_is_found() {
    loom::model(|| {
        let ring = ring();
        let other = ring.clone();
        let takes = thread::spawn(move || {
            matches!(other.take(trace(), KeepReason::HAND, 2, 1), RequestResult::Held(_))
        });
        // As in `LateTraces::end_trace`.
        let request =
            ring.take_request(trace(), 2).is_some() || matches!(hold(&ring), Admission::Requested(..));
        assert!(request ^ takes.join().unwrap(), "the request was lost, or satisfied twice");
    });
}

/// A trace is requested, evicted and expired at the same time: it leaves the ring once.
#[test]
fn loom_a_trace_leaves_the_ring_once() {
    loom::model(|| {
        let ring = ring();
        hold(&ring);
        let (other, third) = (ring.clone(), ring.clone());
        let takes = thread::spawn(move || {
            matches!(other.take(trace(), KeepReason::HAND, 2, 1), RequestResult::Held(_))
        });
        let expires = thread::spawn(move || {
            let mut out = Vec::new();
            third.expire(2 + HOLD, &mut out);
            out.len()
        });
        let found = usize::from(ring.pop_lowest(Severity::Error).is_some());
        assert_eq!(found + usize::from(takes.join().unwrap()) + expires.join().unwrap(), 1);
        assert_eq!(ring.bytes(), 0, "its bytes must be released");
    });
}

/// A late span ends while its trace is kept. The span joins the trace, follows it, or is too late,
/// but never stays behind in the ring.
#[test]
fn loom_a_late_span_joins_or_follows_its_trace() {
    loom::model(|| {
        let ring = ring();
        hold(&ring);
        let other = ring.clone();
        let late = thread::spawn(move || {
            let (limits, late) = ((usize::MAX, usize::MAX), ((header(), record(2)), TraceRef::NONE));
            match other.end_late(late, Severity::Fine, None, (limits, &|_, _| true)) {
                LateSpan::Held(_) => 1,
                LateSpan::Kept(..) | LateSpan::GivenUp => 0,
                LateSpan::Cut(_) | LateSpan::Refused(_) | LateSpan::TakenOut(_) => {
                    panic!("capacity suffices, and the severity is Fine")
                }
            }
        });
        let RequestResult::Held(taken) = ring.take(trace(), KeepReason::HAND, 2, 1) else {
            panic!("it is held")
        };
        ring.note_kept(KeptTrace::new(&taken, KeepReason::HAND), 2);
        assert_eq!(taken.buffer.records.len(), 1 + late.join().unwrap());
    });
}

/// A trace arrives, or is put back, while the ring closes. It is taken out with the rest, or
/// refused.
#[test]
fn loom_nothing_stays_in_a_closed_ring() {
    for puts_back in [false, true] {
        loom::model(move || {
            let ring = ring();
            let other = ring.clone();
            let comes = thread::spawn(move || {
                let holding = if puts_back { other.put_back(held(&other), 2) } else { hold(&other) };
                usize::from(matches!(holding, Admission::Refused(..)))
            });
            // As in `Shared::close`.
            ring.close();
            let mut emptied = 0;
            ring.take_all(Arrivals::ALL, |all| emptied += all.len());
            assert_eq!(emptied + comes.join().unwrap(), 1);
        });
    }
}
