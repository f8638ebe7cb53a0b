//! The Collector's spanmetrics connector extrapolates from the thresholds of late traces. The test
//! needs a Collector whose connector reads `ot=th`: docs/results/late.md has versions and
//! configuration.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use astracer_exporters::Otlp;
use astracer_sdk::{Astracer, Clock, ProvisionalMode, Tail};
use astracer_testing::SplitMix;
use serde_json::Value;
use tracing::dispatcher::with_default;
use tracing::{Dispatch, error, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

const TIMEOUT: Duration = Duration::from_secs(60);
const REQUESTS: u64 = 100_000;

/// Sends requests for a hundred seconds of a manual clock. One in twenty fails. Returns the exact
/// number of errors.
fn run(service: &str, endpoint: &str, (sampler, policies): (&str, &str)) -> u64 {
    let (clock, hand) = Clock::manual(SystemTime::now());
    let otlp = Otlp::builder().with_endpoint(endpoint).build().expect("good settings");
    let tail = policies.parse::<Tail>().expect("policies").with_provisional(ProvisionalMode::Always);
    let builder = Astracer::builder().with_service_name(service).with_clock(clock).with_tail(tail);
    let builder = builder.with_sampler(sampler.parse().expect("a sampler"));
    let astracer = builder.with_destination(otlp).build().expect("a layer");
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(astracer.layer.clone()));
    let mut random = SplitMix::new(39);
    let mut errors = 0;
    for number in 0..REQUESTS {
        let fails = random.below(20) == 0;
        with_default(&dispatch, || {
            info_span!("GET /orders/{id}").in_scope(|| {
                info_span!("query").in_scope(|| {
                    if fails {
                        error!("no price");
                    }
                });
                hand.advance(Duration::from_micros(100));
            });
        });
        hand.advance(Duration::from_micros(900));
        errors += u64::from(fails);
        if number % 1_000 == 999 {
            astracer.handle.flush(TIMEOUT).expect("exported");
        }
    }
    astracer.handle.shutdown(TIMEOUT).expect("exported");
    errors
}

/// The last value of each series of `calls`, by service and status; of the span in which requests
/// fail.
fn calls(file: &str) -> BTreeMap<(String, String), f64> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut calls = BTreeMap::new();
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    for line in text.lines() {
        let Ok(all) = serde_json::from_str::<Value>(line) else { continue };
        for of_resource in list(&all, "resourceMetrics") {
            let scopes = list(&of_resource, "scopeMetrics");
            for metric in scopes.iter().flat_map(|of_scope| list(of_scope, "metrics")) {
                if !metric["name"].as_str().unwrap_or_default().ends_with("calls") {
                    continue;
                }
                for point in list(&metric["sum"], "dataPoints") {
                    let attributes = list(&point, "attributes");
                    let of = |name: &str| {
                        let found = attributes.iter().find(|attribute| attribute["key"] == name);
                        found
                            .and_then(|found| found["value"]["stringValue"].as_str())
                            .unwrap_or_default()
                            .to_owned()
                    };
                    if of("span.name") == "query" {
                        let value = point["asInt"].as_str().and_then(|value| value.parse().ok());
                        let value = value.or_else(|| point["asDouble"].as_f64()).unwrap_or_default();
                        calls.insert((of("service.name"), of("status.code")), value);
                    }
                }
            }
        }
    }
    calls
}

#[test]
#[ignore = "needs a Collector with a spanmetrics connector: docs/results/late.md"]
fn the_connector_extrapolates_errors_within_two_percent() {
    let setting = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let (endpoint, file) = (setting("ASTRACER_SPANMETRICS_OTLP"), setting("ASTRACER_SPANMETRICS_FILE"));
    let cases = [
        ("all", ("ratio:0.1", "error()")),
        ("budget", ("ratio:0.2", "error(traces=40,burst=80)")),
        ("adaptive", ("bump:lambda=10,min=0.01,window=1s", "error(traces=40,burst=80)")),
    ];
    for (service, how) in cases {
        let exact = run(service, &endpoint, how) as f64;
        let of = |status: &str| (service.to_owned(), status.to_owned());
        let start = Instant::now();
        let mut last = None;
        let (errors, all) = loop {
            let calls = calls(&file);
            let errors = calls.get(&of("STATUS_CODE_ERROR")).copied().unwrap_or_default();
            let all = errors + calls.get(&of("STATUS_CODE_UNSET")).copied().unwrap_or_default();
            // The connector writes once a second.
            if errors > 0.0 && last == Some((errors, all)) {
                break (errors, all);
            }
            last = Some((errors, all));
            assert!(start.elapsed() < TIMEOUT, "{service} {how:?}: {errors} errors for {exact}");
            std::thread::sleep(Duration::from_secs(4));
        };
        assert!((errors / exact - 1.0).abs() <= 0.02, "{service} {how:?}: {errors} errors for {exact}");
        println!("{service} {how:?}: {errors} errors for {exact}, {all} calls for {REQUESTS}");
    }
}
