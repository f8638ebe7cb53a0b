//! gRPC over HTTP/2 (RFC 9113), as far as one unary method needs it. Heads of requests are not
//! read: every request is one of the only method. Windows are so large that none is ever used up.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::{Behaviour, Input, Reply};

/// The first bytes of a client (section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// A flag of DATA and HEADERS.
const END_STREAM: u8 = 1;
/// A flag of SETTINGS and PING.
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

const HEAD_BYTES: usize = 9;
/// The greatest window (section 6.9.1).
const WINDOW_MAX: u32 = (1 << 31) - 1;
/// The window at the beginning (section 6.9.2).
const WINDOW: u32 = 65_535;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A header that is not indexed, by an index of the static table or a name (RFC 7541, 6.2.2).
fn header(out: &mut Vec<u8>, name: Result<u8, &str>, value: &str) {
    match name {
        // The static table's first 14 rows fit in the prefix.
        Ok(index) => out.push(index),
        Err(name) => {
            out.extend([0, name.len() as u8]);
            out.extend(name.as_bytes());
        }
    }
    out.push(value.len() as u8);
    out.extend(value.as_bytes());
}

/// The index of `:status`.
const STATUS: Result<u8, &str> = Ok(8);

/// A response to a unary call: with HTTP's status, as a proxy answers, or with a message.
fn response(stream: u32, reply: &Reply, retry_after: Option<u64>) -> Vec<u8> {
    let mut head = Vec::new();
    header(&mut head, STATUS, &reply.status.to_string());
    if reply.status != 200 {
        if let Some(after) = retry_after {
            header(&mut head, Err("retry-after"), &after.to_string());
        }
        return frame(HEADERS, END_HEADERS | END_STREAM, stream, &head);
    }
    header(&mut head, Err("content-type"), "application/grpc");
    let mut message = vec![0];
    message.extend((reply.body.len() as u32).to_be_bytes());
    message.extend(&reply.body);
    let mut trailers = Vec::new();
    header(&mut trailers, Err("grpc-status"), "0");
    [
        frame(HEADERS, END_HEADERS, stream, &head),
        frame(DATA, 0, stream, &message),
        frame(HEADERS, END_HEADERS | END_STREAM, stream, &trailers),
    ]
    .concat()
}

/// Serves calls until the connection ends.
pub(super) fn serve(mut input: Input<'_>) -> Option<()> {
    input.bytes.drain(..PREFACE.len());
    // SETTINGS_INITIAL_WINDOW_SIZE.
    let window = [&[0, 4][..], &WINDOW_MAX.to_be_bytes()].concat();
    let more = (WINDOW_MAX - WINDOW).to_be_bytes();
    let greeting = [frame(SETTINGS, 0, 0, &window), frame(WINDOW_UPDATE, 0, 0, &more)].concat();
    input.stream.write_all(&greeting).ok()?;
    let mut bodies: HashMap<u32, Vec<u8>> = HashMap::new();
    loop {
        input.fill(HEAD_BYTES)?;
        let head: Vec<u8> = input.bytes.drain(..HEAD_BYTES).collect();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        input.fill(length)?;
        let mut payload: Vec<u8> = input.bytes.drain(..length).collect();
        match kind {
            SETTINGS if flags & ACK == 0 => input.stream.write_all(&frame(SETTINGS, ACK, 0, &[])).ok()?,
            PING if flags & ACK == 0 => input.stream.write_all(&frame(PING, ACK, 0, &payload)).ok()?,
            GOAWAY => return None,
            DATA | HEADERS => {
                if kind == DATA {
                    if flags & PADDED != 0 {
                        let padding = usize::from(*payload.first()?);
                        payload.truncate(payload.len().checked_sub(padding)?);
                        payload.remove(0);
                    }
                    bodies.entry(stream).or_default().extend(payload);
                }
                if flags & END_STREAM != 0 {
                    let body = bodies.remove(&stream).unwrap_or_default();
                    // Behind the flag of compression and the length.
                    answer(&mut input, stream, body.get(5..).unwrap_or_default())?;
                }
            }
            _ => {}
        }
    }
}

/// Answers a call; `None` if the connection ends.
fn answer(input: &mut Input<'_>, stream: u32, message: &[u8]) -> Option<()> {
    let (server, out) = (input.server, &mut input.stream);
    server.requests.fetch_add(1, Ordering::SeqCst);
    let behaviour = server.behaviour();
    let reply = behaviour.takes().then(|| response(stream, &(server.take)(message), None));
    match (behaviour, reply) {
        (Behaviour::Takes, Some(reply)) => out.write_all(&reply).ok(),
        (Behaviour::Late(delay), Some(reply)) => {
            thread::sleep(Duration::from_millis(delay));
            out.write_all(&reply).ok()
        }
        (Behaviour::Slow, Some(reply)) => {
            for byte in reply {
                out.write_all(&[byte]).ok()?;
                thread::sleep(Duration::from_millis(5));
            }
            Some(())
        }
        (Behaviour::Busy(status, after), _) => {
            out.write_all(&response(stream, &Reply::status(status), after)).ok()
        }
        (Behaviour::GoesAway, _) => {
            // No stream was or will be processed, without an error (section 6.8).
            out.write_all(&frame(GOAWAY, 0, 0, &[0; 8])).ok()?;
            out.shutdown(Shutdown::Write).ok()?;
            None
        }
        (Behaviour::Hangs, _) => {
            server.hang();
            None
        }
        (Behaviour::Garbage, _) => {
            out.write_all(b"220 mail.example.org ESMTP\r\n").ok()?;
            None
        }
        _ => None,
    }
}
