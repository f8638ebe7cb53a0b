//! loom models of an entry's states. Run by `cargo xtask loom`.

use astracer_samplers::tail::KeyNumber;
use loom::sync::Arc;
use loom::thread;
use opentelemetry::{Context, SpanId, TraceFlags, TraceId};

use super::entry::{Beginning, EXPOSED, Entry, Fate, Pending, Phase, ROOT, RecordedSpan};
use super::handles::{Handles, LetGo};
use crate::test_callsite::METADATA;
use astracer_spans::record::Body;
use astracer_spans::sync::{AtomicU32, Ordering};
use astracer_spans::traces::TraceRef;
use astracer_spans::weight::Weighing;

fn begin(entry: &Entry, id: u64, phase: Phase) {
    begin_with(entry, id, phase, 0);
}

fn begin_with(entry: &Entry, id: u64, phase: Phase, flags: u8) {
    assert!(entry.take(id));
    entry.begin(&Beginning {
        phase,
        metadata: &METADATA,
        began: id,
        span_id: SpanId::from(id),
        parent: SpanId::INVALID,
        trace: TraceRef::NONE,
        trace_id: TraceId::from(u128::from(id)),
        trace_start: id,
        trace_flags: TraceFlags::SAMPLED,
        fate: Fate::Kept,
        thread: 1,
        flags,
    });
}

/// Decides as `Core::started` does. Returns what it saw, and whether this thread decided.
fn decide(entry: &Entry, trace: u128) -> (Phase, TraceId, bool) {
    let mut decided = false;
    loop {
        match entry.settled_phase() {
            Phase::Undecided => {
                let Some(claim) = entry.claim(Phase::Undecided) else { continue };
                decided = true;
                claim.set(&RecordedSpan {
                    trace: TraceRef::NONE,
                    trace_id: TraceId::from(trace),
                    trace_flags: TraceFlags::SAMPLED,
                    fate: Fate::Kept,
                    span_id: SpanId::from(trace as u64),
                    parent: SpanId::INVALID,
                    remote_parent: false,
                });
                claim.record();
            }
            phase => return (phase, entry.trace_id(), decided),
        }
    }
}

/// Two threads enter a root at once: one of them decides, and both see the same ids.
#[test]
fn loom_a_root_is_decided_once() {
    loom::model(|| {
        let entry = Arc::new(Entry::default());
        begin(&entry, 5, Phase::Undecided);
        let other = entry.clone();
        let thread = thread::spawn(move || decide(&other, 7));
        let own = decide(&entry, 8);
        let other = thread.join().unwrap();
        assert_eq!((own.0, other.0), (Phase::Recorded, Phase::Recorded));
        assert_eq!(own.1, other.1);
        assert_ne!(own.2, other.2);
        assert_eq!(entry.span_id().to_bytes()[7], own.1.to_bytes()[15], "ids of two decisions");
    });
}

/// A parent is set while another thread enters the span. Either the parent comes first, and the
/// span is decided with it, or the enter comes first, and `set_parent` fails.
#[test]
fn loom_a_parent_is_set_or_refused() {
    loom::model(|| {
        let entry = Arc::new(Entry::default());
        begin(&entry, 5, Phase::Waiting);
        let other = entry.clone();
        let enters = thread::spawn(move || {
            loop {
                match other.settled_phase() {
                    Phase::Waiting if other.start() => return true,
                    Phase::Waiting => {}
                    Phase::Undecided => {
                        let (_, _, decided) = decide(&other, 9);
                        assert!(decided);
                        return false;
                    }
                    phase => panic!("{phase:?}"),
                }
            }
        });
        let set = entry
            .claim(Phase::Waiting)
            .map(|claim| claim.undecide(Box::new(Pending { base: Context::new(), below_dropped: false })));
        let entered_first = enters.join().unwrap();
        assert_eq!(set.is_some(), !entered_first);
        assert_eq!(entry.phase(), Phase::Recorded);
        assert_eq!(entry.trace_id(), TraceId::from(if entered_first { 5u128 } else { 9 }));
    });
}

/// Two threads note an error below a dropped root at once, which neither key nor weighing survives
/// if one of them writes an older word.
#[test]
fn loom_an_error_changes_nothing_else_of_an_outcome() {
    loom::model(|| {
        let entry = Arc::new(Entry::default());
        begin(&entry, 5, Phase::Undecided);
        let claim = entry.claim(Phase::Undecided).unwrap();
        entry.set_root_key(Some(KeyNumber::new(7)), Weighing::Always);
        claim.drop_trace(TraceId::from(5), SpanId::from(5), TraceFlags::NOT_SAMPLED);
        let other = entry.clone();
        let thread = thread::spawn(move || {
            if other.settled_phase() == Phase::Dropped {
                other.set_failed();
            }
        });
        entry.set_failed();
        thread.join().unwrap();
        let outcome = (entry.root_key(), entry.failed(), entry.weighing());
        assert_eq!(outcome, (Some(KeyNumber::new(7)), true, Weighing::Always));
    });
}

/// A context outlives its span and writes to it while the span ends and another one begins in the
/// same entry. The write reaches the first span or nothing, and the next span is as it began.
#[test]
fn loom_a_late_write_never_reaches_the_next_span() {
    loom::model(|| {
        let entry = Arc::new(Entry::default());
        begin(&entry, 5, Phase::Recorded);
        entry.expose();
        let (sequence, late) = (entry.sequence(), entry.clone());
        let writes = thread::spawn(move || {
            late.with_extra(sequence, |extra| extra.body = Some(Box::<Body>::default())).is_some()
        });
        // As in `Core::end`: an exposed span is ended under the lock.
        assert!(entry.has(EXPOSED));
        let taken = entry.take_extra().body.is_some();
        entry.free();
        begin_with(&entry, 6, Phase::Recorded, ROOT);
        let written = writes.join().unwrap();
        assert_eq!(written, taken, "a write must reach the ended span and be taken with it, or not happen");
        assert!(entry.flags() == ROOT && entry.extra().body.is_none());
    });
}

/// One thread leaves while another enters: no time is counted twice.
#[test]
fn loom_time_inside_counts_once() {
    loom::model(|| {
        let entry = Arc::new(Entry::default());
        begin(&entry, 1, Phase::Recorded);
        entry.occupy(11);
        let other = entry.clone();
        let thread = thread::spawn(move || {
            other.occupy(21);
            other.vacate(31);
        });
        entry.vacate(21);
        thread.join().unwrap();
        // Busy from 11 to 21 and from 21 to 31. The interval ends early if the thread with the
        // earlier clock leaves last.
        assert!((10..=20).contains(&entry.busy()), "{}", entry.busy());
    });
}

/// Two successive ids of one place.
const FIRST: u64 = 1 << 24 | 5;
const NEXT: u64 = 2 << 24 | 5;

/// Two threads release the two handles of a span: exactly one of them ends it.
#[test]
fn loom_one_thread_drops_the_last_handle() {
    loom::model(|| {
        let handles = Arc::new(Handles::default());
        handles.start(FIRST);
        assert!(handles.hold(FIRST, 1));
        let other = handles.clone();
        let thread = thread::spawn(move || other.let_go(FIRST));
        let own = handles.let_go(FIRST);
        let ends = [own, thread.join().unwrap()].iter().filter(|end| **end == LetGo::Last).count();
        assert_eq!(ends, 1);
        assert_eq!(handles.let_go(FIRST), LetGo::Stale);
    });
}

/// An id is used without a handle while its span ends and another one begins in the same place. The
/// id keeps the first span open, or has no effect.
#[test]
fn loom_a_stale_id_counts_for_no_other_span() {
    loom::model(|| {
        let handles = Arc::new(Handles::default());
        handles.start(FIRST);
        let other = handles.clone();
        let thread = thread::spawn(move || other.hold(FIRST, 1).then(|| other.let_go(FIRST)));
        let own = handles.let_go(FIRST);
        if own == LetGo::Last {
            handles.start(NEXT);
        }
        let stale = thread.join().unwrap();
        match own {
            LetGo::Last => assert_eq!(handles.let_go(NEXT), LetGo::Last, "the span must have one handle"),
            LetGo::HeldStill => assert_eq!(stale, Some(LetGo::Last)),
            LetGo::Stale => panic!("the handle must have been counted"),
        }
    });
}

/// A thread inside a span takes a stock of handles for children, hands one to a child that ends
/// elsewhere, and releases the rest while the span's own handle is dropped. The span ends once, and
/// not before the child.
#[test]
fn loom_a_stock_of_handles_ends_the_span_once() {
    loom::model(|| {
        let handles = Arc::new(Handles::default());
        handles.start(FIRST);
        assert!(handles.hold(FIRST, 3));
        let child = handles.clone();
        let child = thread::spawn(move || child.let_go(FIRST));
        let rest = handles.clone();
        let rest = thread::spawn(move || rest.let_go_unless_last(FIRST, 2).then_some(LetGo::HeldStill));
        let own = handles.let_go(FIRST);
        let ends = [Some(own), child.join().unwrap().into(), rest.join().unwrap()];
        // `None`: the stock held the last handles, and one is left for the end.
        let last = ends.iter().filter(|end| matches!(end, Some(LetGo::Last) | None)).count();
        assert_eq!(last, 1);
        if ends.contains(&None) {
            assert_eq!(handles.let_go(FIRST), LetGo::Last);
        }
        assert_eq!(handles.let_go(FIRST), LetGo::Stale);
    });
}

/// The counts that an observer keeps of its numbers, and a word stored under each.
#[derive(Default)]
struct Flows {
    counts: [AtomicU32; 4],
    words: [AtomicU32; 4],
}

impl Flows {
    /// A new number, as `root` and `enter` return it.
    fn make(&self, flow: u32) -> u32 {
        self.words[flow as usize].store(flow, Ordering::Relaxed);
        self.counts[flow as usize].fetch_add(1, Ordering::Relaxed);
        flow
    }

    fn release(&self, flow: u32) {
        assert_ne!(self.counts[flow as usize].fetch_sub(1, Ordering::AcqRel), 0);
    }

    /// A thread that reads a number sees what was stored under it.
    fn read(&self, entry: &Entry) -> u32 {
        let flow = entry.flow();
        assert_eq!(self.words[flow as usize].load(Ordering::Relaxed), flow);
        flow
    }

    fn counts(&self) -> [u32; 4] {
        [0, 1, 2, 3].map(|flow| self.counts[flow].load(Ordering::Relaxed))
    }
}

/// Two threads use a new root at once: both enter it with the number that one of them got.
#[test]
fn loom_a_root_has_one_flow() {
    loom::model(|| {
        let (entry, flows) = (Arc::new(Entry::default()), Arc::new(Flows::default()));
        begin(&entry, 5, Phase::Undecided);
        let enter = |entry: &Entry, flows: &Flows, own| {
            while entry.settled_phase() == Phase::Undecided {
                let Some(claim) = entry.claim(Phase::Undecided) else { continue };
                assert_eq!(entry.replace_flow(flows.make(own)), 0);
                claim.drop_trace(TraceId::from(5), SpanId::from(5), TraceFlags::NOT_SAMPLED);
            }
            flows.read(entry)
        };
        let (other, others) = (entry.clone(), flows.clone());
        let thread = thread::spawn(move || enter(&other, &others, 1));
        let own = enter(&entry, &flows, 2);
        assert_eq!(thread.join().unwrap(), own);
        flows.release(entry.take_flow());
        assert_eq!((flows.counts(), entry.flow()), ([0; 4], 0));
    });
}

/// Two threads enter a span where its flow is not current, as `Core::enter` does. The span keeps
/// one of their numbers, and every other one is released.
#[test]
fn loom_a_flow_splits_once() {
    loom::model(|| {
        let (entry, flows) = (Arc::new(Entry::default()), Arc::new(Flows::default()));
        begin(&entry, 5, Phase::Recorded);
        entry.begin_flow(flows.make(1));
        let enter = |entry: &Entry, flows: &Flows, own| {
            if flows.read(entry) == 1 {
                match entry.change_flow(1, flows.make(own)) {
                    Ok(()) => flows.release(1),
                    Err(first) => {
                        flows.release(own);
                        assert_eq!(flows.read(entry), first);
                    }
                }
            }
            flows.read(entry)
        };
        let (other, others) = (entry.clone(), flows.clone());
        let thread = thread::spawn(move || enter(&other, &others, 2));
        let own = enter(&entry, &flows, 3);
        assert_eq!(thread.join().unwrap(), own);
        let expected = if own == 2 { [0, 0, 1, 0] } else { [0, 0, 0, 1] };
        assert_eq!(flows.counts(), expected);
    });
}

/// A child begins while the handle of its parent that another thread has is dropped: the flow is
/// counted for the child before the parent's end releases it.
#[test]
fn loom_a_flow_outlives_its_root() {
    loom::model(|| {
        let (entry, flows) = (Arc::new(Entry::default()), Arc::new(Flows::default()));
        begin(&entry, FIRST, Phase::Recorded);
        entry.handles.start(FIRST);
        entry.begin_flow(flows.make(1));
        assert!(entry.handles.hold(FIRST, 1));
        let drop_handle = |entry: &Entry, flows: &Flows| {
            if entry.handles.let_go(FIRST) == LetGo::Last {
                let flow = entry.take_flow();
                assert_eq!(flow, 1);
                assert!(flows.counts[1].fetch_sub(1, Ordering::AcqRel) > 1, "released before the child");
            }
        };
        let (other, others) = (entry.clone(), flows.clone());
        let thread = thread::spawn(move || {
            let child = others.make(others.read(&other));
            drop_handle(&other, &others);
            child
        });
        drop_handle(&entry, &flows);
        assert_eq!(thread.join().unwrap(), 1);
        assert_eq!(flows.counts(), [0, 1, 0, 0]);
    });
}
