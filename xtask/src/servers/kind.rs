//! The servers and their differences.

/// One of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Zipkin,
    Jaeger,
    Collector,
}

pub(super) const ZIPKIN_VERSION: &str = "3.6.1";

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Zipkin, Kind::Jaeger, Kind::Collector];

    pub(crate) fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Zipkin => "zipkin",
            Kind::Jaeger => "jaeger",
            Kind::Collector => "collector",
        }
    }

    /// The names of the addresses that it listens on. The first one is polled to see whether the
    /// server is up.
    pub(super) fn ports(self) -> &'static [&'static str] {
        match self {
            Kind::Zipkin => &["HTTP"],
            Kind::Jaeger => &["QUERY", "QUERY_GRPC", "OTLP_GRPC", "OTLP_HTTP", "ZIPKIN"],
            Kind::Collector => &["ZIPKIN", "OTLP_GRPC", "OTLP_HTTP", "OTLP_LIMITED"],
        }
    }

    /// The path that responds once the server is up.
    pub(super) fn health(self) -> &'static str {
        match self {
            Kind::Zipkin => "/health",
            Kind::Jaeger => "/api/services",
            Kind::Collector => "/",
        }
    }

    /// Whether only status 200 means that the server is up. Otherwise any status does.
    pub(super) fn is_strict(self) -> bool {
        self != Kind::Collector
    }
}
