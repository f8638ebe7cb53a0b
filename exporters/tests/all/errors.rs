//! Provokes each error with a small server on the loopback device, and checks its kind and remedy.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use astracer_exporters::{Destination, ErrorKind, ExportError, Otlp, OtlpBuilder, Protocol, Retry, spans};
use astracer_model::span::Resource;
use astracer_testing::{Answer, Authority, Identity, Server, https};
use tonic::transport::{Certificate, ServerTlsConfig};

use super::otlp_grpc::GrpcSink;
use super::sample;

const HTTP: Protocol = Protocol::HttpProtobuf;
const GRPC: Protocol = Protocol::Grpc;

fn otlp(protocol: Protocol, endpoint: impl Into<String>) -> OtlpBuilder {
    Otlp::builder()
        .with_protocol(protocol)
        .with_endpoint(endpoint)
        .with_retry(Retry::NEVER)
        .with_timeout(Duration::from_secs(20))
}

/// Sends three spans, which are all lost, and returns the error.
fn error(destination: &dyn Destination) -> ExportError {
    let batch = [1, 2, 3].map(|number| sample::plain(1, number));
    let error = destination.send(&spans(&batch, &Arc::new(Resource::service("a")))).unwrap_err();
    let counts = destination.counter().read();
    assert_eq!((counts.lost.of(error.kind()), counts.lost.total(), counts.sent), (3, 3, 0));
    destination.diagnose(error)
}

#[track_caller]
fn check(builder: OtlpBuilder, kind: ErrorKind, remedy: &str) {
    let error = error(&builder.build().unwrap());
    assert_eq!(error.kind(), kind, "{error}");
    let text = error.to_string();
    assert!(text.starts_with(error.target()), "{text}");
    assert!(text.contains(remedy), "{text}");
}

/// Port 1 (tcpmux) of this machine, where no server listens.
const NOBODY: &str = "http://127.0.0.1:1";

#[test]
fn nothing_listens() {
    for protocol in [HTTP, GRPC] {
        check(
            otlp(protocol, NOBODY),
            ErrorKind::NothingListens,
            "start the server, or correct host and port",
        );
    }
}

#[test]
fn a_host_that_has_no_address() {
    // RFC 6761 reserves the name for this.
    for protocol in [HTTP, GRPC] {
        check(otlp(protocol, "http://collector.invalid:4318"), ErrorKind::UnknownHost, "correct the name");
    }
}

#[test]
fn statuses_have_their_remedies() {
    for (status, kind, remedy) in [
        (400, ErrorKind::BadRequest, "a server for this protocol"),
        (401, ErrorKind::Unauthenticated, "OTEL_EXPORTER_OTLP_HEADERS"),
        (403, ErrorKind::Forbidden, "may write traces"),
        (404, ErrorKind::WrongPath, "correct the path: /v1/traces is appended"),
        (405, ErrorKind::WrongPath, "correct the path"),
        (408, ErrorKind::TimedOut, "raise the timeout"),
        (415, ErrorKind::UnsupportedMedia, "use another protocol"),
        (429, ErrorKind::Throttled, "keep fewer traces"),
        (500, ErrorKind::ServerFailed, "log"),
        (501, ErrorKind::ServerFailed, "log"),
        (503, ErrorKind::Unavailable, "wait until it is up"),
        (302, ErrorKind::UnexpectedAnswer, "HTTP 302, redirect to http://elsewhere/"),
    ] {
        let answer = Answer::status(status).with_header("location", "http://elsewhere/");
        let server = Server::new([answer.with_body("said so\nand more")]);
        check(otlp(HTTP, server.url("http")), kind, remedy);
        assert_eq!(server.requests().len(), 1);
    }
    // All three spans, then the first alone: the others are no smaller and are not sent.
    let server = Server::new([]).then(Answer::status(413));
    check(otlp(HTTP, server.url("http")), ErrorKind::TooLarge, "lower the request size limit");
    assert_eq!(server.requests().len(), 2);
    let server = Server::new([Answer::status(401).with_body("no token\nand more")]);
    let error = error(&otlp(HTTP, server.url("http")).build().unwrap());
    assert_eq!(error.detail(), "HTTP 401: no token");
}

/// A server may repeat what it was sent: values of headers and of the query are secrets.
#[test]
fn secrets_that_a_server_repeats_are_masked() {
    let said = "denied: Bearer t0p-s3cret at /base/v1/traces?token=qs3cret-value&alone-s3cret";
    let server = Server::new([Answer::status(400).with_body(said)]);
    let url = format!("{}/base?token=qs3cret-value&alone-s3cret", server.url("http"));
    let otlp = otlp(HTTP, url).with_header("authorization", "Bearer t0p-s3cret");
    let text = error(&otlp.build().unwrap()).to_string();
    assert!(
        text.contains("denied: ") && text.contains("?token=***&***") && !text.contains("s3cret"),
        "{text}"
    );
}

/// The bytes of the Collector.
#[test]
fn the_message_of_a_protobuf_status_is_shown() {
    let answer = Answer::status(400).with_header("content-type", "application/x-protobuf");
    let server = Server::new([answer.with_body(*b"\x08\x03\x12\x0eunexpected EOF")]);
    let error = error(&otlp(HTTP, server.url("http")).build().unwrap());
    assert_eq!((error.kind(), error.detail()), (ErrorKind::BadRequest, "HTTP 400: unexpected EOF"));
}

#[test]
fn http_spoken_to_a_grpc_port() {
    check(otlp(HTTP, GrpcSink::new([]).url("http")), ErrorKind::GrpcPort, "use the protocol `grpc`");
}

#[test]
fn grpc_spoken_to_an_http_port() {
    check(otlp(GRPC, Server::new([]).url("http")), ErrorKind::HttpPort, "use the protocol `http/protobuf`");
}

/// A server that speaks HTTP/2 but not gRPC, such as Zipkin's: 404, and a text for people.
#[test]
fn grpc_spoken_to_a_port_of_http_2() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        listener.set_nonblocking(true).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let service = hyper::service::service_fn(|_| async {
                let answer = hyper::Response::builder().status(404).header("content-type", "text/plain");
                answer.body("404 Not Found".to_owned())
            });
            let server = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
            server.serve_connection(hyper_util::rt::TokioIo::new(stream), service).await.unwrap();
        });
    });
    check(otlp(GRPC, url), ErrorKind::HttpPort, "use the protocol `http/protobuf`");
}

/// A server that sends `answer` whatever it receives, and closes the connection.
fn says(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let _ = stream.read(&mut [0; 1 << 10]);
            let _ = stream.write_all(answer);
        }
    });
    format!("http://127.0.0.1:{port}")
}

#[test]
fn something_else_listens() {
    check(
        otlp(HTTP, says(b"220 mail.example.org ESMTP\r\n")),
        ErrorKind::UnexpectedAnswer,
        "is a server for traces",
    );
    // Closes the connection without a response.
    check(otlp(HTTP, says(b"")), ErrorKind::ConnectionLost, "network");
    check(otlp(GRPC, says(b"")), ErrorKind::ConnectionLost, "network");
    let go = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    check(otlp(HTTP, says(go)), ErrorKind::TlsServer, "use https://");
    check(otlp(GRPC, says(go)), ErrorKind::TlsServer, "use https://");
}

#[test]
fn a_server_that_never_answers_costs_no_more_than_the_timeout() {
    // The operating system accepts the connections; nobody serves them.
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    for protocol in [HTTP, GRPC] {
        let builder = otlp(protocol, &*url).with_timeout(Duration::from_millis(50));
        check(builder, ErrorKind::TimedOut, "raise the timeout");
    }
}

fn grpc_identity(own: &Identity) -> tonic::transport::Identity {
    tonic::transport::Identity::from_pem(own.pem(), own.key_pem())
}

fn grpcs(authority: &Authority, wants_clients: bool) -> GrpcSink {
    let own = authority.issue("localhost");
    let tls = ServerTlsConfig::new().identity(grpc_identity(&own));
    let tls = if wants_clients { tls.client_ca_root(Certificate::from_pem(authority.pem())) } else { tls };
    GrpcSink::with([], Some(tls), 4 << 20)
}

#[test]
fn tls_with_own_roots_and_client_certificates() {
    let authority = Authority::default();
    let client = authority.issue("client");
    for wants_clients in [false, true] {
        let (http, grpc) = (authority.server(wants_clients), grpcs(&authority, wants_clients));
        for (protocol, url) in [(HTTP, http.url("https")), (GRPC, grpc.url("https"))] {
            let builder = otlp(protocol, url)
                .with_root_certificates(authority.pem())
                .with_client_certificate(client.pem(), client.key_pem());
            let batch = [sample::plain(1, 1)];
            let delivery = builder.build().unwrap().send(&spans(&batch, &Arc::new(Resource::service("a"))));
            assert_eq!(delivery.map(|delivery| delivery.accepted), Ok(1), "{protocol:?}");
        }
        assert_eq!((http.requests().len(), grpc.requests().len()), (1, 1));
    }
}

#[test]
fn a_server_that_is_not_trusted() {
    let (authority, other) = (Authority::default(), Authority::default());
    let (http, grpc) = (authority.server(false), grpcs(&authority, false));
    for (protocol, url) in [(HTTP, http.url("https")), (GRPC, grpc.url("https"))] {
        let builder = otlp(protocol, &*url).with_root_certificates(other.pem());
        check(builder, ErrorKind::UntrustedCertificate, "OTEL_EXPORTER_OTLP_CERTIFICATE");
        // The certificate is for localhost.
        let builder =
            otlp(protocol, url.replace("localhost", "127.0.0.1")).with_root_certificates(authority.pem());
        check(builder, ErrorKind::UntrustedCertificate, "certificate covers");
    }
}

/// `openssl req -x509` marks a certificate as an authority. The advice was to name it, and then it
/// was refused.
#[test]
fn a_self_signed_certificate_that_is_named_is_trusted() {
    for is_authority in [true, false] {
        let issue = || Identity::self_signed("localhost", is_authority);
        let (own, other) = (issue(), issue());
        let tls = ServerTlsConfig::new().identity(grpc_identity(&own));
        let (http, grpc) = (https(&own, None), GrpcSink::with([], Some(tls), 4 << 20));
        for (protocol, url) in [(HTTP, http.url("https")), (GRPC, grpc.url("https"))] {
            let named = otlp(protocol, &*url).with_root_certificates(own.pem()).build().unwrap();
            let batch = [sample::plain(1, 1)];
            let spans = spans(&batch, &Arc::new(Resource::service("a")));
            assert_eq!(named.send(&spans).map(|sent| sent.accepted), Ok(1), "{protocol:?} {is_authority}");
            let wrong = otlp(protocol, &*url).with_root_certificates(other.pem());
            check(wrong, ErrorKind::UntrustedCertificate, "OTEL_EXPORTER_OTLP_CERTIFICATE");
            // The certificate is for localhost.
            let builder = otlp(protocol, url.replace("localhost", "127.0.0.1"));
            check(
                builder.with_root_certificates(own.pem()),
                ErrorKind::UntrustedCertificate,
                "certificate covers",
            );
        }
    }
}

#[test]
fn a_client_that_is_not_trusted() {
    let (authority, other) = (Authority::default(), Authority::default());
    let (http, grpc) = (authority.server(true), grpcs(&authority, true));
    let client = other.issue("client");
    for (protocol, url) in [(HTTP, http.url("https")), (GRPC, grpc.url("https"))] {
        let builder = || otlp(protocol, &*url).with_root_certificates(authority.pem());
        let remedy = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE";
        check(builder(), ErrorKind::ClientCertificate, remedy);
        let stranger = builder().with_client_certificate(client.pem(), client.key_pem());
        check(stranger, ErrorKind::ClientCertificate, remedy);
    }
}

#[test]
fn tls_on_one_side_only() {
    let authority = Authority::default();
    let roots = |builder: OtlpBuilder| builder.with_root_certificates(authority.pem());
    let plain = "use http:// instead of https://";
    check(roots(otlp(HTTP, Server::new([]).url("https"))), ErrorKind::PlainServer, plain);
    check(roots(otlp(GRPC, GrpcSink::new([]).url("https"))), ErrorKind::PlainServer, plain);
    // HTTP/1.1 behind TLS, spoken to by gRPC.
    check(roots(otlp(GRPC, authority.server(false).url("https"))), ErrorKind::HttpPort, "`http/protobuf`");
    let tls = "use https:// instead of http://";
    check(otlp(HTTP, authority.server(false).url("http")), ErrorKind::TlsServer, tls);
    check(otlp(GRPC, grpcs(&authority, false).url("http")), ErrorKind::TlsServer, tls);
}
