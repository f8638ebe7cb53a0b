//! What is at the other end, asked when a request failed in a way that does not tell.
//!
//! The probe connects, says hello in HTTP/2 and looks at the first bytes of the answer. A server of HTTP/2 without TLS
//! (gRPC) answers with its settings; one of HTTP/1.1 refuses in its own words; one of TLS sends an alert, or, as Go's
//! does, a line of HTTP that says so. Where TLS is to be spoken, that is tried first: a server that refuses our
//! certificate says so behind the handshake, when the request is under way and its own failure hides the reason.
//!
//! A server that ever answered is not asked: then it is the connection that broke, and nothing is set up wrong.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::uri::Uri;

use crate::error::{ErrorKind, ExportError};

/// What is spoken without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Http1,
    Http2,
    Tls,
    /// Nothing that is known, or not in time.
    Unknown,
}

/// The server of an endpoint.
#[derive(Debug)]
pub(crate) struct Peer {
    host: String,
    port: u16,
    /// What we speak to it, below TLS if that is there.
    own: Speaks,
    answered: AtomicBool,
    #[cfg(feature = "tls")]
    tls: Option<std::sync::Arc<rustls::ClientConfig>>,
    #[cfg(not(feature = "tls"))]
    tls: Option<std::convert::Infallible>,
}

/// HTTP/2's connection preface (RFC 9113, section 3.4), and an empty frame of settings (6.5).
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// So long each step may take. The caller's export has failed by then.
const STEP: Duration = Duration::from_secs(1);

impl Peer {
    pub(crate) fn new(uri: &Uri, own: Speaks) -> Self {
        let port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        Peer { host, port: uri.port_u16().unwrap_or(port), own, answered: AtomicBool::new(false), tls: None }
    }

    /// The same peer, spoken to over TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn over_tls(self, tls: std::sync::Arc<rustls::ClientConfig>) -> Self {
        Peer { tls: Some(tls), ..self }
    }

    /// Takes note that it answers to what we speak.
    pub(crate) fn note_answer(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// The reason why a request to `target` failed, if it can be found; `detail` is what the request failed of.
    pub(crate) fn diagnose(&self, target: &str, detail: &str) -> Option<ExportError> {
        let of = |kind| Some(ExportError::new(kind, target, detail));
        let Some(address) = (&*self.host, self.port).to_socket_addrs().ok().and_then(|mut all| all.next())
        else {
            return of(ErrorKind::UnknownHost).map(|error| error.retryable(None));
        };
        if self.answered.load(Ordering::Relaxed) {
            return None;
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let failed = crate::tls::probe(tls, &self.host, connect(address)?);
            if let Some(error) = failed {
                return Some(crate::tls::explain(target, &error));
            }
        }
        match (say_hello(address), self.own) {
            (Speaks::Http1 | Speaks::Http2, _) if self.tls.is_some() => of(ErrorKind::PlainServer),
            (Speaks::Http1, Speaks::Http2) => of(ErrorKind::HttpPort),
            (Speaks::Http2, Speaks::Http1) => of(ErrorKind::GrpcPort),
            (Speaks::Tls, _) if self.tls.is_none() => of(ErrorKind::TlsServer),
            _ => None,
        }
    }
}

fn connect(address: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, STEP).ok()?;
    stream.set_read_timeout(Some(STEP)).ok()?;
    stream.set_write_timeout(Some(STEP)).ok()?;
    Some(stream)
}

/// Looks what comes back for the beginning of HTTP/2.
fn say_hello(address: SocketAddr) -> Speaks {
    let Some(mut stream) = connect(address) else { return Speaks::Unknown };
    if stream.write_all(HELLO).is_err() {
        return Speaks::Unknown;
    }
    let mut answer = Vec::new();
    let mut part = [0; 512];
    while answer.len() < 4 << 10 {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend_from_slice(&part[..count]),
        }
        // Only text may say more in what follows.
        if speaks(&answer) != Speaks::Unknown && !answer.starts_with(b"HTTP/") {
            break;
        }
    }
    speaks(&answer)
}

fn speaks(answer: &[u8]) -> Speaks {
    match answer {
        // A record of type alert, of whatever version of TLS.
        [0x15, 3, _, ..] => Speaks::Tls,
        // A frame's type is its fourth byte: settings, or the farewell of a server that did not like ours.
        [_, _, _, 4 | 7, ..] if answer.len() >= 9 => Speaks::Http2,
        _ if answer.starts_with(b"HTTP/") && says_tls(answer) => Speaks::Tls,
        _ if answer.starts_with(b"HTTP/") => Speaks::Http1,
        _ => Speaks::Unknown,
    }
}

/// True if a text says that HTTPS is wanted: what Go's servers and nginx answer to plain HTTP.
pub(crate) fn says_tls(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.contains("HTTP request to an HTTPS server")
        || text.contains("plain HTTP request was sent to HTTPS port")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart_by_their_first_bytes() {
        let go = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
        for (answer, expected) in [
            (&b"HTTP/1.1 505 HTTP Version Not Supported\r\n\r\n"[..], Speaks::Http1),
            (go, Speaks::Tls),
            (b"\x15\x03\x03\0\x02\x02\x32", Speaks::Tls),
            (b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0", Speaks::Http2),
            (b"\0\0\x08\x07\0\0\0\0\0", Speaks::Http2),
            (b"", Speaks::Unknown),
            (b"220 mail.example.org ESMTP\r\n", Speaks::Unknown),
        ] {
            assert_eq!(speaks(answer), expected, "{answer:?}");
        }
    }
}
