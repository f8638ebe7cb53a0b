//! Zipkin's v2 JSON: the requests and responses of its API, and the downloads of its UI.
//!
//! The reader accepts a list of spans, a list of traces (lists of spans), and consecutive spans, on
//! one line or several.
//!
//! # Mapping
//!
//! | Zipkin | here |
//! |---|---|
//! | `traceId`, `id` | ids, of 64 or 128 bits |
//! | `parentId` unless it is zero, then those in the tag `astracer.parents` | parents |
//! | `kind`, else the tag `span.kind` | kind |
//! | `timestamp`, `duration` in microseconds | start and end, unknown if missing; a `timestamp` of 0 counts as missing; a `duration` without it is kept |
//! | `shared` | shared |
//! | `debug` | attribute `zipkin.debug` |
//! | `localEndpoint` | resource: `service.name`, `net.host.ip`, `net.host.port`; a second address, which is then the IPv6 one, as `zipkin.local.ipv6` |
//! | `remoteEndpoint` | attributes `peer.service`, `network.peer.address`, `network.peer.port`, and `zipkin.remote.ipv6`, unless tags already contain them |
//! | tag `otel.status_code`, else `error` (anything except "false") | status |
//! | tag `otel.status_description`, else the text of `error` (anything except "true") | description of the status |
//! | tags `otel.scope.name`, `otel.scope.version`, or their older names `otel.library.*` | scope; an older one that differs from the newer one is an attribute |
//! | tags `w3c.tracestate`, `otel.dropped_*_count` | tracestate; the counts of discarded items |
//! | tags `otlp.link.N`, as OpenTelemetry's Collector writes them | links |
//! | tags of the namespaces `service`, `telemetry`, `host`, `os`, `process`, `container`, `k8s`, `cloud`, `deployment`, `device` | attributes of the resource |
//! | other `tags` | attributes |
//! | `annotations` | events: `"name": {attributes}` as OpenTelemetry's specification writes them, `name|{attributes}|0` as its Collector does, else the name |
//!
//! The names of endpoint attributes are those of OpenTelemetry's Collector (local) and of its
//! current semantic conventions (remote). Spans of the older v1 format are bad records. A span is
//! taken for one if it has `binaryAnnotations`, or if its annotations have an `endpoint` while the
//! span has neither an endpoint nor tags.

use std::io::BufRead;
use std::sync::Arc;

use super::json::read_spans;
use crate::Limits;
use astracer_model::sink::Sink;

mod annotation;
mod endpoint;
mod link;
mod loss;
mod span;
#[cfg(all(test, feature = "all-formats"))]
mod tests;
mod write;

pub(super) use loss::losses;
pub(super) use write::Writer;
pub use write::write_span;

/// The tag for parents after the first: ids separated by commas.
const MORE_PARENTS: &str = "astracer.parents";
/// The attribute for the flag that forces a span to be kept, whatever samplers decide.
const DEBUG: &str = "zipkin.debug";

/// Reads one file of this format to its end.
#[cfg(feature = "all-formats")]
pub fn read(input: &mut dyn BufRead, file: &Arc<str>, limits: &Limits, sink: &mut dyn Sink) {
    let mut shared = span::Shared::default();
    read_spans(input, file, limits, sink, &mut |cursor, out| span::read(cursor, out, &mut shared));
}
