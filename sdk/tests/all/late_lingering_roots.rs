//! Roots whose handles live on after their last exit, like spans of connections and of tasks that
//! are still held. They end in the past: they reach the policies late, while time has advanced for
//! all others.

use std::time::Duration;

use tracing::{Span, error, info_span};

use crate::late::{check_sums, request, requests, tail};
use crate::support::{World, world};

/// A world whose traces wait for their roots however long these take.
fn dropping(policies: &str) -> World {
    world(|builder| {
        let builder = builder.with_sampler("never".parse().unwrap()).with_tail(tail(policies));
        builder.with_trace_age_max(Duration::from_secs(86_400))
    })
}

/// Roots that are exited now, and whose handles are held.
fn left(number: usize, fail: bool) -> Vec<Span> {
    let one = || {
        let root = info_span!("left");
        root.in_scope(|| fail.then(|| error!("failed")));
        root
    };
    (0..number).map(|_| one()).collect()
}

fn inside(world: &World, f: impl FnOnce()) {
    tracing::dispatcher::with_default(&world.dispatch, f);
}

/// Their hold is over when they end; the hold of the others is not.
#[test]
fn a_root_that_was_left_long_ago_takes_no_time_from_others() {
    let world = dropping("error");
    inside(&world, || {
        let left = left(50, false);
        world.clock.advance(Duration::from_secs(10));
        let held: Vec<_> = (0..20).map(|_| request(false)).collect();
        drop(left);
        let found = held.iter().filter(|trace_id| world.handle.keep(**trace_id)).count();
        assert_eq!(found, 20, "their hold has just begun: {:?}", world.handle.stats().tail);
    });
    check_sums(&world.handle);
}

/// The documented worst case applies to the time at which traces are kept, whenever their roots
/// ended.
#[test]
fn roots_that_were_left_long_ago_do_not_fill_a_budget_up() {
    let world = dropping("error(traces=1,burst=2)");
    inside(&world, || {
        let left = left(100, true);
        world.clock.advance(Duration::from_secs(90));
        for root in left {
            requests(2, true);
            drop(root);
        }
    });
    let policy = &world.handle.stats().tail.policies[0];
    assert!(policy.kept <= 2, "{policy:?}: the burst is two, and no time has passed");
    check_sums(&world.handle);
}

/// A threshold with enough calls stays, even if a root comes that was exited before those calls.
#[test]
fn a_root_that_was_left_long_ago_does_not_forget_durations() {
    let world = dropping("slow:p99()");
    inside(&world, || {
        let root = || info_span!("root");
        let early = root();
        early.in_scope(|| ());
        world.clock.advance(Duration::from_secs(3_600));
        let usual = |micros: u64| root().in_scope(|| world.clock.advance(Duration::from_micros(micros)));
        (0..512).for_each(|call| usual(500 + call));
        // The first is a generation of its own. Thresholds are computed at the 512th and the 768th
        // call after it, among others.
        drop(early);
        (0..256).for_each(|call| usual(500 + call));
        usual(1_000_000);
    });
    let spans = world.exported();
    let durations = spans.iter().map(|span| span.end_time.duration_since(span.start_time).unwrap());
    assert_eq!(durations.max(), Some(Duration::from_secs(1)));
}
