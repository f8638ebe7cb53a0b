//! Trace formats that are known by name and not read, with the tool that converts them.

/// The marks of one format: keys, of which one record or its surroundings has all.
struct Other {
    keys: &'static [&'static str],
    reason: &'static str,
}

const OTHERS: &[Other] = &[
    Other {
        keys: &["traceEvents"],
        reason: "Chrome's trace events, which are not supported; record with OpenTelemetry instead",
    },
    Other {
        keys: &["ph", "pid", "ts"],
        reason: "Chrome's trace events, which are not supported; record with OpenTelemetry instead",
    },
    Other { keys: &["Traces", "Segments"], reason: X_RAY },
    Other { keys: &["Segments", "Document"], reason: X_RAY },
    Other { keys: &["trace_id", "start_time", "in_progress"], reason: X_RAY },
    Other { keys: &["trace_id", "start_time", "end_time", "id"], reason: X_RAY },
    Other {
        keys: &["trace_id", "span_id", "resource", "start", "duration"],
        reason: "Datadog's traces, which are not supported; send them through a Collector with its datadog receiver \
                 and its file exporter",
    },
    Other { keys: &["traceSegmentId"], reason: SKY_WALKING },
    Other { keys: &["segmentId", "endpointName"], reason: SKY_WALKING },
    Other { keys: &["trace.trace_id"], reason: HONEYCOMB },
    Other { keys: &["trace.span_id"], reason: HONEYCOMB },
    Other { keys: &["processor", "transaction"], reason: ELASTIC },
    Other { keys: &["transaction", "trace_id"], reason: ELASTIC },
    Other { keys: &["metadata", "transaction"], reason: ELASTIC },
    Other { keys: &["processor", "trace", "timestamp"], reason: ELASTIC },
];

const X_RAY: &str = "AWS X-Ray's segments, which are not supported; send them through a Collector with its awsxray \
                     receiver and its file exporter";
const SKY_WALKING: &str = "SkyWalking's segments, which are not supported; send them through a Collector with its \
                           skywalking receiver and its file exporter";
const HONEYCOMB: &str =
    "Honeycomb's events, which are not supported; export from the service with OTLP instead";
const ELASTIC: &str = "Elastic APM's documents, which are not supported; send the service's spans through a Collector \
                       with its file exporter";

/// All keys that mark a format.
fn known() -> impl Iterator<Item = &'static str> {
    OTHERS.iter().flat_map(|other| other.keys.iter().copied())
}

/// The marks found in a file.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<&'static str>);

impl Marks {
    pub(super) fn saw(&mut self, key: &[u8]) {
        if let Some(mark) = known().find(|mark| mark.as_bytes() == key)
            && !self.0.contains(&mark)
        {
            self.0.push(mark);
        }
    }

    /// The reason that names the format; `None` if the marks are of none.
    pub(super) fn reason(&self) -> Option<&'static str> {
        let is_here = |other: &&Other| other.keys.iter().all(|key| self.0.contains(key));
        OTHERS.iter().find(is_here).map(|other| other.reason)
    }
}
