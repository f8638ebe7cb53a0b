//! What a flood of new names costs.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::bump::{Bump, BumpLaw};
use crate::probability::Probability;
use crate::randomness::Randomness;

/// Idle for 8 s: a full table looks for room once a second.
fn full_table() -> Table<BumpLaw> {
    let bump = Bump::new(1.0, Probability::ZERO, Nanos::from_secs(1)).unwrap();
    let limits = Limits::single_threaded().with_keys(1).with_idle(Nanos::from_secs(8));
    Table::new(&PerKey::new(bump), |bump| BumpLaw::new(bump, 1), limits)
}

fn reason(table: &Table<BumpLaw>, key: &str, millis: u64) -> Reason {
    table.decide(&Request::new(key, Randomness::MAX, Nanos::from_millis(millis))).reason
}

#[test]
fn a_new_key_that_finds_no_room_takes_no_lock_until_the_next_look() {
    let table = Arc::new(full_table());
    assert_ne!(reason(&table, "a", 100_000), Reason::Overflow);
    assert_eq!(reason(&table, "b", 100_000), Reason::Overflow);
    let held = table.rooms();
    let (tell, told) = mpsc::channel();
    let other = Arc::clone(&table);
    std::thread::spawn(move || {
        let reasons = [100_000, 100_999].map(|millis| reason(&other, "c", millis));
        tell.send(reasons)
    });
    // The time is for a fault, which would wait for the lock forever.
    let reasons = told.recv_timeout(Duration::from_secs(60)).expect("no lock is taken");
    assert_eq!(reasons, [Reason::Overflow; 2]);
    drop(held);
    // "a" has been idle for long by then: it leaves at the next look, and its record can be had at the one after.
    assert_eq!(reason(&table, "c", 110_000), Reason::Overflow);
    assert_ne!(reason(&table, "c", 111_000), Reason::Overflow);
}
