//! The kinds of telemetry that the receiver records.

/// A kind of telemetry, with a path and a gRPC method of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Spans.
    Traces,
    /// Log records.
    Logs,
}

impl Signal {
    const ALL: [Self; 2] = [Self::Traces, Self::Logs];

    /// The signal of a path of OTLP over HTTP.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.path() == path)
    }

    /// The signal of a gRPC method.
    pub(crate) fn of_method(path: &str) -> Option<Self> {
        match path {
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export" => Some(Self::Traces),
            "/opentelemetry.proto.collector.logs.v1.LogsService/Export" => Some(Self::Logs),
            _ => None,
        }
    }

    /// The path of OTLP over HTTP.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Logs => "/v1/logs",
        }
    }

    /// The word for its records.
    pub(crate) fn records(self) -> &'static str {
        match self {
            Self::Traces => "spans",
            Self::Logs => "log records",
        }
    }

    /// The key of the number of rejected records in a response in JSON.
    pub(crate) fn rejected_key(self) -> &'static str {
        match self {
            Self::Traces => "rejectedSpans",
            Self::Logs => "rejectedLogRecords",
        }
    }
}
