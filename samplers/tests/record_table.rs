//! The record table: bounded, counting every call, and equivalent to a map behind a lock.

use std::collections::HashMap;
use std::sync::Mutex;

use astracer_samplers::{Counts, Limits, Nanos, Reason, Request, Sampler, Snapshot};
use astracer_testing::SplitMix;

use crate::common::{Draw as _, call, limited, sampler, unlucky};

fn counts(snapshot: &Snapshot, key: &str) -> Option<Counts> {
    snapshot.keys.iter().find(|counts| counts.key == key).map(|counts| counts.counts)
}

fn seen(snapshot: &Snapshot) -> u64 {
    snapshot.keys.iter().map(|key| key.counts.seen()).sum::<u64>()
        + snapshot.overflow.seen()
        + snapshot.evicted.seen()
}

#[test]
fn keys_are_counted_apart_and_listed_in_order() {
    let sampler = sampler("bump:lambda=1,min=0.5");
    let long = "x".repeat(100);
    for key in ["b", "", "a", "größe", &long, "b", "b"] {
        let _ = call(&sampler, key, 0);
    }
    for _ in 0..2 {
        let _ = unlucky(&sampler, "b", 0);
    }
    let snapshot = sampler.snapshot().unwrap();
    let keys: Vec<&str> = snapshot.keys.iter().map(|key| key.key.as_str()).collect();
    assert_eq!(keys, ["", "a", "b", "größe", &format!("{}…", "x".repeat(80))]);
    let b = counts(&snapshot, "b").unwrap();
    assert_eq!((b.seen(), b.kept(), b.dropped()), (5, 3, 2));
    // f(1) = 1 - 1/e = 0.63; f(2) = 0.22 is below the minimum.
    assert_eq!((b.kept_by(Reason::Bump), b.kept_by(Reason::BumpMinimum)), (2, 1));
    assert_eq!((b.dropped_by(Reason::Bump), b.dropped_by(Reason::BumpMinimum)), (0, 2));
    assert_eq!((snapshot.keys_max, snapshot.keys_evicted), (10_000, 0));
}

#[test]
fn long_keys_are_told_apart_behind_their_prefix() {
    let sampler = sampler("bump:lambda=0");
    let (one, two) = (format!("{}1", "x".repeat(200)), format!("{}2", "x".repeat(200)));
    assert!(unlucky(&sampler, &one, 0).keep && unlucky(&sampler, &two, 0).keep);
    assert!(!unlucky(&sampler, &one, 0).keep && !unlucky(&sampler, &two, 0).keep);
    assert_eq!(sampler.snapshot().unwrap().keys.len(), 2);
}

/// The first ten thousand keys have records of their own, and the next does not.
#[test]
fn holds_as_many_keys_as_it_says() {
    for keys in [0, 1, 2, 7, 100, 10_000] {
        let sampler = limited("bump:lambda=0", Limits::single_threaded().with_keys(keys));
        for key in 0..keys + 2 {
            let decision = unlucky(&sampler, &format!("GET /users/{key}"), 0);
            let reason = if key < keys { Reason::Bump } else { Reason::Overflow };
            assert_eq!((decision.reason, decision.keep), (reason, key <= keys), "key {key} of {keys}");
        }
        let snapshot = sampler.snapshot().unwrap();
        assert_eq!((snapshot.keys.len() as u32, snapshot.keys_max), (keys, keys));
        assert_eq!((snapshot.overflow.kept(), snapshot.overflow.dropped()), (1, 1));
    }
}

/// Names that occur once: the overflow record decides about them as about a single key, so few are
/// kept.
#[test]
fn unique_names_do_not_defeat_the_limit() {
    for (config, kept_max) in [("bump:lambda=10", 1_000 + 100), ("bucket:capacity=50,rate=2", 1_000 + 50)] {
        // 1,000 keys get a record, and their first calls are kept. All other keys share one budget:
        // 1 + 10 sqrt(pi) = 18.7 on average, for which 100 is more than 6 standard deviations away;
        // or 50 tokens.
        let limits = Limits::single_threaded().with_keys(1_000);
        let (sampler, mut random, mut kept) = (limited(config, limits), SplitMix::new(11), 0);
        for i in 0..200_000 {
            let key = format!("GET /users/{i}");
            kept += u32::from(sampler.decide(&Request::new(&key, random.randomness(), Nanos::ZERO)).keep);
        }
        assert!((1_000..=kept_max).contains(&kept), "{config}: kept {kept}, seed 11");
        let snapshot = sampler.snapshot().unwrap();
        assert_eq!((snapshot.keys.len(), snapshot.overflow.seen()), (1_000, 199_000));
    }
}

/// The overflow record uses the default parameters, even for a key whose own parameters are
/// configured.
#[test]
fn an_overridden_key_without_a_record_counts_as_any_other() {
    let config = r#"bucket:capacity=1,rate=1;"big":capacity=9"#;
    let sampler = limited(config, Limits::single_threaded().with_keys(1));
    let _ = call(&sampler, "first", 0);
    let kept = (0..10).filter(|_| call(&sampler, "big", 0).keep).count();
    assert_eq!(kept, 1);
}

/// An idle time of 8 s. A full table sweeps once a second, and evicts one of its four keys.
fn small(config: &str) -> Sampler {
    limited(config, Limits::single_threaded().with_keys(4).with_idle(Nanos::from_secs(8)))
}

#[test]
fn the_longest_idle_key_leaves_first_and_rests_before_its_record_changes_hands() {
    let sampler = small("bump:lambda=10");
    for key in ["a", "b", "c", "d"] {
        assert!(unlucky(&sampler, key, 0).keep);
    }
    let _ = call(&sampler, "b", 1_500);
    let _ = call(&sampler, "c", 2_500);
    let _ = call(&sampler, "a", 5_500);
    // `d` has been idle since its window ended, at 1 s: not yet for 8 s.
    assert_eq!(call(&sampler, "new", 8_999).reason, Reason::Overflow);
    assert_eq!(call(&sampler, "new", 9_998).reason, Reason::Overflow, "a sweep each second");
    assert!(counts(&sampler.snapshot().unwrap(), "d").is_some());
    assert_eq!(
        call(&sampler, "new", 9_999).reason,
        Reason::Overflow,
        "d is evicted, and its record is not free yet"
    );
    let snapshot = sampler.snapshot().unwrap();
    assert!(counts(&snapshot, "d").is_none() && counts(&snapshot, "b").is_some());
    assert_eq!((snapshot.keys_evicted, snapshot.evicted.seen()), (1, 1));
    assert_eq!(call(&sampler, "new", 10_998).reason, Reason::Overflow);
    assert_eq!(call(&sampler, "new", 10_999).reason, Reason::Bump, "b is evicted, idle since 2 s");
    let snapshot = sampler.snapshot().unwrap();
    let keys: Vec<&str> = snapshot.keys.iter().map(|key| key.key.as_str()).collect();
    assert_eq!(keys, ["a", "c", "new"]);
    assert_eq!((snapshot.keys_evicted, snapshot.evicted.seen(), snapshot.overflow.seen()), (2, 3, 4));
    assert_eq!(seen(&snapshot), 4 + 3 + 5);
}

#[test]
fn keys_in_use_do_not_leave() {
    let sampler = small("bump:lambda=10");
    for second in 0..100 {
        for key in ["a", "b", "c", "d"] {
            assert_eq!(call(&sampler, key, second * 1_000).reason, Reason::Bump);
        }
        assert_eq!(call(&sampler, "new", second * 1_000).reason, Reason::Overflow);
    }
}

/// With a constant probability nothing is counted, and still a key in use is not evicted, however
/// many others come.
#[test]
fn keys_in_use_that_are_not_counted_do_not_leave() {
    for (config, a, b) in [
        (r#"bump:lambda=10;"a":min=1,count=none"#, Reason::BumpMinimum, Reason::Bump),
        ("bump:lambda=0,min=1,count=none", Reason::BumpMinimum, Reason::BumpMinimum),
    ] {
        let sampler = small(config);
        for second in 0..100 {
            for (key, reason) in [("a", a), ("b", b), ("c", b), ("d", b)] {
                assert_eq!(call(&sampler, key, second * 1_000).reason, reason, "{config}: {key}");
            }
            assert_eq!(call(&sampler, "new", second * 1_000).reason, Reason::Overflow);
            assert_eq!(call(&sampler, "a", second * 1_000 + 500).reason, a, "{config}, {second} s");
        }
        assert_eq!(counts(&sampler.snapshot().unwrap(), "a").unwrap().seen(), 200, "{config}");
        // The last calls' unit of 2^30 ns ended at 99.9 s.
        let _ = call(&sampler, "new", 107_500);
        assert_eq!(sampler.snapshot().unwrap().keys_evicted, 0, "{config}");
        let _ = call(&sampler, "new", 109_000);
        assert_eq!(sampler.snapshot().unwrap().keys_evicted, 1, "{config}");
    }
}

/// A bucket that is not full holds its key's debt: the key stays until the bucket is full, and
/// counts as idle from then on.
#[test]
fn a_bucket_stays_until_it_is_full() {
    // One token in 20 s: full at 20 s, and idle for 8 s at 28 s.
    let sampler = small("bucket:capacity=1,rate=0.05");
    for key in ["a", "b", "c", "d"] {
        assert!(call(&sampler, key, 0).keep);
    }
    for second in [9, 15, 27] {
        let _ = call(&sampler, "new", second * 1_000);
        assert_eq!(sampler.snapshot().unwrap().keys_evicted, 0, "{second} s");
    }
    let _ = call(&sampler, "new", 28_000);
    assert_eq!(sampler.snapshot().unwrap().keys_evicted, 1);
}

#[test]
fn a_key_that_comes_back_begins_anew() {
    let sampler = small("bump:lambda=0");
    for (key, second) in
        [("a", 0), ("b", 3), ("c", 3), ("d", 3), ("new", 9), ("new", 10), ("a", 10), ("a", 30), ("a", 31)]
    {
        let _ = call(&sampler, key, second * 1_000);
    }
    let snapshot = sampler.snapshot().unwrap();
    // Twice more in the overflow record, then with its own record.
    assert_eq!(counts(&snapshot, "a").map(|counts| counts.seen()), Some(1));
    assert_eq!(seen(&snapshot), 9);
}

#[test]
fn a_clock_set_back_does_not_lock_new_keys_out() {
    let sampler = small("bump:lambda=10");
    for key in ["a", "b", "c", "d", "e"] {
        let _ = call(&sampler, key, 1_000_000);
    }
    // The clock was set back: all records are from the future, so they count as idle and are
    // evicted.
    let reasons = [0, 1_000, 2_000].map(|millis| call(&sampler, "new", millis).reason);
    assert_eq!(reasons, [Reason::Overflow, Reason::Bump, Reason::Bump]);
}

#[test]
fn limits_are_what_was_asked_for_within_reason() {
    let default = Limits::default();
    assert_eq!((default.keys(), default.idle(), default.shards()), (10_000, Nanos::from_secs(60), 16));
    assert_eq!(Limits::single_threaded(), default.with_shards(1));
    assert_eq!(default.with_keys(u32::MAX).keys(), 1 << 24);
    assert_eq!(default.with_idle(Nanos::ZERO).idle(), Nanos::new(1));
    assert_eq!([0, 1, 5, 1_000].map(|shards| default.with_shards(shards).shards()), [1, 1, 8, 256]);
}

/// Equivalent to a map behind a lock, in keys, calls and kept calls, for threads that call at
/// random.
#[test]
fn counts_as_a_map_behind_a_lock_does() {
    const THREADS: u64 = 4;
    for (seed, keys) in [(1, 10_000), (2, 16)] {
        let limits = Limits::default().with_keys(keys).with_shards(4);
        let sampler = limited("bump:lambda=3,min=0.1", limits);
        let reference = Mutex::new(HashMap::<String, (u64, u64)>::new());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (sampler, reference) = (&sampler, &reference);
                scope.spawn(move || {
                    let mut random = SplitMix::new(seed * THREADS + thread);
                    let mut own = HashMap::<String, (u64, u64)>::new();
                    for call in 0..20_000 {
                        let key = format!("key {}", random.below(200));
                        let request = Request::new(&key, random.randomness(), Nanos::from_millis(call));
                        let decision = sampler.decide(&request);
                        let key =
                            if decision.reason == Reason::Overflow { "overflow".to_owned() } else { key };
                        let (seen, kept) = own.entry(key).or_default();
                        *seen += 1;
                        *kept += u64::from(decision.keep);
                    }
                    let mut reference = reference.lock().unwrap();
                    for (key, (seen, kept)) in own {
                        let sum = reference.entry(key).or_default();
                        *sum = (sum.0 + seen, sum.1 + kept);
                    }
                });
            }
        });
        let mut reference = reference.into_inner().unwrap();
        let snapshot = sampler.snapshot().unwrap();
        let overflow = reference.remove("overflow").unwrap_or_default();
        assert_eq!((snapshot.overflow.seen(), snapshot.overflow.kept()), overflow, "seed {seed}");
        assert_eq!(snapshot.keys.len(), reference.len(), "seed {seed}");
        assert_eq!(snapshot.keys.len(), (keys as usize).min(200));
        for key in &snapshot.keys {
            assert_eq!(
                (key.counts.seen(), key.counts.kept()),
                reference[&key.key],
                "{}, seed {seed}",
                key.key
            );
        }
    }
}

/// Keys come, are evicted and come back while others read: no call is lost or counted twice, and
/// totals only grow.
#[test]
fn no_call_is_lost_while_keys_come_and_go() {
    const CALLS: u64 = 30_000;
    const THREADS: u64 = 3;
    let limits = Limits::default().with_keys(32).with_shards(2).with_idle(Nanos::from_millis(1));
    let sampler = limited("bump:lambda=1,window=1ms", limits);
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let sampler = &sampler;
                scope.spawn(move || {
                    let mut random = SplitMix::new(thread);
                    for call in 0..CALLS {
                        let key = format!("key {}", random.below(100));
                        let _ = sampler.decide(&Request::new(
                            &key,
                            random.randomness(),
                            Nanos::new(call * 10_000),
                        ));
                    }
                })
            })
            .collect();
        let mut least = 0;
        while callers.iter().any(|caller| !caller.is_finished()) {
            let snapshot = sampler.snapshot().unwrap();
            assert!(snapshot.keys.len() <= 32);
            assert!((least..=CALLS * THREADS).contains(&seen(&snapshot)));
            least = seen(&snapshot);
        }
    });
    let snapshot = sampler.snapshot().unwrap();
    assert_eq!(seen(&snapshot), CALLS * THREADS);
    assert!(snapshot.keys_evicted > 0);
}

/// If several keys may be evicted, the longest idle one is, whatever the order in which they came;
/// among equally idle ones, the one that came first.
#[test]
fn the_longest_idle_key_leaves_first() {
    let names = |sampler: &Sampler| {
        sampler.snapshot().unwrap().keys.into_iter().map(|key| key.key).collect::<Vec<_>>().join(" ")
    };
    for (last_calls, rest) in [
        ([("a", 3), ("b", 0), ("c", 2), ("d", 1)], ["a c d", "a c n0", "a n0 n1"]),
        ([("a", 0), ("b", 1), ("c", 2), ("d", 3)], ["b c d", "c d n0", "d n0 n1"]),
        ([("a", 3), ("b", 3), ("c", 3), ("d", 3)], ["b c d", "c d n0", "d n0 n1"]),
    ] {
        for config in ["bump:lambda=1", "bump:lambda=1,tau=100ms", "bucket:capacity=1,rate=1"] {
            // Four records, of which a sweep evicts a sixteenth: one.
            let sampler = small(config);
            for key in ["a", "b", "c", "d"] {
                let _ = call(&sampler, key, 0);
            }
            for (key, second) in last_calls {
                let _ = call(&sampler, key, second * 1_000);
            }
            // Each sweep evicts one key, and frees its record at the next sweep.
            for (look, rest) in rest.into_iter().enumerate() {
                let new = format!("n{}", look.saturating_sub(1));
                let _ = call(&sampler, &new, 20_000 + 1_000 * look as u64);
                if look > 0 {
                    // The key that arrives at this sweep takes the free record; the table is full
                    // again, and sweeps once more.
                    let _ = call(&sampler, &format!("n{look}"), 20_000 + 1_000 * look as u64);
                }
                assert_eq!(names(&sampler), rest, "{config}, {last_calls:?}, look {look}");
            }
        }
    }
}
