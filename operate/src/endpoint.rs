//! A local HTTP endpoint for people: counts as JSON, a page that draws them, and explanations of
//! single decisions.
//!
//! Off unless [`Operate::serve`](crate::Operate::serve) is called. It listens on a loopback address
//! only, and is read-only unless a token is set. It serves one connection at a time, each for at
//! most two seconds and eight kilobytes, and computes its counts at most ten times a second. Its
//! thread makes no spans.

mod http;
mod json;
mod part;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use astracer_sdk::{Handle, Override};
use opentelemetry::{Context, TraceId};

use self::http::{Answer, Incoming, Request};
pub use self::part::Part;

/// The age at which counts are computed again.
const FRESH: Duration = Duration::from_millis(100);
/// The longest time for which an override may be set here.
const OVERRIDE_MAX: Duration = Duration::from_secs(24 * 3_600);

const PAGE: &str = include_str!("endpoint/page.html");
const SCRIPT: &str = include_str!("endpoint/page.js");
/// The styles of all pages, a copy of those of the crate `report`, and the page's own.
const STYLE: &str = concat!(include_str!("endpoint/shared.css"), include_str!("endpoint/page.css"));

/// A running endpoint; dropping it stops the endpoint.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The connections that may be under way at once.
const INCOMING_MAX: usize = 64;
/// The time between two looks at connections that are under way.
const PAUSE: Duration = Duration::from_millis(2);

impl Endpoint {
    /// The address that the endpoint listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the thread, which waits for a connection.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn serve(
    handle: &Handle,
    address: SocketAddr,
    token: Option<String>,
    parts: Vec<Part>,
) -> io::Result<Endpoint> {
    let refused = |message: String| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    if !address.ip().is_loopback() {
        return refused(format!("{address} is not a loopback address; use for example 127.0.0.1:9464"));
    }
    if token.as_deref() == Some("") {
        return refused("the token is empty; pass None for a read-only endpoint".to_owned());
    }
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let is_over = Arc::new(AtomicBool::new(false));
    let server = Server { handle: handle.clone(), token, parts, stats: None, is_over: Arc::clone(&is_over) };
    let thread = std::thread::Builder::new().name("astracer-http".to_owned());
    let thread = Some(thread.spawn(move || server.run(&listener))?);
    Ok(Endpoint { address, is_over, thread })
}

struct Server {
    handle: Handle,
    token: Option<String>,
    parts: Vec<Part>,
    /// The last counts, and the time at which they were computed.
    stats: Option<(Instant, String)>,
    is_over: Arc<AtomicBool>,
}

impl Server {
    fn run(mut self, listener: &TcpListener) {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        let mut incoming: Vec<Incoming> = Vec::new();
        while !self.is_over.load(Ordering::Acquire) {
            // Waits for a connection unless another one is under way.
            let _ = listener.set_nonblocking(!incoming.is_empty());
            match listener.accept() {
                Ok((stream, _)) => {
                    if incoming.len() == INCOMING_MAX {
                        // The oldest has had the most time.
                        incoming.remove(0);
                    }
                    incoming.extend(Incoming::new(stream));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
                // For example out of file descriptors. Pause, so that a failing `accept` does not
                // spin.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
            incoming.retain_mut(|one| one.advance(|request| self.answer(request)));
        }
    }

    fn answer(&mut self, request: &Request<'_>) -> Answer {
        if !request.is_for_this_machine() {
            return Answer::error("403 Forbidden", "this endpoint answers requests for localhost only");
        }
        match (request.method, request.path) {
            ("GET", "/") => Answer::new("text/html; charset=utf-8", PAGE),
            ("GET", "/page.js") => Answer::new("text/javascript; charset=utf-8", SCRIPT),
            ("GET", "/page.css") => Answer::new("text/css; charset=utf-8", STYLE),
            ("GET", "/stats") => Answer::new("application/json", self.stats()),
            ("GET", path) if path.starts_with("/why/") => self.why(&path["/why/".len()..]),
            ("GET", "/parts") => Answer::new("application/json", self.parts()),
            ("POST", "/override") => self.set_override(request),
            ("GET" | "POST", _) => self.part(request).unwrap_or_else(|| {
                Answer::error(
                    "404 Not Found",
                    "unknown path; use /, /stats, /parts, /why/TRACE_ID or /override",
                )
            }),
            _ => Answer::error("405 Method Not Allowed", "use GET, or POST for /override"),
        }
    }

    fn stats(&mut self) -> &str {
        if self.stats.as_ref().is_none_or(|(at, _)| at.elapsed() >= FRESH) {
            self.stats = Some((Instant::now(), json::stats(&self.handle)));
        }
        self.stats.as_ref().map_or("", |(_, stats)| stats)
    }

    /// The answer of another part; `None` if none has this path.
    fn part(&mut self, request: &Request<'_>) -> Option<Answer> {
        let path = request.path.strip_prefix('/').filter(|_| request.method == "GET")?;
        let part = self.parts.iter_mut().find(|part| part.path == path)?;
        Some(match (part.answer)(&|name| request.parameter(name)) {
            Ok(json) => Answer::new("application/json", json),
            Err(message) => Answer::error("400 Bad Request", &message),
        })
    }

    /// The paths and titles of other parts.
    fn parts(&self) -> String {
        let parts =
            self.parts.iter().map(|part| serde_json::json!({ "path": part.path, "title": part.title }));
        serde_json::Value::Array(parts.collect()).to_string()
    }

    fn why(&self, trace_id: &str) -> Answer {
        match TraceId::from_hex(trace_id) {
            Err(_) => Answer::error("400 Bad Request", "not a trace id: use 32 hexadecimal digits"),
            Ok(trace_id) => match self.handle.why(trace_id) {
                Some(explanation) => Answer::new("application/json", json::why(&explanation)),
                None => Answer::error("404 Not Found", "this trace is not among the remembered decisions"),
            },
        }
    }

    fn set_override(&self, request: &Request<'_>) -> Answer {
        let Some(token) = &self.token else {
            return Answer::error("403 Forbidden", "this endpoint is read-only: no token was set");
        };
        if !request.bearer().is_some_and(|given| same(given.as_bytes(), token.as_bytes())) {
            return Answer::error("401 Unauthorized", "the token is missing or wrong");
        }
        let (Some(key), Some(seconds)) = (request.parameter("key"), request.parameter("seconds")) else {
            return Answer::error("400 Bad Request", "an override needs key and seconds");
        };
        let share = request.parameter("keep").unwrap_or_else(|| "1".to_owned());
        let share = share.parse().ok().and_then(astracer_samplers::Probability::new);
        let (Ok(seconds), Some(share)) = (seconds.parse::<u32>(), share) else {
            return Answer::error(
                "400 Bad Request",
                "seconds must be a whole number, and keep a share from 0 to 1",
            );
        };
        let time = Duration::from_secs(u64::from(seconds)).min(OVERRIDE_MAX);
        if time.is_zero() {
            self.handle.end_override(&key);
        } else if let Err(error) = self.handle.override_key(&key, Override::Ratio(share), time) {
            return Answer::error("409 Conflict", &error.to_string());
        }
        Answer::new("application/json", "{}")
    }
}

/// Compares in a time that depends only on the lengths.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
