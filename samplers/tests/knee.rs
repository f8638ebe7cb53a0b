//! Constants of named keys stay bounded when traffic changes.

use astracer_samplers::{Nanos, Request, Sampler};

use astracer_testing::SplitMix;

use crate::common::{Draw as _, sampler};

/// Ten keys, each with half as many calls as the one before; the rarer, the more is kept.
const KEYS: usize = 10;

fn share(key: usize) -> f64 {
    0.5f64.powi(key as i32 + 1)
}

fn constant(key: usize) -> f64 {
    (0.02 / share(key)).min(1.0)
}

/// A sampler that names the keys in `present`, with or without their shares.
fn tuned(has_shares: bool) -> Sampler {
    let keys: Vec<String> = (0..KEYS)
        .map(|key| {
            let share = if has_shares { format!(",share={}", share(key)) } else { String::new() };
            format!("\"{key}\":min={},count=none{share}", constant(key))
        })
        .collect();
    sampler(&format!("bump:lambda=2,count=decaying,tau=1s;{}", keys.join(";")))
}

/// Calls of the recorded shares, about one each millisecond; `more` times those of one key. The
/// share of all calls that is kept, by expectation, and for each call its key and probability.
fn run(sampler: &Sampler, calls: u64, gap_us: u64, more: (usize, f64)) -> Vec<(usize, f64)> {
    let weight = |key: usize| share(key) * if key == more.0 { more.1 } else { 1.0 };
    let all: f64 = (0..KEYS).map(weight).sum();
    let (mut random, mut now) = (SplitMix::new(5), 1_000_000_000);
    (0..calls)
        .map(|_| {
            now += random.below(2 * gap_us * 1_000);
            let mut at = random.next() as f64 / u64::MAX as f64 * all;
            let key = (0..KEYS - 1).find(|&key| {
                at -= weight(key);
                at < 0.0
            });
            let key = key.unwrap_or(KEYS - 1);
            let name = key.to_string();
            let decision = sampler.decide(&Request::new(&name, random.randomness(), Nanos::new(now)));
            (key, decision.threshold.expect("by chance").probability().get())
        })
        .collect()
}

#[test]
fn the_recorded_traffic_is_decided_as_before_at_any_speed() {
    for gap_us in [100, 1_000, 10_000] {
        let decided = run(&tuned(true), 50_000, gap_us, (0, 1.0));
        let changed = decided.iter().filter(|&&(key, p)| (p / constant(key) - 1.0).abs() > 1e-6).count();
        assert!(changed as f64 <= 0.001 * decided.len() as f64, "{changed} of {}", decided.len());
    }
}

/// One key 200 times as frequent: what is kept grows at most twice as much as the traffic. (All
/// calls have the same size here.) With constants alone, it grows by the key's own probability.
#[test]
fn no_key_that_becomes_frequent_fills_what_is_kept() {
    let kept = |decided: &[(usize, f64)]| decided.iter().map(|&(_, p)| p).sum::<f64>();
    let recorded = kept(&run(&tuned(true), 50_000, 1_000, (0, 1.0))) / 50_000.0;
    for key in [4, 6, 9] {
        let bounded = kept(&run(&tuned(true), 100_000, 100, (key, 200.0))) / 100_000.0 / recorded;
        assert!(bounded <= 2.0, "{key}: {bounded} times as large a share");
        let constants = kept(&run(&tuned(false), 100_000, 100, (key, 200.0))) / 100_000.0 / recorded;
        assert!(constants > if key == 9 { 1.5 } else { 3.0 }, "{key}: {constants} without shares");
    }
}

/// A file that was tuned on a whole system, in a process that has one of its keys only.
#[test]
fn a_process_with_one_of_the_keys_is_never_cut() {
    let sampler = tuned(true);
    for call in 0..50_000 {
        let request = Request::new("6", SplitMix::new(call).randomness(), Nanos::from_millis(call));
        let p = sampler.decide(&request).threshold.expect("by chance").probability().get();
        assert!((p / constant(6) - 1.0).abs() < 1e-6, "{call}: {p}");
    }
}

/// Weights follow the probabilities: the estimated number of calls is right within four standard
/// errors, sqrt of the sum of 1 / p - 1.
#[test]
fn weights_stay_true_above_the_knee() {
    let (sampler, mut random) = (tuned(true), SplitMix::new(8));
    let (mut estimate, mut variance) = (0.0, 0.0);
    let mut run = |key: &str, now: u64| {
        let decision = sampler.decide(&Request::new(key, random.randomness(), Nanos::new(now * 1_000)));
        let threshold = decision.threshold.expect("by chance");
        variance += threshold.adjusted_count() - 1.0;
        estimate += if decision.keep { threshold.adjusted_count() } else { 0.0 };
    };
    (0..60_000).for_each(|call| run(["0", "7", "7"][call as usize % 3], call * 50));
    assert!((estimate - 60_000.0).abs() < 4.0 * variance.sqrt(), "{estimate}, {variance}");
}

/// A snapshot continues with the counts, whose time is the pace's.
#[test]
fn a_warm_start_continues_above_the_knee() {
    let last = |sampler: &Sampler, from: u64, calls: u64| {
        let calls = (from..from + calls).map(|call| {
            let key = if call % 2 == 0 { "0" } else { "8" };
            let request = Request::new(key, SplitMix::new(call).randomness(), Nanos::new(call * 100_000));
            sampler.decide(&request).threshold.expect("by chance").probability().get()
        });
        calls.fold([0.0; 2], |[_, last], p| [last, p])
    };
    let before = tuned(true);
    let expected = last(&before, 0, 20_001);
    let image = before.image(Nanos::from_secs(2), 0).expect("keys");
    let after = tuned(true);
    after.restore(&image).expect("the same sampler");
    let found = last(&after, 20_001, 10);
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found / expected - 1.0).abs() < 0.02, "{found}, {expected}");
    }
}
