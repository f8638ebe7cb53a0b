//! Bump compared with its formula.

use std::collections::HashMap;

use astracer_samplers::{
    Bump, Cap, Config, Count, Limits, Nanos, PerKey, Probability, Randomness, Reason, Request, Sampler,
    Threshold,
};
use astracer_testing::SplitMix;
use proptest::prelude::*;

use crate::common::{Draw as _, call, limited, sampler, unlucky};

fn bump(lambda: f64, minimum: f64) -> Bump {
    Bump::new(lambda, Probability::new(minimum).unwrap(), Nanos::from_secs(1)).unwrap()
}

/// f(x) = 1 - exp(-lambda^2 / x^2) by hand, for lambda = 10: 1 - e^-4 at x = 5, 1 - e^-1 at x = 10,
/// 1 - e^-0.01 at x = 100.
#[test]
fn probabilities_are_the_papers() {
    let bump = bump(10.0, 0.009);
    for (count, expected) in
        [(0, 1.0), (5, 0.981_684_361_1), (10, 0.632_120_558_8), (100, 0.009_950_166_3), (1_000, 0.009)]
    {
        let p = bump.probability(f64::from(count)).get();
        assert!((p - expected).abs() < 1e-10, "{count}: {p}");
    }
    // For large x, f(x) is lambda^2 / x^2 to many digits: here 1e-14, of which a literal 1 - exp
    // would lose most digits.
    let p = self::bump(10.0, 0.0).probability(1e8).get();
    assert!((p / 1e-14 - 1.0).abs() < 1e-12, "{p}");
}

#[test]
fn degenerate_parameters_do_as_the_formula_says() {
    let first_only = bump(0.0, 0.0);
    assert_eq!([0, 1, 2].map(|count| first_only.probability(f64::from(count)).get()), [1.0, 0.0, 0.0]);
    let huge = bump(f64::MAX, 0.0);
    assert_eq!([0.0, 1.0, 1e19].map(|count| huge.probability(count).get()), [1.0; 3]);
    let sampler = sampler("bump:lambda=0");
    assert!(unlucky(&sampler, "a", 0).keep && !unlucky(&sampler, "a", 0).keep);
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(Bump::new(bad, Probability::ONE, Nanos::from_secs(1)).unwrap_err().is_out_of_range());
    }
    assert!(Bump::new(1.0, Probability::ONE, Nanos::from_millis(1)).is_ok());
    assert!(Bump::new(1.0, Probability::ONE, Nanos::new(999_999)).is_err());
}

/// Each call is kept with the same probability, including the first one and one after a pause.
#[test]
fn without_a_count_every_call_has_the_least_probability() {
    let sampler = sampler(r#"bump:lambda=5,min=0.5;"a":min=0.1,count=none;"b":min=0,count=none"#);
    let threshold = Threshold::from_probability(Probability::new(0.1).unwrap());
    for second in [0, 0, 0, 1, 1_000_000] {
        let decision = call(&sampler, "a", second);
        assert_eq!((decision.threshold, decision.reason), (Some(threshold), Reason::BumpMinimum));
        assert!(!unlucky(&sampler, "b", second).keep);
    }
    assert_eq!(call(&sampler, "c", 0).reason, Reason::Bump, "other keys are counted");
    let counts = sampler.snapshot().unwrap();
    let of_a = counts.keys.iter().find(|key| &*key.key == "a").unwrap().counts;
    assert_eq!((of_a.seen(), of_a.kept()), (5, 5), "the record table still counts them");
    let uncounted = bump(5.0, 0.1).with_count(Count::Uncounted).unwrap();
    assert_eq!(uncounted.probability(0.0).get(), 0.1);
    assert_eq!(uncounted.kept_per_second_max(), Some(0.0), "not counting the share of the minimum");
}

#[test]
fn thresholds_are_true_weights_and_reasons_say_what_decided() {
    let (sampler, bump) = (sampler("bump:lambda=2,min=0.1"), bump(2.0, 0.1));
    for count in 0..30 {
        let decision = call(&sampler, "a", 0);
        assert_eq!(
            decision.threshold,
            Some(Threshold::from_probability(bump.probability(f64::from(count)))),
            "{count}"
        );
        // f(x) falls to 0.1 at x = 2 / sqrt(-ln 0.9) = 6.16.
        assert_eq!(decision.reason, if count < 7 { Reason::Bump } else { Reason::BumpMinimum });
    }
    let snapshot = sampler.snapshot().unwrap();
    let counts = snapshot.keys[0].counts;
    assert_eq!((counts.seen(), counts.kept(), counts.dropped()), (30, 30, 0));
    assert_eq!((counts.kept_by(Reason::Bump), counts.kept_by(Reason::BumpMinimum)), (7, 23));
}

/// A reference that is obviously right: a map, floating point, division.
#[derive(Default)]
struct Reference(HashMap<String, (u64, u64)>);

impl Reference {
    fn probability(&mut self, parameters: &PerKey<Bump>, key: &str, now: Nanos) -> Probability {
        let bump = parameters.of(key);
        let window = bump.window_number(key, now).unwrap();
        let (known, count) = self.0.entry(key.to_owned()).or_insert((window, 0));
        if *known != window {
            (*known, *count) = (window, 0);
        }
        *count += 1;
        bump.probability((*count - 1) as f64)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Random parameters, with overrides and shifts: each call's probability and decision equal the
    /// reference's.
    #[test]
    fn decides_as_the_reference_does(
        lambda in 0.0..50.0f64,
        minimum in prop_oneof![Just(0.0), 0.0..0.5f64, Just(1.0)],
        window_ms in 1u64..500,
        shifted: bool,
        seed: u64,
        step_ms in 0u64..100,
    ) {
        let bump = Bump::new(lambda, Probability::new(minimum).unwrap(), Nanos::from_millis(window_ms)).unwrap();
        let other = Bump::new(3.0, Probability::ZERO, Nanos::from_millis(7)).unwrap().shifted(true);
        let parameters = PerKey::new(bump.shifted(shifted)).with_override("key 3", other);
        let sampler = Sampler::with_limits(&Config::Bump(parameters.clone()), Limits::single_threaded().with_keys(16));
        let (mut reference, mut random, mut now) = (Reference::default(), SplitMix::new(seed), Nanos::ZERO);
        for _ in 0..2_000 {
            let key = format!("key {}", random.below(8).min(random.below(8)));
            let request = Request::new(&key, random.randomness(), now);
            let decision = sampler.decide(&request);
            let threshold = Threshold::from_probability(reference.probability(&parameters, &key, now));
            prop_assert_eq!(decision.threshold, Some(threshold));
            prop_assert_eq!(decision.keep, threshold.keeps(request.randomness));
            now = now.saturating_add(Nanos::new(random.below(step_ms * 1_000_000 + 1)));
        }
    }
}

/// The number of kept calls is a sum of independent coin flips with probabilities p(i): its mean is
/// sum p(i), its variance V = sum p(i) (1 - p(i)). By Bernstein's inequality it is further than t =
/// 6 sqrt(V) + 12 from its mean with a probability below 2 exp(-t^2 / (2 V + 2 t / 3)) < 2 exp(-18)
/// = 3e-8. The mean itself is at most 1 + lambda sqrt(pi) + min n per window, because the sum of
/// f(i) for i >= 1 is at most the integral of f from 0.
#[test]
fn keeps_as_many_as_expected() {
    const WINDOWS: u64 = 400;
    for (seed, lambda, minimum, calls) in [
        (1, 10.0, 0.01, 500),
        (2, 10.0, 0.0, 2_000),
        (3, 215.0, 0.02, 3_000),
        (4, 0.5, 0.1, 50),
        (5, 0.0, 0.0, 20),
    ] {
        let (bump, mut random) = (bump(lambda, minimum), SplitMix::new(seed));
        let sampler = limited(&format!("bump:lambda={lambda},min={minimum}"), Limits::single_threaded());
        let mut kept = 0;
        for window in 0..WINDOWS {
            for call in 0..calls {
                let now = Nanos::new(window * 1_000_000_000 + call * (1_000_000_000 / calls));
                kept += u64::from(sampler.decide(&Request::new("a", random.randomness(), now)).keep);
            }
        }
        let p = (0..calls).map(|count| bump.probability(count as f64).get());
        let (mean, variance) = p.fold((0.0, 0.0), |(mean, variance), p| (mean + p, variance + p * (1.0 - p)));
        assert!(mean <= 1.0 + lambda * std::f64::consts::PI.sqrt() + minimum * calls as f64);
        let (mean, variance) = (mean * WINDOWS as f64, variance * WINDOWS as f64);
        let bound = 6.0 * variance.sqrt() + 12.0;
        assert!(
            (kept as f64 - mean).abs() <= bound,
            "seed {seed}: kept {kept}, expected {mean:.1} +- {bound:.1}"
        );
    }
}

proptest! {
    /// The bound of the mean from the test above, for any parameters.
    #[test]
    fn keeps_few_in_a_window(lambda in 0.0..200.0f64, minimum in 0.0..=1.0f64, calls in 1u64..20_000) {
        let bump = bump(lambda, minimum);
        let mean: f64 = (0..calls).map(|count| bump.probability(count as f64).get()).sum();
        prop_assert!(mean <= 1.0 + lambda * std::f64::consts::PI.sqrt() + minimum * calls as f64 + 1e-6);
    }
}

#[test]
fn the_sum_of_adjusted_counts_is_the_true_count() {
    // Each call contributes 1 / p with probability p, so the sum has mean n and variance sum (1 -
    // p) / p. With p >= 0.05 one call contributes at most 20. Bernstein: more than 6 sqrt(V) + 12 *
    // 20 off with a probability below 3e-8.
    let (sampler, bump, mut random) =
        (sampler("bump:lambda=10,min=0.05"), bump(10.0, 0.05), SplitMix::new(7));
    let (calls, mut sum) = (100_000, 0.0);
    for _ in 0..calls {
        let decision = sampler.decide(&Request::new("a", random.randomness(), Nanos::ZERO));
        sum += if decision.keep { decision.threshold.unwrap().adjusted_count() } else { 0.0 };
    }
    let variance: f64 =
        (0..calls).map(|count| bump.probability(f64::from(count)).get()).map(|p| (1.0 - p) / p).sum();
    let bound = 6.0 * variance.sqrt() + 240.0;
    assert!((sum - calls as f64).abs() <= bound, "seed 7: {sum} for {calls} +- {bound}");
}

#[test]
fn shifts_spread_the_windows_of_keys_and_no_shift_aligns_them() {
    let shifted = bump(10.0, 0.01).shifted(true);
    let keys: Vec<String> = (0..1_000).map(|i| format!("GET /{i}")).collect();
    let shifts: Vec<u64> = keys.iter().map(|key| shifted.shift(key).get()).collect();
    assert!(shifts.iter().all(|&shift| shift < 1_000_000_000));
    // Ten tenths of a second with 100 keys each on average; 5 standard deviations of the binomial
    // are 47.
    for tenth in 0..10 {
        let within = shifts.iter().filter(|&&shift| shift / 100_000_000 == tenth).count();
        assert!(within.abs_diff(100) <= 47, "{within} in tenth {tenth}");
    }
    assert!(keys.iter().all(|key| bump(10.0, 0.01).shift(key) == Nanos::ZERO));
    // Pinned, so that the shift is the same on every machine and in every version: a replay
    // elsewhere gives the same decisions.
    assert_eq!(shifted.shift("GET /").get(), PINNED_SHIFT);

    let sampler = sampler("bump:lambda=0,shift=on");
    let end = 1_000 - shifts[0].div_ceil(1_000_000);
    assert!(unlucky(&sampler, &keys[0], 0).keep);
    assert!(!unlucky(&sampler, &keys[0], end - 1).keep, "the same window");
    assert!(unlucky(&sampler, &keys[0], end + 1).keep, "the next one");
}

const PINNED_SHIFT: u64 = 989_328_235;

/// Threads that call one key at once get the counts 0, 1, 2, ... exactly once each.
#[test]
fn counts_are_exact_between_threads() {
    const CALLS: u64 = 4_000;
    const THREADS: u64 = 4;
    let sampler = sampler("bump:lambda=1000");
    let mut thresholds: Vec<_> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| (0..CALLS).map(|_| call(&sampler, "a", 5).threshold).collect::<Vec<_>>()))
            .collect();
        handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect()
    });
    thresholds.sort_unstable();
    let bump = bump(1000.0, 0.0);
    // From the 4096th count on, f is looked up, which is right to 4e-5; from one count to the next
    // it falls by 1.2e-4.
    for (count, threshold) in thresholds.into_iter().enumerate() {
        let (found, exact) = (threshold.unwrap().probability().get(), bump.probability(count as f64).get());
        let bound = if count < 4_096 { 1e-15 } else { 4e-5 };
        assert!((found / exact - 1.0).abs() <= bound, "{count}: {found} for {exact}");
    }
}

/// Beyond 4096 * shards calls in a window, counts are right to one part in 1024, and so f(x) to 0.3
/// %. Checked for several windows in a row, with more threads than shards, and with incomplete
/// batches left from the window before.
#[test]
fn counts_far_out_are_right_to_a_thousandth() {
    const CALLS: u64 = 30_000;
    const THREADS: u64 = 3;
    // One key with kept and dropped calls at every count.
    let sampler = limited("bump:lambda=30000", Limits::default().with_shards(2));
    let bump = bump(30_000.0, 0.0);
    for window in 0..5u64 {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let sampler = &sampler;
                scope.spawn(move || {
                    let mut random = SplitMix::new(window * THREADS + thread);
                    for _ in 0..CALLS + 17 * thread {
                        let now = Nanos::from_secs(window);
                        let _ = sampler.decide(&Request::new("a", random.randomness(), now));
                    }
                });
            }
        });
        let calls = THREADS * CALLS + 17 * (1 + 2);
        let p = call(&sampler, "a", window * 1_000).threshold.unwrap().probability().get();
        let error = p / bump.probability(calls as f64).get() - 1.0;
        assert!(error.abs() < 0.003, "window {window}: {p}, wrong by {error}");
    }
}

/// The published bound of a decaying count: in any T seconds, a key keeps at most W + 1 + (S + 1)
/// ln 2 T / half-life + minimum * calls, where W is the integral of f from 0; for an exponent of 2,
/// W is lambda sqrt(pi). The test checks the sum of the probabilities, which is the mean number of
/// kept calls.
#[test]
fn a_decaying_count_keeps_no_more_than_is_published() {
    type Gap = fn(&mut SplitMix, u64) -> u64;
    let traffic: [(&str, Gap); 5] = [
        ("even", |_, _| 3_000_000),
        ("sparse", |_, _| 700_000_000),
        ("bursts", |_, call| if call % 500 == 0 { 5_000_000_000 } else { 1_000 }),
        ("a call each half-life", |_, _| 300_000_000),
        ("random", |random, _| (-random.unit().ln() * 2e7) as u64),
    ];
    for (exponent, lambda) in [(2.0, 5.0), (2.0, 0.07), (1.5, 20.0), (1.0, 3.0)] {
        for minimum in [0.0, 0.02] {
            let half_life = Nanos::from_millis(300);
            let bump = bump(lambda, minimum).with_exponent(exponent).unwrap();
            let bump = bump.with_count(Count::Decaying { half_life }).unwrap();
            let per_second = bump.kept_per_second_max().unwrap();
            if exponent == 2.0 {
                let published = (0.638_173 * lambda + 1.0) * 2f64.ln() / 0.3;
                assert!((per_second / published - 1.0).abs() < 1e-4, "{per_second} {published}");
            }
            for (name, gap) in traffic {
                let sampler = Sampler::with_limits(&bump.clone().into(), Limits::single_threaded());
                let (mut random, mut now) = (SplitMix::new(1), Nanos::from_secs(1));
                // Measured against a line with the bound's slope, the number of kept calls never
                // rises by more than W + 1 above any earlier point.
                let (mut ahead, mut least, mut last) = (0.0f64, 0.0f64, now);
                for call in 1..=20_000u64 {
                    let decision = sampler.decide(&Request::new("a", random.randomness(), now));
                    let seconds = now.saturating_sub(last).as_secs_f64();
                    last = now;
                    ahead -= per_second * seconds + minimum;
                    least = least.min(ahead);
                    ahead += decision.threshold.unwrap().probability().get();
                    // The integral of 1 - exp(-(lambda / u)^a) is at most lambda up to lambda, and
                    // from there at most that of (lambda / u)^a, which grows like a logarithm for
                    // an exponent of 1.
                    let integral =
                        if exponent > 1.0 { lambda / (exponent - 1.0) } else { lambda * 20_000f64.ln() };
                    let bound = 1.0 + lambda + integral;
                    let seen = ahead - least;
                    assert!(seen <= bound, "{name}, {exponent}, {lambda}: {seen} > {bound} at call {call}");
                    now = now.saturating_add(Nanos::new(gap(&mut random, call)));
                }
            }
        }
    }
    // Exponents below 1 have no bound: the number of kept calls grows with the rate.
    let decaying = Count::Decaying { half_life: Nanos::from_secs(1) };
    let unbounded = bump(1.0, 0.0).with_count(decaying).unwrap().with_exponent(0.9).unwrap();
    assert_eq!(unbounded.kept_per_second_max(), None);
}

/// By hand: a window of 2 s keeps its first call, and lambda Gamma(1 - 1/a) of the others.
/// Gamma(1/2) is sqrt(pi) = 1.772454; for other exponents the published bound is a / (a - 1), which
/// is at least as large. A half-life of 2 s gives (S + 1) ln 2 / 2, where S is lambda at a = 1 and
/// ln 2 is 0.693147.
#[test]
fn published_bounds_are_those_of_the_formula() {
    let with = |exponent: f64, count: Count| {
        bump(3.0, 0.0).with_count(count).unwrap().with_exponent(exponent).unwrap().kept_per_second_max()
    };
    let two = Nanos::from_secs(2);
    let tumbling = Count::Tumbling { window: two, shifted: false };
    for (exponent, published) in [(2.0, 3.158_681), (3.0, 2.75), (1.25, 8.0)] {
        let bound = with(exponent, tumbling).unwrap();
        assert!((bound - published).abs() < 1e-6, "{exponent}: {bound}");
        // A window keeps no more, for any number of calls.
        let bump = bump(3.0, 0.0).with_count(tumbling).unwrap().with_exponent(exponent).unwrap();
        let kept: f64 = (0..1_000_000).map(|calls| bump.probability(f64::from(calls)).get()).sum();
        assert!(kept <= 2.0 * bound, "{exponent}: {kept}");
    }
    assert_eq!((with(1.0, tumbling), with(0.5, tumbling)), (None, None));
    let decaying = with(1.0, Count::Decaying { half_life: two }).unwrap();
    assert!((decaying - 1.386_294).abs() < 1e-6, "{decaying}");
}

/// Calls at 3 % of the rate have 3 % of the count in the long run, which is rate * half-life /
/// ln 2.
#[test]
fn a_decaying_count_settles_at_rate_times_half_life() {
    for (rate_ms, half_life_ms) in [(1u64, 500u64), (20, 2_000), (1, 20_000)] {
        let text = format!("bump:lambda=1,tau={half_life_ms}ms");
        let (sampler, bump) = (limited(&text, Limits::single_threaded()), bump(1.0, 0.0));
        let calls = 12 * half_life_ms / rate_ms;
        let last = (0..calls).map(|n| call(&sampler, "a", n * rate_ms).threshold).last().unwrap();
        // For evenly spaced calls, the count before a call tends to 1 / (2^(gap / half-life) - 1);
        // 2^-12 of it is still missing here.
        let count = 1.0 / ((rate_ms as f64 / half_life_ms as f64).exp2() - 1.0);
        let found = last.unwrap().probability().get();
        let error = found / bump.probability(count).get() - 1.0;
        // If calls are added in batches, x is right to one part in 1024, and f to twice that.
        assert!(error.abs() < 3e-3, "{half_life_ms} ms: {found}, wrong by {error}");
    }
}

/// Other minimums for single keys: max(the key's p, f of the common parameters).
#[test]
fn a_key_with_a_probability_of_its_own_has_the_common_count() {
    let sampler = sampler(r#"bump:lambda=2,min=0.01;"often":min=0.5;"all":min=1"#);
    for (key, minimum) in [("often", 0.5), ("all", 1.0), ("other", 0.01)] {
        let bump = bump(2.0, minimum);
        for count in 0..40 {
            let expected = Threshold::from_probability(bump.probability(f64::from(count)));
            assert_eq!(call(&sampler, key, 0).threshold, Some(expected), "{key} {count}");
        }
    }
}

/// A key of more than 88 bytes keeps the shift of its windows, which depends on all of its bytes,
/// when its parameters change.
#[test]
fn windows_of_a_long_key_stay_where_they_are() {
    let key = |end: &str| format!("{}{end}", "k".repeat(100));
    let config = |lambda: u32| format!("bump:lambda={lambda},window=1h,shift=on").parse::<Config>().unwrap();
    let Config::Bump(bump) = config(0) else { panic!("bump") };
    for key in [key("a"), key("b"), "short".to_owned()] {
        let sampler = Sampler::new(&config(1));
        let request = |minute: u64| Request::new(&key, Randomness::MIN, Nanos::from_secs(60 * minute));
        let _ = sampler.decide(&request(0));
        let changed = sampler.reconfigured(&config(0), &Cap::none(), Nanos::from_secs(1)).unwrap();
        for minute in 1..300 {
            let at = |minute: u64| bump.default().window_number(&key, Nanos::from_secs(60 * minute));
            let is_new = minute == 1 || at(minute) != at(minute - 1);
            assert_eq!(changed.decide(&request(minute)).keep, is_new, "minute {minute} of {key}");
        }
    }
}
