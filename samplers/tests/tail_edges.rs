//! Policies at the end of a trace: large numbers, and many keys.

use std::collections::HashSet;
use std::sync::Barrier;

use astracer_samplers::tail::{
    Condition, Decided, Ended, KeyNumber, Limits, Policy, ProvisionalMode, Severity, SlowFrom, Tail,
    TailSampler, Trace, Value,
};
use astracer_samplers::{Nanos, Randomness};

fn condition(text: &str) -> Condition {
    match text.parse::<Policy>() {
        Ok(Policy::Attribute(condition)) => condition,
        other => panic!("{text}: {other:?}"),
    }
}

/// 64-bit ids have more digits than a double: the requested id is kept, and its neighbours are not.
#[test]
fn whole_numbers_are_compared_digit_by_digit() {
    const ID: i64 = 1_234_567_890_123_456_789;
    let (equal, greater) = (condition(&format!("attr:id={ID}")), condition(&format!("attr:id>{ID}")));
    for (id, order) in [(ID - 1, -1), (ID, 0), (ID + 1, 1)] {
        let text = id.to_string();
        for value in [Value::Int(id), Value::Text(&text)] {
            assert_eq!(equal.holds(value), order == 0, "{value:?}");
            assert_eq!(greater.holds(value), order > 0, "{value:?}");
        }
    }
    // Ids of more than 64 bits, such as u128 fields, are texts.
    let large = condition("attr:id=170141183460469231731687303715884105727");
    assert!(large.holds(Value::Text("170141183460469231731687303715884105727")));
    assert!(!large.holds(Value::Text("170141183460469231731687303715884105726")));
}

/// "Keys beyond the first 1,000 are one": the first thousand get records of their own, whatever
/// their names.
#[test]
fn the_first_thousand_keys_have_records() {
    for names in 0..200 {
        let sampler = TailSampler::new(&"error".parse().unwrap(), Limits::default());
        let keys: Vec<_> = (0..1_000).map(|key| sampler.key(&format!("GET /{names}/{key}"))).collect();
        let others = keys.iter().filter(|key| **key == KeyNumber::OTHERS).count();
        assert_eq!(others, 0, "{names}");
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 1_000);
    }
}

/// Threads that meet the last key at once all find its record; none of them is treated as too late.
#[test]
fn the_last_key_has_a_record_for_all_threads() {
    const THREADS: usize = 4;
    for round in 0..2_000 {
        let sampler = TailSampler::new(&"error".parse().unwrap(), Limits::single_threaded().with_keys(2));
        let barrier = Barrier::new(THREADS);
        let keys = || {
            barrier.wait();
            ["first", "last"].map(|key| sampler.key(key))
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(keys)).collect();
            for thread in threads {
                let keys = thread.join().unwrap();
                assert!(!keys.contains(&KeyNumber::OTHERS), "{round}: {keys:?}");
            }
        });
        assert_eq!(sampler.key("beyond"), KeyNumber::OTHERS);
    }
}

/// A third of a second is not a whole number of ns: at any rate, a burst of one admits one trace at
/// a time.
#[test]
fn a_budget_of_any_rate_keeps_something() {
    for tenths in 1..2_000_u64 {
        let rate = tenths as f64 / 10.0;
        let sampler =
            TailSampler::new(&format!("error(traces={rate},burst=1)").parse().unwrap(), Limits::default());
        let failed = |at| Trace {
            key: KeyNumber::OTHERS,
            now: Nanos::new(at),
            duration: Nanos::ZERO,
            severity: Severity::Error,
            shape: 0,
            bytes: 1,
            view: &(),
        };
        let period = (1e9 / rate).ceil() as u64;
        let kept = (0..10).filter(|n| sampler.decide(&failed(1_000 + n * period)) == Decided::Kept(0));
        assert_eq!(kept.count(), 10, "{rate} a second");
    }
}

/// A thread stops counting and leaves its durations behind: after ten minutes they no longer decide
/// which roots are slow.
#[test]
fn durations_of_threads_that_rest_are_no_part_of_quantiles() {
    const SECOND: u64 = 1_000_000_000;
    let sampler = TailSampler::new(&"slow:p99".parse().unwrap(), Limits::default());
    let key = sampler.key("key");
    let count = |shard, at: u64, duration| {
        let (now, duration) = (Nanos::new(at), Nanos::new(duration));
        sampler.count(key, shard, &Ended { now, duration, ..Ended::default() });
    };
    // The last of these begin another generation.
    (0..2_000).for_each(|n| count(0, n * SECOND / 5, SECOND));
    (0..2_000).for_each(|n| count(1, 3_600 * SECOND + n * SECOND / 5, SECOND / 1_000));
    let missed = || sampler.outcomes()[0].missed_slow;
    let before = missed();
    count(1, 4_001 * SECOND, SECOND / 2);
    assert_eq!(missed() - before, 1, "a root that takes 500 times as long as the others is slow");
    let outcomes = &sampler.outcomes()[0];
    assert_eq!((outcomes.calls, outcomes.durations.max()), (4_001, Some(Nanos::new(SECOND))));
}

/// A rarely called key also has a quantile of the last minutes, and none after a pause: calls from
/// hours ago do not count.
#[test]
fn durations_of_hours_ago_are_no_part_of_quantiles() {
    const SECOND: u64 = 1_000_000_000;
    // The next regular check of these calls is far away.
    for calls in [260, 300, 400] {
        for (before, after) in [(SECOND / 100, SECOND / 10), (SECOND, SECOND / 100)] {
            let sampler = TailSampler::new(&"slow:p99()".parse().unwrap(), Limits::single_threaded());
            let key = sampler.key("key");
            let slow = |at: u64, duration| {
                let (now, duration) = (Nanos::new(at), Nanos::new(duration));
                sampler.count(key, 0, &Ended { now, duration, ..Ended::default() });
                let (severity, shape, bytes, view) = (Severity::Fine, 0, 1, &());
                let trace = Trace { key, now, duration, severity, shape, bytes, view };
                sampler.decide(&trace) == Decided::Kept(0)
            };
            (0..calls).for_each(|n| _ = slow(n * SECOND, before));
            // One per second: a hundred within the last minutes, all equally long.
            let later = 7_200 * SECOND;
            assert_eq!((0..150).filter(|n| slow(later + n * SECOND, after)).count(), 0, "{calls}, {after}");
            assert!(slow(later + 150 * SECOND, after * 5), "{calls}: five times as long as {after}");
        }
    }
}

/// "Once the key has had a hundred calls", or a few more.
#[test]
fn a_quantile_is_known_soon_after_the_calls_that_it_needs() {
    let sampler = TailSampler::new(&"slow:p99()".parse().unwrap(), Limits::single_threaded());
    let key = sampler.key("key");
    let known = |_: &u64| {
        sampler.count(key, 0, &Ended { duration: Nanos::from_millis(1), ..Ended::default() });
        let (now, duration) = (Nanos::ZERO, Nanos::from_secs(1));
        let (severity, shape, bytes, view) = (Severity::Fine, 0, 1, &());
        sampler.decide(&Trace { key, now, duration, severity, shape, bytes, view }) == Decided::Kept(0)
    };
    let calls = (1..1_000).find(known).unwrap();
    assert!((100..=112).contains(&calls), "{calls}");
}

/// Whether the key is armed at this time. Uses up the first roots, which are recorded in any case.
fn armed(sampler: &TailSampler, millis: u64) -> bool {
    let key = sampler.key("GET /");
    (0..17).map(|_| sampler.is_recorded(key, Randomness::from_trace_id(1), Nanos::from_millis(millis))).last()
        == Some(true)
}

#[test]
fn a_key_is_armed_by_hand_for_the_time_that_is_given() {
    let sampler = TailSampler::new(&"error".parse().unwrap(), Limits::default());
    assert!(!armed(&sampler, 0));
    let arm = |now, lasting| {
        assert!(sampler.arm(Some("GET /"), Nanos::from_millis(now), Nanos::from_millis(lasting)));
    };
    arm(0, 100);
    assert!(armed(&sampler, 99) && !armed(&sampler, 100));
    arm(1_000, 60_000);
    arm(1_000, 10);
    assert!(armed(&sampler, 60_999) && !armed(&sampler, 61_000), "the later time holds");
    arm(60_950, 100);
    assert!(armed(&sampler, 61_049) && !armed(&sampler, 61_050));
}

/// Also if the settings name more keys than the limit for other keys.
#[test]
fn each_key_that_the_settings_name_has_a_record() {
    let name = |number| format!("own {number}");
    let tail: Tail = "error".parse().unwrap();
    let tail = (0..100).fold(tail.with_provisional(ProvisionalMode::Never), |tail, number| {
        tail.with_provisional_of(name(number), ProvisionalMode::Always)
    });
    let sampler = TailSampler::new(&tail, Limits::single_threaded().with_keys(2));
    let others = (0..9).map(|number| sampler.key(&format!("other {number}")));
    let with_record = others.filter(|key| sampler.key_text(*key).is_some()).count();
    assert_eq!(with_record, 2);
    assert!(
        (0..100).all(|number| sampler.provisional(sampler.key(&name(number))) == ProvisionalMode::Always)
    );
}

/// A root is slow by the durations of the last minutes; after a pause there are none.
#[test]
fn a_root_after_a_long_rest_is_not_slow_by_what_was_before() {
    for (second, is_slow) in [(299, true), (599, true), (7_200, false)] {
        let sampler = TailSampler::new(&"slow:p90()".parse().unwrap(), Limits::single_threaded());
        assert!(!armed(&sampler, 0));
        let key = sampler.key("GET /");
        let count = |now: Nanos, millis| {
            sampler.count(key, 0, &Ended { now, duration: Nanos::from_millis(millis), ..Ended::default() });
        };
        (0..255).for_each(|_| count(Nanos::ZERO, 10));
        count(Nanos::from_secs(second), 50);
        assert_eq!(sampler.outcomes()[0].missed_slow, u64::from(is_slow), "{second}");
        assert_eq!(armed(&sampler, second * 1_000 + 1), is_slow, "{second}");
    }
}

/// A quantile covers at most the last ten minutes, whenever in them the key was called.
#[test]
fn no_duration_of_a_quantile_is_older_than_ten_minutes() {
    let millis = Nanos::from_millis;
    // 255 roots of 10 ms at time 0, then single ones of 50 ms, which are slow if the first ones
    // still count.
    for (seconds, missed) in [(&[599][..], 1), (&[599, 898], 1), (&[299, 598], 2), (&[299, 598, 897], 2)] {
        for (limits, shard) in [(Limits::single_threaded(), 0), (Limits::default(), 1)] {
            let sampler = TailSampler::new(&"slow:p90()".parse().unwrap(), limits);
            let key = sampler.key("GET /");
            let count = |now: Nanos, shard, duration| {
                sampler.count(key, shard, &Ended { now, duration, ..Ended::default() });
            };
            (0..255).for_each(|_| count(Nanos::ZERO, 0, millis(10)));
            seconds.iter().for_each(|second| count(Nanos::from_secs(*second), shard, millis(50)));
            assert_eq!(sampler.outcomes()[0].missed_slow, missed, "{seconds:?}, {limits:?}");
        }
    }
}

/// Threads read the clock and count in any order: a thread that is slightly behind does not bring
/// back an earlier generation.
#[test]
fn a_thread_that_is_behind_loses_no_durations() {
    const BOUNDARY: u64 = 300_000_000_000;
    // Roots of 10 ms at one time, then one of 50 ms at each of these times.
    let missed = |roots: usize, at: Nanos, slow: [Nanos; 3]| {
        let sampler = TailSampler::new(&"slow:p90()".parse().unwrap(), Limits::single_threaded());
        let key = sampler.key("GET /");
        let count = |now, millis| {
            let duration = Nanos::from_millis(millis);
            sampler.count(key, 0, &Ended { now, duration, ..Ended::default() });
        };
        (0..roots).for_each(|_| count(at, 10));
        slow.iter().for_each(|now| count(*now, 50));
        sampler.outcomes()[0].missed_slow
    };
    let around = [BOUNDARY, BOUNDARY - 1, BOUNDARY + 1].map(Nanos::new);
    assert_eq!(missed(256, Nanos::ZERO, around), 3);
    // If the clock is set back by hours, these durations are also those of the minutes after that.
    assert_eq!(missed(255, Nanos::from_secs(7_200), [10, 310, 610].map(Nanos::from_secs)), 2);
}

/// The policies also decide about a trace because of its age, before its root was counted.
#[test]
fn a_trace_whose_root_is_open_is_not_slow_by_durations_of_hours_ago() {
    for (second, decided) in [(599, Decided::Kept(0)), (600, Decided::Unwanted), (7_200, Decided::Unwanted)] {
        let sampler = TailSampler::new(&"slow:p90()".parse().unwrap(), Limits::default());
        let key = sampler.key("GET /");
        let ended = Ended { duration: Nanos::from_millis(10), ..Ended::default() };
        (0..255).for_each(|_| sampler.count(key, 3, &ended));
        let (now, duration) = (Nanos::from_secs(second), Nanos::from_secs(31));
        let (severity, shape, bytes, view) = (Severity::Fine, 0, 1, &());
        let trace = Trace { key, now, duration, severity, shape, bytes, view };
        assert_eq!(sampler.decide(&trace), decided, "{second}");
        assert_eq!(sampler.decide(&trace), decided, "{second}, again");
    }
}

/// A key with two calls an hour never has a hundred in ten minutes: it has the duration of the
/// settings, before its first call and after any rest. A key that is busy has its own.
#[test]
fn a_key_with_few_calls_is_slow_by_what_was_learnt() {
    let mut tail: Tail = "slow:p99".parse().unwrap();
    let quantile = "p99".parse().unwrap();
    let from = Nanos::from_millis(100);
    tail.slow_from.push(SlowFrom { key: "rare".to_owned(), quantile, from });
    let sampler = TailSampler::new(&tail, Limits::single_threaded());
    let (rare, other) = (sampler.key("rare"), sampler.key("other"));
    assert!(!sampler.lacks_quantile(rare) && sampler.lacks_quantile(other));
    let is_slow = |key, seconds: u64, millis: u64| {
        let (now, duration) = (Nanos::from_secs(seconds), Nanos::from_millis(millis));
        let ended = Ended { now, duration, is_error: false, is_recorded: false };
        let before = sampler.outcomes().iter().map(|key| key.missed_slow).sum::<u64>();
        sampler.count(key, 0, &ended);
        sampler.outcomes().iter().map(|key| key.missed_slow).sum::<u64>() > before
    };
    for hour in 0..5 {
        assert!(!is_slow(rare, hour * 3_600, 99) && is_slow(rare, hour * 3_600 + 1_800, 101), "{hour}");
        assert!(!is_slow(other, hour * 3_600, 5_000));
    }
    (0..200).for_each(|call| _ = is_slow(rare, 20_000 + call / 10, 10));
    assert!(is_slow(rare, 20_021, 50), "its own quantile is 10 ms now");
    assert!(!is_slow(rare, 90_000, 50) && is_slow(rare, 90_001, 101), "and forgotten after a rest");
}

/// A service of 37 requests a minute over ten keys: each key has 37 calls in ten minutes, so its
/// hundred calls come from longer windows. It knows its quantile after 27 minutes and keeps it.
/// Durations from before a change are forgotten after two hours.
#[test]
fn a_key_with_few_calls_has_its_quantile_from_longer_windows() {
    for (limits, shards) in [(Limits::single_threaded(), 1), (Limits::default(), 4)] {
        let sampler = TailSampler::new(&"slow:p99".parse().unwrap(), limits);
        let key = sampler.key("GET /");
        // One call each 16 s; from the tenth hour on, ten times as long.
        let call = |number: u64| {
            let (now, millis) = (Nanos::from_secs(16 * number), if number < 2_250 { 10 } else { 100 });
            let duration = Nanos::from_millis(millis);
            let before = sampler.outcomes().iter().map(|key| key.missed_slow).sum::<u64>();
            let ended = Ended { now, duration, is_error: false, is_recorded: false };
            sampler.count(key, (number % shards) as usize, &ended);
            sampler.outcomes()[0].missed_slow > before
        };
        let lacking: Vec<bool> = (0..2_250)
            .map(|number| {
                call(number);
                sampler.lacks_quantile(key)
            })
            .collect();
        let known = lacking.iter().position(|lacks| !lacks).expect("known");
        assert!((99..=160).contains(&known), "{shards} shards: after {known} calls");
        assert!(lacking[known..].iter().all(|lacks| !lacks), "{shards} shards: it stays known");
        assert!(call(2_250), "a root that takes ten times as long is slow");
        (2_251..2_750).for_each(|number| _ = call(number));
        assert!(!call(2_750), "{shards} shards: 500 calls later, the new durations are usual");
    }
}
