//! The meaning of a server's refusal: one table for HTTP's statuses and gRPC's codes. Its rows are
//! in docs/recordings.md.
//!
//! Servers disagree on the code of a request that is too large, or compressed in a way that they do
//! not support. OpenTelemetry's Collector answers 400 to both over HTTP. So the text of a permanent
//! refusal is read too.

use std::time::Duration;

use astracer_model::destination::{ErrorKind, ExportError};
#[cfg(feature = "otlp-grpc")]
use tonic::Code;

/// A server's refusal of a request.
pub(crate) struct Refusal<'a> {
    /// The server's text.
    pub(crate) said: &'a str,
    /// The pause that the server asks for.
    pub(crate) retry_after: Option<Duration>,
    /// True if the request was compressed.
    pub(crate) is_compressed: bool,
}

/// Whether the same request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    Never,
    /// For a limited time: not the server, another server's page, or a token or route that is
    /// being changed.
    Limited,
    Always,
}

impl Refusal<'_> {
    /// Returns the error of a response over HTTP with another status than that of a success, or
    /// with a page as its body.
    #[cfg(feature = "_http")]
    pub(crate) fn of_http(&self, status: u16, error: impl Fn(ErrorKind) -> ExportError) -> ExportError {
        use Again::{Always, Limited, Never};
        let (kind, again) = match status {
            401 | 407 => (ErrorKind::Unauthenticated, Limited),
            403 => (ErrorKind::Forbidden, Limited),
            404 | 405 => (ErrorKind::WrongPath, Limited),
            408 => (ErrorKind::TimedOut, Limited),
            413 => (ErrorKind::TooLarge, Never),
            415 => (ErrorKind::UnsupportedMedia, Never),
            429 if self.is_about_size() => (ErrorKind::TooLarge, Never),
            429 => (ErrorKind::Throttled, Always),
            400..500 => (self.invalid(), Never),
            502..=504 => (ErrorKind::Unavailable, Always),
            500..600 => (ErrorKind::ServerFailed, Limited),
            _ => (ErrorKind::UnexpectedAnswer, Limited),
        };
        self.with_again(error(kind), again)
    }

    /// Returns the error of a gRPC status.
    #[cfg(feature = "otlp-grpc")]
    pub(crate) fn of_grpc(&self, code: Code, error: impl Fn(ErrorKind) -> ExportError) -> ExportError {
        use Again::{Always, Limited, Never};
        let (kind, again) = match code {
            Code::Unauthenticated => (ErrorKind::Unauthenticated, Limited),
            Code::PermissionDenied => (ErrorKind::Forbidden, Limited),
            Code::Unimplemented if self.is_about_encoding() => (ErrorKind::UnsupportedMedia, Never),
            Code::Unimplemented | Code::NotFound => (ErrorKind::WrongPath, Limited),
            // For a message that is too large, tonic's servers return "out of range", others
            // "resource exhausted".
            Code::OutOfRange | Code::ResourceExhausted if self.is_about_size() => {
                (ErrorKind::TooLarge, Never)
            }
            Code::InvalidArgument | Code::FailedPrecondition | Code::AlreadyExists => (self.invalid(), Never),
            // OTLP retries this only if the server gives a delay, but HTTP's 429 always.
            Code::ResourceExhausted if self.retry_after.is_none() => (ErrorKind::Throttled, Limited),
            Code::ResourceExhausted => (ErrorKind::Throttled, Always),
            Code::DeadlineExceeded => (ErrorKind::TimedOut, Always),
            Code::Unavailable | Code::Cancelled | Code::Aborted | Code::OutOfRange | Code::DataLoss => {
                (ErrorKind::Unavailable, Always)
            }
            Code::Unknown | Code::Internal | Code::Ok => (ErrorKind::ServerFailed, Limited),
        };
        self.with_again(error(kind), again)
    }

    /// The kind of a request that the server calls invalid.
    fn invalid(&self) -> ErrorKind {
        match (self.is_about_size(), self.is_about_encoding()) {
            (true, _) => ErrorKind::TooLarge,
            (_, true) => ErrorKind::UnsupportedMedia,
            _ => ErrorKind::BadRequest,
        }
    }

    /// True if the text says that the request is too large. A server that also asks for a pause
    /// is throttling.
    fn is_about_size(&self) -> bool {
        // "http: request body too large" (Go), "received message larger than max" (gRPC in Go and
        // C++), "message exceeds maximum size" (gRPC in Java), "decoded message length too large"
        // (tonic).
        const PHRASES: [&str; 4] = ["too large", "larger than", "exceeds maximum size", "size limit"];
        self.retry_after.is_none() && self.says(&PHRASES)
    }

    /// True if the request was compressed and the text is about that.
    fn is_about_encoding(&self) -> bool {
        // "unsupported Content-Encoding: gzip" (the Collector), "Decompressor is not installed for
        // grpc-encoding" (gRPC in Go), "Content is compressed with `zstd`" (tonic).
        self.is_compressed && self.says(&["encoding", "ompress", "gzip", "zstd"])
    }

    fn says(&self, phrases: &[&str]) -> bool {
        let said = self.said.to_ascii_lowercase();
        phrases.iter().any(|phrase| said.contains(phrase))
    }

    fn with_again(&self, error: ExportError, again: Again) -> ExportError {
        match again {
            Again::Never => error,
            Again::Limited => error.doubtful(self.retry_after),
            Again::Always => error.retryable(self.retry_after),
        }
    }
}

/// `google.rpc.Status`, the body of an error in OTLP over HTTP.
#[cfg(feature = "otlp-http")]
#[derive(Clone, PartialEq, prost::Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

/// Returns the message of a `google.rpc.Status` in protobuf; `None` if the bytes are not one.
#[cfg(feature = "otlp-http")]
pub(crate) fn status_message(body: &[u8]) -> Option<String> {
    prost::Message::decode(body).ok().map(|status: Status| status.message)
}

#[cfg(all(test, feature = "otlp-http", feature = "otlp-grpc"))]
mod tests {
    use super::*;

    /// Texts of servers about requests that were too large, or compressed with gzip.
    const SAID: [(&str, ErrorKind); 9] = [
        ("http: request body too large", ErrorKind::TooLarge),
        ("grpc: received message larger than max (1131 vs. 1000)", ErrorKind::TooLarge),
        ("gRPC message exceeds maximum size 1000: 1131", ErrorKind::TooLarge),
        (
            "Error, decoded message length too large: found 1131 bytes, the limit is: 1000 bytes",
            ErrorKind::TooLarge,
        ),
        ("unsupported Content-Encoding: gzip", ErrorKind::UnsupportedMedia),
        ("grpc: Decompressor is not installed for grpc-encoding \"gzip\"", ErrorKind::UnsupportedMedia),
        ("Can't find decompressor for gzip", ErrorKind::UnsupportedMedia),
        ("unexpected EOF", ErrorKind::BadRequest),
        ("", ErrorKind::BadRequest),
    ];

    fn both(refusal: &Refusal<'_>) -> [ExportError; 2] {
        let error = |kind| ExportError::new(kind, "t", "");
        [refusal.of_http(400, error), refusal.of_grpc(Code::InvalidArgument, error)]
    }

    #[test]
    fn the_text_of_a_permanent_refusal_says_what_is_wrong() {
        for (said, kind) in SAID {
            for error in both(&Refusal { said, retry_after: None, is_compressed: true }) {
                assert_eq!((error.kind(), error.may_retry()), (kind, false), "{said}");
            }
        }
    }

    #[test]
    fn a_request_that_was_not_compressed_has_another_fault() {
        for said in ["invalid UTF-8 encoding of an attribute", "unsupported Content-Encoding: gzip"] {
            for error in both(&Refusal { said, retry_after: None, is_compressed: false }) {
                assert_eq!(error.kind(), ErrorKind::BadRequest, "{said}");
            }
        }
    }

    /// Spans that are throttled arrive later; spans that are too large are lost.
    #[test]
    fn a_server_that_asks_for_a_pause_is_throttling() {
        let said = "received message larger than max";
        let error = |kind| ExportError::new(kind, "t", "");
        for (retry_after, kind) in [(None, ErrorKind::TooLarge), (Some(Duration::ZERO), ErrorKind::Throttled)]
        {
            let refusal = Refusal { said, retry_after, is_compressed: false };
            for error in [refusal.of_http(429, error), refusal.of_grpc(Code::ResourceExhausted, error)] {
                assert_eq!((error.kind(), error.may_retry()), (kind, kind == ErrorKind::Throttled));
            }
        }
    }

    /// The bytes of the Collector 0.140.
    #[test]
    fn the_message_of_a_status_is_read() {
        let body = b"\x08\x03\x12\x1chttp: request body too large";
        assert_eq!(status_message(body).as_deref(), Some("http: request body too large"));
        assert_eq!(status_message(b"no such tenant"), None);
        assert_eq!(status_message(b"\xff"), None);
    }
}
