//! Errors that say what to do.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use astracer_model::text::escaped;
use opentelemetry_sdk::error::OTelSdkError;

macro_rules! error_kinds {
    ($($(#[$doc:meta])* $name:ident $slug:literal $says:literal $remedy:literal,)*) => {
        /// The kind of a failure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$doc])* $name,)*
        }

        impl ErrorKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// A stable name for machines.
            pub fn slug(self) -> &'static str {
                match self { $(Self::$name => $slug,)* }
            }

            /// A phrase for people.
            pub fn describe(self) -> &'static str {
                match self { $(Self::$name => $says,)* }
            }

            /// Returns the remedy: advice for the operator.
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$name => $remedy,)* }
            }
        }
    };
}

error_kinds! {
    /// The connection was refused.
    NothingListens "nothing_listens" "nothing listens there"
        "start the server, or correct host and port (OTLP: usually 4317 for gRPC and 4318 for HTTP; Zipkin: 9411)",
    /// The host's name could not be resolved.
    UnknownHost "unknown_host" "the host's name is not known"
        "correct the name in the endpoint, or this machine's name service",
    /// The connection could not be made, or broke before the answer.
    ConnectionLost "connection_lost" "the connection could not be made or broke"
        "look at the network between here and there, and into the server's log",
    /// There was no answer in time.
    TimedOut "timed_out" "no answer came in time"
        "look whether the server is overloaded, or allow more time",
    /// The server's certificate was not accepted.
    UntrustedCertificate "untrusted_certificate" "the server's certificate is not trusted"
        "name the file with the certificate of its authority (OTEL_EXPORTER_OTLP_CERTIFICATE for OTLP), and use a host \
         name that the certificate is for",
    /// The server asked for a client certificate, or refused ours.
    ClientCertificate "client_certificate" "the server does not accept our client certificate"
        "name the files with a certificate that the server trusts and its key (OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE \
         and OTEL_EXPORTER_OTLP_CLIENT_KEY for OTLP)",
    /// TLS was spoken to a port that does not speak it.
    PlainServer "plain_server" "TLS was spoken to a server that does not answer in TLS"
        "write http:// in place of https:// in the endpoint, or use the server's TLS port",
    /// Plain text was sent to a port that speaks TLS.
    TlsServer "tls_server" "plain text was spoken to a server that wants TLS"
        "write https:// in place of http:// in the endpoint",
    /// HTTP/1.1 was spoken to a gRPC port.
    GrpcPort "grpc_port" "HTTP was spoken to a gRPC port"
        "use the protocol `grpc`, or the server's HTTP port (usually 4318)",
    /// gRPC was spoken to an HTTP port.
    HttpPort "http_port" "gRPC was spoken to a port that does not speak it"
        "use the protocol `http/protobuf`, or the server's gRPC port (usually 4317)",
    /// 404 or 405, or a gRPC service that is not there.
    WrongPath "wrong_path" "the server knows no such path"
        "correct the path: /v1/traces is appended to OTEL_EXPORTER_OTLP_ENDPOINT but not to \
         OTEL_EXPORTER_OTLP_TRACES_ENDPOINT; Zipkin's is /api/v2/spans",
    /// 400: the server could not read the request.
    BadRequest "bad_request" "the server could not make sense of the request"
        "look whether it is a server for this protocol and version",
    /// 401.
    Unauthenticated "unauthenticated" "the server wants to know who we are"
        "set the header that it asks for (OTEL_EXPORTER_OTLP_HEADERS for OTLP)",
    /// 403.
    Forbidden "forbidden" "the server does not allow it"
        "look whether the token may write traces, to this tenant",
    /// 413, or a gRPC message over the server's limit; or one span larger than our own limit.
    TooLarge "too_large" "the request is larger than the limit"
        "send less at a time: lower the limit on requests' bytes here, or raise the server's",
    /// 415.
    UnsupportedMedia "unsupported_media" "the server does not take this encoding"
        "use another protocol (http/protobuf, http/json) or no compression",
    /// 429, or resources exhausted, and retries did not help.
    Throttled "throttled" "the server asks for less"
        "keep fewer traces, or raise the server's limit",
    /// 502, 503, 504: not now, and retries did not help.
    Unavailable "unavailable" "the server, or one behind it, is not available"
        "wait until it is up; look into its log",
    /// Other 5xx.
    ServerFailed "server_failed" "the server failed"
        "look into its log",
    /// An answer that makes no sense.
    UnexpectedAnswer "unexpected_answer" "the answer makes no sense"
        "look whether the endpoint leads to a server for traces",
    /// A file could not be written.
    File "file" "the file could not be written"
        "look whether the folder is there, may be written to, and its disk has room",
    /// The limit on the bytes of all files is reached.
    Full "full" "the limit on the size of all files is reached"
        "raise the limit, remove files, or let the oldest be deleted",
    /// They waited in the spool for longer than its limit on age.
    Expired "expired" "the spans waited for longer than the spool's limit on age"
        "find out why the destination did not take them, or raise the limit",
    /// The spool's disk returned other bytes than were written.
    Damaged "damaged" "the disk has damaged what the spool held"
        "check the disk; `astracer spool verify` names the places",
    /// Spans came after the shutdown, or it cut their export off.
    ShutDown "shut_down" "the exporter is shut down"
        "shut the exporter down after the last span",
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.slug())
    }
}

/// The reason why spans could not be delivered: kind, place and remedy. Displays as one line in
/// which nothing of a server's answer acts on a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportError {
    kind: ErrorKind,
    target: String,
    detail: String,
    remedy: Cow<'static, str>,
    retry_after: Option<Duration>,
    may_retry: bool,
}

impl ExportError {
    /// Creates an error at `target` (an endpoint, a file) with the text of the system or the
    /// server.
    pub fn new(kind: ErrorKind, target: impl Into<String>, detail: impl Into<String>) -> Self {
        let remedy = Cow::Borrowed(kind.remedy());
        ExportError {
            kind,
            target: target.into(),
            detail: detail.into(),
            remedy,
            retry_after: None,
            may_retry: false,
        }
    }

    #[cfg(any(feature = "console", feature = "file", feature = "spool"))]
    pub(crate) fn file(target: impl Into<String>, error: &std::io::Error) -> Self {
        Self::new(ErrorKind::File, target, error.to_string())
    }

    /// The same error as one that may pass, by itself or in the time that the server asked for.
    #[cfg(feature = "_send")]
    pub(crate) fn retryable(mut self, retry_after: Option<Duration>) -> Self {
        (self.may_retry, self.retry_after) = (true, retry_after);
        self
    }

    /// The same error with other advice than its kind's, or none.
    #[cfg(feature = "_send")]
    pub(crate) fn with_remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = Cow::Borrowed(remedy);
        self
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the place: an endpoint or a file.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the text of the system or the server.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the remedy: advice for the operator. It is empty where there is none.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }

    /// True if the same request may succeed later: nothing was wrong with it.
    pub fn may_retry(&self) -> bool {
        self.may_retry
    }

    /// Returns the time that the server asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", escaped(&self.target), self.kind.describe())?;
        if !self.detail.is_empty() {
            write!(f, " ({})", escaped(&self.detail))?;
        }
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

impl std::error::Error for ExportError {}

impl From<ExportError> for OTelSdkError {
    fn from(error: ExportError) -> Self {
        match error.kind {
            ErrorKind::ShutDown => OTelSdkError::AlreadyShutdown,
            _ => OTelSdkError::InternalFailure(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gRPC server's message is any text, and errors are logged.
    #[test]
    fn what_a_server_answers_stays_within_its_line() {
        let error = ExportError::new(ErrorKind::BadRequest, "a\u{202e}b", "no\nfaked line\u{1b}[2J");
        let text = error.to_string();
        assert!(text.starts_with("a\\u{202e}b: the server could not"), "{text}");
        assert!(text.contains(" (no\\nfaked line\\u{1b}[2J); look"), "{text}");
        assert_eq!(error.detail(), "no\nfaked line\u{1b}[2J");
    }
}
