//! Buckets by the specification's bounds, and distances worked out by hand.

use super::*;
use crate::testing::synthetic;

#[test]
fn buckets_have_the_bounds_of_the_specification() {
    // OpenTelemetry defines base^index < value <= base^(index + 1) with base = 2^(1/2). Our bucket
    // is index + 2, which leaves 0 free.
    let base = 2f64.sqrt();
    for ns in (1..2000).chain([u64::MAX / 2, 999_999_937, 1 << 40, (1 << 40) + 1, (1 << 40) - 1]) {
        let index = i32::from(bucket(ns)) - 2;
        // Powers of two lie exactly on a bound, where floating point may round to either side. The
        // integer code is exact.
        let slack = 1e-12 * ns as f64;
        assert!(
            base.powi(index) < ns as f64 + slack && ns as f64 <= base.powi(index + 1) + slack,
            "{ns} {index}"
        );
        assert!((upper_ms(bucket(ns)) - base.powi(index + 1) / 1e6).abs() < 1e-9 * ns as f64);
    }
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 8].map(bucket), [0, 1, 3, 5, 5, 6, 7, 7]);
    assert_eq!(usize::from(bucket(u64::MAX)), BUCKETS - 1);
    assert_eq!(upper_ms(0), 0.0);
}

#[test]
fn divergences_by_hand() {
    let divergence =
        |p: &[f64], q: &[f64]| p.iter().zip(q).map(|(&p, &q)| divergence_share(p, q)).sum::<f64>();
    assert_eq!(divergence(&[0.25, 0.75], &[0.25, 0.75]), 0.0);
    assert_eq!(divergence(&[1.0, 0.0], &[0.0, 1.0]), 1.0);
    // M = (3/4, 1/4): log2(4/3) / 2 for the first histogram, and (log2(2/3) + log2(2)) / 4 for the
    // second.
    let expected = 0.5 * (4f64 / 3.0).log2() + 0.25 * ((2f64 / 3.0).log2() + 1.0);
    assert!((divergence(&[1.0, 0.0], &[0.5, 0.5]) - expected).abs() < 1e-12);
}

#[test]
fn the_whole_is_at_no_distance_and_nothing_at_1() {
    let workload = synthetic(600, 8);
    let mut tally = LatencyTally::new(&workload);
    assert_eq!(tally.distance(), 1.0);
    (0..600).for_each(|arrival| tally.keep(arrival, 7.0));
    assert!(tally.distance() < 1e-7, "{}", tally.distance());
    let cells = workload.latency_cells();
    assert!(cells.iter().zip(tally.weights()).all(|(cell, weight)| *weight == 7.0 * cell.count as f64));
    for (function, row) in workload.functions().iter().enumerate() {
        let of_function = cells.iter().filter(|cell| cell.function as usize == function);
        assert_eq!(of_function.map(|cell| cell.count).sum::<u64>(), row.count);
    }
}

/// Half of the functions are found, each with all of its calls: the distance is one half.
#[test]
fn functions_count_alike() {
    let workload = synthetic(600, 8);
    let once =
        workload.functions().iter().position(|function| &*function.name == "once").expect("a function");
    let functions = workload.function_count() as f64;
    let mut tally = LatencyTally::new(&workload);
    let only_once =
        |arrival: &usize| workload.calls(*arrival).iter().any(|calls| calls.function as usize == once);
    (0..600).filter(only_once).for_each(|arrival| tally.keep(arrival, 1.0));
    assert!((tally.distance() - (functions - 1.0) / functions).abs() < 1e-12);
}

#[test]
fn the_expected_divergence_has_its_limits() {
    let second_order = |v: f64| v / (8.0 * std::f64::consts::LN_2);
    assert!((expected_divergence(1e-6) / second_order(1e-6) - 1.0).abs() < 1e-5);
    assert_eq!(expected_divergence(f64::INFINITY), 1.0);
    // For an exponential estimate r, (2 - E[(1+r) log2(1+r)] + E[r log2 r]) / 2 is 0.1534, because
    // E[r ln r] = 1 - gamma and E[(1+r) ln(1+r)] = 1 + e E1(1).
    assert!((expected_divergence(1.0) - 0.1534).abs() < 0.001);
}
