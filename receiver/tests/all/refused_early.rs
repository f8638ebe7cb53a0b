//! Requests that are rejected before their bodies have arrived.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use astracer_receiver::Limits;

use crate::receive::{JSON, receiver};

/// A sender that writes everything before it reads must see why it is rejected. When the connection
/// was closed during the body, the response was lost, and the sender repeated the same request
/// until it gave up.
#[test]
fn a_large_request_that_is_refused_early_gets_its_answer() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default().with_message_bytes(10_000), 1 << 30);
    let address = receiver.addresses()[0];
    let body = vec![b' '; 20_000_000];
    let announced = format!("content-length: {}\r\n", body.len());
    let (path, text) = ("/v1/traces", "content-type: text/plain\r\n");
    for (method, path, headers, status) in [
        ("POST", path, JSON, 413),
        ("POST", path, text, 415),
        ("POST", "/v1/metrics", JSON, 404),
        ("PUT", path, JSON, 405),
    ] {
        let mut stream = TcpStream::connect(address).expect("the receiver listens");
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}");
        write!(stream, "{head}{announced}\r\n").expect("sent");
        stream.write_all(&body).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        // A sender that uses `Expect: 100-continue` gets the response first.
        let mut stream = TcpStream::connect(address).expect("the receiver listens");
        write!(stream, "{head}{announced}expect: 100-continue\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        // And a body without an announced length.
        let mut stream = TcpStream::connect(address).expect("the receiver listens");
        write!(stream, "{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n", body.len()).expect("sent");
        stream.write_all(&body).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        stream.write_all(b"\r\n0\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    receiver.stop().expect("the files can be completed");
}
