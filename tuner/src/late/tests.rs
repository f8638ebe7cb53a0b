use astracer_samplers::strata::Record;
use astracer_samplers::{Cap, RandomSource};

use super::*;
use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::held_out::Replayed;
use crate::stop::Stop;
use crate::testing::recorded;
use crate::workload::Workload;

fn fitted(workload: &Workload, record: Record) -> Late {
    let fit = Fit::new(workload, FitOptions::new(0.1, record), Stop::never());
    fit.expect("not stopped").expect("valid").late
}

/// An independent simulation of the same strata has 8.7 (7.8 to 9.6) by weights with all recorded,
/// 12.7 (11.3 to 14.1) with five times the head's probability, and 24.1 for the head alone, each in
/// a tenth of the bytes. 36 replays know the mean within a seventh.
#[test]
fn replays_reach_the_figures_of_the_reference() {
    let workload = recorded("hdfs_client_ops");
    let draws = Draw::unseen(36, 1, RandomSource::Stratified);
    let replayed = |candidate: Candidate| {
        Replayed::new(&workload, &candidate, &draws, Stop::never(), &|| ()).expect("not stopped")
    };
    for (record, [low, high]) in [(Record::All, [7.0, 12.0]), (Record::DEFAULT, [10.0, 16.0])] {
        let late = replayed(fitted(&workload, record).into());
        let by_weights = late.dist_over_entropy_weighted.expect("weights").mean;
        assert!((low..high).contains(&by_weights), "{record:?}: {by_weights}");
        assert!((0.09..0.11).contains(&late.tfcr.mean), "{record:?}: {}", late.tfcr.mean);
        let counts = late.counts.expect("weights");
        assert!(counts.functions < 0.12 && counts.roots < 0.12, "{record:?}: {counts:?}");
    }
    let head = replayed(fitted(&workload, Record::All).head.into());
    let by_weights = head.dist_over_entropy_weighted.expect("weights").mean;
    assert!((20.0..30.0).contains(&by_weights), "{by_weights}");
}

/// Each trace is decided once; one that is not recorded is not kept. Sums of weights are within
/// four standard errors of the number of traces, by the larger of the errors of the draws and of
/// Horvitz and Thompson's formula.
#[test]
fn each_trace_is_decided_once_with_a_true_weight() {
    let workload = recorded("hdfs_client_ops");
    let all = workload.arrivals().len();
    for record in [Record::All, Record::DEFAULT] {
        let candidate = Candidate::from(fitted(&workload, record));
        let (mut sums, mut by_formula) = (Vec::new(), 0.0);
        for draw in Draw::unseen(30, 5, RandomSource::Stratified) {
            let (mut decided, mut sum) = (vec![0; all], 0.0);
            let done = candidate.decide_each(&workload, &draw, Stop::never(), |one| {
                decided[one.arrival] += 1;
                if one.keep {
                    let weight = one.weight().expect("by chance");
                    sum += weight;
                    by_formula += weight * (weight - 1.0);
                }
            });
            assert!(done && decided.iter().all(|&times| times == 1));
            sums.push(sum);
        }
        let draws = sums.len() as f64;
        let mean = sums.iter().sum::<f64>() / draws;
        let error = (by_formula / draws / draws).sqrt();
        assert!((mean - all as f64).abs() <= 4.0 * error, "{record:?}: {mean} of {all}, {error}");
    }
}

/// A cap bounds what strata keep, too.
#[test]
fn a_cap_holds() {
    let workload = recorded("hdfs_client_ops");
    let cap: Cap = "traces=5,burst=20".parse().expect("a cap");
    let candidate = Candidate::Late(std::sync::Arc::new(fitted(&workload, Record::All)), cap);
    let (mut kept, mut last_ns) = (0.0, 0u64);
    let done = candidate.decide_each(&workload, &Draw::recorded(1), Stop::never(), |one| {
        kept += f64::from(u8::from(one.keep));
        last_ns = last_ns.max(one.at_ns);
    });
    assert!(done && kept > 50.0 && kept <= 20.0 + 5.0 * last_ns as f64 / 1e9, "{kept}");
}
