//! The part of HTTP/1.1 that the endpoint needs: one request and one response per connection, both
//! bounded. Connections whose request has not arrived do not delay others.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The longest request head, in bytes.
const HEAD_MAX: usize = 8 << 10;
const TIME_MAX: Duration = Duration::from_secs(2);

/// A request without its body, which is not read.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    query: &'a str,
    headers: Vec<(&'a str, &'a str)>,
}

impl<'a> Request<'a> {
    /// Parses a head without its final empty line. `None` if it is malformed.
    pub(super) fn parse(head: &'a str) -> Option<Self> {
        let mut lines = head.split("\r\n");
        let mut first = lines.next()?.split(' ');
        let (method, target, version) = (first.next()?, first.next()?, first.next()?);
        if !version.starts_with("HTTP/1.") || !target.starts_with('/') || first.next().is_some() {
            return None;
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let header = |line: &'a str| {
            let (name, value) = line.split_once(':')?;
            Some((name, value.trim()))
        };
        let headers = lines.filter(|line| !line.is_empty()).map(header).collect::<Option<Vec<_>>>()?;
        // With two, this and a proxy could each believe another one (RFC 9112, section 3.2).
        let hosts = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("host")).count();
        if hosts > 1 {
            return None;
        }
        Some(Request { method, path, query, headers })
    }

    fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }

    /// Whether the request names this machine as its host. A web page whose own host name resolves
    /// to a loopback address (DNS rebinding) still sends that name.
    pub(super) fn is_for_this_machine(&self) -> bool {
        let Some(host) = self.header("host") else { return false };
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map_or("", |(name, _)| name),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    pub(super) fn bearer(&self) -> Option<&'a str> {
        self.header("authorization")?.strip_prefix("Bearer ")
    }

    /// A decoded query parameter. `None` if it is missing or not UTF-8.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(known, _)| *known == name).and_then(|(_, value)| decode(value))
    }
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[derive(Debug)]
pub(super) struct Answer {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl Answer {
    pub(super) fn new(content_type: &'static str, body: impl Into<String>) -> Self {
        Answer { status: "200 OK", content_type, body: body.into() }
    }

    pub(super) fn error(status: &'static str, message: &str) -> Self {
        Answer { status, content_type: "text/plain; charset=utf-8", body: format!("{message}\n") }
    }

    fn head(&self) -> String {
        format!(
            "HTTP/1.1 {}\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\ncache-control: no-store\r\n\
             x-content-type-options: nosniff\r\ncontent-security-policy: default-src 'none'; script-src 'self'; \
             style-src 'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len()
        )
    }
}

/// A connection whose request has not arrived completely.
#[derive(Debug)]
pub(super) struct Incoming {
    stream: TcpStream,
    head: Vec<u8>,
    deadline: Instant,
}

impl Incoming {
    /// Takes over a connection. Reading from it does not wait.
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Incoming { stream, head: Vec::new(), deadline: Instant::now() + TIME_MAX })
    }

    /// Reads what has arrived, and answers a complete request. Returns whether it still waits.
    pub(super) fn advance(&mut self, answer: impl FnOnce(&Request<'_>) -> Answer) -> bool {
        let answer = match self.read() {
            Ok(None) => return true,
            Ok(Some(head)) => match Request::parse(&head) {
                Some(request) => answer(&request),
                None => Answer::error("400 Bad Request", "not an HTTP/1.1 request with one host"),
            },
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Answer::error(
                "431 Request Header Fields Too Large",
                "the request head is too long or not UTF-8",
            ),
            Err(_) => Answer::error("408 Request Timeout", "timed out reading the request"),
        };
        // A client that disconnects is not an error.
        let deadline = Instant::now() + TIME_MAX;
        let _ = self.stream.set_nonblocking(false);
        let _ = write(&mut self.stream, (answer.head() + &answer.body).as_bytes(), deadline);
        false
    }

    /// Reads up to the empty line; returns the head without it, or `None` if it is not there yet.
    fn read(&mut self) -> io::Result<Option<String>> {
        let mut part = [0; 1024];
        loop {
            if let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") {
                self.head.truncate(end);
                let head = String::from_utf8(std::mem::take(&mut self.head));
                return head.map(Some).map_err(|_| io::ErrorKind::InvalidData.into());
            }
            if self.head.len() > HEAD_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            match self.stream.read(&mut part) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.head.extend_from_slice(&part[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return left(self.deadline).map(|_| None);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn write(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            length => bytes = &bytes[length..],
        }
    }
    Ok(())
}
