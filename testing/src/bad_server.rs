//! A server for OTLP and Zipkin over HTTP/1.1 and gRPC that behaves badly on demand. Tests of
//! exporters use it, and so does `astracer drill`.

mod http1;
mod http2;

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::listening::{Listening, listen};

/// The server's reaction to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// The request is passed on, and its answer returned.
    Takes,
    /// Takes plain requests of at most this many bytes; others get this answer, in HTTP/1.1.
    Limited(usize, &'static str),
    /// The listener is closed, and connections are reset.
    Stopped,
    /// This status, with `Retry-After` in seconds if given.
    Busy(u16, Option<u64>),
    /// No response.
    Hangs,
    /// The request is passed on. The response comes in single bytes, 5 ms apart.
    Slow,
    /// The request is passed on. The response comes after this many milliseconds.
    Late(u64),
    /// The connection is closed before the response, and the request is not passed on.
    Resets,
    /// A response in another protocol.
    Garbage,
    /// A login page with the status of a success.
    Page,
    /// The request is passed on, and the server closes its half of the connection before the
    /// response.
    HalfClosed,
    /// HTTP/2's GOAWAY, after which the connection is closed. The request is not passed on. Over
    /// HTTP/1.1 the connection is closed.
    GoesAway,
    /// The server has ended for good.
    Ended,
}

impl Behaviour {
    /// True if requests are passed on.
    fn takes(self) -> bool {
        matches!(self, Self::Takes | Self::Slow | Self::Late(_) | Self::HalfClosed)
    }
}

/// The answer of the callback that takes the requests: a status of HTTP, and the body of a success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// 200, or the status of a refusal.
    pub status: u16,
    /// The response in protobuf, if `status` is 200.
    pub body: Vec<u8>,
}

impl Reply {
    /// A response with this status and without a body.
    pub fn status(status: u16) -> Self {
        Reply { status, body: Vec::new() }
    }
}

/// Takes the body of a request. It is called from several threads.
type Take = dyn Fn(&[u8]) -> Reply + Send + Sync;

/// A server on a free port of 127.0.0.1. It serves until its behaviour is [`Behaviour::Ended`].
#[derive(Clone)]
pub struct BadServer {
    address: SocketAddr,
    behaviour: Arc<Mutex<Behaviour>>,
    requests: Arc<AtomicUsize>,
    take: Arc<Take>,
}

impl BadServer {
    /// Starts the server. `take` gets the bodies of requests that are passed on: over gRPC the
    /// message. Compressed ones are passed on as they are.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub fn start(behaviour: Behaviour, take: impl Fn(&[u8]) -> Reply + Send + Sync + 'static) -> Self {
        let listening = |server: &Self| match server.behaviour() {
            Behaviour::Ended => Listening::Over,
            Behaviour::Stopped => Listening::Closed,
            _ => Listening::Open,
        };
        let make = |address| BadServer {
            address,
            behaviour: Arc::new(Mutex::new(behaviour)),
            requests: Arc::default(),
            take: Arc::new(take),
        };
        listen(make, listening, Self::serve)
    }

    /// Changes the reaction to requests from now on.
    pub fn set(&self, behaviour: Behaviour) {
        *self.lock() = behaviour;
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of requests so far, whatever became of them.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn behaviour(&self) -> Behaviour {
        *self.lock()
    }

    /// True if connections end now.
    fn is_closed(&self) -> bool {
        matches!(self.behaviour(), Behaviour::Stopped | Behaviour::Ended)
    }

    fn serve(&self, stream: TcpStream) -> Option<()> {
        // The read timeout lets a stopped server end its connections.
        stream.set_read_timeout(Some(Duration::from_millis(5))).ok()?;
        stream.set_nodelay(true).ok()?;
        let mut input = Input { server: self, stream, bytes: Vec::new() };
        input.fill(http2::PREFACE.len())?;
        if input.bytes.starts_with(http2::PREFACE) { http2::serve(input) } else { http1::serve(input) }
    }

    /// Waits for as long as the server hangs.
    fn hang(&self) {
        while self.behaviour() == Behaviour::Hangs {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The bytes of a connection that were read.
struct Input<'s> {
    server: &'s BadServer,
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Input<'_> {
    /// Reads until there are this many bytes; `None` if the connection ends before.
    fn fill(&mut self, length: usize) -> Option<()> {
        while self.bytes.len() < length {
            self.more()?;
        }
        Some(())
    }

    /// Reads something; `None` if the connection ends.
    fn more(&mut self) -> Option<()> {
        use std::io::Read as _;

        let mut part = [0; 16 << 10];
        loop {
            if self.server.is_closed() {
                return None;
            }
            match self.stream.read(&mut part) {
                Ok(0) => return None,
                Ok(read) => {
                    self.bytes.extend_from_slice(&part[..read]);
                    return Some(());
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }
}
