//! A half-life in calls: traffic of any speed is decided alike.

use astracer_samplers::{Nanos, Request};

use crate::common::{Random, sampler};

const PACED: &str = "bump:lambda=20,min=0.01,count=decaying,tau=300calls";
const TIMED: &str = "bump:lambda=20,min=0.01,count=decaying,tau=3s";

/// Random calls of five keys, on average 10 ms apart, in bursts and with pauses, with all times
/// divided by `speed`; from `faster_from` on by five times as much. The probability of each call.
fn run(config: &str, calls: u64, speed: f64, faster_from: u64) -> Vec<f64> {
    let (sampler, mut random, mut now) = (sampler(config), Random::new(7), 1e9);
    let call = |n: u64| {
        let gap = (random.next() as f64 / u64::MAX as f64).powi(4) * 50e6;
        now += gap / speed / if n >= faster_from { 5.0 } else { 1.0 };
        let key = ["a", "b", "c", "d", "e"][(random.below(16) as f64).sqrt() as usize];
        let request = Request::new(key, random.randomness(), Nanos::new(now as u64));
        sampler.decide(&request).threshold.expect("by chance").probability().get()
    };
    (0..calls).map(call).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Times are whole nanoseconds, so probabilities are the same to a thousandth. With a half-life in
/// seconds, ten times the speed keeps less than half as much.
#[test]
fn the_same_traffic_at_another_speed_is_decided_alike() {
    let recorded = run(PACED, 20_000, 1.0, u64::MAX);
    for speed in [0.2, 2.0, 10.0] {
        let found = run(PACED, 20_000, speed, u64::MAX);
        for (n, (found, expected)) in found.iter().zip(&recorded).enumerate() {
            assert!((found / expected - 1.0).abs() < 1e-3, "speed {speed}, call {n}: {found}, {expected}");
        }
    }
    let timed = [1.0, 10.0].map(|speed| mean(&run(TIMED, 20_000, speed, u64::MAX)));
    assert!(timed[1] < 0.5 * timed[0], "{timed:?}");
    // At the recorded speed both are about the same: 300 calls take 3 s.
    assert!((timed[0] / mean(&recorded) - 1.0).abs() < 0.1, "{timed:?}, {}", mean(&recorded));
}

/// A speed that jumps to five times in the middle: from some hundred calls later on, as much is kept
/// as before.
#[test]
fn a_speed_that_jumps_keeps_as_much_soon() {
    let (steady, jump) = (run(PACED, 40_000, 1.0, u64::MAX), run(PACED, 40_000, 1.0, 20_000));
    assert_eq!(steady[..20_000], jump[..20_000]);
    let (before, after) = (mean(&steady[20_600..]), mean(&jump[20_600..]));
    assert!((after / before - 1.0).abs() < 0.15, "{before}, {after}");
}

/// A loop after a pause is seen at any speed: its first calls are kept.
#[test]
fn a_burst_and_a_pause_are_seen_at_any_speed() {
    for gap_ns in [100_000, 10_000_000] {
        let sampler = sampler(PACED);
        let mut now = 0;
        let mut call = |gap: u64| {
            now += gap;
            let request = Request::new("a", Random::new(now).randomness(), Nanos::new(now));
            sampler.decide(&request).threshold.expect("by chance").probability().get()
        };
        (0..2_000).for_each(|_| _ = call(gap_ns));
        // x is 300 / ln 2 = 433, and 1 - exp(-(20 / 433)^2) = 0.0021 is below the minimum.
        assert!((call(gap_ns) - 0.01).abs() < 1e-6);
        // Ten half-lives later x is 0.42.
        assert!(call(3_000 * gap_ns) > 0.999);
        assert!((call(1) - 1.0).abs() < 1e-3, "x is 1.42");
        let twentieth = (0..19).map(|_| call(1)).last().expect("19 calls");
        assert!((twentieth - 0.61).abs() < 0.05, "x is 20.4, and 1 - exp(-0.96) = 0.62: {twentieth}");
    }
}
