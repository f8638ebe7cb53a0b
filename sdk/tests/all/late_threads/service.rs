//! The service in which the random programs run, and their steps.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use astracer_sdk::{
    Astracer, Clock, ContextMode, DroppedSpans, ManualClock, OpenTelemetrySpanExt as _, TailTrace,
};
use opentelemetry::trace::{SpanContext, Status, TraceContextExt as _, TraceState};
use opentelemetry::{Context, SpanId, TraceFlags, TraceId};
use tracing::{Dispatch, Span, error, field, info, info_span};

use super::model::{Checker, KEYS, SHARED_IDS, Trace};
use astracer_testing::SplitMix;

use super::{Own, Setup};
use crate::support::{Base, TIMEOUT, dispatch, start};

/// A span and its trace. The root ends after all of them.
pub(super) struct OpenSpan {
    span: Span,
    trace: Arc<Trace>,
}

pub(super) struct Service {
    pub(super) setup: Setup,
    pub(super) astracer: Astracer,
    pub(super) dispatch: Dispatch,
    hand: ManualClock,
    now: AtomicU64,
    pub(super) traces: Mutex<Vec<Arc<Trace>>>,
    /// Children that any thread may continue with.
    pub(super) places: [Mutex<Option<OpenSpan>>; 16],
    numbers: AtomicU64,
    pub(super) closed: AtomicBool,
    late: Late,
}

/// The handle that the policy's own function calls. It is set after the SDK is built and cleared
/// when the program ends, since the function and the SDK own each other.
pub(super) type Late = Arc<Mutex<Option<astracer_sdk::Handle>>>;

pub(super) fn wants(own: Own, handle: &Late, calls: &AtomicU64, trace: &TailTrace<'_>) -> bool {
    let wants = trace.spans().any(|span| span.attribute("wanted").is_some());
    match own {
        Own::Wants => {}
        Own::Panics if calls.fetch_add(1, Ordering::Relaxed) % 7 == 6 => resume_unwind(Box::new("refused")),
        Own::Panics => {}
        Own::CallsBack => {
            let _ = Context::current().span().span_context().is_sampled();
            let handle = handle.lock().unwrap().clone();
            if let Some(handle) = handle {
                let _ = handle.stats();
                let _ = (handle.outcomes(), handle.why(trace.trace_id()));
                // On a thread's own registry this span would never end.
                if matches!(crate::BASE, Base::Subscriber) {
                    info_span!(parent: None, "inside").in_scope(|| error!("inside"));
                }
                if wants {
                    handle.keep(trace.trace_id());
                }
            }
        }
    }
    wants
}

pub(super) fn service(setup: Setup) -> (Service, Checker) {
    let (clock, hand) = Clock::manual(start());
    // Leaves time to set the clock back.
    hand.advance(Duration::from_secs(7_200));
    let (checker, late, count) = (Checker::default(), Late::default(), AtomicU64::new(0));
    let (own, known) = (setup.own, late.clone());
    let astracer = Astracer::builder()
        .with_sampler(setup.samplers[0].parse().unwrap())
        .with_dropped_spans(setup.dropped)
        .with_start(setup.start)
        .with_context_mode(setup.context)
        .with_tail(setup.tail())
        .with_own_policy("some", move |trace| wants(own, &known, &count, trace))
        .with_trace_age_max(Duration::from_secs(if setup.ages { 30 } else { 86_400 }))
        .with_clock(clock)
        .with_queue_bytes_max(256 << 20)
        .with_explanations(100)
        .with_exporter(checker.clone())
        .build()
        .unwrap();
    *late.lock().unwrap() = Some(astracer.handle.clone());
    let service = Service {
        setup,
        dispatch: dispatch(&astracer),
        astracer,
        hand,
        now: AtomicU64::new(7_200_000_000_000),
        traces: Mutex::default(),
        places: Default::default(),
        numbers: AtomicU64::new(1),
        closed: AtomicBool::new(false),
        late,
    };
    (service, checker)
}

macro_rules! root {
    ($number:expr, $wanted:expr, $($name:literal),*) => {
        [$(if $wanted {
            info_span!($name, request = $number, wanted = 1, error = field::Empty,
                otel.status_code = field::Empty)
        } else {
            info_span!($name, request = $number, error = field::Empty, otel.status_code = field::Empty)
        }),*]
    };
}

impl Drop for Service {
    fn drop(&mut self) {
        *self.late.lock().unwrap() = None;
    }
}

impl Service {
    pub(super) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn root(&self, random: &mut SplitMix) -> OpenSpan {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (key, is_wanted) = (random.index(KEYS.len()), random.one_in(12));
        // A part of another process's trace, which that process dropped. Several parts have the
        // same id.
        let shared = random.one_in(8).then(|| TraceId::from(1 + random.index(SHARED_IDS as usize) as u128));
        let parent =
            |id| SpanContext::new(id, SpanId::from(1), TraceFlags::default(), true, TraceState::default());
        let trace = Arc::new(Trace::new(number, key, self.now(), (is_wanted, shared.is_some())));
        let remote = shared.map(|id| Context::new().with_remote_span_context(parent(id)).attach());
        // One macro call per name, because a callsite has a fixed name.
        let span = match key {
            0 => root!(number, is_wanted, "GET /a"),
            1 => root!(number, is_wanted, "GET /b"),
            2 => root!(number, is_wanted, "job"),
            _ => root!(number, is_wanted, "poll"),
        };
        let [span] = span;
        drop(remote);
        if !self.closed.load(Ordering::Relaxed) {
            self.traces.lock().unwrap().push(trace.clone());
        }
        OpenSpan { span, trace }
    }

    /// Begins a child of the span, with the current span or an explicit one as its parent.
    fn child(&self, above: &OpenSpan, random: &mut SplitMix, by_name: bool) -> Option<OpenSpan> {
        let (number, text) = (above.trace.number, "x".repeat(random.one_of(&[0, 10, 10, 300])));
        let span = match (by_name, random.one_in(20)) {
            (true, _) => {
                info_span!(parent: &above.span, "child", request = number, text, error = field::Empty)
            }
            (false, true) => {
                above.trace.failed_if_recorded.store(true, Ordering::Relaxed);
                info_span!("child", request = number, error = true)
            }
            (false, false) => info_span!("child", request = number, text, error = field::Empty),
        };
        if span.is_disabled() {
            return None;
        }
        above.trace.span_made();
        Some(OpenSpan { span, trace: above.trace.clone() })
    }

    pub(super) fn let_go(&self, OpenSpan { span, trace }: OpenSpan) {
        // Before the drop: the thread that drops the last handle ends the root.
        trace.dropped(self.now());
        drop(span);
    }

    /// Whether events below a dropped root are disabled, because no other layer receives them.
    fn hides_events(&self) -> bool {
        matches!((crate::BASE, self.setup.dropped), (Base::Subscriber, DroppedSpans::Disabled))
    }

    /// Causes an error inside a span. `is_inside_root` says whether the thread is inside the root
    /// too.
    fn fail(&self, held: &OpenSpan, random: &mut SplitMix, is_inside_root: bool) {
        let (trace, sure) = (&held.trace, &held.trace.failed);
        let (is_sure, span) = (is_inside_root, &held.span);
        let seen = match random.index(4) {
            0 => {
                error!("failed");
                is_sure && !self.hides_events()
            }
            1 => {
                span.record("error", "refused");
                is_sure
            }
            2 => {
                span.set_status(Status::error("refused"));
                false
            }
            _ => {
                error!(parent: span, "failed");
                false
            }
        };
        if seen {
            sure.store(true, Ordering::Relaxed);
        }
        trace.failed_if_recorded.store(true, Ordering::Relaxed);
    }

    /// Random steps inside a root.
    fn inside(&self, root: &OpenSpan, random: &mut SplitMix) {
        let panics = random.one_in(25);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let entered = root.span.enter();
            if random.one_in(3) {
                let id = Context::current().span().span_context().trace_id();
                if self.setup.context != ContextMode::Off && id != TraceId::INVALID {
                    *root.trace.id.lock().unwrap() = Some(id);
                }
            }
            for _ in 0..random.index(5) {
                match random.index(5) {
                    0 | 1 => {
                        let Some(child) = self.child(root, random, false) else { continue };
                        child.span.in_scope(|| {
                            if random.one_in(15) {
                                self.fail(&child, random, true);
                            }
                        });
                        if random.one_in(4) { self.pass_on(child, random) } else { self.let_go(child) }
                    }
                    2 if random.one_in(8) => self.fail(root, random, true),
                    3 => info!("an event"),
                    4 => self.ask(root, random),
                    _ => {}
                }
            }
            if panics {
                resume_unwind(Box::new("refused"));
            }
            drop(entered);
        }));
        if ended.is_err() {
            root.trace.failed.store(true, Ordering::Relaxed);
            root.trace.failed_if_recorded.store(true, Ordering::Relaxed);
        }
        root.trace.root_left(self.now());
    }

    /// Calls `Handle::keep` for the open trace itself.
    fn ask(&self, root: &OpenSpan, random: &mut SplitMix) {
        let id = *root.trace.id.lock().unwrap();
        if let Some(id) = id.filter(|_| random.one_in(6)) {
            root.trace.asked.store(true, Ordering::Relaxed);
            self.astracer.handle.keep(id);
        }
    }

    fn pass_on(&self, child: OpenSpan, random: &mut SplitMix) {
        let old = self.places[random.index(self.places.len())].lock().unwrap().replace(child);
        if let Some(old) = old {
            self.let_go(old);
        }
    }

    pub(super) fn step(&self, own: &mut Vec<OpenSpan>, random: &mut SplitMix, round: usize) {
        let place = random.index(self.places.len());
        match random.index(16) {
            0..4 => {
                let root = self.root(random);
                self.inside(&root, random);
                if random.one_in(3) { own.push(root) } else { self.let_go(root) }
            }
            4..8 if !own.is_empty() => self.inside(&own[random.index(own.len())], random),
            8 | 9 if !own.is_empty() => {
                let root = own.swap_remove(random.index(own.len()));
                self.let_go(root);
            }
            10 if !own.is_empty() => {
                let root = &own[random.index(own.len())];
                if let Some(child) = self.child(root, random, true) {
                    self.pass_on(child, random);
                }
            }
            11 | 12 => {
                let Some(child) = self.places[place].lock().unwrap().take() else { return };
                child.span.in_scope(|| {
                    if random.one_in(20) {
                        self.fail(&child, random, false);
                    }
                });
                let below = child.span.in_scope(|| self.child(&child, random, false));
                self.let_go(child);
                below.into_iter().for_each(|below| self.pass_on(below, random));
            }
            13 => self.meddle(random),
            14 if self.setup.shutdown == Some(round) && random.one_in(4) => {
                self.closed.store(true, Ordering::Relaxed);
                let _ = self.astracer.handle.shutdown(TIMEOUT);
            }
            _ => {}
        }
    }

    /// Reads statistics, flushes and changes settings, concurrently with the other threads.
    fn meddle(&self, random: &mut SplitMix) {
        let handle = &self.astracer.handle;
        match random.index(8) {
            0 => drop(handle.stats()),
            1 => drop(handle.outcomes()),
            2 => handle.set_sampler(&self.setup.samplers[random.index(2)].parse().unwrap()),
            3 if random.one_in(4) => drop(handle.flush(TIMEOUT)),
            4 if random.one_in(4) => {
                handle.keep_where(|trace| trace.trace_id().to_bytes()[15] % 16 == 3);
            }
            5 => {
                handle.keep_for_caller(&format!("{:032x}", u128::from(random.next()) | 1 << 100));
            }
            6 => {
                handle.arm_all(Duration::from_secs(1));
            }
            _ => {
                let traces = self.traces.lock().unwrap();
                let Some(trace) = traces.get(random.index(traces.len().max(1))).cloned() else { return };
                drop(traces);
                let id = *trace.id.lock().unwrap();
                if let Some(id) = id {
                    handle.keep(id);
                }
            }
        }
    }

    /// Advances the clock between rounds.
    pub(super) fn pass_time(&self, random: &mut SplitMix) {
        let millis = random.one_of(&[0, 1, 1, 20, 20, 50, 100, 700, 3_000]);
        let mut nanos = Duration::from_millis(millis);
        if self.setup.ages && random.one_in(4) {
            nanos = Duration::from_secs(40);
        }
        if self.setup.sets_back && random.one_in(5) {
            let back = random.one_of(&[1, 500, 5_000, 900_000]);
            self.hand.set_back(Duration::from_millis(back));
            self.now.fetch_sub(back * 1_000_000, Ordering::Relaxed);
        } else {
            self.hand.advance(nanos);
            self.now.fetch_add(nanos.as_nanos() as u64, Ordering::Relaxed);
        }
    }
}
