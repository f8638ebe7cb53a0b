//! Requests over HTTP/1.1 with ureq, and the classification of their failures.

use std::fmt;
use std::io::{self, Read as _};
use std::net::IpAddr;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use astracer_model::text::escaped;
use ureq::Agent;
use ureq::http::{HeaderName, HeaderValue, Response, StatusCode, Uri};

use crate::compression::Compression;
use crate::endpoint::shown;
use crate::probe::{Peer, Speaks, says_tls};
use crate::refusal::Refusal;
use crate::sending::Sending;
use astracer_model::destination::{ErrorKind, ExportError};

/// The maximum length of a response that is read. It is only a message about rejections or errors.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Bodies of at most this size are in the socket's buffer before a server can close the connection.
const HEAD_FIRST_BYTES: usize = 16 << 10;

/// The shortest word of a header's value that is masked in what a server says.
const SECRET_MIN: usize = 6;

/// The advice for a proxy that rejects the connection.
const PROXY_REMEDY: &str =
    "check the proxy set in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, or add the server to NO_PROXY";

/// The settings of requests to one endpoint, and its connections.
pub(crate) struct Client {
    agent: Agent,
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    peer: Peer,
}

/// Omits headers and the password, which are secrets.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("uri", &self.target()).finish_non_exhaustive()
    }
}

/// The body of a request, which may be sent more than once.
pub(crate) struct Body {
    bytes: Vec<u8>,
    compression: Compression,
}

/// A successful response.
#[derive(Debug)]
pub(crate) struct Answer {
    #[cfg_attr(not(feature = "otlp-http"), allow(dead_code, reason = "only OTLP shows it"))]
    pub(crate) status: u16,
    pub(crate) json: bool,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Returns the first line of the body, if it is text.
    pub(crate) fn text(&self) -> String {
        printable(&self.body, self.json)
    }
}

impl Body {
    /// Compresses an encoded request.
    pub(crate) fn new(body: Vec<u8>, compression: Compression) -> Self {
        // Compression in memory cannot fail.
        let bytes = match compression {
            Compression::None => body,
            #[cfg(feature = "gzip")]
            Compression::Gzip => gzip(&body).unwrap_or_default(),
            #[cfg(feature = "zstd")]
            Compression::Zstd => zstd::bulk::compress(&body, 1).unwrap_or_default(),
        };
        Body { bytes, compression }
    }
}

impl Client {
    /// Creates a client for one endpoint. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// If certificates or a key are invalid; the text says why.
    pub(crate) fn new(
        uri: Uri,
        headers: Vec<(HeaderName, HeaderValue)>,
        sending: &Sending,
    ) -> Result<Self, String> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A redirect would lose the method or the headers, so it is reported instead of
            // followed.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("astracer/", env!("CARGO_PKG_VERSION")))
            // The size of the largest write to the socket.
            .output_buffer_size(128 << 10)
            .input_buffer_size(8 << 10);
        // A proxy from `HTTP_PROXY` and similar variables cannot reach servers on this machine.
        let config = if is_loopback(uri.host().unwrap_or_default()) { config.proxy(None) } else { config };
        let peer = Peer::new(&uri, Speaks::Http1);
        #[cfg(feature = "tls")]
        let (agent, peer) = if uri.scheme_str() == Some("https") {
            let tls = sending.tls.client_config()?;
            (over_tls(config.build(), Arc::clone(&tls)), peer.over_tls(tls))
        } else {
            (config.build().new_agent(), peer)
        };
        #[cfg(not(feature = "tls"))]
        let agent = {
            // Only the settings of TLS are needed here.
            let _ = sending;
            config.build().new_agent()
        };
        Ok(Client { agent, uri, headers, peer })
    }

    /// Returns the endpoint without its password, as shown in errors.
    pub(crate) fn target(&self) -> String {
        shown(&self.uri)
    }

    /// Opens a connection to find the cause of an unclear failure.
    pub(crate) fn diagnose(&self, error: ExportError) -> ExportError {
        self.peer.diagnose(error)
    }

    /// Sends a packed body once. A server that rejects a large request by its headers may close the
    /// connection before it has read the body, and its response is then lost. If a large body fails
    /// like this, the headers are sent again alone (`Expect: 100-continue`), and the body only if
    /// the server asks for it.
    pub(crate) fn post(&self, body: &Body, media: &str, timeout: Duration) -> Result<Answer, ExportError> {
        let begun = Instant::now();
        let left = || timeout.saturating_sub(begun.elapsed());
        let sent = match self.send(body, media, timeout, false) {
            Err(error) if body.bytes.len() > HEAD_FIRST_BYTES && is_cut_off(&error) && !left().is_zero() => {
                match self.send(body, media, left(), true) {
                    // The server does not support `Expect`, so this response says nothing about the
                    // request.
                    Ok(answer) if answer.status() == StatusCode::EXPECTATION_FAILED => Err(error),
                    again => again,
                }
            }
            sent => sent,
        };
        self.answer(sent.map_err(|error| self.explain(&error))?, body.compression)
    }

    fn send(
        &self,
        body: &Body,
        media: &str,
        timeout: Duration,
        head_first: bool,
    ) -> Result<Response<ureq::Body>, ureq::Error> {
        let request = self
            .agent
            .post(&self.uri)
            .config()
            .timeout_global(Some(timeout))
            .build()
            .header("content-type", media);
        let mut request = match body.compression {
            Compression::None => request,
            #[cfg(feature = "gzip")]
            Compression::Gzip => request.header("content-encoding", "gzip"),
            #[cfg(feature = "zstd")]
            Compression::Zstd => request.header("content-encoding", "zstd"),
        };
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if head_first {
            request = request.header("expect", "100-continue");
        }
        request.send(&body.bytes[..])
    }

    fn answer(
        &self,
        mut response: Response<ureq::Body>,
        compression: Compression,
    ) -> Result<Answer, ExportError> {
        let status = response.status().as_u16();
        let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let json = text("content-type").is_some_and(|media| media.starts_with("application/json"));
        let is_proto = text("content-type").is_some_and(|media| media.starts_with("application/x-protobuf"));
        let is_page = text("content-type").is_some_and(|media| media.starts_with("text/html"));
        let retry_after = text("retry-after").and_then(|value| retry_after(value, SystemTime::now()));
        let location = text("location").unwrap_or_default().to_owned();
        let mut body = Vec::new();
        let read = response.body_mut().as_reader().take(ANSWER_BYTES_MAX).read_to_end(&mut body);
        let is_success = (200..300).contains(&status);
        if let Err(error) = read.as_ref()
            && is_success
        {
            // Whether the spans were accepted is unknown, as if the response had been lost.
            let detail = format!("HTTP {status}, then {error}");
            return Err(ExportError::new(ErrorKind::ConnectionLost, self.target(), detail).retryable(None));
        }
        // A proxy's login page has this status too.
        if is_success && !is_page {
            return Ok(Answer { status, json, body });
        }
        let said = if is_proto { status_message(&body) } else { None };
        let said = said.map_or_else(|| printable(&body, json), |said| printable(said.as_bytes(), false));
        let said = self.without_own(said);
        let detail = match status {
            300..400 => format!("HTTP {status}, redirect to {location}"),
            _ if said.is_empty() => format!("HTTP {status}"),
            _ => format!("HTTP {status}: {said}"),
        };
        let error = |kind| ExportError::new(kind, self.target(), detail.clone());
        if status == 400 && says_tls(&body) {
            return Err(error(ErrorKind::TlsServer).doubtful(retry_after));
        }
        let is_compressed = compression != Compression::None;
        Err(Refusal { said: &said, retry_after, is_compressed }.of_http(status, error))
    }

    /// Masks the values of our own headers and query, which a server may repeat: they may be
    /// secrets.
    fn without_own(&self, said: String) -> String {
        let values = self.headers.iter().filter_map(|(_, value)| value.to_str().ok());
        // The words of a value such as `Bearer s3cret`; shorter ones are in any text.
        let words = values.flat_map(str::split_whitespace);
        let query = self.uri.query().into_iter().flat_map(|query| query.split('&'));
        let query = query.map(|part| part.split_once('=').map_or(part, |(_, value)| value));
        let words = words.chain(query).filter(|word| word.len() >= SECRET_MIN);
        words.fold(said, |said, word| said.replace(word, "***"))
    }

    /// Returns the failure of a response that has the status of a success and is not OTLP.
    #[cfg(feature = "_otlp")]
    pub(crate) fn not_otlp(&self, answer: &Answer) -> ExportError {
        let text = self.without_own(answer.text());
        let text = if text.is_empty() { "not readable as text" } else { &text };
        let detail = format!("HTTP {}: {text}", answer.status);
        ExportError::new(ErrorKind::UnexpectedAnswer, self.target(), detail).doubtful(None)
    }

    /// Classifies a request that got no response.
    fn explain(&self, error: &ureq::Error) -> ExportError {
        let of = |kind| ExportError::new(kind, self.target(), error.to_string());
        let lost = || of(ErrorKind::ConnectionLost).retryable(None);
        match error {
            ureq::Error::HostNotFound => of(ErrorKind::UnknownHost).retryable(None),
            ureq::Error::Timeout(_) => of(ErrorKind::TimedOut).retryable(None),
            ureq::Error::Io(io) if io.kind() == io::ErrorKind::ConnectionRefused => {
                of(ErrorKind::NothingListens).retryable(None)
            }
            // The resolver's error has no type of its own.
            ureq::Error::Io(io) if io.to_string().contains("failed to lookup address") => {
                of(ErrorKind::UnknownHost).retryable(None)
            }
            ureq::Error::Io(io) if io.kind() == io::ErrorKind::TimedOut => {
                of(ErrorKind::TimedOut).retryable(None)
            }
            #[cfg(feature = "tls")]
            ureq::Error::Rustls(error) => crate::tls::explain(&self.target(), error),
            #[cfg(feature = "tls")]
            ureq::Error::Io(io) if crate::tls::of_io(io).is_some() => match crate::tls::of_io(io) {
                Some(error) => crate::tls::explain(&self.target(), error),
                None => lost(),
            },
            ureq::Error::Io(_) | ureq::Error::ConnectionFailed => lost(),
            // Only ureq's text contains the status. The request has not reached the server.
            ureq::Error::ConnectProxyFailed(why) => match first_number(why) {
                Some(408 | 429 | 500..) | None => lost(),
                Some(401 | 403 | 407) => {
                    of(ErrorKind::UnexpectedAnswer).with_remedy(PROXY_REMEDY).doubtful(None)
                }
                Some(_) => of(ErrorKind::UnexpectedAnswer).with_remedy(PROXY_REMEDY),
            },
            // The response is not HTTP. The port may speak another protocol for good, which
            // `diagnose` finds out, or while the server starts.
            ureq::Error::Protocol(_) => of(ErrorKind::UnexpectedAnswer).retryable(None),
            _ => of(ErrorKind::UnexpectedAnswer),
        }
    }
}

/// An agent with our own TLS, behind a proxy or not.
#[cfg(feature = "tls")]
fn over_tls(config: ureq::config::Config, tls: Arc<rustls::ClientConfig>) -> Agent {
    use ureq::unversioned::resolver::DefaultResolver;
    use ureq::unversioned::transport::{ConnectProxyConnector, Connector as _, TcpConnector};

    let connector = ().chain(ConnectProxyConnector::default()).chain(TcpConnector::default());
    let connector = connector.chain(crate::tls::TlsConnector(tls));
    Agent::with_parts(config, connector, DefaultResolver::default())
}

/// True if the connection was closed while the request was sent.
fn is_cut_off(error: &ureq::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    let ureq::Error::Io(error) = error else { return false };
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
}

/// Returns the first number in a text.
fn first_number(text: &str) -> Option<u16> {
    text.split(|char: char| !char.is_ascii_digit()).find_map(|digits| digits.parse().ok())
}

/// True for names and addresses of this machine.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Returns the message of an error's body in protobuf; `None` without OTLP.
fn status_message(body: &[u8]) -> Option<String> {
    #[cfg(feature = "otlp-http")]
    return crate::refusal::status_message(body);
    #[cfg(not(feature = "otlp-http"))]
    {
        let _ = body;
        None
    }
}

#[cfg(feature = "gzip")]
fn gzip(body: &[u8]) -> io::Result<Vec<u8>> {
    let out = Vec::with_capacity(body.len() / 4);
    let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
    io::Write::write_all(&mut encoder, body)?;
    encoder.finish()
}

/// Parses `Retry-After`: a number of seconds, or a date.
fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let digits = value.trim();
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        // More seconds than 64 bits hold are bounded like any others.
        return Some(Duration::from_secs(digits.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// Returns the part of a response that is shown: its first line, if it is text.
fn printable(body: &[u8], json: bool) -> String {
    const CHARS_MAX: usize = 200;
    let Ok(text) = str::from_utf8(body) else { return String::new() };
    let line = if json { text } else { text.lines().next().unwrap_or_default() };
    let shown = line.chars().map(|char| if char.is_whitespace() { ' ' } else { char });
    escaped(shown.take(CHARS_MAX).collect::<String>().trim()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sat, 21 Nov 2026 12:00:00 GMT").unwrap();
        for (value, expected) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sat, 21 Nov 2026 12:00:30 GMT", Some(30)),
            ("Sat, 21 Nov 2026 11:00:00 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
        ] {
            assert_eq!(retry_after(value, now), expected.map(Duration::from_secs), "{value}");
        }
    }

    fn explained(error: &ureq::Error) -> ExportError {
        let client = Client::new("http://collector:4318/".parse().unwrap(), Vec::new(), &Sending::new(1));
        client.unwrap().explain(error)
    }

    /// A proxy that cannot reach the server responds in its place. That is an outage, not a
    /// response of the server.
    #[test]
    fn a_proxy_without_a_way_to_the_server_is_an_outage() {
        let refused = |why: &str| explained(&ureq::Error::ConnectProxyFailed(why.to_owned()));
        for status in [408, 429, 500, 502, 503, 504] {
            let error = refused(&format!("proxy server responded {status}/{status}"));
            assert!(error.may_retry() && error.kind() == ErrorKind::ConnectionLost, "{error:?}");
        }
        for error in [refused("proxy server did not respond"), explained(&ureq::Error::ConnectionFailed)] {
            assert!(error.may_retry() && error.kind() == ErrorKind::ConnectionLost, "{error:?}");
        }
        // The proxy rejects our requests, perhaps only until its password is changed.
        for status in [400, 401, 403, 407] {
            let error = refused(&format!("proxy server responded {status}/{status}"));
            assert_eq!((error.may_retry(), error.is_doubtful()), (status != 400, status != 400));
            assert!(error.to_string().contains("HTTPS_PROXY"), "{error}");
        }
    }

    #[test]
    fn this_machine_is_reached_without_a_proxy() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.3.2.1", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["collector", "192.0.2.1", "localhost.example.org", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn answers_are_shown_on_one_line_if_they_are_text() {
        assert_eq!(printable(b"no such\ttenant\r\nmore", false), "no such tenant");
        assert_eq!(printable(b"{\n\"a\": 1}", true), "{ \"a\": 1}");
        assert_eq!(printable(&[0xff, 0xfe], false), "");
        assert_eq!(printable("no\u{1b}[2J\u{202e}such".as_bytes(), false), "no\\u{1b}[2J\\u{202e}such");
        assert_eq!(printable("a\u{2028}b\u{85}c".as_bytes(), false), "a b c");
        assert_eq!(printable("\u{e9}".repeat(300).as_bytes(), false).chars().count(), 200);
    }
}
