//! The token bucket compared with floating-point arithmetic.

use astracer_samplers::{Decision, Limits, Nanos, Reason, Request, TokenBucket};
use astracer_testing::SplitMix;
use proptest::prelude::*;

use crate::common::{Draw as _, call, limited, sampler, unlucky};

#[test]
fn keeps_while_there_is_a_token_and_carries_no_weight() {
    let sampler = sampler("bucket:capacity=2,rate=2");
    let keep = Decision { keep: true, threshold: None, reason: Reason::TokenBucket };
    let drop = Decision { keep: false, ..keep };
    // Randomness has no effect, and keys have separate buckets.
    assert_eq!(
        [call(&sampler, "a", 0), unlucky(&sampler, "a", 0), call(&sampler, "a", 0)],
        [keep, keep, drop]
    );
    assert_eq!(unlucky(&sampler, "b", 0), keep);
    assert_eq!(
        [call(&sampler, "a", 499), call(&sampler, "a", 500), call(&sampler, "a", 500)],
        [drop, keep, drop]
    );
    // Never above its capacity: two tokens after ten seconds, not twenty.
    assert_eq!([1, 2, 3].map(|_| call(&sampler, "a", 10_500)), [keep, keep, drop]);
    let snapshot = sampler.snapshot().unwrap();
    let counts = snapshot.keys[0].counts;
    assert_eq!((counts.seen(), counts.kept(), counts.dropped()), (9, 5, 4));
    assert_eq!((counts.kept_by(Reason::TokenBucket), counts.dropped_by(Reason::TokenBucket)), (5, 4));
    assert_eq!(counts.kept_by(Reason::Bump), 0);
}

#[test]
fn overrides_apply_to_their_key_only() {
    let sampler = sampler(r#"bucket:capacity=1,rate=1;"big":capacity=3"#);
    let kept = |key| (0..10).filter(|_| call(&sampler, key, 0).keep).count();
    assert_eq!((kept("small"), kept("big"), kept("other")), (1, 3, 1));
    // A fresh sampler has the same overrides, and full buckets.
    let fresh = sampler.fresh();
    assert_eq!((0..10).filter(|_| call(&fresh, "big", 0).keep).count(), 3);
}

#[test]
fn parameters_out_of_range_are_refused() {
    for (capacity, rate) in [
        (0.0, 1.0),
        (0.99, 1.0),
        (-1.0, 1.0),
        (f64::NAN, 1.0),
        (f64::INFINITY, 1.0),
        (1.0, 0.0),
        (1.0, -1.0),
        (1.0, f64::NAN),
        (1.0, f64::INFINITY),
        (1e300, 1.0),
        (1.0, 1e-300),
    ] {
        assert!(TokenBucket::new(capacity, rate).unwrap_err().is_out_of_range(), "{capacity}, {rate}");
    }
    assert!(TokenBucket::new(1.0, f64::MAX).is_ok());
}

/// Floating-point arithmetic: tokens are a double, refilled at each call.
struct Reference {
    tokens: f64,
    last: u64,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// No interval keeps more than capacity + rate * length, and the reference keeps no more than
    /// that rounding a token's time up to a nanosecond explains.
    #[test]
    fn keeps_as_many_as_real_arithmetic_and_never_more(
        capacity in 1.0..20.0f64, rate in 0.01..2_000.0f64, seed: u64, gap_us in 1u64..200_000,
    ) {
        let sampler = limited(&format!("bucket:capacity={capacity},rate={rate}"), Limits::single_threaded());
        let (mut random, mut now) = (SplitMix::new(seed), 1_000_000_000u64);
        let mut reference = Reference { tokens: capacity, last: now };
        let (mut kept, mut expected) = (Vec::new(), 0usize);
        for _ in 0..400 {
            now += random.below(gap_us * 2_000);
            reference.tokens = capacity.min(reference.tokens + (now - reference.last) as f64 * rate / 1e9);
            reference.last = now;
            if reference.tokens >= 1.0 {
                reference.tokens -= 1.0;
                expected += 1;
            }
            if sampler.decide(&Request::new("a", random.randomness(), Nanos::new(now))).keep {
                kept.push(now);
            }
        }
        // Kept calls i to j must satisfy j - i + 1 <= capacity + rate * (t(j) - t(i)) for each i <=
        // j: it is enough to check the i with the least i - rate * t(i).
        let mut least = f64::INFINITY;
        for (number, &at) in kept.iter().enumerate() {
            let ahead = number as f64 - rate * at as f64 / 1e9;
            least = least.min(ahead);
            prop_assert!(ahead - least + 1.0 <= capacity + 1e-6, "{} too many at {at} ns", ahead - least + 1.0 - capacity);
        }
        // A token arrives late by at most a nanosecond for each token before it. A call that comes
        // exactly when the token is due is kept by the reference and not by us, and the token is
        // there for the next call.
        prop_assert!(kept.len() <= expected && kept.len() + 1 >= expected, "{} {expected}", kept.len());
    }
}

/// However many threads call at once, a bucket hands out each token once.
#[test]
fn threads_share_the_tokens() {
    let sampler = sampler("bucket:capacity=100,rate=1");
    let kept: usize = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..1_000).filter(|_| call(&sampler, "a", 7).keep).count()))
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).sum()
    });
    assert_eq!(kept, 100);
    assert_eq!(sampler.snapshot().unwrap().keys[0].counts.seen(), 4_000);
}

#[test]
fn clocks_that_jump_do_no_harm() {
    let sampler = sampler("bucket:capacity=2,rate=1");
    assert!(call(&sampler, "a", 1_000_000_000).keep);
    // Set back to the start, by far more than a thread can be late: the bucket continues empty, and
    // fills.
    assert!(!call(&sampler, "a", 0).keep);
    assert!(!call(&sampler, "a", 999).keep);
    assert!(call(&sampler, "a", 1_000).keep);
    // At the end of time.
    let end = |key| sampler.decide(&Request::new(key, SplitMix::new(1).randomness(), Nanos::new(u64::MAX)));
    assert!(end("a").keep && end("b").keep);
}
