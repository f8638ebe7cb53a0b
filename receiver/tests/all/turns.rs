//! Processor time is shared by address.

#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

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

/// A hundred connections of one address send bodies of a few kilobytes that cost the time of
/// millions of empty members. Another address has its answer while the first ones are decoded.
#[test]
fn costly_bodies_of_one_address_do_not_delay_another() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default(), 1 << 30);
    let address = receiver.addresses()[0];
    let members = format!("{{{}\"a\":0}}", "\"a\":{},".repeat(size(100_000, 2_000_000) as usize));
    let (costly, good) = (Arc::new(gzip(members.as_bytes())), proto(&spans(1)));
    assert!(costly.len() < 100_000);
    let done = Arc::new(AtomicUsize::new(0));
    let hostile: Vec<_> = (0..100)
        .map(|_| {
            let (costly, done) = (Arc::clone(&costly), Arc::clone(&done));
            std::thread::spawn(move || {
                let headers = format!("{JSON}content-encoding: gzip\r\n");
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
    for hostile in hostile {
        hostile.join().expect("no panic");
    }
}
