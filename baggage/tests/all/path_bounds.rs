//! Hostile conditions of critical paths: clocks that step back, many branches, panics.

use std::sync::Arc;
use std::time::Duration;

use astracer_baggage::critical_path::{CriticalPath, Note};
use astracer_baggage::{Application, Applications, Flows, Place, Registry, View, branch_fn};
use astracer_sdk::DroppedSpans;
use astracer_testing::world;
use tracing::info_span;

use crate::critical_paths::{Service, sampling};

/// A clock that steps back takes no time away.
#[test]
fn a_clock_may_step_back() {
    let service = sampling("never", DroppedSpans::default());
    let own = service.clone();
    service.world.inside(|| {
        info_span!("request").in_scope(|| {
            own.work(4);
            info_span!("child").in_scope(|| {
                own.world.clock.set_back(Duration::from_millis(3));
            });
            branch_fn(|| own.work(2))().join();
            own.work(4);
        });
    });
    let row = service.row();
    assert_eq!(row.total_ns, row.functions.iter().map(|part| part.nanos).sum::<u64>());
    assert!(service.paths.stats().clock_back > 0);
}

/// A million branches that nobody joins: each is forgotten when it ends.
#[test]
fn a_million_branches_are_never_joined() {
    let service = sampling("never", DroppedSpans::default());
    service.world.inside(|| {
        info_span!("request").in_scope(|| {
            let mut results = Vec::new();
            for number in 0..astracer_testing::size(20_000, 1_000_000) {
                let branch = branch_fn(|| ());
                if number % 2 == 0 {
                    results.push(branch());
                }
                results.truncate(1_000);
            }
            service.work(1);
        });
    });
    service.check(1, &[("request", "work", 1)]);
    assert_eq!(service.flows.stats().open, 0);
}

/// If 70 spans are inside each other, the last 6 count for the one around. A way has 64 parts.
#[test]
fn spans_may_be_deep() {
    fn nest(service: &Service, depth: u32) {
        service.work(1);
        if depth < 70 {
            info_span!("child").in_scope(|| nest(service, depth + 1));
        }
    }
    let service = sampling("never", DroppedSpans::default());
    service.world.inside(|| info_span!("request").in_scope(|| nest(&service, 0)));
    service.check(71, &[("request", "work", 1), ("child", "work", 63), ("(others)", "work", 7)]);
    assert_eq!(service.paths.stats().too_deep, 6);
}

/// A branch that ended before the flow's last event: what followed was work, on the flow's own way
/// and in every way that goes on from it.
#[test]
fn a_branch_that_ended_before_was_not_waited_for() {
    let paths = CriticalPath::default();
    let mut note = Note::start(&paths, 0, "request");
    let (mut early, mut late) = (note.fork(&paths, 0), note.fork(&paths, 0));
    for (branch, end) in [(&mut early, 2), (&mut late, 20)] {
        branch.start_branch(&paths, 0, true);
        branch.end(&paths, end);
    }
    note.enter_function(&paths, 5, "f");
    note.join(&paths, 10, early, true);
    note.join(&paths, 30, late, true);
    note.end(&paths, 30);
    // Through `late` 20, its own 10, through `early` 2; and then 10 until 30.
    let lengths: Vec<u64> = note.longest(&paths).iter().map(|way| way.total_ns).collect();
    assert_eq!(lengths, [30, 20, 12]);
}

/// A request of many stretches and joins keeps the last 32 stretches, and its whole time.
#[test]
fn a_long_request_has_bounds() {
    let paths = CriticalPath::default();
    let mut note = Note::start(&paths, 0, "request");
    let mut now = 0;
    for number in 0..astracer_testing::size(20_000, 1_000_000) {
        now += 1;
        note.enter_function(&paths, now, ["f", "g", "h"][number as usize % 3]);
        now += 2;
        let mut branch = note.fork(&paths, now);
        branch.start_branch(&paths, now, true);
        note.wait_for_branch(&paths, now);
        now += 3;
        branch.end(&paths, now);
        note.join(&paths, now, branch, true);
        note.exit_function(&paths, now);
    }
    note.end(&paths, now);
    let ways = note.longest(&paths);
    assert_eq!((ways.len(), ways[0].total_ns), (8, now));
    assert_eq!(ways[0].functions.iter().map(|part| part.nanos).sum::<u64>(), now);
    assert!(ways[0].segments.len() == 32 && ways[0].functions.len() == 4);
}

/// A panic in the code of a request, and in an application's handler, leaves the times whole.
#[test]
fn panics_leave_the_path_whole() {
    struct Panics;
    impl Application for Panics {
        fn pre_split(&self, _: &mut View<'_>) {
            panic!("on purpose");
        }
        fn post_merge(&self, _: &mut View<'_>) {
            panic!("on purpose");
        }
        fn enter(&self, _: &mut View<'_>, _: Place<'_>) {
            panic!("on purpose");
        }
        fn suspend(&self, _: &mut View<'_>) {
            panic!("on purpose");
        }
    }
    let paths = CriticalPath::default();
    let applications = Applications::new(&Registry::default()).with_critical_path(&paths).with([], Panics);
    let flows = Flows::new(applications);
    let world = Arc::new(world(|builder| builder.with_observer(Arc::new(flows.clone()))));
    let service = Service { world, paths, flows };
    service.world.inside(|| {
        info_span!("request").in_scope(|| {
            service.work(1);
            let done = branch_fn(|| info_span!("child").in_scope(|| service.work(2)))();
            done.join();
            let fails = || {
                info_span!("fails").in_scope(|| -> () {
                    service.work(4);
                    panic!("on purpose")
                })
            };
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(fails)).is_err());
            service.work(8);
        });
    });
    service.check(15, &[("request", "work", 9), ("child", "work", 2), ("fails", "work", 4)]);
    assert!(service.flows.stats().losses.panics > 3);
}
