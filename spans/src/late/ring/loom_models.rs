//! loom models of the ring. Run by `cargo xtask loom`.

use loom::sync::Arc as LoomArc;
use loom::thread;
use opentelemetry::SpanId;

use super::*;
use crate::record::Header;
use crate::test_callsite::METADATA;

const HOLD: Ticks = 10;

fn trace() -> TraceId {
    TraceId::from(7u128)
}

fn record(id: u64) -> Record {
    Record::new(&METADATA, (SpanId::from(id), SpanId::INVALID), (1, 2), None, 1)
}

/// A trace of one span, with capacity for more.
fn held(ring: &Ring) -> Box<ProvisionalTrace> {
    let header = Header { trace_id: trace(), ..Header::default() };
    let mut held = Box::new(ProvisionalTrace { header, ended: 2, ..ProvisionalTrace::default() });
    held.buffer.append(record(1), None);
    assert!(ring.grow(&mut held.reservation, 1 << 16));
    held
}

fn ring() -> LoomArc<Ring> {
    LoomArc::new(Ring::new(1 << 20, HOLD, HOLD))
}

/// A trace arrives, or comes back. Returns how it leaves if it does not stay.
fn hold(ring: &Ring, is_back: bool) -> Option<WayOut> {
    ring.hold(held(ring), is_back, 2).err().map(|(_, way_out)| way_out)
}

/// A trace is requested while its root ends. The second of the two threads finds the other one's
/// work: the trace in the ring, or the request.
#[test]
fn loom_a_trace_requested_as_it_arrives_is_found() {
    loom::model(|| {
        let ring = ring();
        let other = ring.clone();
        let takes = thread::spawn(move || other.take(trace(), (KeepReason::HAND, None), 2, true).is_some());
        // As in `LateTraces::end_trace`.
        let request =
            ring.take_request(trace(), 2).is_some() || matches!(hold(&ring, false), Some(WayOut::Kept(..)));
        assert!(request ^ takes.join().unwrap(), "the request was lost, or satisfied twice");
    });
}

/// A trace is requested, evicted and expired at the same time: it leaves the ring once.
#[test]
fn loom_a_trace_leaves_the_ring_once() {
    loom::model(|| {
        let ring = ring();
        hold(&ring, false);
        let (other, third) = (ring.clone(), ring.clone());
        let takes = thread::spawn(move || other.take(trace(), (KeepReason::HAND, None), 2, true).is_some());
        let expires = thread::spawn(move || third.expire(2 + HOLD).len());
        let found = usize::from(ring.pop_lowest(Severity::Error).is_some());
        assert_eq!(found + usize::from(takes.join().unwrap()) + expires.join().unwrap(), 1);
        assert_eq!(ring.budget.used(), 0, "its bytes must be released");
    });
}

/// A late span ends while its trace is kept. The span joins the trace, follows it, or is too late,
/// but never stays behind in the ring.
#[test]
fn loom_a_late_span_joins_or_follows_its_trace() {
    loom::model(|| {
        let ring = ring();
        hold(&ring, false);
        let other = ring.clone();
        let late = thread::spawn(move || {
            let (part, span) = ((trace(), TraceRef::NONE), record(2));
            match other.end_late(part, (&span, None), Severity::Fine, (usize::MAX, &|_, _| true)).1 {
                LateSpan::Held => 1,
                LateSpan::Kept(..) | LateSpan::GivenUp(GivenUp::Late) => 0,
                late => panic!("capacity suffices, and the severity is Fine: {late:?}"),
            }
        });
        let taken = ring.take(trace(), (KeepReason::HAND, None), 2, true).expect("it is held");
        ring.note_kept(&taken, KeepReason::HAND, 2);
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
                usize::from(matches!(hold(&other, puts_back), Some(WayOut::GivenUp(_))))
            });
            // As in `Shared::close`.
            ring.close();
            let mut emptied = 0;
            ring.take_all([u64::MAX; SHARDS], |all| emptied += all.len());
            assert_eq!(emptied + comes.join().unwrap(), 1);
        });
    }
}
