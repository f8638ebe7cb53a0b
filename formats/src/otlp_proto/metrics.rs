//! Export requests for metrics as protobuf: sums, and exponential histograms with exemplars. There
//! is no reader.
//!
//! Sums and histograms are cumulative, so a lost request loses only the values at one point in
//! time.

use super::write::{
    FIXED64, VARINT, attributes, bytes, fixed64, id, message, resource_fields, scope_fields, tag, text,
};
use crate::varint;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::span::{Resource, Scope};
use astracer_model::time::UnixNanos;
use astracer_model::value::Attribute;

/// A metric and its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The name, such as `http.server.request.duration`.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// The unit, in UCUM notation.
    pub unit: String,
    /// The points.
    pub data: MetricData,
}

impl Metric {
    /// The number of points.
    pub fn points(&self) -> usize {
        match &self.data {
            MetricData::Sum(points) => points.len(),
            MetricData::Histogram(points) => points.len(),
        }
    }
}

/// The points of a [`Metric`], each with its own attributes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetricData {
    /// Monotonic sums.
    Sum(Vec<SumPoint>),
    /// Exponential histograms.
    Histogram(Vec<HistogramPoint>),
}

/// A sum since the start of the metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SumPoint {
    /// The attributes.
    pub attributes: Vec<Attribute<'static>>,
    /// The sum.
    pub value: u64,
}

/// A histogram of measurements since the start of the metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramPoint {
    /// The attributes.
    pub attributes: Vec<Attribute<'static>>,
    /// The number of measurements.
    pub count: u64,
    /// The sum of the measurements.
    pub sum: f64,
    /// The smallest measurement, if there is one.
    pub min: Option<f64>,
    /// The largest measurement, if there is one.
    pub max: Option<f64>,
    /// The scale: bucket boundaries are powers of `2^(2^-scale)`.
    pub scale: i32,
    /// The number of measurements equal to 0.
    pub zeros: u64,
    /// The index of the first bucket.
    pub offset: i32,
    /// The counts of consecutive buckets, starting at `offset`.
    pub buckets: Vec<u64>,
    /// Example measurements with their traces.
    pub exemplars: Vec<MetricExemplar>,
}

/// An example measurement and its trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricExemplar {
    /// The measurement.
    pub value: f64,
    /// The time of the measurement.
    pub time: UnixNanos,
    /// The trace.
    pub trace_id: TraceId,
    /// The span.
    pub span_id: SpanId,
}

/// OpenTelemetry's `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u8 = 2;

/// Appends one export request: the body of an OTLP/HTTP request, or the message of a gRPC call. All
/// points cover the time from `start` to `now`.
pub fn write_metrics_request(
    out: &mut Vec<u8>,
    (resource, scope): (&Resource, &Scope),
    (start, now): (UnixNanos, UnixNanos),
    metrics: &[Metric],
) {
    message(out, 1, |out| {
        message(out, 1, |out| resource_fields(out, resource));
        message(out, 2, |out| {
            message(out, 1, |out| scope_fields(out, scope));
            for metric in metrics {
                message(out, 2, |out| metric_fields(out, (start, now), metric));
            }
            text(out, 3, &scope.schema_url);
        });
        text(out, 3, &resource.schema_url);
    });
}

fn metric_fields(out: &mut Vec<u8>, times: (UnixNanos, UnixNanos), metric: &Metric) {
    text(out, 1, &metric.name);
    text(out, 2, &metric.description);
    text(out, 3, &metric.unit);
    match &metric.data {
        MetricData::Sum(points) => message(out, 7, |out| {
            for point in points {
                message(out, 1, |out| sum_fields(out, times, point));
            }
            out.extend_from_slice(&[tag(2, VARINT), CUMULATIVE, tag(3, VARINT), 1]);
        }),
        MetricData::Histogram(points) => message(out, 10, |out| {
            for point in points {
                message(out, 1, |out| histogram_fields(out, times, point));
            }
            out.extend_from_slice(&[tag(2, VARINT), CUMULATIVE]);
        }),
    }
}

fn sum_fields(out: &mut Vec<u8>, (start, now): (UnixNanos, UnixNanos), point: &SumPoint) {
    fixed64(out, 2, start.0);
    fixed64(out, 3, now.0);
    // This field belongs to a oneof, so it is written even if it is zero.
    out.push(tag(6, FIXED64));
    out.extend_from_slice(&point.value.to_le_bytes());
    attributes(out, 7, &point.attributes);
}

fn histogram_fields(out: &mut Vec<u8>, (start, now): (UnixNanos, UnixNanos), point: &HistogramPoint) {
    attributes(out, 1, &point.attributes);
    fixed64(out, 2, start.0);
    fixed64(out, 3, now.0);
    fixed64(out, 4, point.count);
    double(out, 5, point.sum);
    signed(out, 6, point.scale);
    fixed64(out, 7, point.zeros);
    message(out, 8, |out| {
        signed(out, 1, point.offset);
        let mut counts = Vec::with_capacity(2 * point.buckets.len());
        point.buckets.iter().for_each(|count| varint::append(&mut counts, *count));
        bytes(out, 2, &counts);
    });
    for exemplar in &point.exemplars {
        message(out, 11, |out| {
            fixed64(out, 2, exemplar.time.0);
            double(out, 3, exemplar.value);
            id(out, 4, exemplar.span_id.0.to_be_bytes());
            id(out, 5, exemplar.trace_id.0.to_be_bytes());
        });
    }
    for (number, value) in [(12, point.min), (13, point.max)] {
        value.into_iter().for_each(|value| double(out, number, value));
    }
}

fn double(out: &mut Vec<u8>, number: u8, value: f64) {
    out.push(tag(number, FIXED64));
    out.extend_from_slice(&value.to_le_bytes());
}

/// `sint32`.
fn signed(out: &mut Vec<u8>, number: u8, value: i32) {
    out.push(tag(number, VARINT));
    varint::append(out, u64::from(((value << 1) ^ (value >> 31)) as u32));
}
