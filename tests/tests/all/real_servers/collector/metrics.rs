//! Totals of all local roots, sent to the Collector and read back from the file that it writes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use astracer::exporters::{OtlpMetrics, Protocol};
use astracer::{Astracer, OutcomeMetrics, ProvisionalMode, Tail};
use opentelemetry_sdk::trace::InMemorySpanExporter;
use serde_json::Value;
use tracing::{error, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

use crate::real_servers::{e2e_setting, eventually};

/// The metrics of one request by name, each with its data points.
type Points = BTreeMap<String, (Value, Vec<Value>)>;

/// The metrics that the Collector wrote for this service, one set per request, once there are at
/// least `least`.
fn requests(service: &str, least: usize) -> Vec<Points> {
    eventually("collector", || {
        let text = std::fs::read_to_string(e2e_setting("COLLECTOR_FILE") + "-metrics")
            .map_err(|error| error.to_string())?;
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let resources =
            lines.flat_map(|line| line["resourceMetrics"].as_array().cloned().unwrap_or_default());
        let is_own = |resource: &Value| resource["resource"].to_string().contains(&format!("\"{service}\""));
        let found: Vec<Points> = resources.filter(is_own).map(|resource| points(&resource)).collect();
        if found.len() >= least { Ok(found) } else { Err(format!("{} of {least} requests", found.len())) }
    })
}

fn points(resource: &Value) -> Points {
    let metrics = resource["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let of = |metric: &Value| {
        let data =
            [&metric["exponentialHistogram"], &metric["sum"]].into_iter().find(|data| data.is_object());
        let points = data.unwrap()["dataPoints"].as_array().cloned().unwrap_or_default();
        (metric["name"].as_str().unwrap().to_owned(), (metric.clone(), points))
    };
    metrics.iter().map(of).collect()
}

/// OTLP's JSON writes 64-bit numbers as strings, and omits zeros.
fn number(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| text.parse().unwrap())
}

fn key(point: &Value) -> &str {
    let attributes = point["attributes"].as_array().unwrap();
    assert_eq!((attributes.len(), &attributes[0]["key"]), (1, &Value::from("http.route")), "{point}");
    attributes[0]["value"]["stringValue"].as_str().unwrap()
}

/// Checks a point against OpenTelemetry's data model: the bucket of index i holds durations in
/// (base^i, base^(i + 1)], and the first bucket's index is the offset.
fn check_histogram(point: &Value) {
    let count = number(&point["count"]);
    let scale = point["scale"].as_i64().unwrap_or(0);
    assert!((-10..=20).contains(&scale), "{point}");
    let buckets = point["positive"]["bucketCounts"].as_array().cloned().unwrap_or_default();
    assert!(buckets.len() <= 160, "{point}");
    let all: u64 = buckets.iter().map(number).sum();
    assert_eq!(all + number(&point["zeroCount"]), count, "{point}");
    let (min, max, sum) =
        (point["min"].as_f64().unwrap(), point["max"].as_f64().unwrap(), point["sum"].as_f64().unwrap());
    assert!(min <= max && sum >= max && sum <= max * count as f64 * 1.000_001, "{point}");
    let bound = |index: i64| 2_f64.powf(index as f64 * 2_f64.powi(-(scale as i32)));
    let first = point["positive"]["offset"].as_i64().unwrap_or(0);
    let last = first + buckets.len() as i64 - 1;
    assert!(bound(first) < min * 1.000_001 && min < bound(first + 1) * 1.000_001, "{point}");
    assert!(bound(last) < max * 1.000_001 && max < bound(last + 1) * 1.000_001, "{point}");
}

fn run(protocol: Protocol, server: &str) {
    // The file may have metrics of earlier runs, so the service's name is unique.
    let service = format!("metrics-{protocol:?}-{}", std::process::id());
    let spans = InMemorySpanExporter::default();
    let tail: Tail = "error()".parse().unwrap();
    let astracer = Astracer::builder()
        .with_sampler("ratio:0.2".parse().unwrap())
        .with_tail(tail.with_provisional(ProvisionalMode::Always))
        .with_resource(opentelemetry_sdk::Resource::builder().with_service_name(service.clone()).build())
        .with_exporter(spans.clone())
        .build()
        .unwrap();
    let sender =
        OtlpMetrics::builder().with_endpoint(format!("http://{server}")).with_protocol(protocol).build();
    let running = OutcomeMetrics::new(&astracer.handle, sender.unwrap())
        .with_interval(Duration::from_millis(100))
        .with_duration_name("http.server.request.duration")
        .with_errors_name("shop.errors")
        .with_key_attribute("http.route");
    let running = running.start().unwrap();
    let dispatch = tracing_subscriber::registry().with(astracer.layer.clone());
    let request = |call: u64| {
        let root = if call.is_multiple_of(4) { info_span!("GET /a") } else { info_span!("GET /b") };
        root.in_scope(|| {
            // Requests take different times by spinning: a sleep would take longer on a busy
            // machine.
            let (began, lasts) = (Instant::now(), Duration::from_micros(call % 300));
            while began.elapsed() < lasts {
                std::hint::spin_loop();
            }
            if call.is_multiple_of(50) {
                error!("failed");
            }
        });
    };
    tracing::subscriber::with_default(dispatch, || {
        (0..500).for_each(request);
        // One request arrives before the rest is counted, so that points accumulate.
        let sent = requests(&service, 1).len();
        (500..1_000).for_each(request);
        requests(&service, sent + 1);
    });
    astracer.handle.flush(Duration::from_secs(60)).unwrap();
    assert_eq!(running.stop(), None);
    let kept: BTreeSet<(String, String)> = spans
        .get_finished_spans()
        .unwrap()
        .iter()
        .map(|span| (span.span_context.trace_id().to_string(), span.span_context.span_id().to_string()))
        .collect();

    // Requests are in order and points are cumulative, so the last request has all calls.
    let last_of = |requests: Vec<Points>| {
        let calls = |points: &Points| {
            points["http.server.request.duration"].1.iter().map(|point| number(&point["count"])).sum::<u64>()
        };
        let sums: Vec<u64> = requests.iter().map(calls).collect();
        assert!(sums.is_sorted(), "{sums:?}");
        (requests.into_iter().next_back().unwrap(), sums.last().copied())
    };
    let (last, _) = eventually("the last request", || match last_of(requests(&service, 2)) {
        (last, Some(1_000)) => Ok((last, 1_000)),
        (_, sum) => Err(format!("{sum:?} calls")),
    });
    let names: Vec<&str> = last.keys().map(String::as_str).collect();
    assert_eq!(names, ["http.server.request.duration", "shop.errors", "shop.errors.missed"]);
    let (metric, durations) = &last["http.server.request.duration"];
    assert_eq!(metric["unit"], "s");
    assert_eq!(metric["exponentialHistogram"]["aggregationTemporality"], 2, "cumulative");
    let calls: Vec<_> = durations.iter().map(|point| (key(point), number(&point["count"]))).collect();
    assert_eq!(calls, [("GET /a", 250), ("GET /b", 750)]);
    let mut exemplars = 0;
    for point in durations {
        check_histogram(point);
        let (start, end) = (number(&point["startTimeUnixNano"]), number(&point["timeUnixNano"]));
        assert!(0 < start && start < end, "{point}");
        for exemplar in point["exemplars"].as_array().into_iter().flatten() {
            let id = |name: &str| exemplar[name].as_str().unwrap_or_default().to_owned();
            assert!(kept.contains(&(id("traceId"), id("spanId"))), "{exemplar}");
            let at = number(&exemplar["timeUnixNano"]);
            assert!(start <= at && at <= end, "{start}, {end}: {exemplar}");
            let (min, max) = (point["min"].as_f64().unwrap(), point["max"].as_f64().unwrap());
            assert!((min..=max).contains(&exemplar["asDouble"].as_f64().unwrap()), "{exemplar}");
            exemplars += 1;
        }
    }
    assert!(exemplars >= 2, "{durations:?}");
    for (name, expected) in [("shop.errors", 20), ("shop.errors.missed", 0)] {
        let (metric, points) = &last[name];
        assert_eq!((&metric["unit"], &metric["sum"]["isMonotonic"]), (&"{root}".into(), &true.into()));
        assert_eq!(metric["sum"]["aggregationTemporality"], 2, "cumulative");
        assert_eq!(points.iter().map(|point| number(&point["asInt"])).sum::<u64>(), expected, "{name}");
    }
}

#[test]
#[ignore = "needs a real server: cargo xtask e2e"]
fn totals_of_all_roots_arrive_as_the_specification_wants() {
    run(Protocol::Grpc, &e2e_setting("COLLECTOR_OTLP_GRPC"));
    run(Protocol::HttpProtobuf, &e2e_setting("COLLECTOR_OTLP_HTTP"));
}
