//! Records the outcome of a call on its span, by OpenTelemetry's conventions for HTTP and gRPC.
//!
//! A server fails its span by its own errors only: HTTP statuses of 500 and above, and the gRPC
//! codes that mean a fault of the server. A client fails its span by every error it gets.

use std::any::type_name;
use std::fmt::Display;
use std::time::Duration;

use http::{HeaderMap, Response, StatusCode};
use tracing::Span;
use tracing::field::display;

/// The side of the call that a span describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

/// The protocol of a call, which says where its status is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    /// The status is in the trailers, or in the headers of a response without a body.
    Grpc,
    /// The status is in the headers, or encoded in the body, where it is not read.
    GrpcWeb,
}

impl Protocol {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(http::header::CONTENT_TYPE).map_or(&[][..], |kind| kind.as_bytes());
        match kind.strip_prefix(b"application/grpc") {
            Some(rest) if rest.starts_with(b"-web") => Protocol::GrpcWeb,
            Some(_) => Protocol::Grpc,
            None => Protocol::Http,
        }
    }
}

/// Records a response's status on the span of a request to a server, for tower-http's
/// `TraceLayer::on_response`: `http.response.status_code`, and `rpc.grpc.status_code` if the
/// headers have it. A server's error fails the span.
///
/// The span needs the fields of [`request_span`](crate::request_span()).
pub fn record_response<B>(response: &Response<B>, _latency: Duration, span: &Span) {
    if span.is_disabled() {
        return;
    }
    span.record(HTTP_STATUS, response.status().as_u16());
    let code = grpc_status(response.headers()).filter(|_| span.has_field(GRPC_STATUS));
    match code {
        Some(code) => record_code(span, Side::Server, code),
        None if is_error(Side::Server, response.status()) => fail(span, response.status().as_str()),
        None => {}
    }
}

/// Records the status that a gRPC response has in its trailers, for tower-http's
/// `TraceLayer::on_eos`. A server's error fails the span.
///
/// The span needs the fields of [`request_span`](crate::request_span()).
pub fn record_trailers(trailers: Option<&HeaderMap>, _duration: Duration, span: &Span) {
    if let Some(code) = trailers.and_then(grpc_status)
        && span.has_field(GRPC_STATUS)
    {
        record_code(span, Side::Server, code);
    }
}

const HTTP_STATUS: &str = "http.response.status_code";
const GRPC_STATUS: &str = "rpc.grpc.status_code";

fn is_error(side: Side, status: StatusCode) -> bool {
    status.is_server_error() || side == Side::Client && status.is_client_error()
}

// The codes of gRPC that describe the call itself.
const OK: i64 = 0;
const CANCELLED: i64 = 1;
const UNKNOWN: i64 = 2;
const INTERNAL: i64 = 13;
const UNAVAILABLE: i64 = 14;

/// The codes that the conventions count as errors of the server: UNKNOWN, DEADLINE_EXCEEDED,
/// UNIMPLEMENTED, INTERNAL, UNAVAILABLE and DATA_LOSS.
const SERVER_ERRORS: [i64; 6] = [2, 4, 12, 13, 14, 15];

/// `None` without the header. A client takes a code that is no number for UNKNOWN.
fn grpc_status(headers: &HeaderMap) -> Option<i64> {
    let code = headers.get("grpc-status")?;
    Some(code.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(UNKNOWN))
}

/// The code of a response that has none, from "HTTP to gRPC Status Code Mapping" in gRPC's
/// documentation.
fn inferred(status: StatusCode) -> i64 {
    match status.as_u16() {
        400 => INTERNAL,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502..=504 => UNAVAILABLE,
        _ => UNKNOWN,
    }
}

fn record_code(span: &Span, side: Side, code: i64) {
    span.record(GRPC_STATUS, code);
    let is_error = match side {
        Side::Server => SERVER_ERRORS.contains(&code),
        Side::Client => code != OK,
    };
    if is_error {
        fail(span, &code.to_string());
    }
}

fn fail(span: &Span, kind: &str) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", kind);
}

/// The name of an error's type, which names the kind of error without its details.
fn kind_of<E>() -> &'static str {
    let name = type_name::<E>();
    // The conventions' value for a kind that is not known.
    if name.contains("dyn ") { "_OTHER" } else { name }
}

/// Records the outcome of one call, step by step. Call its methods inside the span: of a span
/// that is dropped, an error is noticed only there.
#[derive(Debug)]
pub(crate) struct Outcome {
    side: Side,
    protocol: Protocol,
    /// The response's, once its headers are there.
    status: StatusCode,
    /// A gRPC call has one status.
    has_code: bool,
}

impl Outcome {
    pub(crate) fn new(side: Side, protocol: Protocol) -> Self {
        Outcome { side, protocol, status: StatusCode::OK, has_code: false }
    }

    pub(crate) fn headers<B>(&mut self, span: &Span, response: &Response<B>) {
        self.status = response.status();
        span.record(HTTP_STATUS, self.status.as_u16());
        if self.protocol != Protocol::Http
            && let Some(code) = grpc_status(response.headers())
        {
            self.code(span, code);
        }
        if self.protocol != Protocol::Grpc && is_error(self.side, self.status) {
            fail(span, self.status.as_str());
        }
    }

    pub(crate) fn trailers(&mut self, span: &Span, trailers: &HeaderMap) {
        if self.protocol != Protocol::Http
            && let Some(code) = grpc_status(trailers)
        {
            self.code(span, code);
        }
    }

    /// The response is complete.
    pub(crate) fn complete(&mut self, span: &Span) {
        if self.is_without_code() {
            self.code(span, inferred(self.status));
        }
    }

    /// The call is over before its response is complete.
    pub(crate) fn cancelled(&mut self, span: &Span) {
        if self.is_without_code() {
            let code = if self.status == StatusCode::OK { CANCELLED } else { inferred(self.status) };
            self.code(span, code);
        }
    }

    /// The service failed instead of giving a response.
    pub(crate) fn no_response<E>(&mut self, span: &Span) {
        if self.is_without_code() {
            self.code(span, if self.side == Side::Client { UNAVAILABLE } else { INTERNAL });
        }
        fail(span, kind_of::<E>());
    }

    /// The response's body failed.
    pub(crate) fn broken<E: Display>(&mut self, span: &Span, error: &E) {
        if self.is_without_code() {
            self.code(span, INTERNAL);
        }
        fail(span, kind_of::<E>());
        span.record("otel.status_description", display(error));
    }

    fn is_without_code(&self) -> bool {
        self.protocol == Protocol::Grpc && !self.has_code
    }

    fn code(&mut self, span: &Span, code: i64) {
        if !self.has_code {
            self.has_code = true;
            record_code(span, self.side, code);
        }
    }
}
