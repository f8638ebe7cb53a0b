//! Tests that need threads: the cost of a flood of new names, and complete counts.

use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use super::tally::Tally;
use super::*;
use crate::bump::{Bump, BumpPolicy};
use crate::probability::Probability;
use crate::randomness::Randomness;

/// An idle time of 8 s, so a full table sweeps once a second.
fn full_table() -> Table<BumpPolicy> {
    let bump = Bump::new(1.0, Probability::ZERO, Nanos::from_secs(1)).unwrap();
    let limits = Limits::single_threaded().with_keys(1).with_idle(Nanos::from_secs(8));
    Table::new(&PerKey::new(bump), |bump| BumpPolicy::lone(bump, 1), limits)
}

fn reason(table: &Table<BumpPolicy>, key: &str, millis: u64) -> Reason {
    table.decide(&Request::new(key, Randomness::MAX, Nanos::from_millis(millis))).reason
}

#[test]
fn a_new_key_that_finds_no_room_takes_no_lock_until_the_next_look() {
    let table = Arc::new(full_table());
    assert_ne!(reason(&table, "a", 100_000), Reason::Overflow);
    assert_eq!(reason(&table, "b", 100_000), Reason::Overflow);
    let held = table.locked();
    let (tell, told) = mpsc::channel();
    let other = Arc::clone(&table);
    std::thread::spawn(move || {
        let reasons = [100_000, 100_999].map(|millis| reason(&other, "c", millis));
        tell.send(reasons)
    });
    // The timeout is for a failure, in which the thread would wait for the lock forever.
    let reasons = told.recv_timeout(Duration::from_secs(60)).expect("takes no lock");
    assert_eq!(reasons, [Reason::Overflow; 2]);
    drop(held);
    // "a" has long been idle by then: the next sweep evicts it, and the one after frees its record.
    assert_eq!(reason(&table, "c", 110_000), Reason::Overflow);
    assert_ne!(reason(&table, "c", 111_000), Reason::Overflow);
}

/// More threads at once than have a shard of their own: those that share a shard must not overwrite
/// each other. Whether a fault would show depends on the machine; correct code always passes.
#[test]
fn no_call_is_lost_however_few_shards_there_are() {
    const THREADS: u64 = 24;
    const CALLS: u64 = 100_000;
    for shards in [1, 2, 4, 8, 16] {
        let (tallies, barrier) = (Tallies::new(shards, 1), Barrier::new(THREADS as usize));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    (0..CALLS).for_each(|_| {
                        tallies.add(0, 1, true);
                    });
                });
            }
        });
        assert_eq!(tallies.read(0), Tally([[0, 0], [0, THREADS * CALLS]]), "{shards} shards");
    }
}
