//! Stratified randomness on recorded traffic: counts by weight are more exact than with independent
//! randomness, and still unbiased.

use std::time::Duration;

use astracer_samplers::parameters::Parameters;
use astracer_samplers::tracestate::OtMember;
use astracer_samplers::{Config, Limits, Nanos, RandomSource, Randomness, Request, Sampler, Stratified};
use astracer_sdk::Astracer;
use astracer_testing::{Collector, SplitMix};
use astracer_tuner::{Grouping, Workload};
use tracing_subscriber::layer::SubscriberExt as _;

const SEEDS: u64 = 24;
/// Roots with fewer calls are left out: at 10 % they keep at most two, so that chance decides and
/// 24 seeds say nothing.
const CALLS_MIN: f64 = 20.0;

struct Errors {
    /// Mean over frequent roots of the relative root mean square error of their counts.
    rmse: f64,
    /// Relative error of the mean total count, in standard deviations of that mean.
    bias: f64,
}

fn errors(workload: &Workload, sampler: &Sampler, stratified: bool) -> Errors {
    let keys = workload.keys().len();
    let mut exact = vec![0.0; keys];
    workload.arrivals().iter().for_each(|arrival| exact[arrival.key as usize] += 1.0);
    let mut squares = vec![0.0; keys];
    let mut totals = Vec::new();
    for seed in 1..=SEEDS {
        let (sampler, mut random) = (sampler.fresh(), SplitMix::new(seed << 32));
        let source = Stratified::new(seed, Limits::single_threaded());
        let mut counts = vec![0.0; keys];
        for arrival in workload.arrivals() {
            let (key, now) = (workload.key(arrival), Nanos::new(arrival.at_ns));
            let bits = random.next();
            let request = match stratified {
                true => source.request(key, bits, now),
                false => Request::new(key, Randomness::from_low_bits(bits), now),
            };
            let decision = sampler.decide(&request);
            if let (true, Some(threshold)) = (decision.keep, decision.threshold) {
                counts[arrival.key as usize] += threshold.adjusted_count();
            }
        }
        for ((square, count), exact) in squares.iter_mut().zip(&counts).zip(&exact) {
            *square += (count / f64::max(*exact, 1.0) - 1.0f64).powi(2) / SEEDS as f64;
        }
        totals.push(counts.iter().sum::<f64>() / exact.iter().sum::<f64>() - 1.0);
    }
    let present = exact.iter().filter(|&&exact| exact >= CALLS_MIN).count() as f64;
    let rmse =
        squares.iter().zip(&exact).filter(|(_, exact)| **exact >= CALLS_MIN).map(|(square, _)| square.sqrt());
    let mean = totals.iter().sum::<f64>() / SEEDS as f64;
    let variance = totals.iter().map(|total| (total - mean).powi(2)).sum::<f64>() / (SEEDS - 1) as f64;
    Errors { rmse: rmse.sum::<f64>() / present, bias: mean / (variance / SEEDS as f64).sqrt().max(1e-9) }
}

/// Root counts by weight have at most 0.6 times the error of independent randomness: the geometric
/// mean over samplers, on each recording.
#[test]
fn root_counts_are_more_exact_and_not_biased() {
    for path in [
        "workloads/hdfs_client_ops.tar.xz",
        "workloads/hdfs_client_ops_seed2.tar.xz",
        "workloads/hdfs_raw_roots.tar.xz",
        "workloads/dfsioe_write.tar.xz",
    ] {
        let workload = Workload::new(&crate::read(path), &Grouping::default());
        let mut ratios = Vec::new();
        for text in [
            "ratio:0.1",
            "bump:lambda=0.1,min=0.1,window=1s",
            "bump:lambda=1,min=0.08,count=decaying,tau=300ms",
        ] {
            let sampler =
                Sampler::with_limits(&text.parse::<Config>().expect(text), Limits::single_threaded());
            let [independent, stratified] = [false, true].map(|kind| errors(&workload, &sampler, kind));
            println!("{path} {text}: {:.4} independent, {:.4} stratified", independent.rmse, stratified.rmse);
            // The bias is a mean of 24 values. By Student's t with 23 degrees of freedom it exceeds
            // 5 once in 20,000 runs.
            for errors in [&independent, &stratified] {
                assert!(errors.bias.abs() < 5.0, "{path} {text}: {} standard deviations", errors.bias);
            }
            ratios.push(stratified.rmse / independent.rmse);
        }
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        println!("{path}: {mean:.3} {ratios:.3?}");
        assert!(mean <= 0.6, "{path}: {mean} {ratios:?}");
    }
}

/// Traces that begin in a service carry their randomness as `rv`, by which they were kept. The
/// number kept of each key differs from its share by at most a logarithm of the number of calls.
#[test]
fn a_service_spreads_its_roots_evenly_and_says_so() {
    const ROOTS: usize = 1_000;
    let collector = Collector::default();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("astracer.toml");
    let parameters = Parameters {
        random: RandomSource::Stratified,
        ..Parameters::new("ratio:0.25".parse().expect("a sampler"))
    };
    std::fs::write(&path, parameters.to_string()).expect("a file");
    let astracer = Astracer::builder()
        .with_parameters_file(&path)
        .with_exporter(collector.clone())
        .build()
        .expect("good settings");
    let subscriber = tracing_subscriber::registry().with(astracer.layer.clone());
    tracing::subscriber::with_default(subscriber, || {
        (0..ROOTS).for_each(|_| tracing::info_span!("root").in_scope(|| {}));
        (0..ROOTS).for_each(|n| tracing::info_span!("with a field", n).in_scope(|| {}));
    });
    astracer.handle.shutdown(Duration::from_secs(60)).expect("everything is exported");
    let spans = collector.spans();
    // The bound of `any_share_of_a_keys_traces_is_kept_to_within_a_logarithm`. With independent
    // randomness the number would be within 14 of 250 two times out of three.
    let bound = 3.0 + (1.0 / 1.618_034_f64.ln() + 1.0 / 2f64.ln()) * (ROOTS as f64).ln();
    for name in ["root", "with a field"] {
        let kept = spans.iter().filter(|span| span.name == name).count() as f64;
        assert!((kept - ROOTS as f64 / 4.0).abs() <= bound, "{name}: {kept}");
    }
    for span in &spans {
        let header = span.span_context.trace_state().header();
        let member = OtMember::parse(header.strip_prefix("ot=").expect(&header)).expect("a member");
        let (threshold, randomness) = (member.threshold.expect(&header), member.randomness.expect(&header));
        assert!(threshold.keeps(randomness), "{header}");
        assert_eq!(threshold.to_string(), "c", "a quarter");
        let id = u128::from_be_bytes(span.span_context.trace_id().to_bytes());
        assert_ne!(randomness, Randomness::from_trace_id(id), "the id stays random");
    }
}
