//! Diagnoses a port after a request failed for an unclear reason: when an outage begins, and for
//! tools.
//!
//! The probe connects, sends the beginning of HTTP/2 and reads the first bytes of the response. An
//! HTTP/2 server without TLS (gRPC) responds with its settings, and an HTTP/1.1 server with an
//! error. A TLS server responds with an alert; Go's TLS servers respond with a line of HTTP that
//! says so. If the endpoint uses TLS, the handshake is tried first: a server that rejects our
//! certificate reports this only after the handshake, and the failure of a concurrent request would
//! hide it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use http::uri::Uri;

use astracer_model::destination::{ErrorKind, ExportError};

/// A protocol, below TLS if TLS is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Http1,
    Http2,
    Tls,
    /// Another protocol, or no response in time.
    Unknown,
}

/// The server of an endpoint.
#[derive(Debug)]
pub(crate) struct Peer {
    host: String,
    port: u16,
    /// The protocol that this client speaks.
    own: Speaks,
    #[cfg(feature = "tls")]
    tls: Option<std::sync::Arc<rustls::ClientConfig>>,
    #[cfg(not(feature = "tls"))]
    tls: Option<std::convert::Infallible>,
}

/// HTTP/2's connection preface (RFC 9113, section 3.4), and an empty frame of settings (6.5).
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The time limit of each step.
const STEP: Duration = Duration::from_secs(1);

impl Peer {
    pub(crate) fn new(uri: &Uri, own: Speaks) -> Self {
        let port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        Peer { host, port: uri.port_u16().unwrap_or(port), own, tls: None }
    }

    /// Uses TLS for the peer.
    #[cfg(feature = "tls")]
    pub(crate) fn over_tls(self, tls: std::sync::Arc<rustls::ClientConfig>) -> Self {
        Peer { tls: Some(tls), ..self }
    }

    /// Returns the cause of a failed request if it can be found, else the error itself.
    pub(crate) fn diagnose(&self, error: ExportError) -> ExportError {
        let is_unclear = matches!(error.kind(), ErrorKind::ConnectionLost | ErrorKind::UnexpectedAnswer);
        if !is_unclear {
            return error;
        }
        match self.find(&error) {
            Some(found) => found,
            None => error,
        }
    }

    fn find(&self, error: &ExportError) -> Option<ExportError> {
        let of = |kind| Some(error.clone().caused_by(kind));
        let Some(address) = (&*self.host, self.port).to_socket_addrs().ok().and_then(|mut all| all.next())
        else {
            return of(ErrorKind::UnknownHost).map(|error| error.retryable(None));
        };
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let needs_http2 = self.own == Speaks::Http2;
            match crate::tls::probe(tls, &self.host, connect(address)?, needs_http2) {
                Err(failed) => return Some(crate::tls::explain(error.target(), &failed)),
                Ok(false) if needs_http2 => return of(ErrorKind::HttpPort),
                Ok(_) => {}
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

/// Sends the beginning of HTTP/2 and classifies the response.
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
        // Only a response in text may need its following bytes to be classified.
        if speaks(&answer) != Speaks::Unknown && !answer.starts_with(b"HTTP/") {
            break;
        }
    }
    speaks(&answer)
}

fn speaks(answer: &[u8]) -> Speaks {
    match answer {
        // A record of type alert, of any version of TLS.
        [0x15, 3, _, ..] => Speaks::Tls,
        // The fourth byte is the frame's type: SETTINGS, or the GOAWAY of a server that rejected
        // ours.
        [_, _, _, 4 | 7, ..] if answer.len() >= 9 => Speaks::Http2,
        _ if answer.starts_with(b"HTTP/") && says_tls(answer) => Speaks::Tls,
        // A page without a head is how some servers answer a version of HTTP that they do not know.
        _ if answer.starts_with(b"HTTP/") || answer.starts_with(b"<") => Speaks::Http1,
        _ => Speaks::Unknown,
    }
}

/// Returns true for the responses of Go's servers and nginx to plain HTTP on an HTTPS port.
pub(crate) fn says_tls(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.contains("HTTP request to an HTTPS server")
        || text.contains("plain HTTP request was sent to HTTPS port")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_distinguished_by_their_first_bytes() {
        let go = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
        for (answer, expected) in [
            (&b"HTTP/1.1 505 HTTP Version Not Supported\r\n\r\n"[..], Speaks::Http1),
            (b"<!DOCTYPE HTML>\n<html>", Speaks::Http1),
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
