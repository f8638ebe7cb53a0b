//! Samplers without state by key.

use astracer_samplers::{Decision, Nanos, Randomness, Reason, Request, Threshold};
use astracer_testing::SplitMix;

use crate::common::{Draw as _, call, sampler, unlucky};

#[test]
fn always_and_never() {
    let always = sampler("always");
    let kept = Decision { keep: true, threshold: Some(Threshold::ALWAYS), reason: Reason::Always };
    assert_eq!((call(&always, "a", 0), unlucky(&always, "a", 0)), (kept, kept));
    let never = sampler("never");
    let dropped = Decision { keep: false, threshold: None, reason: Reason::Never };
    assert_eq!((call(&never, "a", 0), unlucky(&never, "a", 0)), (dropped, dropped));
    assert!(always.snapshot().is_none() && never.snapshot().is_none());
}

#[test]
fn every_nth_keeps_the_first_of_each_n_whatever_their_keys() {
    let sampler = sampler("every:3");
    for (position, key) in ["a", "b", "c", "a", "a", "a", "b"].into_iter().enumerate() {
        let decision = unlucky(&sampler, key, 0);
        assert_eq!(decision, Decision { keep: position % 3 == 0, threshold: None, reason: Reason::EveryNth });
    }
    assert!(unlucky(&sampler.fresh(), "b", 0).keep, "a fresh sampler starts over");
    assert!(sampler.snapshot().is_none());
}

#[test]
fn ratio_keeps_from_its_threshold_on() {
    let sampler = sampler("ratio:0.25");
    let decide =
        |randomness| sampler.decide(&Request::new("a", Randomness::from_low_bits(randomness), Nanos::ZERO));
    let threshold = Threshold::parse("c");
    assert_eq!(decide(3 << 54), Decision { keep: true, threshold, reason: Reason::Ratio });
    assert_eq!(decide((3 << 54) - 1), Decision { keep: false, threshold, reason: Reason::Ratio });
    assert!(sampler.snapshot().is_none());
}

/// Consistency (OpenTelemetry, "Consistent Sampling Decision"): a larger ratio keeps everything
/// that a smaller one keeps.
#[test]
fn ratios_agree_with_each_other() {
    let mut random = SplitMix::new(1);
    let samplers: Vec<_> =
        ["0.001", "0.01", "0.3333", "0.5", "0.99", "1"].map(|p| sampler(&format!("ratio:{p}"))).into();
    let mut kept = vec![0; samplers.len()];
    for _ in 0..10_000 {
        let request = Request::new("a", random.randomness(), Nanos::ZERO);
        let decisions: Vec<bool> = samplers.iter().map(|sampler| sampler.decide(&request).keep).collect();
        assert!(decisions.is_sorted(), "{decisions:?}");
        kept.iter_mut().zip(&decisions).for_each(|(sum, keep)| *sum += u32::from(*keep));
    }
    // 5 standard deviations of a binomial with n = 10,000: sqrt(n p (1 - p)) is 3.2, 9.9, 47.1, 50,
    // 9.9, 0.
    for (kept, (mean, deviation)) in
        kept.iter().zip([(10, 3.2), (100, 9.9), (3_333, 47.1), (5_000, 50.0), (9_900, 9.9), (10_000, 0.0)])
    {
        assert!(f64::from(kept.abs_diff(mean)) <= 5.0 * deviation, "{kept} of 10,000, seed 1");
    }
}

/// Each reason has a unique name, for machine-readable output.
#[test]
fn reasons_have_names() {
    let names = [
        (Reason::Always, "always"),
        (Reason::Never, "never"),
        (Reason::Ratio, "ratio"),
        (Reason::EveryNth, "every_nth"),
        (Reason::Bump, "bump"),
        (Reason::BumpMinimum, "bump_minimum"),
        (Reason::TokenBucket, "token_bucket"),
        (Reason::Overflow, "overflow"),
    ];
    for (reason, name) in names {
        assert_eq!((reason.name(), reason.to_string().as_str()), (name, name));
    }
}
