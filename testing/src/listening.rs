//! A listener that can be closed and opened again at the same address.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// The state of a listener.
pub enum Listening {
    /// Connections are accepted.
    Open,
    /// Connections are refused.
    Closed,
    /// It has ended for good.
    Over,
}

/// Binds a free port, and passes each connection to `serve` on a thread of its own until `state`
/// says that it is over.
///
/// # Panics
///
/// If no port is free.
pub fn listen<S: Clone + Send + 'static>(
    make: impl FnOnce(SocketAddr) -> S,
    state: impl Fn(&S) -> Listening + Send + 'static,
    serve: fn(&S, TcpStream) -> Option<()>,
) -> S {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let server = make(address);
    let own = server.clone();
    thread::spawn(move || {
        listener.set_nonblocking(true).unwrap();
        let mut listener = Some(listener);
        loop {
            match state(&own) {
                Listening::Over => return,
                Listening::Closed => listener = None,
                Listening::Open if listener.is_none() => {
                    let again = TcpListener::bind(address).unwrap();
                    again.set_nonblocking(true).unwrap();
                    listener = Some(again);
                }
                Listening::Open => {}
            }
            match listener.as_ref().map(TcpListener::accept) {
                Some(Ok((stream, _))) => {
                    stream.set_nonblocking(false).unwrap();
                    let own = own.clone();
                    thread::spawn(move || serve(&own, stream));
                }
                // The state may change, so accepting must not block.
                _ => thread::sleep(Duration::from_millis(1)),
            }
        }
    });
    server
}
