//! An HTTP/1.1 server on the loopback device that returns given answers and records requests.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A received request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The request line, such as `POST /v1/traces HTTP/1.1`.
    pub line: String,
    /// Names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body, as sent.
    pub body: Vec<u8>,
    /// The number of its connection, counted from 0.
    pub connection: usize,
}

impl Request {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// An answer to one request.
#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    hangs_up: bool,
    is_raw: bool,
}

impl Answer {
    /// An empty body with this status.
    pub fn status(status: u16) -> Self {
        Answer { status, headers: Vec::new(), body: Vec::new(), hangs_up: false, is_raw: false }
    }

    /// Sends these bytes as they are, whatever they are, and closes the connection.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Answer { body: bytes.into(), hangs_up: true, is_raw: true, ..Answer::status(0) }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Replaces the body.
    #[must_use]
    pub fn with_body(self, body: impl Into<Vec<u8>>) -> Self {
        Answer { body: body.into(), ..self }
    }

    /// Closes the connection after this answer without announcing it, as a server does whose idle
    /// timeout has just expired.
    #[must_use]
    pub fn hanging_up(self) -> Self {
        Answer { hangs_up: true, ..self }
    }
}

struct State {
    answers: VecDeque<Answer>,
    /// The answer when no other is left.
    last: Answer,
    requests: Vec<Request>,
}

/// A server that lives as long as the test process.
#[derive(Clone)]
pub struct Server {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// A connection, plain or over TLS.
pub trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

impl Server {
    /// Returns these answers, one after the other, and then 200.
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::over(answers, |stream| Box::new(stream))
    }

    /// The same, over connections that are wrapped by `wrap`.
    pub fn over(
        answers: impl IntoIterator<Item = Answer>,
        wrap: impl Fn(TcpStream) -> Box<dyn Stream> + Send + 'static,
    ) -> Self {
        let (answers, last) = (answers.into_iter().collect(), Answer::status(200));
        let state = Arc::new(Mutex::new(State { answers, last, requests: Vec::new() }));
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let (stream, shared) = (wrap(stream.unwrap()), Arc::clone(&shared));
                thread::spawn(move || serve(stream, connection, &shared));
            }
        });
        Server { address, state }
    }

    /// Returns this answer instead of 200 once there are no others.
    #[must_use]
    pub fn then(self, answer: Answer) -> Self {
        self.answers(answer);
        self
    }

    /// Repeats this answer after all others were given.
    pub fn answers(&self, answer: Answer) {
        self.state.lock().unwrap().last = answer;
    }

    /// Its address as a URL, such as `http://localhost:40123`.
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://localhost:{}", self.address.port())
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Appends an answer to those that wait for a request.
    pub fn push(&self, answer: Answer) {
        self.state.lock().unwrap().answers.push_back(answer);
    }

    /// Requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.state.lock().unwrap().requests.clone()
    }

    /// The request of this number, counted from 0.
    ///
    /// # Panics
    ///
    /// If it does not arrive within a minute.
    pub fn request(&self, number: usize) -> Request {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(request) = self.state.lock().unwrap().requests.get(number) {
                return request.clone();
            }
            assert!(Instant::now() < end, "no request {number} within a minute");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Serves a connection until it ends or breaks.
fn serve(stream: Box<dyn Stream>, connection: usize, state: &Mutex<State>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream, connection) {
        let answer = {
            let mut state = state.lock().unwrap();
            state.requests.push(request);
            state.answers.pop_front().unwrap_or_else(|| state.last.clone())
        };
        let Answer { status, headers, body, hangs_up, is_raw } = answer;
        let mut text = String::new();
        if !is_raw {
            text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
            for (name, value) in headers {
                text.push_str(&format!("{name}: {value}\r\n"));
            }
            text.push_str("\r\n");
        }
        let out = stream.get_mut();
        let written =
            out.write_all(text.as_bytes()).and_then(|()| out.write_all(&body)).and_then(|()| out.flush());
        if written.is_err() || hangs_up {
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
    let length = request.header("content-length").map_or(Ok(0), str::parse).ok()?;
    request.body = vec![0; length];
    stream.read_exact(&mut request.body).ok()?;
    Some(request)
}
