//! Allocations on the service's threads: a dropped trace allocates only its root's context, and a
//! kept span only its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use astracer_samplers::RandomSource;
use astracer_sdk::{Builder, ContextMode, DroppedSpans};
use tracing::{info, info_span};

use crate::support::world;

struct Counting;

thread_local!(static COUNT: Cell<u64> = const { Cell::new(0) });

// SAFETY: every call goes to the system's allocator unchanged. Counting neither allocates nor
// unwinds: the thread-local is const-initialised and has no destructor.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The number of allocations of `f` on this thread.
pub(crate) fn count(f: impl FnOnce()) -> u64 {
    let before = COUNT.with(Cell::get);
    f();
    COUNT.with(Cell::get) - before
}

fn trace() {
    let _root = info_span!("root").entered();
    for _ in 0..3 {
        let _child = info_span!("child").entered();
        for _ in 0..2 {
            let _leaf = info_span!("leaf").entered();
        }
    }
}

/// Allocations on this thread in a hundred traces of ten spans, after a warm-up.
fn allocations(change: impl FnOnce(Builder) -> Builder) -> u64 {
    let world = world(|builder| change(builder).with_batch_spans(1));
    let mut total = 0;
    world.inside(|| {
        for _ in 0..100 {
            trace();
            // The exporter's thread returns the buffers, so that the next traces reuse them.
            world.handle.flush(crate::support::TIMEOUT).unwrap();
        }
        for _ in 0..100 {
            total += count(trace);
            world.handle.flush(crate::support::TIMEOUT).unwrap();
        }
    });
    total
}

#[test]
fn below_a_dropped_root_nothing_is_allocated() {
    for dropped_spans in [DroppedSpans::Visible, DroppedSpans::Disabled] {
        let dropping = |mode| {
            allocations(|b| {
                b.with_sampler("never".parse().unwrap())
                    .with_dropped_spans(dropped_spans)
                    .with_context_mode(mode)
            })
        };
        assert_eq!(dropping(ContextMode::Off), 0, "{dropped_spans:?}");
        // One per trace: the root's context, which tells callees that the trace is dropped.
        assert_eq!(dropping(ContextMode::Ids), 100, "{dropped_spans:?}");
        assert_eq!(dropping(ContextMode::Recording), 100, "{dropped_spans:?}");
    }
}

#[test]
fn a_kept_span_allocates_its_context_and_nothing_else() {
    let every = |mode| allocations(|b| b.with_sampler("every:1".parse().unwrap()).with_context_mode(mode));
    assert_eq!(every(ContextMode::Off), 0);
    assert_eq!(every(ContextMode::Ids), 1_000);
    assert_eq!(every(ContextMode::Recording), 2_000);
}

/// The weight in our own form is one allocation, shared by the spans of the trace, and none for
/// probability 1. The API's contexts own copies of it: the list, the key and the value; with
/// `Recording` the API makes another copy for the span in the context. They are cloned from a trace
/// state that each trace builds with its first context, which costs less than formatting the value
/// for each.
#[test]
fn a_weight_allocates_once_and_the_copies_of_contexts() {
    for random in [RandomSource::Independent, RandomSource::Stratified] {
        // All traces are kept here, whatever their randomness.
        let ratio = |b: Builder| b.with_sampler("ratio:0.999999999999".parse().unwrap()).with_random(random);
        let weighed = |mode| allocations(|b| ratio(b).with_context_mode(mode));
        let roots = 100;
        assert_eq!(weighed(ContextMode::Off), roots);
        assert_eq!(weighed(ContextMode::Ids), 1_000 * (1 + 3) + roots * (1 + 3));
        assert_eq!(weighed(ContextMode::Recording), 1_000 * (2 + 6) + roots * (1 + 3));
        let certain = |mode| allocations(|b| b.with_context_mode(mode));
        assert_eq!(certain(ContextMode::Off), 0);
        assert_eq!(certain(ContextMode::Ids), 1_000 * (1 + 3));
    }
}

#[test]
fn attributes_and_events_of_plain_values_allocate_nothing_more() {
    let world = world(|builder| builder.with_context_mode(ContextMode::Off).with_batch_spans(1));
    let trace = || {
        let _root = info_span!("root", method = "GET", size = 5, ratio = 0.5, flag = true).entered();
        info!(n = 1, "a message");
    };
    world.inside(|| {
        let mut last = u64::MAX;
        for _ in 0..50 {
            last = count(trace);
            world.handle.flush(crate::support::TIMEOUT).unwrap();
        }
        assert_eq!(last, 0);
    });
}
