//! More than a service should do: bounded, counted, and without a panic.

use std::sync::Arc;

use astracer_baggage::{Applications, BranchExt as _, Flows, Fork, Packed, Registry, branch_fn, flow};
use astracer_testing::{size, world};
use tracing::info_span;

use crate::service::service;

/// Branches that exist at once, and are never joined.
#[test]
fn a_million_branches_that_are_never_joined() {
    let count = size(300_000, 1_000_000) as usize;
    let service = service();
    service.world.inside(|| {
        info_span!("root").in_scope(|| {
            service.notes.add("before");
            // The span is the root's; only flows are bounded here.
            let branches: Vec<_> = (0..count).map(|_| async {}.branch()).collect();
            let stats = service.stats();
            assert_eq!((stats.open, stats.branches), (262_144, 262_143));
            assert_eq!(stats.refused, count as u64 - 262_143);
            drop(branches);
            assert_eq!(service.stats().dropped, 262_143);
            // There is room again.
            branch_fn(|| service.notes.add("after"))().join();
            assert_eq!(service.notes.seen(), ["after", "before"]);
        });
    });
    service.check_sums();
}

#[test]
fn without_room_branches_share_their_parents_flow() {
    let registry = Registry::default();
    let flows = Flows::bounded(Applications::new(&registry), 1);
    let notes = crate::service::Notes(registry.register("notes", 0).unwrap());
    let world = world(|builder| builder.with_observer(Arc::new(flows.clone())));
    world.inside(|| {
        info_span!("root").in_scope(|| {
            branch_fn(|| notes.add("shared"))().join();
            let fork = Fork::here();
            fork.run(|| notes.add("fork"));
            fork.join();
            Packed::new(()).clone().merge();
            Packed::new(()).adopt_fn(|()| notes.add("adopted"));
            assert_eq!(notes.seen(), ["adopted", "fork", "shared"]);
            // A second request has no flow, and is in none.
            info_span!(parent: None, "other").in_scope(|| {
                assert!(notes.seen().len() == 3);
            });
        });
    });
    let stats = flows.stats();
    assert_eq!((stats.open, stats.branches, stats.dropped), (0, 0, 0));
    assert!(stats.refused >= 6, "{stats:?}");
}

/// A branch for which there was no room is not merged elsewhere.
#[test]
fn a_shared_flow_is_not_merged() {
    let registry = Registry::default();
    let flows = Flows::bounded(Applications::new(&registry), 2);
    let notes = crate::service::Notes(registry.register("notes", 0).unwrap());
    let world = world(|builder| builder.with_observer(Arc::new(flows.clone())));
    world.inside(|| {
        let one = info_span!("one").entered();
        let two = info_span!(parent: None, "two");
        two.in_scope(|| ());
        let done = branch_fn(|| notes.add("one"))();
        let message = Packed::new(());
        two.in_scope(|| {
            done.join();
            message.merge();
            assert!(notes.seen().is_empty());
        });
        assert_eq!(notes.seen(), ["one"]);
        // The flow still has its root: one of another trace does not take it.
        drop(two);
        info_span!(parent: None, "three").in_scope(|| assert!(notes.seen().is_empty()));
        drop(one);
    });
    assert_eq!((flows.stats().open, flows.stats().refused), (0, 2));
}

/// Each branch forks the next one, and the first ones end before.
#[test]
fn a_long_chain_of_branches_keeps_nothing() {
    let service = service();
    service.world.inside(|| {
        info_span!("root").in_scope(|| {
            let mut last = branch_fn(|| ())();
            for _ in 0..100_000 {
                let packed = Packed::new(last);
                last = packed.adopt_fn(|before| {
                    before.join();
                    branch_fn(|| ())()
                });
            }
            assert!(service.stats().open < 10, "{:?}", service.stats());
            last.join();
        });
    });
    assert_eq!(service.stats().open, 0);
}

#[test]
fn a_million_values_and_members_in_a_flow() {
    let service = service();
    service.world.inside(|| {
        info_span!("root").in_scope(|| {
            for number in 0..size(20_000, 1_000_000) {
                service.notes.add(&number.to_string());
                flow::set(&format!("key {number}"), "value").unwrap();
            }
            flow::set("large", &"x".repeat(1 << 20)).unwrap();
            let bytes = flow::with(|baggage| baggage.serialize(usize::MAX, &Registry::default()).len());
            assert!(bytes.unwrap() <= 16 << 10);
            assert!(flow::with(|baggage| !baggage.is_complete()).unwrap());
        });
    });
    assert!(service.stats().losses.values > 20_000);
}

/// Guards that are leaked: a thread follows a bounded number of flows.
#[test]
fn leaked_guards() {
    let service = service();
    service.world.inside(|| {
        for _ in 0..5_000 {
            std::mem::forget(info_span!(parent: None, "leaked").entered());
        }
        let stats = service.stats();
        assert_eq!(stats.refused, 5_000 - 4_096);
        assert!(flow::with(|_| ()).is_ok());
    });
}
