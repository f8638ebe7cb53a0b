//! Golden vectors from dynsampler-go's own tests, and its formulas by hand.

use super::average::AverageRate;
use super::moving::{Goal, Moving};
use super::throughput::{Share, Throughput};
use super::windowed::Windowed;
use super::{ByKey, one_in};
use crate::{Baseline, Call, Keys};

/// The keys of `genericsampler_test.go`, in the order of their names; their counts are 3^0 to 3^7.
const KEYS: [&str; 8] = ["arm", "bag", "bed", "bee", "box", "boy", "cat", "cow"];
/// The keys of `TestAvgSampleUpdateMaps` and others, whose order by name differs from that of their
/// counts.
const NUMBERS: [&str; 20] = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
];

/// The number of intervals that are over when `genericsampler_test.go` reads the rates, in the
/// eighth.
const ROUNDS: usize = 7;

fn powers_of_three() -> Vec<f64> {
    (0..8).map(|n| 3f64.powi(n)).collect()
}

/// All rates; 0 for keys without one.
fn rates(rates: &ByKey) -> Vec<u64> {
    rates.numbers.iter().map(|&rate| rate as u64).collect()
}

/// The rates of the first keys, computed one by one.
fn rates_by(keys: usize, rate: impl Fn(u32) -> f64) -> Vec<u64> {
    (0..).take(keys).map(|key| rate(key) as u64).collect()
}

impl From<Vec<f64>> for ByKey {
    fn from(numbers: Vec<f64>) -> Self {
        let mut by_key = Self::zero(numbers.len());
        for (key, number) in (0..).zip(numbers).filter(|&(_, number)| number > 0.0) {
            by_key.add(key, number);
        }
        by_key
    }
}

#[test]
fn an_average_rate_of_ten_over_powers_of_three() {
    let expected = [1, 1, 1, 1, 2, 4, 9, 21];
    let mut average = AverageRate::new(10.0, 1.0, &Keys::new(KEYS));
    average.counts = powers_of_three().into();
    average.update();
    assert_eq!(rates(&average.rates), expected);

    let mut moving = Moving::new(Goal::AverageRate(10.0), 1.0, 0.5, &Keys::new(KEYS));
    for _ in 0..ROUNDS {
        moving.counts = powers_of_three().into();
        moving.update();
    }
    assert_eq!(rates(&moving.rates), expected);
}

#[test]
fn throughputs_over_powers_of_three() {
    let keys = Keys::new(KEYS);
    let mut moving = Moving::new(Goal::PerInterval(100.0), 1.0, 0.5, &keys);
    for _ in 0..ROUNDS {
        moving.counts = powers_of_three().into();
        moving.update();
    }
    assert_eq!(rates(&moving.rates), [1, 1, 2, 3, 6, 13, 31, 77]);

    let check = |share: Share, goal: f64, expected: [u64; 8]| {
        let mut throughput = Throughput::new(share, goal, 1.0, &keys);
        throughput.counts = powers_of_three().into();
        throughput.update();
        assert_eq!(rates_by(8, |key| throughput.rate(key)), expected);
    };
    check(Share::EachKey, 10.0, [1, 1, 1, 2, 8, 24, 72, 218]);
    // 3^n / (5/8), truncated: 1.6, 4.8, 14.4, 43.2, 129.6, 388.8, 1166.4, 3499.2.
    check(Share::AllKeys, 5.0, [1, 4, 14, 43, 129, 388, 1166, 3499]);

    let mut windowed = Windowed::new(100.0, 0.1, 1.0, &keys);
    windowed.counts = powers_of_three().into();
    windowed.update(10);
    assert_eq!(rates_by(8, |key| windowed.rate(key)), [1, 1, 1, 2, 6, 19, 58, 174]);
}

/// `TestAvgSampleUpdateMaps` and `TestEMASampleUpdateMaps`, with a goal of 20. As in the originals,
/// repeating the counts brings the averages to them.
#[test]
fn an_average_rate_of_twenty() {
    let check = |names: &[&'static str], counts: &[f64], expected: &[u64]| {
        let keys = Keys::new(names.iter().copied());
        let mut average = AverageRate::new(20.0, 30.0, &keys);
        average.counts = counts.to_vec().into();
        average.update();
        assert_eq!(rates(&average.rates), expected, "average over {counts:?}");

        let mut moving = Moving::new(Goal::AverageRate(20.0), 15.0, 0.2, &keys);
        for _ in 0..=100 {
            moving.counts = counts.to_vec().into();
            moving.update();
        }
        assert_eq!(rates(&moving.rates), expected, "moving over {counts:?}");
    };
    check(
        &NUMBERS[..10],
        &[1.0, 1.0, 2.0, 5.0, 8.0, 15.0, 45.0, 612.0, 2000.0, 10000.0],
        &[1, 1, 1, 1, 1, 1, 1, 6, 14, 47],
    );
    check(
        &NUMBERS[..9],
        &[1.0, 1.0, 2.0, 5.0, 8.0, 15.0, 45.0, 50.0, 60.0],
        &[1, 1, 2, 5, 8, 11, 24, 26, 30],
    );
    check(&NUMBERS[..5], &[1.0, 1.0, 2.0, 5.0, 7.0], &[1, 1, 2, 5, 7]);
    check(&NUMBERS[..5], &[1000.0, 1000.0, 2000.0, 5000.0, 7000.0], &[7, 7, 13, 29, 39]);
    check(&NUMBERS[..5], &[6000.0; 5], &[20; 5]);
    check(&NUMBERS[..1], &[12000.0], &[20]);
    let (mut counts, mut expected) = ([1.0; 20], [1; 20]);
    (counts[0], expected[0]) = (10.0, 7);
    check(&NUMBERS, &counts, &expected);
}

/// `TestPerKeyThroughputUpdateMaps`: 5 per second for 30 s.
#[test]
fn five_per_second_of_each_key() {
    let check = |counts: &[f64], expected: &[u64]| {
        let mut throughput =
            Throughput::new(Share::EachKey, 5.0, 30.0, &Keys::new(NUMBERS[..counts.len()].iter().copied()));
        throughput.counts = counts.to_vec().into();
        throughput.update();
        assert_eq!(rates_by(counts.len(), |key| throughput.rate(key)), expected, "{counts:?}");
    };
    check(&[1.0, 1.0, 2.0, 5.0, 8.0, 15.0, 45.0, 612.0, 2000.0, 10000.0], &[1, 1, 1, 1, 1, 1, 1, 4, 13, 66]);
    check(&[1000.0, 1000.0, 2000.0, 5000.0, 70000.0], &[6, 6, 13, 33, 466]);
    check(&[12000.0], &[80]);
}

/// `TestTotalThroughputUpdateMaps`: 20 per second for 30 s.
#[test]
fn twenty_per_second_of_all_keys() {
    let check = |counts: &[f64], expected: &[u64]| {
        let mut throughput =
            Throughput::new(Share::AllKeys, 20.0, 30.0, &Keys::new(NUMBERS[..counts.len()].iter().copied()));
        throughput.counts = counts.to_vec().into();
        throughput.update();
        assert_eq!(rates_by(counts.len(), |key| throughput.rate(key)), expected, "{counts:?}");
    };
    check(
        &[1.0, 1.0, 2.0, 5.0, 8.0, 15.0, 45.0, 612.0, 2000.0, 10000.0],
        &[1, 1, 1, 1, 1, 1, 1, 10, 33, 166],
    );
    check(&[1000.0, 1000.0, 2000.0, 5000.0, 7000.0], &[8, 8, 16, 41, 58]);
    check(&[6000.0; 5], &[50; 5]);
}

/// `TestUpdateEMA` and `TestEMAAgesOutSmallValues`, with a weight of 0.2.
#[test]
fn averages_move_and_small_ones_are_forgotten() {
    let mut moving = Moving::new(Goal::AverageRate(20.0), 15.0, 0.2, &Keys::new(["a", "b", "c"]));
    let rows = [
        ([463.0, 235.0, 0.0], [93.0, 47.0, 0.0]),
        ([176.0, 458.0, 0.0], [109.0, 129.0, 0.0]),
        ([345.0, 470.0, 0.0], [156.0, 197.0, 0.0]),
        ([339.0, 317.0, 0.0], [193.0, 221.0, 0.0]),
        ([197.0, 165.0, 0.0], [194.0, 210.0, 0.0]),
        ([387.0, 95.0, 6960.0], [232.0, 187.0, 1392.0]),
    ];
    for (counts, expected) in rows {
        moving.counts = counts.to_vec().into();
        moving.update();
        let rounded: Vec<f64> = moving.averages.numbers.iter().map(|average| average.round()).collect();
        assert_eq!(rounded, expected);
    }
    for _ in 0..100 {
        moving.counts = vec![0.0, 1.0, 0.0].into();
        moving.update();
    }
    assert_eq!((moving.averages.numbers[0], moving.averages.numbers[2]), (0.0, 0.0));
    assert!(moving.averages.numbers[1] > 0.0);
}

/// `TestHappyPath` of the windowed throughput: 2 per second, five intervals of 1 s.
#[test]
fn a_window_rolls_over_the_last_five_seconds() {
    let mut windowed = Windowed::new(2.0, 1.0, 5.0, &Keys::new(["test_key"]));
    // The original returns 0 without a rate, which is treated as 1.
    let mut found = vec![windowed.rate(0)];
    for count in [20.0, 10.0, 50.0, 0.0, 0.0, 0.0, 40.0] {
        windowed.counts = vec![count].into();
        windowed.update(1);
        found.push(windowed.rate(0));
    }
    // Seen in the last five seconds: 20, 30, 80, 80, 80, 60 (the 20 have left), 90 (the 10 have
    // left).
    assert_eq!(found, [1.0, 2.0, 3.0, 8.0, 8.0, 8.0, 6.0, 9.0]);
    // `TestDropsOldBlocks`
    windowed.update(7);
    assert_eq!(windowed.rate(0), 1.0);
    assert!(windowed.past.is_empty());
}

/// A call that is kept only if the rate is 1, because the draw is at least 1/2.
fn call(key: u32, at_ms: u64) -> Call {
    Call { key, at_ns: at_ms * 1_000_000, uniform: 0.5 }
}

/// An interval of 1 s, and an average of 3. Before the first tick, the goal itself is the rate. Of
/// 31 calls 31/3 are due; of two keys with 30 and 1 calls still 31/3, of which the second takes
/// one.
#[test]
fn ticks_fall_each_period_after_the_first_arrival() {
    let mut average = AverageRate::new(3.0, 1.0, &Keys::new(["a", "b"]));
    assert!(!average.keeps(call(0, 500)), "the goal");
    calls(&mut average, 30, 0, 1499);
    assert_eq!(average.rates.numbers, [0.0, 0.0]);
    calls(&mut average, 30, 0, 1500);
    assert_eq!(average.rates.numbers, [3.0, 0.0]);
    assert!(average.keeps(call(1, 2499)), "a key without a rate");
    assert!(!average.keeps(call(0, 2500)));
    assert_eq!(average.rates.numbers, [3.0, 1.0]);
    assert!(average.keeps(call(0, 4499)), "one call in the interval before");
    calls(&mut average, 29, 0, 4499);
    average.keeps(call(0, 6500));
    assert_eq!(average.rates.numbers, [0.0, 0.0], "an interval without calls");
}

/// One per second for each key, in intervals of 1 s.
#[test]
fn a_throughput_counts_each_interval_anew() {
    let mut throughput = Throughput::new(Share::EachKey, 1.0, 1.0, &Keys::new(["a", "b"]));
    calls(&mut throughput, 5, 0, 0);
    calls(&mut throughput, 2, 0, 1000);
    assert_eq!([0, 1].map(|key| throughput.rate(key)), [5.0, 1.0]);
    calls(&mut throughput, 3, 1, 2000);
    assert_eq!([0, 1].map(|key| throughput.rate(key)), [2.0, 1.0]);
    assert!(throughput.keeps(call(0, 4000)), "nothing in the third second");
    assert_eq!([0, 1].map(|key| throughput.rate(key)), [1.0, 1.0]);
}

fn calls(baseline: &mut dyn Baseline, count: usize, key: u32, at_ms: u64) {
    for _ in 0..count {
        baseline.keeps(call(key, at_ms));
    }
}

/// `TestEMABurstDetection`: the average of 1000 calls is 500, so the 1000th call of another key is
/// a burst, but only after three intervals. The interval then ends at once, and the next one a full
/// period later.
#[test]
fn a_burst_ends_an_interval() {
    let mut moving = Moving::new(Goal::PerInterval(1.0), 1.0, 0.5, &Keys::new(["foo", "bar"]));
    calls(&mut moving, 1000, 0, 0);
    moving.keeps(call(0, 1000));
    assert_eq!(moving.burst_threshold, 1000.0);
    calls(&mut moving, 2000, 0, 1001);
    assert_eq!(moving.averages.numbers[0], 500.0, "only one interval has passed");

    // 2,001 calls in the second interval: (2001 + 500) / 2 = 1250.5. None in the third, which
    // changes nothing. One in the fourth: (1 + 1250.5) / 2 = 625.75.
    moving.keeps(call(0, 3999));
    assert_eq!(moving.averages.numbers, [1250.5, 0.0]);
    moving.keeps(call(1, 4000));
    assert_eq!(moving.averages.numbers, [625.75, 0.0]);
    assert_eq!(moving.burst_threshold, 1251.5);
    calls(&mut moving, 1250, 1, 4500);
    assert_eq!(moving.averages.numbers, [625.75, 0.0]);
    moving.keeps(call(1, 4500));
    assert_eq!(moving.averages.numbers, [312.875, 626.0], "the 1252nd call in the interval");
    // The next tick is at 5500, not at 5000.
    moving.keeps(call(1, 5400));
    assert_eq!(moving.averages.numbers, [312.875, 626.0]);
    moving.keeps(call(1, 5500));
    assert_eq!(moving.averages.numbers, [156.4375, 313.5]);
}

#[test]
fn before_the_first_interval_is_over_the_originals_differ() {
    let keys = Keys::new(["a"]);
    let kept = |baseline: &mut dyn Baseline, uniform: f64| baseline.keeps(Call { key: 0, at_ns: 0, uniform });
    let mut average = AverageRate::new(4.0, 30.0, &keys);
    assert_eq!([0.24, 0.25].map(|uniform| kept(&mut average, uniform)), [true, false]);
    let mut moving = Moving::new(Goal::AverageRate(4.0), 15.0, 0.5, &keys);
    assert_eq!([0.24, 0.25].map(|uniform| kept(&mut moving, uniform)), [true, false]);
    let mut moving = Moving::new(Goal::PerInterval(1500.0), 15.0, 0.5, &keys);
    assert_eq!([0.09, 0.1].map(|uniform| kept(&mut moving, uniform)), [true, false]);
    let mut total = Throughput::new(Share::AllKeys, 1e-9, 30.0, &keys);
    assert!(kept(&mut total, 0.999));
    let mut windowed = Windowed::new(1e-9, 1.0, 30.0, &keys);
    assert!(kept(&mut windowed, 0.999));
    assert!(one_in(1.0, 1.0 - f64::EPSILON / 2.0));
}
