//! Processor time is shared by address.

#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use astracer_receiver::Limits;
use astracer_testing::{size, wait_until};

use crate::receive::{JSON, PROTOBUF, from, gzip, proto, receiver, spans};

/// Posts from one of the loopback addresses; returns the status line.
fn post_from(host: u8, to: SocketAddr, headers: &str, body: &[u8]) -> String {
    let mut stream = from(host, to);
    let head = format!("POST /v1/traces HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n", body.len());
    stream.write_all(format!("{head}{headers}\r\n").as_bytes()).expect("sent");
    stream.write_all(body).expect("sent");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer[9..]).into_owned()
}

/// Bodies of a few kilobytes that cost the time of millions of empty members, with their content
/// type: a JSON object; at full size also OTLP requests of empty spans, resources and attributes.
fn costly_bodies() -> Vec<(&'static str, Vec<u8>)> {
    let json = format!("{{{}\"a\":0}}", "\"a\":{},".repeat(size(100_000, 1_900_000) as usize));
    let mut bodies = vec![(JSON, json.into_bytes())];
    if size(0, 1) == 1 {
        // Fields 1 (resource spans, scope spans in them: 2), 2 (spans) and 9 (attributes).
        let field = |number: u8, inner: Vec<u8>| {
            let mut length = vec![number << 3 | 2];
            prost::encode_length_delimiter(inner.len(), &mut length).expect("a vector grows");
            [length, inner].concat()
        };
        let empty = |number: u8| [number << 3 | 2, 0].repeat(7_900_000);
        bodies.push((PROTOBUF, empty(1)));
        bodies.push((PROTOBUF, field(1, field(2, empty(2)))));
        bodies.push((PROTOBUF, field(1, field(2, field(2, empty(9))))));
    }
    bodies
}

/// A hundred connections of one address send costly bodies. Another address has its answer while
/// the first ones are decoded.
#[test]
fn costly_bodies_of_one_address_do_not_delay_another() {
    for (kind, body) in costly_bodies() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let receiver = receiver(folder.path(), Limits::default(), 1 << 30);
        let address = receiver.addresses()[0];
        let (costly, good) = (Arc::new(gzip(&body)), proto(&spans(1)));
        assert!(costly.len() < 100_000);
        let done = Arc::new(AtomicUsize::new(0));
        let hostile: Vec<_> = (0..100)
            .map(|_| {
                let (costly, done) = (Arc::clone(&costly), Arc::clone(&done));
                std::thread::spawn(move || {
                    let headers = format!("{kind}content-encoding: gzip\r\n");
                    post_from(2, address, &headers, &costly);
                    done.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        wait_until("a costly body is decoded", || done.load(Ordering::SeqCst) > 0);
        let (before, began) = (done.load(Ordering::SeqCst), Instant::now());
        assert_eq!(post_from(3, address, PROTOBUF, &good), "200");
        let (took, meanwhile) = (began.elapsed(), done.load(Ordering::SeqCst) - before);
        // Counted in requests, so that a busy machine changes nothing.
        assert!(meanwhile < 30, "{meanwhile} costly requests came first, in {took:?}");
        // The promise, where each costly body takes more than half a second.
        assert!(size(0, 1) == 0 || took < Duration::from_secs(1), "{kind}: {took:?}");
        for hostile in hostile {
            hostile.join().expect("no panic");
        }
    }
}
