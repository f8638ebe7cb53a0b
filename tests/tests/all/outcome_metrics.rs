//! Totals of all local roots, as an OTLP server receives them.

use std::time::{Duration, Instant};

use astracer::exporters::OtlpMetrics;
use astracer::{Astracer, OutcomeMetrics, ProvisionalMode, Tail};
use astracer_testing::{Answer, Server};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, number_data_point};
use opentelemetry_sdk::trace::InMemorySpanExporter;
use prost::Message as _;
use tracing::{error, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

const TIMEOUT: Duration = Duration::from_secs(60);

fn metrics(astracer: &Astracer, server: &Server) -> OutcomeMetrics {
    let sender = OtlpMetrics::builder().with_endpoint(server.url("http")).build().unwrap();
    OutcomeMetrics::new(&astracer.handle, sender).with_interval(Duration::from_secs(3_600))
}

fn text(attributes: &[KeyValue]) -> (&str, &str) {
    let [KeyValue { key, value: Some(value), .. }] = attributes else { panic!("{attributes:?}") };
    match &value.value {
        Some(Value::StringValue(text)) => (key, text),
        other => panic!("{other:?}"),
    }
}

fn sums(metric: &Metric) -> Vec<(&str, i64)> {
    let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
    assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "cumulative");
    let of = |value: &Option<number_data_point::Value>| match value {
        Some(number_data_point::Value::AsInt(value)) => *value,
        other => panic!("{other:?}"),
    };
    sum.data_points.iter().map(|point| (text(&point.attributes).1, of(&point.value))).collect()
}

#[test]
fn totals_of_all_roots_arrive_with_exemplars_that_name_kept_traces() {
    let server = Server::new([]);
    let spans = InMemorySpanExporter::default();
    let tail: Tail = "error".parse().unwrap();
    let astracer = Astracer::builder()
        .with_sampler("never".parse().unwrap())
        .with_tail(tail.with_provisional(ProvisionalMode::Always))
        .with_exporter(spans.clone())
        .build()
        .unwrap();
    let running = metrics(&astracer, &server)
        .with_duration_name("http.server.request.duration")
        .with_errors_name("shop.errors")
        .with_key_attribute("http.route");
    let running = running.start().unwrap();
    let dispatch = tracing_subscriber::registry().with(astracer.layer.clone());
    tracing::subscriber::with_default(dispatch, || {
        for call in 0..100 {
            let root = if call % 4 == 0 { info_span!("GET /a") } else { info_span!("GET /b") };
            root.in_scope(|| {
                // Calls take different times by spinning: a sleep would take longer on a busy
                // machine.
                let began = Instant::now();
                while began.elapsed() < Duration::from_micros(call) {
                    std::hint::spin_loop();
                }
                if call == 40 {
                    error!("failed");
                }
            });
        }
    });
    astracer.handle.flush(TIMEOUT).unwrap();
    assert_eq!(running.stop(), None);
    let request = server.request(0);
    assert_eq!(request.line, "POST /v1/metrics HTTP/1.1");
    let request = ExportMetricsServiceRequest::decode(&request.body[..]).unwrap();
    let resource = &request.resource_metrics[0];
    let has_service =
        resource.resource.as_ref().unwrap().attributes.iter().any(|of| of.key == "service.name");
    assert!(has_service, "{resource:?}");
    let [duration, errors, missed] = &resource.scope_metrics[0].metrics[..] else { panic!("{request:?}") };
    assert_eq!((&*duration.name, &*duration.unit), ("http.server.request.duration", "s"));
    assert_eq!((&*errors.name, &*missed.name), ("shop.errors", "shop.errors.missed"));
    assert_eq!(sums(errors), [("GET /a", 1), ("GET /b", 0)]);
    assert_eq!(sums(missed), [("GET /a", 0), ("GET /b", 0)]);

    let Some(Data::ExponentialHistogram(histogram)) = &duration.data else { panic!("{duration:?}") };
    assert_eq!(histogram.aggregation_temporality, 2, "cumulative");
    let [a, b] = &histogram.data_points[..] else { panic!("{histogram:?}") };
    assert_eq!((text(&a.attributes), a.count), (("http.route", "GET /a"), 25));
    assert_eq!((text(&b.attributes), b.count), (("http.route", "GET /b"), 75));
    assert!(a.start_time_unix_nano > 0 && a.start_time_unix_nano < a.time_unix_nano);
    let (min, max, sum) = (b.min.unwrap(), b.max.unwrap(), b.sum.unwrap());
    // The last call takes at least 99 us by this test's clock; the layer reads another clock.
    assert!(max >= 98e-6 && min <= max && sum >= max && sum <= 75.0 * max, "{b:?}");
    let positive = b.positive.as_ref().unwrap();
    assert_eq!(positive.bucket_counts.iter().sum::<u64>() + b.zero_count, 75);
    // Bounds by OpenTelemetry's data model: the last used bucket begins below the maximum and ends
    // at or above it.
    let bound = |index: i32| 2_f64.powf(f64::from(index) * 2_f64.powi(-b.scale));
    let last = positive.offset + positive.bucket_counts.len() as i32 - 1;
    assert!(bound(last) < max * 1.000_001 && max < bound(last + 1) * 1.000_001, "{b:?}");

    let kept = spans.get_finished_spans().unwrap();
    let [exemplar] = &a.exemplars[..] else { panic!("{a:?}") };
    assert_eq!(exemplar.trace_id, kept[0].span_context.trace_id().to_bytes());
    assert_eq!(exemplar.span_id, kept[0].span_context.span_id().to_bytes());
    assert!(b.exemplars.is_empty(), "no trace of this key was kept");
}

/// A server takes a new start time for a reset of the counters, so all requests must have the same
/// one.
#[test]
fn all_requests_begin_at_one_time() {
    let server = Server::new([]);
    let astracer = Astracer::builder()
        .with_tail("error".parse().unwrap())
        .with_exporter(InMemorySpanExporter::default())
        .build()
        .unwrap();
    let dispatch = tracing_subscriber::registry().with(astracer.layer.clone());
    tracing::subscriber::with_default(dispatch, || info_span!("root").in_scope(|| ()));
    let running = metrics(&astracer, &server).with_interval(Duration::ZERO).start().unwrap();
    let starts = |number| {
        let body = server.request(number).body;
        let request = ExportMetricsServiceRequest::decode(&body[..]).unwrap();
        let [duration, errors, missed] = &request.resource_metrics[0].scope_metrics[0].metrics[..] else {
            panic!("{request:?}")
        };
        let Some(Data::ExponentialHistogram(duration)) = &duration.data else { panic!("{duration:?}") };
        let (Some(Data::Sum(errors)), Some(Data::Sum(missed))) = (&errors.data, &missed.data) else {
            panic!("{request:?}")
        };
        let sums = [errors, missed].map(|sum| sum.data_points[0].start_time_unix_nano);
        [duration.data_points[0].start_time_unix_nano, sums[0], sums[1]]
    };
    let first = starts(0);
    assert_eq!(running.stop(), None);
    assert_eq!(first, starts(1));
    assert!(first[0] > 0 && first == [first[0]; 3], "{first:?}");
}

#[test]
fn a_server_that_refuses_is_told_of() {
    let server = Server::new([]).then(Answer::status(401));
    let astracer = Astracer::builder()
        .with_tail("error".parse().unwrap())
        .with_exporter(InMemorySpanExporter::default())
        .build()
        .unwrap();
    let none = metrics(&astracer, &server).start().unwrap();
    assert_eq!(none.stop(), None);
    assert!(server.requests().is_empty(), "without counts nothing is sent");
    let running = metrics(&astracer, &server).start().unwrap();
    let dispatch = tracing_subscriber::registry().with(astracer.layer.clone());
    tracing::subscriber::with_default(dispatch, || info_span!("root").in_scope(|| ()));
    let error = running.stop().unwrap();
    assert!(error.contains("401") && error.contains(&server.url("http")), "{error}");
}
