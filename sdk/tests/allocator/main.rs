//! A global allocator that traces: it makes a span and an event whenever memory is allocated, also
//! while the layer's own lists grow. A binary of its own, because it has the allocator to itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use astracer_sdk::destination::{Counter, Delivery, DeliveryReport, Span};
use astracer_sdk::{Astracer, Builder, ContextMode, OpenTelemetrySpanExt as _, ProvisionalMode, Start, Tail};
use astracer_testing::Delivering;
use tracing::field::Empty;
use tracing::{Dispatch, info, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

struct Tracing;

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

fn trace(bytes: usize) {
    if !IS_ON.try_with(Cell::get).unwrap_or(false)
        || IS_INSIDE.try_with(|inside| inside.replace(true)).unwrap_or(true)
    {
        return;
    }
    info_span!("allocation", bytes).in_scope(|| info!(bytes, "allocated"));
    // Outside of its own span, too: on the span of the service.
    info!(bytes, "allocated");
    let _ = IS_INSIDE.try_with(|inside| inside.set(false));
}

// SAFETY: every call goes to the system's allocator unchanged. Tracing allocates, but does not come
// here again, and a panic in it would abort the test.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Tracing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        trace(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        trace(size);
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Tracing = Tracing;

/// A trace whose spans have all that a span may have, nested deeper than any list's first capacity.
fn nested(depth: u32) {
    let text = "x".repeat(50 * depth as usize);
    let span = info_span!("nested", depth, text, later = Empty, error = Empty);
    span.in_scope(|| {
        span.record("later", "y".repeat(300));
        info!(depth, text, "inside");
        span.set_attribute("by.hand", "z".repeat(100));
        let other = info_span!(parent: None, "other");
        span.follows_from(&other);
        if depth.is_multiple_of(5) {
            tracing::error!(error = "failed");
        }
        if depth > 0 {
            nested(depth - 1);
        }
    });
}

/// Runs the traces on several threads, with the allocator tracing. They end, or the test fails.
/// Without a subscriber given, the threads have the global one.
fn run(dispatch: Option<&Dispatch>) {
    let (done, ended) = mpsc::channel();
    for _ in 0..3 {
        let (dispatch, done) = (dispatch.cloned(), done.clone());
        thread::spawn(move || {
            let work = || {
                // A registry takes a lock when a thread comes to it, and another when it ends.
                info_span!("first").in_scope(|| ());
                IS_ON.set(true);
                (0..4).for_each(|_| nested(30));
                IS_ON.set(false);
            };
            match dispatch {
                Some(dispatch) => tracing::dispatcher::with_default(&dispatch, work),
                None => work(),
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..3 {
        ended.recv_timeout(Duration::from_secs(60)).expect("the threads end");
    }
}

/// Settings of one world.
struct Case {
    name: String,
    sampler: &'static str,
    change: Change,
    is_late: bool,
    is_layer: bool,
}

type Change = fn(Builder) -> Builder;

fn cases() -> Vec<Case> {
    let settings: [(&str, Change); 4] = [
        ("plain", |builder| builder),
        ("no contexts, at once", |builder| {
            builder.with_context_mode(ContextMode::Off).with_start(Start::AtOnce)
        }),
        ("small bounds", |builder| builder.with_open_bytes_max(1 << 18).with_queue_bytes_max(1 << 16)),
        ("explained", |builder| builder.with_explanations(100)),
    ];
    let mut cases = Vec::new();
    for sampler in ["always", "never", "ratio:0.5"] {
        for (name, change) in settings {
            for (is_late, is_layer) in [(false, false), (false, true), (true, false), (true, true)] {
                let name = format!("{sampler}, {name}, late: {is_late}, layer: {is_layer}");
                cases.push(Case { name, sampler, change, is_late, is_layer });
            }
        }
    }
    cases
}

impl Case {
    /// Returns the number of spans that the allocator made inside of a lock.
    fn run(&self, is_global: bool) -> u64 {
        let arrived = Arc::new(AtomicU64::new(0));
        let counter = arrived.clone();
        let deliver = move |spans: &[Span<'_>]| {
            counter.fetch_add(spans.len() as u64, Ordering::Relaxed);
            DeliveryReport::delivered(Delivery::all(spans))
        };
        let builder = Astracer::builder().with_destination(Delivering(deliver, Counter::default));
        let builder = (self.change)(builder.with_sampler(self.sampler.parse().unwrap()));
        let tail = || "error,slow:1h".parse::<Tail>().unwrap().with_provisional(ProvisionalMode::Always);
        let builder = if self.is_late { builder.with_tail(tail()) } else { builder };
        let astracer = builder.build().unwrap();
        let dispatch = match self.is_layer {
            true => Dispatch::new(tracing_subscriber::registry().with(astracer.layer.clone())),
            false => Dispatch::new(astracer.subscriber()),
        };
        if is_global {
            tracing::dispatcher::set_global_default(dispatch).unwrap();
            run(None);
        } else {
            run(Some(&dispatch));
        }
        info_span!("first").in_scope(|| ());
        IS_ON.set(true);
        let ended = astracer.handle.shutdown(Duration::from_secs(60));
        IS_ON.set(false);
        let stats = astracer.handle.stats();
        let of = format!("{}: {ended:?} {stats}", self.name);
        let known = stats.spans_exported + stats.spans_lost.total() + stats.tail.spans_given_up.total();
        assert_eq!(stats.spans_made, known + stats.spans_open, "{of}");
        // A registry never removes a span that ends while a layer is told of the end of another
        // one, and holds its parent open (`CloseGuard` in tracing-subscriber 0.3).
        assert!(self.is_layer || stats.spans_open == 0, "{of}");
        assert_eq!(arrived.load(Ordering::Relaxed), stats.spans_exported, "{of}");
        assert!(self.sampler == "never" || stats.spans_exported > 0, "{of}");
        stats.spans_lost.nested
    }
}

/// Set in a process that runs the case of this number with a global subscriber, where an allocation
/// of any call may trace.
const VARIABLE: &str = "ASTRACER_TEST_ALLOCATOR";

#[test]
fn a_service_survives_an_allocator_that_traces() {
    let cases = cases();
    if let Ok(number) = std::env::var(VARIABLE) {
        cases[number.parse::<usize>().unwrap()].run(true);
        return;
    }
    // The comparison: a registry by itself.
    run(Some(&Dispatch::new(tracing_subscriber::registry())));
    let nested: u64 = cases.iter().map(|case| case.run(false)).sum();
    assert!(nested > 0, "some memory grows under a lock");
    for (number, case) in cases.iter().enumerate() {
        let mut process = Command::new(std::env::current_exe().unwrap());
        let output = process.env(VARIABLE, number.to_string()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {text}", case.name);
    }
}
