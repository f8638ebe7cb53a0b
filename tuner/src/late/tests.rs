use std::sync::Arc;

use astracer_model::problem::Place;
use astracer_model::sink::{Record, Sink};
use astracer_model::value::Attribute;
use astracer_model::{Span, SpanId, TraceId, UnixNanos, Value};
use astracer_recording::recording::{Intake, Keep};
use astracer_samplers::parameters::Parameters;
use astracer_samplers::{Cap, Config, Probability, RandomSource, strata};

use super::*;
use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::held_out::Replayed;
use crate::key::Grouping;
use crate::stop::Stop;
use crate::testing::recorded;
use crate::workload::Workload;

fn fitted(workload: &Workload, record: strata::Record) -> Late {
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
    for (record, [low, high]) in [(strata::Record::All, [7.0, 12.0]), (strata::Record::DEFAULT, [10.0, 16.0])]
    {
        let late = replayed(fitted(&workload, record).into());
        let by_weights = late.dist_over_entropy_weighted.expect("weights").mean;
        assert!((low..high).contains(&by_weights), "{record:?}: {by_weights}");
        assert!((0.09..0.11).contains(&late.tfcr.mean), "{record:?}: {}", late.tfcr.mean);
        let counts = late.counts.expect("weights");
        assert!(counts.functions < 0.12 && counts.roots < 0.12, "{record:?}: {counts:?}");
    }
    let head = replayed(fitted(&workload, strata::Record::All).head.into());
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
    for record in [strata::Record::All, strata::Record::DEFAULT] {
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

/// Attributes at the end tell strata apart, and the head sampler does not know them.
#[test]
fn strata_are_told_apart_by_attributes_at_the_end() {
    let labels = vec!["code".to_owned()];
    let mut intake = Intake::new(Keep { labels, ..Keep::default() });
    let place = Place { file: Arc::from("test"), line: 1, byte: 0 };
    for trace in 0..400u64 {
        let code = if trace % 20 == 0 { "500" } else { "200" };
        let span = Span {
            trace_id: TraceId(u128::from(trace) + 1),
            span_id: SpanId(trace + 1),
            name: "root".into(),
            start: Some(UnixNanos(trace * 1_000_000)),
            end: Some(UnixNanos(trace * 1_000_000 + 100 + trace % 7 * 10)),
            attributes: vec![Attribute { key: "code".into(), value: Value::String(code.into()) }],
            ..Span::default()
        };
        intake.span(span, Record { bytes: &[0; 100], place: &place });
    }
    let recording = intake.finish();
    let grouping: Grouping = "name+end:code".parse().expect("a key");
    assert_eq!(grouping.attributes(), ["code"]);
    let workload = Workload::new(&recording, &grouping);
    let mut late = fitted(&workload, strata::Record::All);
    let keys: Vec<&str> = late.strata.probabilities().map(|(key, _)| key).collect();
    assert_eq!(keys, ["root;code=200", "root;code=500"]);
    let Config::Bump(head) = &late.head else { panic!("constants") };
    assert_eq!(head.overrides().map(|(key, _)| key).collect::<Vec<_>>(), ["root"]);
    // The file's keys are those of the strata.
    let file = Parameters { strata: Some(late.strata.clone()), ..Parameters::new(late.head.clone()) };
    let fits = |rule: &str| {
        let file = Parameters { key: rule.parse().expect("a key"), ..file.clone() };
        let workload = Workload::new(&recording, &Grouping::Key(file.key.clone()));
        let fit = crate::fit::Fit::new(&workload, &file, Stop::never()).expect("not stopped");
        (fit.keys, fit.keys_seen)
    };
    assert_eq!((fits("name+end:code"), fits("name+end:other")), ((2, 2), (2, 0)));
    // All of one and a hundredth of the other.
    let stratum = "-1".parse().expect("a stratum");
    late.strata = late.strata.with_probability("root;code=500", stratum, Probability::ONE);
    late.strata = late.strata.with_probability(
        "root;code=200",
        stratum,
        Probability::new(0.01).expect("a probability"),
    );
    let mut kept = [0, 0];
    let candidate = Candidate::from(late);
    candidate.decide_each(&workload, &Draw::recorded(1), Stop::never(), |one| {
        kept[usize::from(one.arrival % 20 == 0)] += u32::from(one.keep);
    });
    assert!(kept[1] == 20 && (2..=6).contains(&kept[0]), "{kept:?}");
}

/// A file names no more strata than a service counts: the most frequent keys, and none that a
/// service would treat as new.
#[test]
fn the_rarest_keys_of_a_flood_are_left_out() {
    let spans = |trace: u64| match trace % 4 {
        0 => format!("seldom {}", (b'a' + (trace / 4 % 26) as u8) as char),
        1 => "often".to_owned(),
        _ => (0..6).map(|at| (b'a' + (trace >> (4 * at) & 15) as u8) as char).collect(),
    };
    let mut intake = Intake::new(Keep::default());
    let place = Place { file: Arc::from("test"), line: 1, byte: 0 };
    for trace in 0..12_000u64 {
        let span = Span {
            trace_id: TraceId(u128::from(trace) + 1),
            span_id: SpanId(trace + 1),
            name: spans(trace).into(),
            start: Some(UnixNanos(trace * 1_000_000)),
            end: Some(UnixNanos(trace * 1_000_000 + 100)),
            ..Span::default()
        };
        intake.span(span, Record { bytes: &[0; 100], place: &place });
    }
    let workload = Workload::new(&intake.finish(), &Grouping::default());
    let fit = Fit::new(&workload, FitOptions::new(0.1, strata::Record::All), Stop::never());
    let fit = fit.expect("not stopped").expect("valid");
    assert_eq!((fit.late.strata.probabilities().count(), fit.left_out), (27, 6_000));
    let Config::Bump(head) = &fit.late.head else { panic!("constants") };
    assert_eq!(head.overrides().count(), 27);
}

/// A cap bounds what strata keep, too.
#[test]
fn a_cap_holds() {
    let workload = recorded("hdfs_client_ops");
    let cap: Cap = "traces=5,burst=20".parse().expect("a cap");
    let candidate = Candidate::Late(std::sync::Arc::new(fitted(&workload, strata::Record::All)), cap);
    let (mut kept, mut last_ns) = (0.0, 0u64);
    let done = candidate.decide_each(&workload, &Draw::recorded(1), Stop::never(), |one| {
        kept += f64::from(u8::from(one.keep));
        last_ns = last_ns.max(one.at_ns);
    });
    assert!(done && kept > 50.0 && kept <= 20.0 + 5.0 * last_ns as f64 / 1e9, "{kept}");
}
