//! The backend: accepts OTLP over HTTP, counts spans, and closes and reopens its port on command.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use astracer_benches::http;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;

#[derive(Default)]
struct State {
    spans: AtomicU64,
    is_away: AtomicBool,
}

pub(crate) fn run() {
    let state = Arc::new(State::default());
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    println!("{address}");
    std::thread::spawn({
        let state = Arc::clone(&state);
        move || accept(listener, &state)
    });
    for line in std::io::stdin().lines() {
        match line.expect("readable").as_str() {
            "down" => state.is_away.store(true, Ordering::SeqCst),
            "up" => state.is_away.store(false, Ordering::SeqCst),
            _ => println!("{}", state.spans.load(Ordering::SeqCst)),
        }
    }
}

fn accept(listener: TcpListener, state: &Arc<State>) {
    let address = listener.local_addr().expect("an address");
    let mut listener = Some(listener);
    loop {
        if state.is_away.load(Ordering::SeqCst) {
            listener = None;
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        let listening = listener.get_or_insert_with(|| TcpListener::bind(address).expect("the port"));
        listening.set_nonblocking(true).expect("a socket");
        match listening.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).expect("a socket");
                let state = Arc::clone(state);
                std::thread::spawn(move || serve(stream, &state));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Responds to each request of a connection, until the sink goes away.
fn serve(stream: TcpStream, state: &State) -> Option<()> {
    let mut stream = http::reader(stream);
    let mut body = Vec::new();
    loop {
        http::read_body(&mut stream, &mut body)?;
        if state.is_away.load(Ordering::SeqCst) {
            return None;
        }
        let request = ExportTraceServiceRequest::decode(&body[..]).ok()?;
        let scopes = request.resource_spans.iter().flat_map(|unit| &unit.scope_spans);
        let spans: usize = scopes.map(|scope| scope.spans.len()).sum();
        // Counted before the response: a client that has its response may read the count at once.
        state.spans.fetch_add(spans as u64, Ordering::SeqCst);
        stream.get_mut().write_all(http::OK).ok()?;
    }
}
