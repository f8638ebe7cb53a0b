//! Senders over TLS, with and without certificates of their own.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use astracer_exporters::{Destination as _, ErrorKind, Files, Otlp, Protocol, Retry};
use astracer_receiver::{Limits, Receiver, Recording, Tls};
use astracer_testing::{Authority, Identity, wait_until};

use super::receive::spans;

#[test]
fn senders_need_the_certificate_that_is_asked_for() {
    let authority = Authority::default();
    let (own, sender, stranger) =
        (authority.issue("localhost"), authority.issue("sender"), Identity::self_signed("sender", false));
    for asks in [false, true] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let files = Files::builder(folder.path()).open().expect("a writable folder");
        let clients = authority.pem();
        let tls =
            Tls::new(own.pem().as_bytes(), own.key_pem().as_bytes(), asks.then_some(clients.as_bytes()));
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let limits = Limits::default().with_arrival_timeout(Duration::from_secs(20));
        let recording = Recording::from(files).with_tls(tls.expect("they fit together"));
        let receiver = Receiver::start(&[any], limits, recording).expect("a free port");
        let port = receiver.addresses()[0].port();
        let mut sent = 0;
        for protocol in [Protocol::Grpc, Protocol::HttpProtobuf] {
            for identity in [None, Some(&sender), Some(&stranger)] {
                let otlp = Otlp::builder().with_endpoint(format!("https://localhost:{port}"));
                let otlp = otlp.with_protocol(protocol).with_root_certificates(authority.pem());
                let otlp = match identity {
                    None => otlp,
                    Some(own) => otlp.with_client_certificate(own.pem(), own.key_pem()),
                };
                let otlp = otlp.with_retry(Retry::NEVER).build().expect("valid settings");
                let found = otlp.send(&spans(1)).map(|delivery| delivery.accepted);
                let is_known = identity.is_some_and(|identity| std::ptr::eq(identity, &sender));
                match found {
                    Ok(accepted) => {
                        assert!(!asks || is_known, "{protocol:?}");
                        sent += accepted;
                    }
                    Err(error) => {
                        assert!(asks && !is_known, "{protocol:?} {error}");
                        assert_eq!(error.kind(), ErrorKind::ClientCertificate, "{protocol:?} {error}");
                    }
                }
            }
        }
        assert_eq!(sent, if asks { 2 } else { 6 });
        // One that does not speak TLS.
        let mut plain = TcpStream::connect(receiver.addresses()[0]).expect("the receiver listens");
        plain.write_all(b"POST /v1/traces HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("sent");
        // A client may try again by itself.
        let failed = if asks { 5 } else { 1 };
        wait_until("the handshakes have failed", || receiver.received().failed_handshakes >= failed);
        assert_eq!(receiver.stop().expect("the files can be completed").spans, sent);
    }
}
