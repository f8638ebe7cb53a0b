//! Common parts of HTTP's and gRPC's answers.

use std::error::Error;

use astracer_exporters::wire::{ExportResponse, PartialSuccess};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;

use crate::counts::Refusal;

pub(crate) type Body = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// A request that was refused as a whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) reason: Refusal,
    pub(crate) message: String,
    /// It could be taken as it is, but not by a receiver that ends.
    pub(crate) is_cut_off: bool,
}

impl Refused {
    pub(crate) fn new(reason: Refusal, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), is_cut_off: false }
    }

    /// A request that the receiver's end cuts off. Its sender is to send it again: to the next
    /// receiver.
    pub(crate) fn cut_off() -> Self {
        let message = "the receiver ended before the request had arrived";
        Self { is_cut_off: true, ..Self::new(Refusal::Incomplete, message) }
    }
}

/// The part of a recorded request that could not be read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Partial {
    pub(crate) rejected: u64,
    pub(crate) message: String,
}

/// Senders are asked to wait for this time when there is no room.
pub(crate) const RETRY_AFTER_SECONDS: u64 = 30;

pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// OTLP's answer to a request that was recorded, at least in part.
pub(crate) fn export_response(Partial { rejected, message }: &Partial) -> ExportResponse {
    let rejected_spans = i64::try_from(*rejected).unwrap_or(i64::MAX);
    let partial = PartialSuccess { rejected_spans, error_message: message.clone() };
    ExportResponse { partial_success: (partial != PartialSuccess::default()).then_some(partial) }
}
