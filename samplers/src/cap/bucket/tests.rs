//! The published bound, and the weights of kept traces.

use std::sync::Barrier;

use astracer_testing::SplitMix;
use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn randomness(random: &mut SplitMix) -> Randomness {
    Randomness::from_low_bits(random.next() >> 8)
}

fn bucket(rate: f64, burst: f64) -> (Bucket, Allowance) {
    let allowance = Allowance::new(rate, burst).unwrap();
    (Bucket::new(allowance), allowance)
}

/// The greatest number of units in any closed interval of this length; `times` must be in order.
fn most_within(times: &[(u64, u64)], length: u64) -> u64 {
    let (mut most, mut sum, mut first) = (0, 0, 0);
    for &(at, units) in times {
        sum += units;
        while at - times[first].0 > length {
            sum -= times[first].1;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

#[track_caller]
fn check_bound(times: &[(u64, u64)], allowance: &Allowance) {
    for millis in [1, 10, 100, 1_000, 10_000] {
        let most = most_within(times, millis * 1_000_000);
        let bound = allowance.worst_case(millis as f64 / 1e3);
        assert!(most as f64 <= bound, "{most} in {millis} ms, bound {bound}");
    }
}

fn kept(answer: Answer) -> bool {
    matches!(answer, Answer::Kept { .. })
}

#[test]
fn a_step_of_the_load_by_ten_stays_within_the_bound() {
    let (bucket, allowance) = bucket(100.0, 25.0);
    let (meter, mut random) = (Meter::default(), SplitMix::new(1));
    let mut times = Vec::new();
    let mut now = 0;
    for call in 0..60_000 {
        now += SECOND / if call < 1_000 { 100 } else { 1_000 };
        if kept(meter.ask(&bucket, 1, 0, randomness(&mut random), Nanos::new(now))) {
            times.push((now, 1));
        }
    }
    check_bound(&times, &allowance);
    // Ten seconds of load at the rate, and 59 s of ten times as much: nearly all of the allowance
    // is used.
    let used = times.len() as f64 / (100.0 * 69.0);
    assert!((0.97..=1.01).contains(&used), "{used}");
}

#[test]
fn hours_of_rest_buy_one_burst() {
    let (bucket, allowance) = bucket(10.0, 5.0);
    let meter = Meter::default();
    let mut times = Vec::new();
    for hour in 1..10u64 {
        for call in 0..10_000 {
            let now = hour * 3_600 * SECOND + call * 1_000;
            if kept(meter.ask(&bucket, 1, 0, Randomness::MAX, Nanos::new(now))) {
                times.push((now, 1));
            }
        }
    }
    check_bound(&times, &allowance);
    assert_eq!(times.len(), 9 * 5, "10 ms of calls each hour: the burst");
}

/// A clock that jumps ahead gains one burst at most, one that is set back gains nothing; after
/// either, the cap continues.
#[test]
fn a_clock_that_jumps_gains_nothing() {
    let (bucket, _) = bucket(10.0, 5.0);
    let hour = 3_600 * SECOND;
    for (jump, burst) in [(hour, 5), (u64::MAX - 2 * hour, 5)] {
        let meter = Meter::default();
        let take = |now: u64| {
            (0..100).filter(|_| kept(meter.ask(&bucket, 1, 0, Randomness::MAX, Nanos::new(now)))).count()
        };
        assert_eq!(take(hour), 5);
        assert_eq!(take(hour + jump), burst);
        // Set back again: empty, then refilled at the rate.
        assert_eq!(take(hour), 0);
        assert_eq!(take(hour + SECOND / 10), 1);
        assert_eq!(take(hour + 2 * SECOND), 5);
        // Set back by 30 s: nothing until the clock has caught up.
        assert_eq!(take(hour - 28 * SECOND), 0);
        assert_eq!(take(hour + 2 * SECOND), 0);
        assert_eq!(take(hour + 3 * SECOND), 5);
    }
    let meter = Meter::default();
    assert!(
        kept(meter.ask(&bucket, 1, 0, Randomness::MAX, Nanos::new(u64::MAX)))
            || meter.struck.load(Ordering::Relaxed) > 0
    );
}

#[test]
fn a_unit_larger_than_the_burst_is_never_admitted() {
    let allowance = Allowance::new(1_000.0, 100.0).unwrap();
    let meter = Meter::default();
    assert!(!meter.admit(&allowance, 101, Nanos::from_secs(9)));
    assert!(!meter.admit(&allowance, u64::MAX, Nanos::from_secs(9)));
    assert!(meter.admit(&allowance, 100, Nanos::from_secs(9)));
    assert!(!meter.admit(&allowance, 1, Nanos::from_secs(9)));
    assert!(meter.admit(&allowance, 1, Nanos::from_millis(9_001)));
    assert_eq!(meter.level(&allowance, Nanos::from_millis(9_051)), 0.5);
}

/// A full bucket, and only a full one, admits its whole burst, even if the burst's time is not a
/// whole number of ns. That time is not shortened: nothing is admitted before the units have come
/// back.
#[test]
fn a_full_bucket_has_room_for_its_burst() {
    for (rate, burst) in [(7.0, 10.0), (3e5, 8e6 + 1.0), (999_983.0, 65_537.0), (3.0, 1.0), (7.0, 10.5)] {
        let allowance = Allowance::new(rate, burst).unwrap();
        let units = burst as u64;
        let meter = Meter::default();
        let mut times = Vec::new();
        let mut admit = |units: u64, now: u64| {
            let admitted = meter.admit(&allowance, units, Nanos::new(now));
            times.extend(admitted.then_some((now, units)));
            admitted
        };
        let mut now = SECOND;
        assert!(!admit(units + 1, now) && admit(units, now) && !admit(1, now), "{rate}, {burst}");
        for _ in 0..20 {
            // In steps of 1 ns around the time at which everything has come back.
            now += (units as f64 * 1e9 / rate) as u64 - 3;
            let one = (0..32).find(|later| admit(units, now + later));
            now += one.expect("all units have come back");
        }
        for (first, &(start, _)) in times.iter().enumerate() {
            for (last, &(end, _)) in times.iter().enumerate().skip(first) {
                let sum: u64 = times[first..=last].iter().map(|(_, units)| units).sum();
                let bound = allowance.worst_case((end - start) as f64 / 1e9);
                assert!(sum as f64 <= bound * (1.0 + 1e-12), "{rate}, {burst}: {sum} > {bound}");
            }
        }
    }
}

/// A burst of ten is ten traces at once, at any rate, and they come back one by one at nearly that
/// rate.
#[test]
fn a_burst_is_as_many_as_it_says() {
    for rate in (1..1_000).map(f64::from).chain([0.7, 33.333, 99.9, 1e-6, 1.0 / 86_400.0]) {
        for burst in [1.0, 2.5, 10.0, 97.0] {
            let (_, allowance) = bucket(rate, burst);
            let meter = Meter::default();
            let at = |now: u64| (0..200).filter(|_| meter.admit(&allowance, 1, Nanos::new(now))).count();
            assert_eq!(at(SECOND), burst as usize, "{rate}, {burst}");
            // To within a millionth. No more than a burst can come back.
            let units = (burst as u64).min(9);
            let later = (units as f64 * 1e9 / rate * (1.0 + 2e-6)) as u64;
            assert_eq!(at(SECOND + later), units as usize, "{rate}, {burst}");
        }
    }
}

/// The kept share is 1 in the upper half, and halves with each sixteenth of the lower half.
#[test]
fn the_threshold_rises_by_halvings() {
    let (bucket, _) = bucket(1.0, 32.0);
    let fill = 32 * SECOND;
    let share = |credit: u64| (Threshold::RANGE - bucket.raised(credit, 0)) as f64 / Threshold::RANGE as f64;
    assert_eq!(share(fill), 1.0);
    assert_eq!(share(fill / 2), 1.0);
    for halvings in 0..=16 {
        let credit = (16 - halvings) * SECOND;
        assert!((share(credit) / 0.5f64.powi(halvings as i32) - 1.0).abs() < 1e-9, "{halvings}");
    }
    assert!((share(fill / 2 - SECOND / 2) - 0.75).abs() < 1e-9);
    let ratio = Threshold::RANGE / 4 * 3;
    assert_eq!(bucket.raised(15 * SECOND, ratio), Threshold::RANGE / 8 * 7, "half of a quarter");
    assert_eq!(bucket.raised(0, Threshold::MAX.get()), Threshold::MAX.get());
}

/// Under loads of up to 3,000 times the rate, the bucket is nearly always above empty.
#[test]
fn under_load_the_bucket_is_seldom_empty_and_its_weights_are_true() {
    let (bucket, _) = bucket(100.0, 25.0);
    for (load, seed) in [(1_000u64, 1u64), (10_000, 2), (300_000, 3)] {
        let (meter, mut random) = (Meter::default(), SplitMix::new(seed));
        let (mut sum, mut squares, mut empty, calls) = (0.0, 0.0, 0u64, load * 20);
        for call in 0..calls {
            match meter.ask(&bucket, 1, 0, randomness(&mut random), Nanos::new(SECOND + call * SECOND / load))
            {
                Answer::Kept { threshold, .. } => {
                    let weight = Threshold::new(threshold).unwrap().adjusted_count();
                    sum += weight;
                    // Given the earlier calls, a call's part of the sum has the variance w - 1; its
                    // estimate is w (w - 1).
                    squares += weight * (weight - 1.0);
                }
                Answer::Raised => {}
                Answer::Empty => empty += 1,
            }
        }
        let off = sum - (calls - empty) as f64;
        assert!(off.abs() < 5.0 * squares.sqrt(), "seed {seed}: off by {off}, deviation {}", squares.sqrt());
        assert!(empty * 100 <= calls, "seed {seed}: empty at {empty} of {calls}");
    }
}

/// Two threads at full speed, sharing one clock: the bound is exact.
#[test]
fn two_threads_hold_the_bound() {
    let (bucket, allowance) = bucket(1_000.0, 100.0);
    let (meter, barrier) = (Meter::default(), Barrier::new(2));
    let clock = AtomicU64::new(SECOND);
    let take = &|seed: u64| {
        let mut random = SplitMix::new(seed);
        let mut times = Vec::new();
        barrier.wait();
        for _ in 0..500_000 {
            // 200 ns between calls: five million per second of this clock.
            let now = clock.fetch_add(200, Ordering::Relaxed);
            if kept(meter.ask(&bucket, 1, 0, randomness(&mut random), Nanos::new(now))) {
                times.push((now, 1));
            }
        }
        times
    };
    let mut times: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (1..=2).map(|seed| scope.spawn(move || take(seed))).collect();
        handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect()
    });
    times.sort_unstable();
    check_bound(&times, &allowance);
    // A fifth of a second: the burst of 100 and 200 more, less what the raised threshold holds
    // back.
    assert!(times.len() > 150, "{}", times.len());
}

proptest! {
    /// For any rate, burst, times and sizes: at most burst + rate * W is admitted within W.
    #[test]
    fn the_bound_holds_for_any_load(
        rate in 0.1f64..1e6,
        burst in 1.0f64..1e4,
        calls in prop::collection::vec((0u64..2_000_000_000, 1u64..50, any::<u64>()), 1..300),
    ) {
        let (bucket, allowance) = bucket(rate, burst);
        let meter = Meter::default();
        let (mut now, mut times) = (0u64, Vec::new());
        for (wait, units, randomness) in calls {
            now += wait / 1_000;
            if kept(meter.ask(&bucket, units, 0, Randomness::from_low_bits(randomness >> 8), Nanos::new(now))) {
                times.push((now, units));
            }
        }
        for (first, &(start, _)) in times.iter().enumerate() {
            let mut sum = 0;
            for &(end, units) in &times[first..] {
                sum += units;
                let bound = allowance.worst_case((end - start) as f64 / 1e9);
                prop_assert!(sum as f64 <= bound * (1.0 + 1e-12), "{} > {}", sum, bound);
            }
        }
    }

    #[test]
    fn no_state_makes_it_panic(word: u64, now: u64, rate in 1e-6f64..1e12, burst in 1.0f64..1e15, units: u64, r: u64) {
        if let Ok(allowance) = Allowance::new(rate, burst) {
            let meter = Meter { word: AtomicU64::new(word), struck: AtomicU64::new(now.wrapping_mul(3)) };
            let threshold = r >> 8;
            let _ = meter.ask(&Bucket::new(allowance), units, threshold, Randomness::from_low_bits(r), Nanos::new(now));
            let _ = meter.level(&allowance, Nanos::new(now));
        }
    }
}

/// A unit at these rates takes longer to come back than 64 bits of 2^-20 ns can hold: 11.6 days at
/// the least rate.
#[test]
fn the_least_rates_hold_their_bound_too() {
    for (rate, burst) in [(1e-6, 1.0), (1e-5, 2.0), (5e-5, 1.0)] {
        let (bucket, allowance) = bucket(rate, burst);
        let meter = Meter::default();
        let hours = (0..24 * 40).map(|hour| hour * 3600 * SECOND);
        let at_once = hours.clone().map(|now| {
            let admitted =
                (0..9).filter(|_| kept(meter.ask(&bucket, 1, 0, Randomness::MAX, Nanos::new(now)))).count();
            (now, admitted as u64)
        });
        let times: Vec<(u64, u64)> = at_once.collect();
        for length in [0, 3600, 24 * 3600, 24 * 3600 * 40] {
            let (most, bound) = (most_within(&times, length * SECOND), allowance.worst_case(length as f64));
            assert!(most as f64 <= bound, "{rate}: {most} in {length} s, bound {bound}");
        }
        let all = times.iter().map(|&(_, admitted)| admitted).sum::<u64>() as f64;
        // A unit that comes back within an hour is taken at the hour's end, so at most a twelfth is
        // lost.
        assert!(all >= 0.9 * rate * 39.0 * 24.0 * 3600.0, "{rate}: {all} in 40 days");
    }
    let (_, least) = bucket(1e-6, 1.0);
    assert!(Meter::default().admit(&least, 1, Nanos::ZERO));
    assert!(!Meter::default().admit(&least, u64::MAX, Nanos::ZERO), "more units than can exist");
}
