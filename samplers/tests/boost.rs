//! Boosts: a key's head probability after an error or a slow root.

#[cfg(feature = "parameters")]
use astracer_samplers::parameters::Parameters;
use astracer_samplers::tail::{Boost, Ended, Limits, Tail, TailSampler};
use astracer_samplers::{Cap, Decision, Limits as TableLimits, Nanos, Randomness, Reason, Request, Sampler};
use astracer_testing::SplitMix;

use crate::common::Draw as _;

const MILLI: u64 = 1_000_000;
const KEYS: [&str; 2] = ["GET /orders", "GET /health"];

fn tail(policies: &str, boost: &str) -> TailSampler {
    let tail: Tail = policies.parse().unwrap();
    TailSampler::new(&tail.with_boost(boost.parse().unwrap()), Limits::single_threaded())
}

/// A call as the SDK decides it.
fn decide(sampler: &Sampler, tail: &TailSampler, key: &str, randomness: Randomness, now: u64) -> Decision {
    let request = Request::new(key, randomness, Nanos::new(now));
    match tail.boosting(tail.key(key), Nanos::new(now)) {
        Some(boosting) => sampler.decide_boosted(&boosting, &request),
        None => sampler.decide(&request),
    }
}

fn end(tail: &TailSampler, key: &str, now: u64, duration: u64, is_error: bool) -> bool {
    let (now, duration) = (Nanos::new(now), Nanos::new(duration));
    let ended = Ended { now, duration, is_error, is_recorded: false };
    tail.count_when(tail.key(key), 0, &ended, || now)
}

/// By hand: with ratio 0.01, a randomness of a half is kept only by a boost.
#[test]
fn an_error_raises_its_key_alone_for_at_most_a_minute_and_then_the_key_rests() {
    let sampler = Sampler::new(&"ratio:0.01".parse().unwrap());
    let tail = tail("", "rest=5m");
    let half = Randomness::from_low_bits(1 << 55);
    let kept_at = |key, second: u64| decide(&sampler, &tail, key, half, second * 1_000 * MILLI).keep;
    assert!(!kept_at(KEYS[0], 100));
    assert!(end(&tail, KEYS[0], 100_000 * MILLI, MILLI, true));
    let after = |second: u64| KEYS.map(|key| kept_at(key, second));
    assert_eq!(after(100), [true, false]);
    // A later error does not prolong the boost.
    end(&tail, KEYS[0], 130_000 * MILLI, MILLI, true);
    assert_eq!([159, 160].map(after), [[true, false], [false; 2]]);
    end(&tail, KEYS[0], 459_999 * MILLI, MILLI, true);
    assert_eq!(after(459), [false; 2]);
    end(&tail, KEYS[0], 460_000 * MILLI, MILLI, true);
    assert_eq!(after(460), [true, false]);
    assert_eq!(tail.boosts_begun(), 2);
}

#[test]
fn a_healthy_slow_root_is_no_reason_and_a_very_slow_one_is() {
    let tail = tail("slow:p99,slow:2s", "on");
    for call in 0..2_000 {
        let is_reason = end(&tail, KEYS[0], call * MILLI, (100 + call % 100) * MILLI, false);
        assert!(!is_reason, "call {call}");
    }
    // The threshold is at most 200 ms and a histogram's bucket (4 % wide) more.
    assert!(!end(&tail, KEYS[0], 2_000 * MILLI, 250 * MILLI, false));
    assert!(end(&tail, KEYS[0], 2_000 * MILLI, 450 * MILLI, false));
    assert!(end(&tail, KEYS[1], 2_000 * MILLI, 2_001 * MILLI, false));
}

/// The sum of adjusted counts of the kept calls is the number of calls, whatever the boosts and
/// their allowance do. The variance of a sum of n weights 1/p is the sum of 1/p - 1, here at most
/// 19 n for p of at least 0.05; four standard deviations.
#[test]
fn weights_stay_true_and_the_allowance_bounds_what_boosts_add() {
    let calls = 200_000_u64;
    for config in ["ratio:0.05", "bump:lambda=40,min=0.05,window=1s", "bump:lambda=40,min=0.05,tau=1s"] {
        for boost in ["probability=0.6,traces=1000", "traces=20,burst=50,lasting=5s,rest=1s"] {
            let sampler = Sampler::new(&config.parse().unwrap());
            let settings: Boost = boost.parse().unwrap();
            let tail = tail("", boost);
            let mut random = SplitMix::new(7);
            let (mut sum, mut added) = (0.0, 0);
            for call in 0..calls {
                let (now, randomness) = (call * MILLI, random.randomness());
                let decision = decide(&sampler, &tail, KEYS[0], randomness, now);
                let threshold = decision.threshold.expect("decided by chance");
                assert_eq!(
                    decision.keep,
                    threshold.keeps(randomness),
                    "the written threshold is the true one"
                );
                if decision.keep {
                    sum += threshold.adjusted_count();
                    added += u64::from(decision.reason == Reason::Boost);
                }
                end(&tail, KEYS[0], now, MILLI, random.next().is_multiple_of(500));
            }
            let bound = 4.0 * (19.0 * calls as f64).sqrt();
            assert!((sum - calls as f64).abs() < bound, "{config} {boost}: {sum} for {calls}");
            assert!(tail.boosts_begun() > 0 && added > 0, "{config} {boost}");
            // During a boost, the traces that the sampler alone would keep are not charged.
            let own = 2.0 * 0.05 * calls as f64;
            let most = settings.traces.worst_case(calls as f64 / 1e3) + own;
            assert!((added as f64) < most, "{config} {boost}: {added} of at most {most}");
        }
    }
}

/// The cap's worst case holds while everything is boosted, and the counts include what boosts keep.
#[test]
fn a_boost_stays_within_the_cap() {
    let cap: Cap = "traces=5,burst=10".parse().unwrap();
    let config = "bump:lambda=1,min=0.001,window=1s".parse().unwrap();
    let sampler = Sampler::with_cap(&config, TableLimits::default(), &cap);
    let tail = tail("", "on");
    let mut random = SplitMix::new(11);
    end(&tail, KEYS[0], 0, 0, true);
    let kept = (0..30_000)
        .filter(|call| decide(&sampler, &tail, KEYS[0], random.randomness(), call * MILLI).keep)
        .count();
    assert!((100..=160).contains(&kept), "{kept} kept in 30 s; the cap allows 10 + 5 * 30");
    assert_eq!(sampler.snapshot().unwrap().keys[0].counts.kept(), kept as u64);
}

#[test]
fn samplers_without_chance_are_not_boosted() {
    for config in ["always", "never", "every:10", "bucket:capacity=1,rate=1"] {
        let (own, boosted) = (Sampler::new(&config.parse().unwrap()), Sampler::new(&config.parse().unwrap()));
        let tail = tail("", "on");
        end(&tail, KEYS[0], 0, 0, true);
        let mut random = SplitMix::new(3);
        for call in 0..100 {
            let randomness = random.randomness();
            let request = Request::new(KEYS[0], randomness, Nanos::new(call * MILLI));
            let decision = decide(&boosted, &tail, KEYS[0], randomness, call * MILLI);
            assert_eq!(decision, own.decide(&request), "{config}");
        }
    }
}

#[cfg(feature = "parameters")]
#[test]
fn a_parameters_file_has_the_boost() {
    let text =
        "version = 5\n[ratio]\nprobability = 0.1\n[tail]\npolicies = []\nboost = \"lasting=30s,rest=2m\"\n";
    let read: Parameters = text.parse().unwrap();
    let boost = Boost::default().with_times(Nanos::from_secs(30), Nanos::from_secs(120)).unwrap();
    assert_eq!(read.tail.boost, Some(boost));
    assert_eq!(read.to_string().parse::<Parameters>().unwrap().tail, read.tail);
    let wrong = text.replace("lasting=30s", "lasting=30").parse::<Parameters>().unwrap_err();
    assert!(wrong.to_string().contains("line 6"), "{wrong}");
}
