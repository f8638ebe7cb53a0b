//! Parameters polled from a URL, with a minimal server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use astracer_sdk::{Astracer, Handle, Polling};

use crate::support::{World, world};

/// A server that sends the same response to every request, until it is given another.
#[derive(Clone)]
struct Server {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The bytes of the whole response.
    answer: Vec<u8>,
    /// The head of each request.
    requests: Vec<String>,
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

impl Server {
    fn start() -> Self {
        Self::start_over(|stream| Box::new(stream))
    }

    /// Starts a server that wraps each connection, for example in TLS.
    fn start_over(wrap: impl Fn(TcpStream) -> Box<dyn Stream> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server { address: listener.local_addr().unwrap(), state: Arc::default() };
        let own = server.clone();
        // The thread ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                let mut stream = wrap(stream);
                let (mut head, mut part) = (Vec::new(), [0; 1024]);
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut part) {
                        Ok(length @ 1..) => head.extend_from_slice(&part[..length]),
                        _ => break,
                    }
                }
                if head.is_empty() {
                    // The handshake failed.
                    continue;
                }
                let answer = {
                    let mut state = own.state.lock().unwrap();
                    state.requests.push(String::from_utf8_lossy(&head).to_lowercase());
                    state.answer.clone()
                };
                // The client may have closed the connection early.
                let _ = stream.write_all(&answer);
            }
        });
        server
    }

    fn answers(&self, answer: impl Into<Vec<u8>>) {
        self.state.lock().unwrap().answer = answer.into();
    }

    fn has(&self, tag: &str, text: &str) {
        let length = text.len();
        self.answers(format!(
            "HTTP/1.1 200 OK\r\netag: {tag}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
        ));
    }

    fn last_request(&self) -> String {
        self.state.lock().unwrap().requests.last().cloned().unwrap()
    }

    fn url(&self) -> String {
        format!("http://{}/astracer.toml", self.address)
    }
}

fn ratio(probability: &str) -> String {
    format!("version = 2\n[ratio]\nprobability = {probability}\n")
}

/// A service that has polled once at its start, and polls again only when the test asks for it.
fn polled(server: &Server, polling: impl FnOnce(Polling) -> Polling) -> World {
    let polling = polling(Polling::new(server.url()).with_interval(Duration::from_secs(3_600)));
    let world =
        world(|builder| builder.with_sampler("ratio:0.5".parse().unwrap()).with_polled_parameters(polling));
    let begun = Instant::now();
    while server.state.lock().unwrap().requests.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the first request");
        std::thread::sleep(Duration::from_millis(5));
    }
    world
}

/// Polls now. Returns the sampler in force, and the fault.
fn look(handle: &Handle) -> (String, Option<String>) {
    handle.look_at_parameters();
    (handle.sampler_config().unwrap().to_string(), handle.parameters_fault())
}

#[test]
fn a_new_file_is_taken_over_and_an_unchanged_one_is_not_sent_again() {
    let server = Server::start();
    server.has("\"one\"", &ratio("0.25"));
    let world = polled(&server, |polling| polling.with_header("Authorization", "Bearer secret"));
    assert_eq!(look(&world.handle), ("ratio:0.25".to_owned(), None));
    // The entity tag of RFC 9110, section 13.1.2.
    server.answers("HTTP/1.1 304 Not Modified\r\nconnection: close\r\n\r\n");
    assert_eq!(look(&world.handle), ("ratio:0.25".to_owned(), None));
    let request = server.last_request();
    assert!(request.contains("\r\nif-none-match: \"one\"\r\n"), "{request}");
    assert!(request.contains("\r\nauthorization: bearer secret\r\n"), "{request}");
    server.has("\"two\"", &ratio("0.125"));
    assert_eq!(look(&world.handle), ("ratio:0.125".to_owned(), None));
}

#[test]
fn the_last_good_parameters_hold_whatever_the_server_does() {
    let server = Server::start();
    server.has("\"good\"", &ratio("0.25"));
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
        server.answers(answer.clone());
        let (sampler, fault) = look(&world.handle);
        let fault = fault.unwrap_or_default();
        assert!(
            sampler == "ratio:0.25" && fault.contains(says),
            "{sampler} {fault} of {}",
            &answer[..answer.len().min(60)]
        );
        assert!(fault.contains("the last parameters hold"), "{fault}");
    }
    // A server that never responds blocks the caller for no longer than the timeout.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let polling = Polling::new(url).with_timeout(Duration::from_millis(200));
    let other = world_with(polling).unwrap();
    let begun = Instant::now();
    assert!(look(&other.handle).1.is_some());
    assert!(begun.elapsed() < Duration::from_secs(20));
    server.has("\"new\"", &ratio("0.5"));
    assert_eq!(look(&world.handle), ("ratio:0.5".to_owned(), None));
}

fn world_with(polling: Polling) -> Result<Astracer, astracer_sdk::BuildError> {
    Astracer::builder().with_polled_parameters(polling).build()
}

/// The thread polls by itself, and a shutdown does not wait for it.
#[test]
fn the_thread_polls_again_and_ends() {
    let server = Server::start();
    server.has("\"one\"", &ratio("0.25"));
    let world = polled(&server, |polling| polling.with_interval(Duration::ZERO));
    let requests = || server.state.lock().unwrap().requests.len();
    let begun = Instant::now();
    while requests() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(world.handle.sampler_config().unwrap().to_string(), "ratio:0.25");
    world.handle.shutdown(Duration::from_secs(5)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let before = requests();
    std::thread::sleep(Duration::from_millis(1_300));
    assert_eq!(requests(), before);
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

/// A server with a certificate for localhost, and its authority's certificate in PEM.
#[cfg(feature = "polling-tls")]
fn https() -> (Server, String) {
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    let (authority_key, key) = (rcgen::KeyPair::generate().unwrap(), rcgen::KeyPair::generate().unwrap());
    let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "an authority");
    let pem = params.self_signed(&authority_key).unwrap().pem();
    let issuer = rcgen::Issuer::new(params, authority_key);
    let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let chain = vec![params.signed_by(&key, &issuer).unwrap().der().clone()];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::try_from(key.serialize_der()).unwrap());
    let config = Arc::new(config.unwrap());
    let server = Server::start_over(move |stream| {
        Box::new(StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream))
    });
    (server, pem)
}

#[cfg(feature = "polling-tls")]
#[test]
fn a_file_over_https_comes_from_a_trusted_server_only() {
    let (server, authority) = https();
    let (_, other) = https();
    server.has("\"one\"", &ratio("0.25"));
    let polling_of = |server: &Server, host: &str| {
        let url = format!("https://{host}:{}/astracer.toml", server.address.port());
        Polling::new(url).with_interval(Duration::from_secs(3_600))
    };
    let look_with = |polling: Polling| {
        let world = world_with(polling).unwrap();
        let (sampler, fault) = look(&world.handle);
        (sampler == "ratio:0.25", fault.unwrap_or_default())
    };
    let trusting = polling_of(&server, "localhost").with_root_certificates(authority.clone());
    assert_eq!(look_with(trusting), (true, String::new()));
    let request = server.last_request();
    assert!(request.starts_with("get /astracer.toml"), "{request}");
    // An unknown authority, and a host name that the certificate does not cover. They need a new
    // server: the first one is also polled by its own service, at any time.
    let (server, authority) = https();
    server.has("\"one\"", &ratio("0.25"));
    let polling = |host| polling_of(&server, host);
    for polling in [
        polling("localhost").with_root_certificates(other),
        polling("127.0.0.1").with_root_certificates(authority),
    ] {
        let (taken, fault) = look_with(polling);
        assert!(
            !taken && fault.contains("ertificate") && fault.contains("the last parameters hold"),
            "{fault}"
        );
    }
    assert_eq!(server.state.lock().unwrap().requests.len(), 0);
}

#[cfg(feature = "polling-tls")]
#[test]
fn invalid_root_certificates_are_faults() {
    let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    for (pem, says) in [("", "there is none"), (broken, "not PEM")] {
        let polling = Polling::new("https://config/").with_root_certificates(pem);
        let error = world_with(polling).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
