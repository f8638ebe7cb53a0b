//! An HTTP/1.1 server on the loopback device that returns given answers and records requests.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The number of its connection, counted from 0.
    pub(crate) connection: usize,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// An answer: its status, headers and body.
pub(crate) struct Answer(
    pub(crate) u16,
    pub(crate) &'static [(&'static str, &'static str)],
    pub(crate) Vec<u8>,
);

/// A header that is never sent: the connection is closed after the response, without notice.
pub(crate) const HANG_UP: (&str, &str) = ("hang", "up");

impl Answer {
    pub(crate) fn status(status: u16) -> Self {
        Answer(status, &[], Vec::new())
    }
}

#[derive(Default)]
struct State {
    answers: VecDeque<Answer>,
    requests: Vec<Request>,
}

/// A server that lives as long as the test process.
pub(crate) struct Sink {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// A connection, plain or over TLS.
pub(crate) trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

impl Sink {
    /// Returns these answers, one after the other, and then 200.
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::over(answers, |stream| Box::new(stream))
    }

    /// The same, over connections that are wrapped by `wrap`.
    pub(crate) fn over(
        answers: impl IntoIterator<Item = Answer>,
        wrap: impl Fn(TcpStream) -> Box<dyn Stream> + Send + 'static,
    ) -> Self {
        let state =
            Arc::new(Mutex::new(State { answers: answers.into_iter().collect(), requests: Vec::new() }));
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let (stream, shared) = (wrap(stream.unwrap()), Arc::clone(&shared));
                thread::spawn(move || serve(stream, connection, &shared));
            }
        });
        Sink { address, state }
    }

    pub(crate) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://localhost:{}", self.address.port())
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.state.lock().unwrap().requests.clone()
    }
}

/// Serves a connection until it ends or breaks.
fn serve(stream: Box<dyn Stream>, connection: usize, state: &Mutex<State>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream, connection) {
        let answer = {
            let mut state = state.lock().unwrap();
            state.requests.push(request);
            state.answers.pop_front().unwrap_or(Answer::status(200))
        };
        let Answer(status, headers, body) = answer;
        let mut text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers.iter().filter(|header| **header != HANG_UP) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        let out = stream.get_mut();
        let written =
            out.write_all(text.as_bytes()).and_then(|()| out.write_all(&body)).and_then(|()| out.flush());
        if written.is_err() || headers.contains(&HANG_UP) {
            return;
        }
    }
}

fn read(stream: &mut BufReader<Box<dyn Stream>>, connection: usize) -> Option<Request> {
    let mut line = String::new();
    if stream.read_line(&mut line).ok()? == 0 {
        return None;
    }
    if !line.trim_end().ends_with("HTTP/1.1") {
        // The client spoke another protocol; servers respond to that with an error.
        let _ = stream
            .get_mut()
            .write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        return None;
    }
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut request = Request { line: line.trim_end().to_owned(), headers, body: Vec::new(), connection };
    let length = request.header("content-length")?.parse().ok()?;
    request.body = vec![0; length];
    stream.read_exact(&mut request.body).ok()?;
    Some(request)
}
