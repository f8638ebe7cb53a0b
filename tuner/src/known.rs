//! Attributes that recordings have and that a service does not know when a request begins.

/// Attributes about a span's source code and thread, its busy and idle time, and how its trace was
/// kept.
const ADDED: [&str; 15] = [
    "busy_ns",
    "code.file.path",
    "code.line.number",
    "code.module.name",
    "idle_ns",
    "level",
    "sampler.adjusted_count",
    "sampler.key",
    "sampler.param",
    "sampler.type",
    "sampling.reason",
    "sampling.spans_cut",
    "target",
    "thread.id",
    "thread.name",
];

/// Whether a service adds this attribute only on export, so that its keys and policies do not have
/// it unless its own code sets it.
pub fn is_added(name: &str) -> bool {
    ADDED.contains(&name)
}

/// Attributes of OpenTelemetry's conventions that are known only when a request ends.
const END_ATTRIBUTES: [&str; 9] = [
    "error.type",
    "http.response.body.size",
    "http.response.status_code",
    "http.response_content_length",
    "http.status_code",
    "otel.status_code",
    "otel.status_description",
    "rpc.grpc.status_code",
    "rpc.response.status_code",
];

/// Whether this attribute is known only when a request ends.
pub(crate) fn is_of_end(name: &str) -> bool {
    END_ATTRIBUTES.contains(&name)
}
