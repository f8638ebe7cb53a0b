//! Golden vectors from Jaeger's own tests, and its rules by hand.

use super::LowerBound;
use super::adaptive::{steer, weighted};
use crate::{Baseline, BaselineSpec, Call, Keys};

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
}

/// `TestRateLimiter` of jaeger-client-go: two per second.
#[test]
fn a_lower_bound_is_a_bucket_that_holds_a_second() {
    let mut bound = LowerBound::every(0.5, 0);
    let rows = [
        (0, [true, true, false]),
        (250, [false; 3]),
        (750, [true, false, false]),
        (5750, [true, true, false]),
    ];
    for (at_ms, expected) in rows {
        assert_eq!([0; 3].map(|_: i32| bound.take(at_ms * 1_000_000)), expected, "at {at_ms} ms");
    }
    // `TestMaxBalance`: a slower one holds a single credit.
    let mut bound = LowerBound::every(10.0, 0);
    let taken = [0, 9, 10, 60, 60].map(|at_s| bound.take(at_s * 1_000_000_000));
    assert_eq!(taken, [true, false, true, true, false]);
}

/// `TestCalculateWeightedQPS`.
#[test]
fn the_latest_periods_weigh_most() {
    assert!((weighted(&[0.8, 1.2, 1.0]) - 0.86735).abs() < 1e-5);
    assert!((weighted(&[1.0, 1.0, 0.0, 0.0]) - 0.95197).abs() < 1e-5);
    assert_eq!(weighted(&[0.75]), 0.75);
    assert_eq!(weighted(&[]), 0.0);
}

/// `TestCalculateProbability` (tolerance 0.2), except for the growth, which the original caps in
/// another class: `PercentageIncreaseCappedCalculator` with a cap of 100 %.
#[test]
fn probabilities_are_steered_to_the_target() {
    assert_near(steer(0.5, 2.0, 1.0, 0.2), 0.25);
    assert_near(steer(0.001, 2.0, 1.0, 0.2), 0.0005);
    assert_near(steer(0.001, 0.9, 1.0, 0.2), 0.001);
    assert_eq!(steer(0.001, 1e9, 1.0, 0.2), 1e-5);
    assert_near(steer(0.001, 0.0, 1.0, 0.2), 0.002);
    // From 0.1 by a factor of 5, capped at 2; by 1.25, not capped; never above 1.
    assert_near(steer(0.1, 0.2, 1.0, 0.2), 0.2);
    assert_near(steer(0.4, 0.8, 1.0, 0.1), 0.5);
    assert_eq!(steer(0.7, 0.1, 1.0, 0.2), 1.0);
    // The default tolerance: 0.71/s and 1.29/s are close enough to 1/s.
    assert_eq!([0.71, 1.29].map(|rate| steer(0.5, rate, 1.0, 0.3)), [0.5, 0.5]);
    assert_near(steer(0.5, 0.69, 1.0, 0.3), 0.5 / 0.69);
}

fn build(text: &str, names: &[&'static str]) -> Box<dyn Baseline> {
    let spec: BaselineSpec = text.parse().expect(text);
    spec.build(&Keys::new(names.iter().copied()))
}

/// The number of calls that are kept with this draw, of `calls` calls, one per millisecond from
/// `from_s` on.
fn kept(baseline: &mut dyn Baseline, key: u32, from_s: u64, calls: u64, uniform: f64) -> u64 {
    (0..calls)
        .map(|n| baseline.keeps(Call { key, at_ns: from_s * 1_000_000_000 + n * 1_000_000, uniform }))
        .map(u64::from)
        .sum()
}

/// The client's `TestAdaptiveSampler`, with a probability of 0.5 and one trace per second. The
/// lower bound keeps a trace that the probability would not keep; a trace that the probability
/// keeps also uses the credit.
#[test]
fn guaranteed_keeps_at_least_one_of_each_key() {
    let mut baseline = build("jaeger-guaranteed:rate=0.5,lower=1s", &["op", "first"]);
    let mut keeps =
        |key, at_ms: u64, uniform| baseline.keeps(Call { key, at_ns: at_ms * 1_000_000, uniform });
    assert!(keeps(0, 0, 0.6), "lower bound");
    assert!(keeps(0, 0, 0.4), "probability");
    assert!(!keeps(0, 0, 0.6));
    assert!(keeps(1, 0, 0.4));
    assert!(!keeps(1, 0, 0.6), "the previous trace used the credit");
    assert!(!keeps(0, 999, 0.6));
    assert!(keeps(0, 1001, 0.6));
}

#[test]
fn operations_beyond_2000_have_no_lower_bound() {
    let names: Vec<&str> = (0..2001).map(|n| &*format!("{n}").leak()).collect();
    for text in ["jaeger-guaranteed", "jaeger-adaptive"] {
        let mut baseline = build(text, &names);
        let kept: Vec<bool> =
            (0..2001).map(|key| baseline.keeps(Call { key, at_ns: 0, uniform: 0.9 })).collect();
        assert_eq!(kept.iter().filter(|&&kept| kept).count(), 2000, "{text}");
        assert!(!kept[2000], "{text}");
    }
}

/// Target 1/s, starting from 0.001, minute by minute, by hand. A first draw of 0.9 in a minute uses
/// the lower bound's credit.
#[test]
fn adaptive_moves_once_a_minute() {
    let mut baseline = build("jaeger-adaptive", &["busy", "rare"]);
    let mut kept = |key, at_s, calls, uniform| kept(baseline.as_mut(), key, at_s, calls, uniform);
    assert_eq!(kept(0, 0, 60_000, 0.0005), 60_000);
    // 1000/s, so from 0.001 to a thousandth of it, but not below 0.00001. The credit used at 0 s is
    // back at 60 s.
    assert_eq!(kept(0, 60, 100, 0.0005), 1, "the lower bound alone");
    assert_eq!(kept(0, 119, 100, 0.000_02), 0);
    // Traces kept by the lower bound do not count, so the probability doubles to 0.00002, ...
    assert_eq!(kept(0, 121, 1, 0.9), 1, "the lower bound");
    assert_eq!([kept(0, 122, 1, 0.000_019), kept(0, 122, 1, 0.000_021)], [1, 0]);
    // ... and with one such trace in that minute, doubles again.
    assert_eq!([kept(0, 180, 1, 0.000_039), kept(0, 180, 1, 0.000_041)], [1, 0]);
    // A new key has the initial probability.
    assert_eq!([kept(1, 181, 1, 0.9), kept(1, 181, 1, 0.000_9), kept(1, 181, 1, 0.001_1)], [1, 1, 0]);
    // Nothing was kept from 240 s on: the latest known minute, with one trace, keeps counting, so
    // the probability doubles twice.
    assert_eq!(kept(0, 301, 1, 0.9), 1, "the lower bound");
    assert_eq!([kept(0, 301, 1, 0.000_159), kept(0, 301, 1, 0.000_161)], [1, 0]);
    // After ten minutes without traces an operation is forgotten. The traces of 301 s are in the
    // minute up to 360 s.
    assert_eq!(kept(0, 961, 1, 0.9), 1, "the lower bound");
    assert_eq!([kept(0, 961, 1, 0.000_9), kept(0, 961, 1, 0.001_1)], [1, 0]);
}

/// A trace that only the lower bound kept does not count, although it would make 1/60 per second,
/// above the target. In the next minute nothing arrives. As the last calculation started from the
/// initial probability, the collector does not trust that its new one is in use.
#[test]
fn adaptive_counts_what_the_probability_kept() {
    let mut baseline = build("jaeger-adaptive:target=0.01", &["rare"]);
    let mut kept = |at_s, uniform| kept(baseline.as_mut(), 0, at_s, 1, uniform);
    assert_eq!(kept(0, 0.9), 1, "the lower bound");
    assert_eq!([kept(121, 0.9), kept(121, 0.001_9), kept(121, 0.002_1)], [1, 1, 0]);
}

/// 20/s in the first minute, so from 0.5 to 0.025; 1/s in the second. By the last minute alone, the
/// rate is at the target. By the last two, with weights 2^4 and 1, it is (16 + 20) / 17 = 2.12, and
/// the probability falls to 0.0118.
#[test]
fn adaptive_looks_back_as_far_as_asked() {
    for (buckets, kept_by_the_probability) in [(1, 1), (2, 0)] {
        let mut baseline = build(&format!("jaeger-adaptive:buckets={buckets},initial=0.5"), &["a"]);
        let mut kept = |at_s, calls, uniform| kept(baseline.as_mut(), 0, at_s, calls, uniform);
        assert_eq!((kept(0, 1200, 0.1), kept(60, 60, 0.01)), (1200, 60));
        assert_eq!(kept(121, 1, 0.9), 1, "the lower bound");
        assert_eq!(kept(122, 1, 0.02), kept_by_the_probability, "{buckets}");
    }
}

/// 50/s with evenly spread draws: half are kept in the first minute, then 2/s.
#[test]
fn adaptive_settles_at_its_target() {
    let mut baseline = build("jaeger-adaptive:target=2,initial=0.5", &["a"]);
    let mut minutes = [0u64; 20];
    for n in 0..20 * 60 * 50u64 {
        // 50 calls per second; draws step through [0, 1) by the golden ratio.
        let uniform = (n as f64 * 0.618_033_988_749_895).fract();
        minutes[(n / 3000) as usize] +=
            u64::from(baseline.keeps(Call { key: 0, at_ns: n * 20_000_000, uniform }));
    }
    assert!((1490..=1510).contains(&minutes[0]), "half of 3000: {minutes:?}");
    for kept in &minutes[1..] {
        assert!((84..=156).contains(kept), "within 30 % of 2/s for a minute: {minutes:?}");
    }
}
