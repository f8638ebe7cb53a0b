//! Common parts of HTTP and gRPC responses.

use std::error::Error;

use astracer_exporters::wire::{ExportResponse, PartialSuccess};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;

use crate::counts::Refusal;
use crate::signal::Signal;

pub(crate) type Body = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// A request that was rejected as a whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) reason: Refusal,
    pub(crate) message: String,
    /// True if nothing is wrong with the request, but the receiver is shutting down.
    pub(crate) is_cut_off: bool,
}

impl Refused {
    pub(crate) fn new(reason: Refusal, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), is_cut_off: false }
    }

    /// A request that was cut off because the receiver is shutting down. Its sender should send it
    /// again, to the next receiver.
    pub(crate) fn cut_off() -> Self {
        let message = "the receiver is shutting down and had not received the whole request; send it again";
        Self { is_cut_off: true, ..Self::new(Refusal::Incomplete, message) }
    }
}

/// The rejected part of a recorded request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Partial {
    pub(crate) rejected: u64,
    pub(crate) message: String,
}

/// The time that senders are asked to wait when there is no capacity.
pub(crate) const RETRY_AFTER_SECONDS: u64 = 30;

pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// OTLP's response to a request that was recorded, at least in part. The message of logs has the
/// same fields as that of traces.
pub(crate) fn export_response(Partial { rejected, message }: &Partial) -> ExportResponse {
    let rejected_spans = i64::try_from(*rejected).unwrap_or(i64::MAX);
    let partial = PartialSuccess { rejected_spans, error_message: message.clone() };
    ExportResponse { partial_success: (partial != PartialSuccess::default()).then_some(partial) }
}

/// The same in JSON, where the signals' responses differ.
pub(crate) fn json_response(signal: Signal, partial: &Partial) -> String {
    let Partial { rejected, message } = partial;
    if *partial == Partial::default() {
        return "{}".to_owned();
    }
    let partial = serde_json::json!({ signal.rejected_key(): rejected.to_string(), "errorMessage": message });
    serde_json::json!({ "partialSuccess": partial }).to_string()
}
