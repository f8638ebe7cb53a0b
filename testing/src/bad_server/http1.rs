//! HTTP/1.1, as far as exporters use it.

use std::io::Write as _;
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::{Behaviour, Input};

/// Serves requests until the connection ends.
pub(super) fn serve(mut input: Input<'_>) -> Option<()> {
    loop {
        let (end, length, is_plain) = loop {
            if let Some(end) = input.bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&input.bytes[..end]).to_ascii_lowercase();
                let length =
                    head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                break (end + 4, length?, !head.contains("\r\ncontent-encoding: "));
            }
            input.more()?;
        };
        let length: usize = length;
        input.fill(end + length)?;
        let body: Vec<u8> = input.bytes.drain(..end + length).skip(end).collect();
        answer(&mut input, &body, is_plain)?;
    }
}

/// Answers a request; `None` if the connection ends.
fn answer(input: &mut Input<'_>, body: &[u8], is_plain: bool) -> Option<()> {
    let (server, stream) = (input.server, &mut input.stream);
    server.requests.fetch_add(1, Ordering::SeqCst);
    let mut behaviour = server.behaviour();
    if let Behaviour::Limited(bytes_max, answer) = behaviour {
        if !is_plain || body.len() > bytes_max {
            return stream.write_all(answer.as_bytes()).ok();
        }
        behaviour = Behaviour::Takes;
    }
    let reply = behaviour.takes().then(|| (server.take)(body));
    let response = reply.map(|reply| {
        let head = format!(
            "HTTP/1.1 {} X\r\ncontent-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n",
            reply.status,
            reply.body.len()
        );
        [head.as_bytes(), &reply.body].concat()
    });
    match (behaviour, response) {
        (Behaviour::Takes, Some(response)) => stream.write_all(&response).ok(),
        (Behaviour::Late(delay), Some(response)) => {
            thread::sleep(Duration::from_millis(delay));
            stream.write_all(&response).ok()
        }
        (Behaviour::Slow, Some(response)) => {
            for byte in response {
                stream.write_all(&[byte]).ok()?;
                thread::sleep(Duration::from_millis(5));
            }
            Some(())
        }
        (Behaviour::HalfClosed, _) => {
            stream.shutdown(Shutdown::Write).ok()?;
            None
        }
        (Behaviour::Busy(status, after), _) => {
            let after = after.map_or(String::new(), |after| format!("retry-after: {after}\r\n"));
            write!(stream, "HTTP/1.1 {status} X\r\n{after}content-length: 0\r\n\r\n").ok()
        }
        (Behaviour::Page, _) => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\n";
            write!(stream, "{head}content-length: 6\r\n\r\n<html>").ok()
        }
        (Behaviour::Hangs, _) => {
            server.hang();
            None
        }
        (Behaviour::Garbage, _) => {
            stream.write_all(b"\x16\x03\x01\0 220 mail.example.org ESMTP\r\n\r\n").ok()?;
            None
        }
        _ => None,
    }
}
