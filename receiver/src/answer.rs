//! Common parts of HTTP's and gRPC's answers.

use http_body_util::Full;
use http_body_util::combinators::BoxBody;
use hyper::body::Bytes;
use std::convert::Infallible;

use crate::counts::Refusal;

pub(crate) type Body = BoxBody<Bytes, Infallible>;

/// A request that was refused as a whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) reason: Refusal,
    pub(crate) message: String,
}

impl Refused {
    pub(crate) fn new(reason: Refusal, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// Senders are asked to wait so long when there is no room.
pub(crate) const RETRY_AFTER_SECONDS: &str = "30";

pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    BoxBody::new(Full::new(bytes.into()))
}

/// A protobuf message of a number and a text, in fields 1 and 2: both OTLP's `ExportTracePartialSuccess` and
/// `google.rpc.Status` are such.
pub(crate) fn number_and_text(number: u64, text: &str) -> Vec<u8> {
    let mut message = Vec::with_capacity(text.len() + 16);
    if number != 0 {
        message.push(1 << 3);
        varint(&mut message, number);
    }
    if !text.is_empty() {
        message.push(2 << 3 | 2);
        varint(&mut message, text.len() as u64);
        message.extend_from_slice(text.as_bytes());
    }
    message
}

/// OTLP's `ExportTraceServiceResponse`: empty, or with the partial success in field 1.
pub(crate) fn export_response(rejected: u64, text: &str) -> Vec<u8> {
    let partial = number_and_text(rejected, text);
    let mut response = Vec::with_capacity(partial.len() + 8);
    if !partial.is_empty() {
        response.push(1 << 3 | 2);
        varint(&mut response, partial.len() as u64);
        response.extend_from_slice(&partial);
    }
    response
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
