//! Parameters polled from a URL.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use astracer_operate::Polling;
use astracer_sdk::{Astracer, Handle};
#[cfg(feature = "polling-tls")]
use astracer_testing::Authority;
use astracer_testing::{Answer, Server, World, sampling};

/// Serves this file from now on.
fn has(server: &Server, tag: &str, text: &str) {
    server.answers(Answer::status(200).with_header("etag", tag).with_body(text));
}

fn url(server: &Server) -> String {
    format!("http://{}/astracer.toml", server.address())
}

fn ratio(probability: &str) -> String {
    format!("version = 2\n[ratio]\nprobability = {probability}\n")
}

/// A service that has polled once at its start, and polls again only when the test asks for it.
fn polled(server: &Server, polling: impl FnOnce(Polling) -> Polling) -> World {
    let polling = polling(Polling::new(url(server)).with_interval(Duration::from_secs(3_600)));
    let world = sampling("ratio:0.5", |builder| builder.with_polled_parameters(polling));
    server.request(0);
    world
}

/// Polls now. Returns the sampler in force, and the fault.
fn look(handle: &Handle) -> (String, Option<String>) {
    handle.look_at_parameters();
    (handle.sampler_config().unwrap().to_string(), handle.parameters_fault())
}

#[test]
fn a_new_file_is_taken_over_and_an_unchanged_one_is_not_sent_again() {
    let server = Server::new([]);
    has(&server, "\"one\"", &ratio("0.25"));
    let world = polled(&server, |polling| polling.with_header("Authorization", "Bearer secret"));
    assert_eq!(look(&world.handle), ("ratio:0.25".to_owned(), None));
    // The entity tag of RFC 9110, section 13.1.2.
    server.answers(Answer::raw("HTTP/1.1 304 Not Modified\r\nconnection: close\r\n\r\n"));
    assert_eq!(look(&world.handle), ("ratio:0.25".to_owned(), None));
    let request = server.requests().pop().unwrap();
    assert_eq!(request.header("if-none-match"), Some("\"one\""));
    assert_eq!(request.header("authorization"), Some("Bearer secret"));
    has(&server, "\"two\"", &ratio("0.125"));
    assert_eq!(look(&world.handle), ("ratio:0.125".to_owned(), None));
}

#[test]
fn the_last_good_parameters_hold_whatever_the_server_does() {
    let server = Server::new([]);
    has(&server, "\"good\"", &ratio("0.25"));
    let world = polled(&server, |polling| polling.with_timeout(Duration::from_millis(300)));
    assert_eq!(look(&world.handle).1, None);
    let long = "#".repeat(3 << 20);
    let whole = |length: usize, text: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}")
    };
    for (answer, says) in [
        ("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(), "HTTP 500"),
        ("HTTP/1.1 404 Gone\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(), "HTTP 404"),
        // A truncated response: the part that arrived is a valid file.
        (whole(1_000, &ratio("0.75")), "http://127.0.0.1"),
        (whole(long.len(), &long), "longer than"),
        (
            "HTTP/1.1 302 Found\r\nlocation: /again\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                .to_owned(),
            "redirect",
        ),
        ("\u{16}\u{3}\u{1}".to_owned(), "http://127.0.0.1"),
        (String::new(), "http://127.0.0.1"),
        (whole(21, "version = 2\n[ratio]\n\n"), "probability"),
        (whole(ratio("7").len(), &ratio("7")), "line 3"),
    ] {
        server.answers(Answer::raw(answer.clone()));
        let (sampler, fault) = look(&world.handle);
        let fault = fault.unwrap_or_default();
        assert!(
            sampler == "ratio:0.25" && fault.contains(says),
            "{sampler} {fault} of {}",
            &answer[..answer.len().min(60)]
        );
        assert!(fault.contains("the last parameters stay in force"), "{fault}");
    }
    // A server that never responds blocks the caller for no longer than the timeout.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let polling = Polling::new(url).with_timeout(Duration::from_millis(200));
    let other = world_with(polling).unwrap();
    let begun = Instant::now();
    assert!(look(&other.handle).1.is_some());
    assert!(begun.elapsed() < Duration::from_secs(20));
    has(&server, "\"new\"", &ratio("0.5"));
    assert_eq!(look(&world.handle), ("ratio:0.5".to_owned(), None));
}

fn world_with(polling: Polling) -> Result<Astracer, astracer_sdk::BuildError> {
    Astracer::builder().with_polled_parameters(polling).build()
}

/// A redirect within the origin is followed with the headers; one to another origin gets none.
#[test]
fn redirects_to_another_origin_are_faults() {
    let (server, other) = (Server::new([]), Server::new([]));
    has(&other, "\"evil\"", &ratio("1"));
    has(&server, "\"one\"", &ratio("0.25"));
    let world = polled(&server, |polling| polling.with_header("Authorization", "Bearer secret"));
    let to = |location: &str| Answer::status(302).with_header("location", location);
    server.answers(to(&format!("http://{}/astracer.toml", other.address())));
    let (sampler, fault) = look(&world.handle);
    let fault = fault.unwrap_or_default();
    assert!(sampler == "ratio:0.25" && fault.contains("another origin"), "{sampler} {fault}");
    assert_eq!(other.requests().len(), 0);
    server.answers(Answer::status(200).with_header("etag", "\"two\"").with_body(ratio("0.125")));
    server.push(to("/moved.toml"));
    assert_eq!(look(&world.handle), ("ratio:0.125".to_owned(), None));
    let request = server.requests().pop().unwrap();
    assert_eq!(
        (&*request.line, request.header("authorization")),
        ("GET /moved.toml HTTP/1.1", Some("Bearer secret"))
    );
}

/// The thread polls by itself.
#[test]
fn the_thread_polls_again() {
    let server = Server::new([]);
    has(&server, "\"one\"", &ratio("0.25"));
    let world = polled(&server, |polling| polling.with_interval(Duration::ZERO));
    server.request(1);
    assert_eq!(world.handle.sampler_config().unwrap().to_string(), "ratio:0.25");
    world.handle.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn urls_that_cannot_be_fetched_are_faults() {
    for (url, says) in [
        ("config.toml", "no scheme or host"),
        ("ftp://config/astracer.toml", "ftp"),
        ("http://user:secret@config/", "in a header"),
        ("http://a b/", "not a URL"),
    ] {
        let error = world_with(Polling::new(url)).unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains("secret"), "{error}");
    }
    let polling = Polling::new("http://config/").with_header("a b", "secret");
    let error = world_with(polling).unwrap_err().to_string();
    assert!(error.contains("a b") && !error.contains("secret"), "{error}");
}

#[cfg(feature = "polling-tls")]
#[test]
fn a_file_over_https_comes_from_a_trusted_server_only() {
    let (authority, other) = (Authority::default(), Authority::default());
    let server = authority.server(false);
    has(&server, "\"one\"", &ratio("0.25"));
    let polling_of = |server: &Server, host: &str| {
        let url = format!("https://{host}:{}/astracer.toml", server.address().port());
        Polling::new(url).with_interval(Duration::from_secs(3_600))
    };
    let look_with = |polling: Polling| {
        let world = world_with(polling).unwrap();
        let (sampler, fault) = look(&world.handle);
        (sampler == "ratio:0.25", fault.unwrap_or_default())
    };
    let trusting = polling_of(&server, "localhost").with_root_certificates(authority.pem());
    assert_eq!(look_with(trusting), (true, String::new()));
    assert_eq!(server.request(0).line, "GET /astracer.toml HTTP/1.1");
    // An unknown authority, and a host name that the certificate does not cover. They need a new
    // server: the first one is also polled by its own service, at any time.
    let server = authority.server(false);
    has(&server, "\"one\"", &ratio("0.25"));
    let polling = |host| polling_of(&server, host);
    for polling in [
        polling("localhost").with_root_certificates(other.pem()),
        polling("127.0.0.1").with_root_certificates(authority.pem()),
    ] {
        let (taken, fault) = look_with(polling);
        assert!(
            !taken && fault.contains("ertificate") && fault.contains("the last parameters stay in force"),
            "{fault}"
        );
    }
    assert_eq!(server.requests().len(), 0);
}

#[cfg(feature = "polling-tls")]
#[test]
fn invalid_root_certificates_are_faults() {
    let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    for (pem, says) in [("", "none was found"), (broken, "not PEM")] {
        let polling = Polling::new("https://config/").with_root_certificates(pem);
        let error = world_with(polling).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
