//! Errors that tell the operator what to do.

use std::borrow::Cow;
use std::time::Duration;
use std::{fmt, io};

use crate::text::escaped;

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

            /// A short description for people.
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
    NothingListens "nothing_listens" "no server listens on this port"
        "start the server, or correct host and port (usually 4317 for OTLP/gRPC, 4318 for OTLP/HTTP, 9411 for Zipkin)",
    /// The host's name could not be resolved.
    UnknownHost "unknown_host" "the host name cannot be resolved"
        "correct the name in the endpoint, or check this machine's DNS settings",
    /// The connection could not be made, or broke before the response.
    ConnectionLost "connection_lost" "the connection failed or was lost"
        "check the network to the server, and the server's log",
    /// There was no response in time, or the server gave up waiting (408).
    TimedOut "timed_out" "the server did not answer in time"
        "check whether the server is overloaded, or raise the timeout",
    /// The server's certificate was not accepted.
    UntrustedCertificate "untrusted_certificate" "the server's certificate is not trusted"
        "set the file of the CA certificate (OTEL_EXPORTER_OTLP_CERTIFICATE for OTLP), and use a host name that the \
         certificate covers",
    /// The server asked for a client certificate, or rejected ours.
    ClientCertificate "client_certificate" "the server requires a client certificate that it trusts"
        "set the files of a client certificate and its key (OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and \
         OTEL_EXPORTER_OTLP_CLIENT_KEY for OTLP); the server must trust the certificate",
    /// The endpoint says https, but the port does not speak TLS.
    PlainServer "plain_server" "the server does not use TLS on this port"
        "use http:// instead of https:// in the endpoint, or use the server's TLS port",
    /// The endpoint says http, but the port speaks TLS.
    TlsServer "tls_server" "the server requires TLS on this port"
        "use https:// instead of http:// in the endpoint",
    /// An HTTP/1.1 request was sent to a gRPC port.
    GrpcPort "grpc_port" "an HTTP request was sent to a gRPC port"
        "use the protocol `grpc`, or the server's HTTP port (usually 4318)",
    /// A gRPC request was sent to an HTTP port.
    HttpPort "http_port" "a gRPC request was sent to a port that does not speak gRPC"
        "use the protocol `http/protobuf`, or the server's gRPC port (usually 4317)",
    /// 404 or 405, or an unknown gRPC service.
    WrongPath "wrong_path" "the server does not know this path"
        "correct the path: /v1/traces is appended to OTEL_EXPORTER_OTLP_ENDPOINT but not to \
         OTEL_EXPORTER_OTLP_TRACES_ENDPOINT; for Zipkin it is /api/v2/spans",
    /// 400 and other 4xx: the server rejected the request.
    BadRequest "bad_request" "the server rejected the request as invalid"
        "check that the endpoint is a server for this protocol and version",
    /// 401, or 407 of a proxy.
    Unauthenticated "unauthenticated" "the server requires authentication"
        "set the header that it expects (OTEL_EXPORTER_OTLP_HEADERS for OTLP)",
    /// 403.
    Forbidden "forbidden" "the server denied access"
        "check that the token may write traces to this tenant",
    /// 413, or a gRPC message over the server's limit; or one span larger than our own limit.
    TooLarge "too_large" "the request exceeds the size limit"
        "lower the request size limit of this exporter, or raise the server's",
    /// 415.
    UnsupportedMedia "unsupported_media" "the server does not support this encoding"
        "use another protocol (http/protobuf, http/json), or turn compression off",
    /// 429, or gRPC's "resource exhausted", and retries did not help.
    Throttled "throttled" "the server is throttling requests"
        "keep fewer traces, or raise the server's limit",
    /// 502, 503 or 504, and retries did not help.
    Unavailable "unavailable" "the server, or one behind it, is unavailable"
        "wait until it is up, and check its log",
    /// Other 5xx.
    ServerFailed "server_failed" "the server failed"
        "check the server's log",
    /// A response that is not valid.
    UnexpectedAnswer "unexpected_answer" "the response is not valid"
        "check that the endpoint is a server for traces",
    /// A file could not be written.
    File "file" "the file could not be written"
        "check that the folder exists and is writable, and that its disk has free space",
    /// The limit on the total size of all files is reached.
    Full "full" "the limit on the total size is reached"
        "raise the limit, remove files, or allow the oldest to be deleted",
    /// The spans waited in the spool for longer than its age limit.
    Expired "expired" "the spans exceeded the spool's age limit"
        "find out why the destination did not accept them, or raise the limit",
    /// The spool's disk returned different bytes than were written.
    Damaged "damaged" "spooled data was damaged on disk"
        "check the disk; `astracer spool verify` lists the damaged parts",
    /// Code that is not ours failed, or panicked: an exporter for another interface.
    ExporterFailed "exporter_failed" "the exporter failed"
        "check its settings and its log",
    /// The spans came after the shutdown, or it interrupted their export.
    ShutDown "shut_down" "the exporter has been shut down"
        "shut the exporter down only after the last span has ended",
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.slug())
    }
}

/// The reason why spans could not be delivered: kind, target and remedy. It displays as one line,
/// and a server's text in it is escaped so that it cannot control a terminal.
#[derive(Clone, PartialEq, Eq)]
pub struct ExportError {
    kind: ErrorKind,
    target: String,
    detail: String,
    remedy: Cow<'static, str>,
    retry_after: Option<Duration>,
    again: Again,
}

/// Whether a failed request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// The request itself was refused.
    Never,
    /// The server answered, or its identity was refused. Somebody may be changing a token, a route
    /// or a certificate, or it may stay like this.
    ForAWhile,
    /// The request did not reach a server that works.
    Always,
}

impl ExportError {
    /// Creates an error at `target` (an endpoint or a file), with the text of the operating system
    /// or the server as its detail.
    pub fn new(kind: ErrorKind, target: impl Into<String>, detail: impl Into<String>) -> Self {
        let remedy = Cow::Borrowed(kind.remedy());
        ExportError {
            kind,
            target: target.into(),
            detail: detail.into(),
            remedy,
            retry_after: None,
            again: Again::Never,
        }
    }

    /// Creates the error of a file or folder that could not be written. Its remedy depends on the
    /// error of the operating system.
    pub fn file(target: impl Into<String>, error: &io::Error) -> Self {
        let remedy = match error.kind() {
            // Creating a folder where a file is reports either.
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                "a file is where a folder should be: choose another path, or move the file"
            }
            io::ErrorKind::IsADirectory => "a folder is where a file should be: choose another path",
            io::ErrorKind::PermissionDenied => "let this process write there, or choose another path",
            io::ErrorKind::ReadOnlyFilesystem => "choose a path on a disk that can be written",
            io::ErrorKind::StorageFull => "free space on its disk, or choose another path",
            _ => ErrorKind::File.remedy(),
        };
        Self::new(ErrorKind::File, target, error.to_string()).with_remedy(remedy)
    }

    /// Marks the error as retryable, after the pause that the server asked for, if any.
    pub fn retryable(mut self, retry_after: Option<Duration>) -> Self {
        (self.again, self.retry_after) = (Again::Always, retry_after);
        self
    }

    /// Marks the error as retryable for a limited time.
    pub fn doubtful(mut self, retry_after: Option<Duration>) -> Self {
        (self.again, self.retry_after) = (Again::ForAWhile, retry_after);
        self
    }

    /// Adds the pause that the server asked for to the text, and the longest one that is kept.
    pub fn with_pause(mut self, max: Duration) -> Self {
        let Some(asked) = self.retry_after.filter(|asked| !asked.is_zero()) else { return self };
        if !self.detail.is_empty() {
            self.detail.push_str("; ");
        }
        self.detail.push_str(&format!("the server asks for a pause of {asked:?}"));
        if asked > max {
            self.detail.push_str(&format!(", shortened to {max:?}"));
        }
        self
    }

    /// Replaces the advice of the error's kind; an empty text removes it.
    pub fn with_remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = Cow::Borrowed(remedy);
        self
    }

    /// Replaces the kind and its advice, once the cause is known. A request that may be sent again
    /// is sent again for a limited time only: the port may speak this protocol for good.
    pub fn caused_by(mut self, kind: ErrorKind) -> Self {
        (self.kind, self.remedy) = (kind, Cow::Borrowed(kind.remedy()));
        if self.again == Again::Always {
            self.again = Again::ForAWhile;
        }
        self
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the target: an endpoint or a file.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the text of the operating system or the server.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the remedy: advice for the operator. It is empty if there is none.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }

    /// True if the same request may succeed later, because nothing was wrong with it.
    pub fn may_retry(&self) -> bool {
        self.again != Again::Never
    }

    /// True if the request may succeed later, but the failure may also be permanent: the server
    /// refused access or does not know the path, failed, or is not a server for traces. It is sent
    /// again for a limited time.
    pub fn is_doubtful(&self) -> bool {
        self.again == Again::ForAWhile
    }

    /// Returns how long the server asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

/// The same text as `Display`: a `main` that returns the error prints it with `Debug`.
impl fmt::Debug for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A gRPC server's message is any text, and errors are logged.
    #[test]
    fn what_a_server_answers_stays_within_its_line() {
        let error = ExportError::new(ErrorKind::BadRequest, "a\u{202e}b", "no\nfaked line\u{1b}[2J");
        let text = error.to_string();
        assert!(text.starts_with("a\\u{202e}b: the server rejected"), "{text}");
        assert!(text.contains(" (no\\nfaked line\\u{1b}[2J); check"), "{text}");
        assert_eq!(error.detail(), "no\nfaked line\u{1b}[2J");
    }

    /// The operating system's own errors, for paths that exist in this crate.
    #[cfg(unix)]
    #[test]
    fn the_remedy_of_a_file_fits_the_error_of_the_system() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = folder.join("Cargo.toml");
        let remedy = |error: io::Error| ExportError::file("f", &error).remedy().to_owned();
        for error in [std::fs::create_dir_all(&file), std::fs::create_dir_all(file.join("below"))] {
            let remedy = remedy(error.expect_err("a file is there"));
            assert!(remedy.starts_with("a file is where a folder should be"), "{remedy}");
        }
        let opened = std::fs::File::create(folder);
        assert!(remedy(opened.expect_err("a folder")).starts_with("a folder is where a file should be"));
        let full = io::Error::from_raw_os_error(28);
        assert!(remedy(full).starts_with("free space"), "ENOSPC");
        assert_eq!(remedy(io::ErrorKind::NotFound.into()), ErrorKind::File.remedy());
    }
}
