//! Roots whose handles live on after they were left for the last time: they end in the past, as
//! spans of connections and of tasks that somebody still holds do. What is put to the policies is
//! late then, and the time has gone on for all others.

use std::time::Duration;

use tracing::{Span, error, info_span};

use crate::support::{World, world};
use crate::tail::{check_sums, request, requests, tail};

/// Its traces wait for their roots for as long as these take.
fn dropping(policies: &str) -> World {
    world(|builder| {
        let builder = builder.with_sampler("never".parse().unwrap()).with_tail(tail(policies));
        builder.with_trace_age_max(Duration::from_secs(86_400))
    })
}

/// Roots that are left now, and whose handles are held.
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

/// Their time is over when they come; that of the others is not.
#[test]
fn a_root_that_was_left_long_ago_takes_no_time_from_others() {
    let world = dropping("error");
    inside(&world, || {
        let left = left(50, false);
        world.clock.advance(Duration::from_secs(10));
        let held: Vec<_> = (0..20).map(|_| request(false)).collect();
        drop(left);
        let found = held.iter().filter(|trace_id| world.handle.keep(**trace_id)).count();
        assert_eq!(found, 20, "they have been held for no time: {:?}", world.handle.stats().tail);
    });
    check_sums(&world.handle);
}

/// The published worst case holds for the time in which traces are kept, wherever their roots
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
    assert!(policy.kept <= 2, "{policy:?}: two at once, and no time has passed");
    check_sums(&world.handle);
}

/// A threshold that has the calls it needs stays, though a root comes that was left before them.
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
        // The first is a generation of its own. The 512th after it is one of those at which
        // thresholds are computed, and the 768th.
        drop(early);
        (0..256).for_each(|call| usual(500 + call));
        usual(1_000_000);
    });
    let spans = world.exported();
    let durations = spans.iter().map(|span| span.end_time.duration_since(span.start_time).unwrap());
    assert_eq!(durations.max(), Some(Duration::from_secs(1)));
}
