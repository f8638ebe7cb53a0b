//! The cap within a sampler: its bound, its weights, its counts, and changes while it is in use.

use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use astracer_samplers::{
    Config, Decision, Limits, Nanos, Override, Probability, Randomness, Reason, Request, Sampler, Snapshot,
};
use astracer_testing::SplitMix;
use proptest::prelude::*;

use crate::common::{Draw as _, call, unlucky};

fn capped(config: &str, cap: &str) -> Sampler {
    Sampler::with_cap(&config.parse().unwrap(), Limits::default(), &cap.parse().unwrap())
}

fn counts(snapshot: &Snapshot, key: &str) -> (u64, u64, u64) {
    let counts = snapshot.keys.iter().find(|known| known.key == key).unwrap().counts;
    (counts.seen(), counts.kept(), counts.capped())
}

/// The burst is sixteen, and the clock stands still: no sampler keeps more.
#[test]
fn every_sampler_is_capped() {
    for config in [
        "always",
        "ratio:1",
        "every:1",
        "bump:lambda=1000",
        "bump:lambda=9,count=decaying,tau=1s",
        "bucket:capacity=99,rate=1",
    ] {
        let sampler = capped(config, "traces=1,burst=16");
        let kept = (0..100).filter(|n| call(&sampler, &format!("key {}", n % 10), 5).keep).count();
        assert_eq!(kept, 16, "{config}");
        assert_eq!(call(&sampler, "key 0", 5).reason, Reason::CapEmpty);
        // A second later one token is back, and the threshold is near its highest.
        assert!(!unlucky(&sampler, "key 0", 1_005).keep);
        assert!(call(&sampler, "key 0", 1_005).keep, "{config}");
    }
    let sampler = capped("always", "traces=1,burst=16");
    let reasons = [(); 12].map(|()| unlucky(&sampler, "a", 5).reason);
    assert_eq!((reasons[7], reasons[8], reasons[9]), (Reason::Always, Reason::Always, Reason::Cap));
    // Calls with high randomness take what those with low randomness left; then the bucket is
    // empty. Each is counted by the reason in its decision.
    let sampler = capped("bump:lambda=1000", "traces=1,burst=16");
    let unlucky = (0..20).map(|_| unlucky(&sampler, "a", 5).reason);
    let reasons: Vec<Reason> = unlucky.chain((0..20).map(|_| call(&sampler, "a", 5).reason)).collect();
    let counts = sampler.snapshot().unwrap().keys[0].counts;
    for reason in [Reason::Cap, Reason::CapEmpty] {
        let told = reasons.iter().filter(|told| **told == reason).count();
        assert!(told > 0 && counts.dropped_by(reason) == told as u64, "{reason:?}, {counts:?}");
    }
    assert!(!call(&capped("never", "traces=1,burst=16"), "a", 5).keep);
}

/// A third of a second is not a whole number of ns: the burst of such a rate, which is one, still
/// admits a trace.
#[test]
fn a_cap_of_three_a_second_keeps_three_a_second() {
    for cap in ["traces=3", "key_traces=3"] {
        let sampler = capped("always", cap);
        let kept = (0..300).filter(|n| call(&sampler, "a", 5 + 100 * n).keep).count();
        // A call every 100 ms; every fourth finds that a trace's time has passed.
        assert_eq!(kept, 75, "{cap}");
    }
}

#[test]
fn keys_have_allowances_of_their_own() {
    for config in ["always", "ratio:1", "bump:lambda=1000", "bucket:capacity=99,rate=1"] {
        let sampler = capped(config, "traces=1,burst=10,key_traces=1,key_burst=4");
        let kept = |key: &str| (0..50).filter(|_| call(&sampler, key, 5).keep).count();
        assert_eq!((kept("a"), kept("b")), (4, 4), "{config}");
        // Two remain of the allowance over all traces. A trace that it refuses takes nothing from
        // the key's allowance.
        assert_eq!(kept("c"), 2, "{config}");
        let snapshot = sampler.snapshot().unwrap();
        assert_eq!(counts(&snapshot, "a"), (50, 4, 46));
        assert_eq!(counts(&snapshot, "c"), (50, 2, 48));
        let later = Nanos::from_millis(2_005);
        let take = |key| sampler.decide(&Request::new(key, Randomness::MAX, later)).keep;
        assert_eq!([take("c"), take("c"), take("c")], [true, true, false], "{config}: two tokens of all");
    }
}

/// A million root names: the bound holds over all of them, and those in the overflow record share
/// one allowance.
#[test]
fn a_million_keys_are_within_the_bound() {
    let cap = "traces=1000,burst=100,key_traces=5,key_burst=1";
    let limits = Limits::default().with_keys(1_000);
    let sampler = Sampler::with_cap(&Config::Always, limits, &cap.parse().unwrap());
    let mut random = SplitMix::new(1);
    let mut times = Vec::new();
    for call in 0..1_000_000u64 {
        // Ten seconds in total.
        let now = Nanos::new(1_000_000_000 + call * 10_000);
        if sampler.decide(&Request::new(&format!("GET /{call}"), random.randomness(), now)).keep {
            times.push(now.get());
        }
    }
    for (first, start) in times.iter().enumerate() {
        let last = times.partition_point(|time| time - start.min(time) <= 1_000_000_000);
        assert!(last - first <= 1_100, "{}", last - first);
    }
    let snapshot = sampler.snapshot().unwrap();
    assert_eq!(snapshot.keys.len(), 1_000);
    let all: u64 = snapshot.keys.iter().map(|key| key.counts.kept()).sum::<u64>() + snapshot.overflow.kept();
    assert_eq!(all, times.len() as u64);
    assert!(snapshot.overflow.kept() <= 51, "{}: one key's share in ten seconds", snapshot.overflow.kept());
}

/// After a bucket was empty, kept traces have no weight for a second.
#[test]
fn no_weight_is_written_where_calls_were_lost() {
    let sampler = capped("always", "traces=10,burst=20");
    let ask = |millis| call(&sampler, "a", millis);
    assert_eq!(ask(0).threshold.map(|threshold| threshold.get()), Some(0));
    while ask(0).keep {}
    assert_eq!(ask(0).reason, Reason::CapEmpty);
    let after = ask(900);
    assert!(after.keep && after.threshold.is_none());
    assert!(ask(3_000).threshold.is_some());
}

#[test]
fn a_threshold_that_never_was_stays_none() {
    for config in ["every:1", "bucket:capacity=99,rate=1"] {
        assert_eq!(call(&capped(config, "traces=10,burst=20"), "a", 0).threshold, None);
    }
}

/// Two threads make five million decisions per second of their clock, through a whole sampler.
#[test]
fn two_threads_hold_the_bound() {
    let sampler = capped("bump:lambda=1e6,min=0.5", "traces=2000,burst=100");
    let (clock, barrier) = (AtomicU64::new(1_000_000_000), Barrier::new(2));
    let kept = |seed: u64| {
        let mut random = SplitMix::new(seed);
        barrier.wait();
        let decide = |_| {
            let now = clock.fetch_add(200, Ordering::Relaxed);
            let key = ["a", "b", "c"][random.below(3) as usize];
            sampler.decide(&Request::new(key, random.randomness(), Nanos::new(now))).keep.then_some(now)
        };
        (0..500_000).filter_map(decide).collect::<Vec<u64>>()
    };
    let mut times: Vec<u64> = std::thread::scope(|scope| {
        let kept = &kept;
        let handles: Vec<_> = (1..=2).map(|seed| scope.spawn(move || kept(seed))).collect();
        handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect()
    });
    times.sort_unstable();
    for (first, start) in times.iter().enumerate() {
        for (millis, most) in [(1, 102), (10, 120), (100, 300)] {
            let last = times.partition_point(|time| *time <= start + millis * 1_000_000);
            assert!(last - first <= most, "{} in {millis} ms", last - first);
        }
    }
    assert!(times.len() > 300, "{}", times.len());
}

/// Four replicas: each has a quarter of the rate and of the burst.
#[test]
fn replicas_share() {
    let sampler = capped("always", "traces=100,burst=40,replicas=4");
    assert_eq!((0..100).filter(|_| call(&sampler, "a", 5).keep).count(), 10);
    assert_eq!(sampler.cap_level(Nanos::from_millis(5)), Some(0.0));
    assert_eq!(sampler.cap_level(Nanos::from_millis(205)), Some(0.5));
    assert_eq!(capped("always", "bytes=7").cap_level(Nanos::ZERO), None);
}

#[test]
fn a_change_of_parameters_keeps_counts_and_credit() {
    let sampler = capped("bump:lambda=2,min=0.5;\"b\":lambda=9", "traces=1,burst=100");
    for _ in 0..5 {
        let _ = (call(&sampler, "a", 5), call(&sampler, "b", 5), unlucky(&sampler, "a", 5));
    }
    let config: Config = "bump:lambda=2,min=0.5;\"b\":lambda=1e-9,min=0;\"c\":lambda=0".parse().unwrap();
    let now = Nanos::from_millis(5);
    let next = sampler.reconfigured(&config, sampler.cap(), now).unwrap();
    assert_eq!(next.snapshot(), sampler.snapshot(), "one table");
    // The key whose parameters did not change continues: x is 10, at the minimum.
    assert_eq!(unlucky(&next, "a", 5).reason, Reason::BumpMinimum);
    // The key whose lambda changed starts over: the first call is kept and the next is not, in the
    // old sampler as in the new one.
    assert!(unlucky(&next, "b", 5).keep && !unlucky(&next, "b", 5).keep);
    assert!(unlucky(&next, "c", 5).keep && !unlucky(&next, "c", 5).keep);
    let _ = call(&sampler, "a", 5);
    assert_eq!(next.snapshot(), sampler.snapshot());
    assert_eq!(next.snapshot().unwrap().keys.iter().map(|key| key.counts.seen()).sum::<u64>(), 21);
    // 13 of 100 tokens have been taken: ten calls, the first ones of b and c, and one by the old
    // sampler.
    assert_eq!(next.cap_level(now), Some(0.87));
    // Another kind cannot continue from these words, but takes over the credit.
    let other: Config = "bucket:capacity=50,rate=2".parse().unwrap();
    assert!(next.reconfigured(&other, next.cap(), now).is_none());
    let replaced = next.replaced(&other, next.cap(), now);
    assert_eq!((replaced.cap_level(now), replaced.snapshot().unwrap().keys.len()), (Some(0.87), 0));
}

/// A used-up bucket is still empty after a change of its allowance, and its debt is clamped to what
/// it can hold: credit that returns slowly at the old rate returns at the new one.
#[test]
fn an_allowance_that_is_raised_in_need_is_at_work_at_once() {
    for (kind, old, new) in [
        ("bump:lambda=1e6", "traces=1,burst=50", "traces=100,burst=25"),
        ("always", "traces=1,burst=50", "traces=100,burst=25"),
        ("bump:lambda=1e6", "key_traces=1,key_burst=50", "key_traces=100,key_burst=25"),
        ("ratio:1", "key_traces=1,key_burst=50", "key_traces=100,key_burst=25"),
        ("bucket:capacity=999,rate=9", "traces=0.02,burst=50", "traces=100,burst=25,replicas=1"),
    ] {
        let sampler = capped(kind, old);
        assert_eq!((0..100).filter(|_| call(&sampler, "a", 0).keep).count(), 50, "{old}");
        let now = Nanos::from_millis(10);
        let next = match sampler.reconfigured(sampler.config(), &new.parse().unwrap(), now) {
            Some(next) => next,
            None => sampler.replaced(sampler.config(), &new.parse().unwrap(), now),
        };
        let kept = |millis| (0..100).filter(|_| call(&next, "a", millis).keep).count();
        // Empty; then 100 per second, and at most the burst.
        assert_eq!((kept(10), kept(20), kept(1_020)), (0, 1, 25), "{kind}, {new}");
    }
}

/// New parameters with the same allowance leave its debt alone, even if the clock was set back a
/// little.
#[test]
fn a_change_of_parameters_gives_no_credit() {
    let sampler = capped("bump:lambda=1e6", "traces=1,burst=20,key_traces=1,key_burst=20");
    assert_eq!((0..100).filter(|_| call(&sampler, "a", 50_000).keep).count(), 20);
    let config = "bump:lambda=2e6".parse().unwrap();
    let next = sampler.reconfigured(&config, sampler.cap(), Nanos::from_millis(20_000)).unwrap();
    assert_eq!((0..100).filter(|_| call(&next, "a", 30_000).keep).count(), 0);
    assert_eq!((0..100).filter(|_| call(&next, "a", 51_000).keep).count(), 1);
}

/// Otherwise a change of parameters would align all keys' windows to one second, and with them
/// their first calls.
#[test]
fn a_change_of_parameters_leaves_windows_where_they_are() {
    // Alone, and together with a key whose count is of another kind.
    for others in ["", ";\"z\":lambda=1,count=decaying,tau=1s"] {
        windows_stay(others);
    }
}

fn windows_stay(others: &str) {
    let limits = Limits::default().with_keys(20);
    let config = |lambda, others| -> Config {
        format!("bump:lambda={lambda},min=0,window=1s,shift=on{others}").parse().unwrap()
    };
    let (before, after) = (config(0.9, others), config(1.0, others));
    let fresh = Sampler::with_limits(&config(1.0, ""), limits);
    let old = Sampler::with_limits(&before, limits);
    // More keys than records: the last ones share the overflow record, which belongs to no key.
    let keys: Vec<String> = (0..22).map(|n| format!("key {n}")).collect();
    for key in &keys {
        let _ = (call(&old, key, 100_000), call(&fresh, key, 100_000));
    }
    let next = old.reconfigured(&after, old.cap(), Nanos::from_millis(100_000)).unwrap();
    let mut begun = 0;
    for millis in (100_010..103_000).step_by(10) {
        for key in &keys {
            let (expected, decision) = (unlucky(&fresh, key, millis).keep, unlucky(&next, key, millis).keep);
            // The window in which the parameters changed starts over under the new ones.
            if millis >= 101_000 {
                assert_eq!(decision, expected, "{key} at {millis}, {others}");
                begun += u32::from(decision);
            }
        }
    }
    assert!(begun >= 40, "{begun} windows began");
}

/// Its counts may be carried over only once no other sampler counts in them.
#[test]
fn a_sampler_is_alone_when_no_other_counts_in_its_table() {
    for config in ["bump:lambda=2", "bump:lambda=2,count=decaying,tau=1s", "bucket:capacity=2,rate=1"] {
        let config: Config = config.parse().unwrap();
        let mut sampler = Sampler::new(&config);
        assert!(sampler.is_alone(), "{config}");
        let next = sampler.reconfigured(&config, sampler.cap(), Nanos::ZERO).unwrap();
        assert!(!sampler.is_alone(), "{config}");
        drop(next);
        assert!(sampler.is_alone(), "{config}");
    }
}

/// A key keeps its slot forever: an older sampler treats a key that was given parameters later like
/// any other key.
#[test]
fn old_and_new_parameters_may_be_used_at_once() {
    let first = Sampler::new(&"bucket:capacity=2,rate=1".parse().unwrap());
    let _ = call(&first, "a", 0);
    let config: Config = "bucket:capacity=2,rate=1;\"a\":capacity=9;\"z\":capacity=5".parse().unwrap();
    let second = first.reconfigured(&config, first.cap(), Nanos::ZERO).unwrap();
    assert_eq!((0..20).filter(|_| call(&second, "z", 0).keep).count(), 5);
    assert_eq!((0..20).filter(|_| call(&first, "a", 0).keep).count(), 1, "two tokens, of which one is taken");
    assert_eq!(
        (0..20).filter(|_| call(&second, "a", 0).keep).count(),
        7,
        "nine tokens, of which two are taken"
    );
    let third = second.reconfigured(first.config(), first.cap(), Nanos::ZERO).unwrap();
    assert_eq!((0..20).filter(|_| call(&third, "z", 0).keep).count(), 0);
    assert_eq!((0..20).filter(|_| call(&third, "z", 2_000).keep).count(), 2);
}

#[test]
fn overrides_decide_and_are_counted() {
    let quarter = Override::Ratio(Probability::new(0.25).unwrap());
    let three = Randomness::from_low_bits(3 << 54);
    for config in ["bucket:capacity=1,rate=1", "ratio:0.5", "every:2", "always", "never", "bump:lambda=0"] {
        let sampler = capped(config, "traces=1,burst=100");
        let by = |by, randomness| sampler.decide_by(by, &Request::new("a", randomness, Nanos::ZERO));
        assert!((0..9).all(|_| by(Override::Keep, Randomness::MIN).keep), "{config}");
        assert!((0..3).all(|_| !by(Override::Drop, Randomness::MAX).keep), "{config}");
        let Decision { keep, threshold, reason } = by(quarter, three);
        assert!(keep && reason == Reason::Override);
        assert_eq!(threshold.map(|threshold| threshold.adjusted_count()), Some(4.0));
        if let Some(snapshot) = sampler.snapshot() {
            assert_eq!(counts(&snapshot, "a"), (13, 10, 0), "{config}");
            let counts = snapshot.keys[0].counts;
            let own = [Reason::TokenBucket, Reason::Bump, Reason::BumpMinimum].map(|by| counts.kept_by(by));
            let own: u64 = own.iter().sum();
            assert_eq!(own + counts.kept_by_override() - counts.dropped_by_override(), 10, "{config}");
        }
    }
    // The cap applies to overrides too.
    for config in ["always", "never", "bucket:capacity=1,rate=1", "bump:lambda=1000", "bump:lambda=0,min=0"] {
        let sampler = capped(config, "traces=1,burst=4");
        let request = Request::new("a", Randomness::MAX, Nanos::ZERO);
        let kept = (0..9).filter(|_| sampler.decide_by(Override::Keep, &request).keep).count();
        assert_eq!(kept, 4, "{config}");
    }
}

/// The state of keys, as a call at that time would find it.
#[test]
fn states_are_those_that_a_call_would_find() {
    let sampler = Sampler::new(&"bucket:capacity=5,rate=1".parse().unwrap());
    let _ = (call(&sampler, "a", 0), call(&sampler, "a", 0), call(&sampler, "b", 0));
    let states = sampler.states(Nanos::from_millis(500)).unwrap();
    let tokens: Vec<_> = states.iter().map(|state| (state.key.as_str(), state.tokens)).collect();
    assert_eq!(tokens, [("a", Some(3.5)), ("b", Some(4.5))]);
    let bump = Sampler::new(&"bump:lambda=0,min=0.25".parse().unwrap());
    let _ = call(&bump, "a", 0);
    let now = |millis| bump.states(Nanos::from_millis(millis)).unwrap()[0].probability.unwrap().get();
    assert_eq!((now(0), now(1_000)), (0.25, 1.0));
    assert!(Sampler::new(&Config::Always).states(Nanos::ZERO).is_none());
}

/// The sum of adjusted counts over the kept calls of each key, and its estimated variance.
///
/// Given all calls before it, a call with probability p adds w = 1/p if it is kept, otherwise
/// nothing: its mean is 1, its variance w - 1. Deviations of different calls are uncorrelated (they
/// are the differences of a martingale), so variances add up. The sum of w (w - 1) over the kept
/// calls is an unbiased estimate of the total variance.
#[derive(Default)]
struct Sum {
    seen: f64,
    estimate: f64,
    variance: f64,
    lost: f64,
}

impl Sum {
    fn add(&mut self, decision: &Decision) {
        self.seen += 1.0;
        match decision.threshold {
            Some(threshold) if decision.keep => {
                let weight = threshold.adjusted_count();
                self.estimate += weight;
                self.variance += weight * (weight - 1.0);
            }
            // Kept without a weight, or refused by an empty bucket: the estimate does not cover
            // this call, and reports that.
            None if decision.keep || decision.reason == Reason::CapEmpty => self.lost += 1.0,
            _ => {}
        }
    }
}

/// A shop with 100 calls a second, of which a part have a name of their own. Its sampler keeps a
/// tenth, and an allowance of 2.5 new keys a second is a quarter of that. So at most 64 + 2.5 per
/// second of the calls with new names are kept, 1.25 times what is kept of known names if all are
/// known, and their weights add up to all such calls. (The table has room for 10,000 keys.)
#[test]
fn new_keys_share_an_allowance_with_true_weights() {
    const SECONDS: u64 = 300;
    for (unique_of_100, key) in [(3, "own"), (30, "own"), (100, "own"), (30, "common")] {
        let own = if key == "own" { ";\"GET /a\":min=0.1,count=none" } else { "" };
        let config = format!("bump:lambda=1,min=0.1,count=decaying,tau=20calls{own}");
        let mut random = SplitMix::new(unique_of_100);
        let run = |cap: &str, random: &mut SplitMix| {
            let sampler = capped(&config, cap);
            let (mut new, mut kept, mut kept_known) = (Sum::default(), 0u64, 0u64);
            for n in 0..100 * SECONDS {
                let is_new = random.below(100) < unique_of_100;
                let name = if is_new { format!("GET /{n}") } else { "GET /a".to_owned() };
                let request = Request::new(&name, random.randomness(), Nanos::from_millis(10 * n));
                let decision = sampler.decide(&request);
                if is_new {
                    new.add(&decision);
                    kept += u64::from(decision.keep);
                } else {
                    kept_known += u64::from(decision.keep);
                }
            }
            (new, kept, kept_known)
        };
        let (_, all, _) = run("", &mut random);
        let (new, kept, kept_known) = run("new_traces=2.5,new_burst=64", &mut random);
        let calls = (100 * SECONDS) as f64;
        // New names that find the table full are one key, of which a tenth is kept; 5 deviations.
        let beyond = (new.seen - 10_000.0).max(0.0);
        let beyond = 0.1 * beyond + 5.0 * (0.09 * beyond).sqrt();
        assert!(kept as f64 <= 65.0 + 2.5 * SECONDS as f64 + beyond, "{unique_of_100}: {kept}");
        assert!((kept + kept_known) as f64 <= 1.3 * 0.1 * calls, "{unique_of_100}: {kept} {kept_known}");
        // Without it, each is kept while the table has room.
        let most = (calls * unique_of_100 as f64 / 100.0).min(10_000.0);
        assert!(all as f64 > 0.9 * most, "{unique_of_100}: {all}, without an allowance");
        assert_eq!(new.lost, 0.0);
        let off = (new.estimate - new.seen).abs();
        assert!(off <= 6.0 * new.variance.sqrt() + 1.0, "{unique_of_100}: {} of {}", new.estimate, new.seen);
    }
}

/// A key with parameters of its own, a key with a record, and an operator's decision take nothing
/// from the allowance.
#[test]
fn known_keys_take_nothing_from_the_allowance_of_new_ones() {
    let config = "bump:lambda=1000;\"GET /a\":lambda=900";
    let sampler = capped(config, "new_traces=0.001,new_burst=2");
    assert!((0..50).all(|_| call(&sampler, "GET /a", 5).keep));
    assert!(
        sampler
            .decide_by(Override::Keep, &Request::new("GET /c", Randomness::MAX, Nanos::from_millis(5)))
            .keep
    );
    assert!(call(&sampler, "GET /b", 5).keep && (0..50).all(|_| call(&sampler, "GET /b", 5).keep));
    assert!(call(&sampler, "GET /d", 5).keep);
    assert_eq!(call(&sampler, "GET /e", 5).reason, Reason::CapEmpty);
    assert!(call(&sampler, "GET /e", 5).keep, "it has a record now");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Bump, ratio and capped traffic in bursts: for each key the estimate equals the number of
    /// calls to within six standard deviations. A normal deviate is beyond that twice in a thousand
    /// million. An estimated variance with few heavy weights is itself uncertain, so the heaviest
    /// possible weight is added to the tolerance.
    #[test]
    fn sums_of_adjusted_counts_are_unbiased(
        seed: u64,
        sampler in prop::sample::select(vec![
            "bump:lambda=10,min=0.01",
            "bump:lambda=3,min=0.05,shift=on",
            "bump:lambda=5,min=0.1,count=decaying,tau=300ms",
            "ratio:0.2",
            "always",
        ]),
        cap in prop::sample::select(vec!["", "traces=200,burst=64", "traces=400,burst=200,key_traces=100,key_burst=50"]),
        bursts in prop::collection::vec((1u64..400, 0u64..2_000, 0usize..4), 20..60),
    ) {
        let sampler = capped(sampler, cap);
        let mut random = SplitMix::new(seed);
        let mut sums: HashMap<&str, Sum> = HashMap::new();
        let mut now = 1_000_000_000u64;
        for (calls, rest, key) in bursts {
            let key = ["a", "b", "c", "d"][key];
            for _ in 0..calls {
                now += random.below(300_000);
                let decision = sampler.decide(&Request::new(key, random.randomness(), Nanos::new(now)));
                sums.entry(key).or_default().add(&decision);
            }
            now += rest * 1_000_000;
        }
        for (key, sum) in sums {
            let off = sum.estimate - (sum.seen - sum.lost);
            let bound = 6.0 * sum.variance.sqrt() + 2_000.0_f64.min(20.0 * sum.seen.sqrt());
            prop_assert!(off.abs() <= bound, "seed {}: {}: off by {} of {}, bound {}", seed, key, off, sum.seen, bound);
        }
    }
}

/// The same over many runs: the mean of the estimates equals the mean of the counts to within five
/// standard errors.
#[test]
fn estimates_are_right_on_average() {
    for (config, cap) in [
        ("bump:lambda=5,min=0.02", ""),
        ("ratio:0.1", "traces=100,burst=32"),
        ("bump:lambda=20,min=0.1", "traces=50,burst=32"),
    ] {
        let (mut off, mut squares) = (0.0, 0.0);
        const RUNS: u64 = 300;
        for seed in 0..RUNS {
            let sampler = capped(config, cap);
            let mut random = SplitMix::new(seed);
            let mut sum = Sum::default();
            let mut now = 0;
            for step in 0..2_000u64 {
                now += if step % 500 < 250 { 1_000_000 } else { 50_000 };
                sum.add(&sampler.decide(&Request::new("a", random.randomness(), Nanos::new(now))));
            }
            assert_eq!(sum.lost, 0.0, "{config} {cap}: the bucket must never be empty");
            let own = sum.estimate - sum.seen;
            off += own;
            squares += own * own;
        }
        let error = (squares / (RUNS * RUNS) as f64).sqrt();
        let mean = off / RUNS as f64;
        assert!(mean.abs() < 5.0 * error, "{config} {cap}: {mean} with a standard error of {error}");
    }
}
