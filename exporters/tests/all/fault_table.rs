//! Each fault x protocol x storage: nothing is lost if the fault ends within the age of a batch,
//! and otherwise every span is told, as lost or as a dead letter.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use astracer_exporters::spool::Settings;
use astracer_exporters::{
    Compression, Destination, Files, Otlp, Protocol, Retry, SpoolMode, Spooled, Zipkin,
};
use astracer_model::sink::Record;
use astracer_model::{Problem, Sink, Span};
use astracer_recording::source;
use astracer_testing::{Listening, listen, size, wait_until};
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};

use super::faults::{Mood, Moody, spans};
use super::otlp_grpc::GrpcSink;
use super::wire::numbers;

const MS: fn(u64) -> Duration = Duration::from_millis;
const PATIENCE: Duration = Duration::from_secs(30);

/// A fault of the network, the server or the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nothing listens; for files, the folder is gone.
    Refused,
    Reset,
    Hangs,
    /// Bytes that are not HTTP.
    Garbage,
    /// A page of HTML over HTTP; HTTP/1.1 over gRPC.
    WrongProtocol,
    /// A status, with a pause in seconds that the server asks for.
    Status(u16, Option<u64>),
}

const FAULTS: &[Fault] = &[
    Fault::Refused,
    Fault::Reset,
    Fault::Hangs,
    Fault::Garbage,
    Fault::WrongProtocol,
    Fault::Status(400, None),
    Fault::Status(401, None),
    Fault::Status(403, None),
    Fault::Status(404, None),
    Fault::Status(408, None),
    Fault::Status(410, None),
    Fault::Status(429, None),
    Fault::Status(500, None),
    Fault::Status(502, None),
    Fault::Status(503, None),
    Fault::Status(503, Some(0)),
    Fault::Status(503, Some(1)),
    Fault::Status(429, Some(9_000_000_000)),
];

impl Fault {
    /// The faults of the quick run; the others differ in their status only.
    fn is_quick(self) -> bool {
        !matches!(
            self,
            Fault::Status(403 | 404 | 410 | 500 | 502, _)
                | Fault::Status(429, None)
                | Fault::Status(503, Some(0))
        )
    }

    /// True if the server refused the request itself.
    fn is_final(self) -> bool {
        matches!(self, Fault::Status(400 | 410, _))
    }

    fn mood(self) -> Mood {
        match self {
            Fault::Refused => Mood::Stopped,
            Fault::Reset => Mood::Resets,
            Fault::Hangs => Mood::Hangs,
            Fault::Garbage => Mood::Garbage,
            Fault::WrongProtocol => Mood::Page,
            Fault::Status(status, after) => Mood::Busy(status, after),
        }
    }

    /// The gRPC status with the meaning of the HTTP status.
    fn status(self) -> Option<Status> {
        let Fault::Status(status, after) = self else { return None };
        let status = match status {
            400 => Status::invalid_argument("no"),
            401 => Status::unauthenticated("no"),
            403 => Status::permission_denied("no"),
            404 => Status::unimplemented("no"),
            408 => Status::deadline_exceeded("no"),
            410 => Status::failed_precondition("no"),
            500 => Status::internal("no"),
            _ => Status::unavailable("no"),
        };
        let Some(after) = after else { return Some(status) };
        let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(after)));
        Some(Status::with_error_details(status.code(), "no", details))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Http,
    Grpc,
    Zipkin,
    File,
}

/// A TCP proxy that shows a fault to its clients.
#[derive(Clone)]
struct Proxy {
    address: SocketAddr,
    upstream: SocketAddr,
    /// The fault, and whether the proxy has ended.
    state: Arc<Mutex<(Option<Fault>, bool)>>,
}

impl Proxy {
    fn start(upstream: SocketAddr) -> Self {
        let listening = |proxy: &Self| match proxy.state() {
            (_, true) => Listening::Over,
            (Some(Fault::Refused), _) => Listening::Closed,
            _ => Listening::Open,
        };
        listen(|address| Proxy { address, upstream, state: Arc::default() }, listening, Self::serve)
    }

    fn state(&self) -> (Option<Fault>, bool) {
        *self.state.lock().unwrap()
    }

    fn serve(&self, mut client: TcpStream) -> Option<()> {
        let (fault, _) = self.state();
        match fault {
            Some(Fault::Hangs) => {
                wait_until("the server no longer hangs", || self.state().0 != fault);
            }
            Some(Fault::Garbage) => client.write_all(b"220 mail.example.org ESMTP\r\n").ok()?,
            Some(Fault::WrongProtocol) => {
                client.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").ok()?;
            }
            Some(Fault::Status(..)) | None => {
                let server = TcpStream::connect(self.upstream).ok()?;
                let back = (server.try_clone().ok()?, client.try_clone().ok()?);
                let own = self.clone();
                thread::spawn(move || own.copy(back.0, back.1));
                self.copy(client, server);
            }
            _ => {}
        }
        Some(())
    }

    /// Copies until a fault of connections begins.
    fn copy(&self, mut from: TcpStream, mut to: TcpStream) {
        let _ = from.set_read_timeout(Some(MS(5)));
        let mut part = [0; 8 << 10];
        while matches!(self.state(), (None | Some(Fault::Status(..)), false)) {
            match from.read(&mut part) {
                Ok(read) if read > 0 && to.write_all(&part[..read]).is_ok() => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                _ => break,
            }
        }
        let _ = (from.shutdown(std::net::Shutdown::Both), to.shutdown(std::net::Shutdown::Both));
    }
}

enum Backend {
    Http(Moody),
    Grpc(Proxy, GrpcSink),
    File(PathBuf),
}

/// The ids of spans.
#[derive(Default)]
struct Ids(BTreeSet<u64>);

impl Sink for Ids {
    fn span(&mut self, span: Span<'_>, _: Record<'_>) {
        self.0.insert(span.span_id.0);
    }

    fn problem(&mut self, problem: Problem) {
        panic!("{problem}");
    }

    fn skipped(&mut self, file: &Arc<str>, reason: &str) {
        panic!("{file}: {reason}");
    }
}

impl Backend {
    fn start(kind: Kind, folder: PathBuf) -> Self {
        match kind {
            Kind::Http | Kind::Zipkin => Backend::Http(Moody::start(Mood::Takes)),
            Kind::Grpc => {
                let sink = GrpcSink::new([]);
                Backend::Grpc(Proxy::start(sink.address()), sink)
            }
            Kind::File => Backend::File(folder),
        }
    }

    fn set(&self, fault: Option<Fault>) {
        match self {
            Backend::Http(server) => server.set(fault.map_or(Mood::Takes, Fault::mood)),
            Backend::Grpc(proxy, sink) => {
                sink.set_fault(fault.and_then(Fault::status));
                proxy.state.lock().unwrap().0 = fault;
            }
            Backend::File(folder) => {
                let away = folder.with_extension("away");
                let (from, to) = if fault.is_some() { (folder, &away) } else { (&away, folder) };
                std::fs::rename(from, to).unwrap();
            }
        }
    }

    fn taken(&self) -> BTreeSet<u64> {
        match self {
            Backend::Http(server) => server.taken().0.into_iter().collect(),
            Backend::Grpc(_, sink) => {
                sink.requests().iter().flat_map(|(_, request)| numbers(request)).collect()
            }
            Backend::File(folder) => {
                let away = folder.with_extension("away");
                let mut ids = Ids::default();
                let folder = if folder.exists() { folder } else { &away };
                // A folder without spans is an error.
                let _ = source::read(folder, &source::Options::default(), &mut ids);
                ids.0
            }
        }
    }

    /// Batches are given up at this age, and a request after `timeout`.
    fn destination(&self, kind: Kind, (age, timeout): (Duration, Duration)) -> Box<dyn Destination> {
        let retry = Retry::default().with_initial_delay(MS(5)).with_max_delay(MS(40)).with_max_age(age);
        let retry = retry.with_max_server_delay(MS(100));
        let otlp = |protocol, url: String| {
            let builder = Otlp::builder().with_protocol(protocol).with_endpoint(url).with_retry(retry);
            Box::new(builder.with_timeout(timeout).build().unwrap()) as Box<dyn Destination>
        };
        match (self, kind) {
            (Backend::Grpc(proxy, _), _) => otlp(Protocol::Grpc, format!("http://{}", proxy.address)),
            (Backend::File(folder), _) => Box::new(Files::builder(folder).with_max_wait(age).open().unwrap()),
            (Backend::Http(server), Kind::Zipkin) => {
                let builder = Zipkin::builder().with_endpoint(server.url() + "/api/v2/spans");
                Box::new(builder.with_retry(retry).with_timeout(timeout).build().unwrap())
            }
            (Backend::Http(server), _) => otlp(Protocol::HttpProtobuf, server.url()),
        }
    }

    fn end(&self) {
        match self {
            Backend::Http(server) => server.set(Mood::Ended),
            Backend::Grpc(proxy, _) => proxy.state.lock().unwrap().1 = true,
            Backend::File(_) => {}
        }
    }
}

/// A destination with or without a spool before it.
enum Sender {
    Memory(Box<dyn Destination>),
    Spool(Spooled),
}

impl Sender {
    fn destination(&self) -> &dyn Destination {
        match self {
            Sender::Memory(destination) => &**destination,
            Sender::Spool(spooled) => spooled,
        }
    }

    /// The spans that were told as lost or rejected, and those that wait.
    fn told(&self) -> (u64, u64) {
        let counts = self.destination().counter().read();
        let pending = if let Sender::Spool(spooled) = self { spooled.pending() } else { 0 };
        (counts.lost.total() + counts.rejected, pending)
    }
}

/// A cell of the table.
#[derive(Clone, Copy, Debug)]
struct Cell {
    fault: Fault,
    kind: Kind,
    has_spool: bool,
}

impl Cell {
    fn sender(self, backend: &Backend, times: (Duration, Duration), folder: PathBuf) -> Sender {
        let destination = backend.destination(self.kind, times);
        if !self.has_spool {
            return Sender::Memory(destination);
        }
        let builder = Spooled::builder(folder).with_direct_timeout(times.1).with_max_refusal(times.0);
        Sender::Spool(builder.open(destination).unwrap())
    }

    /// A fault that ends within the age costs nothing, except for the requests that were refused.
    fn passes(self) {
        let folder = tempfile::tempdir().unwrap();
        let backend = Backend::start(self.kind, folder.path().join("out"));
        let spool = folder.path().join("spool");
        let sender = self.sender(&backend, (PATIENCE, PATIENCE), spool.clone());
        let deliver = |numbers| drop(sender.destination().deliver(&spans(numbers)));
        deliver(1..=10);
        backend.set(Some(self.fault));
        thread::scope(|scope| {
            scope.spawn(|| {
                // The length of the outage: a few of the retries' delays.
                thread::sleep(MS(100));
                backend.set(None);
            });
            deliver(11..=20);
        });
        deliver(21..=30);
        sender.destination().shut_down(PATIENCE).unwrap();
        let (mut told, _) = sender.told();
        let undelivered = sender.destination().undelivered();
        drop(sender);
        if self.has_spool {
            // The next process sends the rest.
            let next =
                Spooled::builder(spool).open(backend.destination(self.kind, (PATIENCE, PATIENCE))).unwrap();
            assert_eq!(next.drain(PATIENCE), 0);
            let counts = next.counter().read();
            told += counts.lost.total() + counts.rejected;
        }
        // A request that is refused for good is lost, unless the fault ended before it was sent.
        assert!(told == 0 || self.fault.is_final() && told == 10, "{told}");
        assert_eq!(undelivered.is_some(), told > 0 && self.has_spool, "{undelivered:?}");
        let arrived = (1..=30).filter(|number| told == 0 || !(11..=20).contains(number));
        assert_eq!(backend.taken(), arrived.collect());
        backend.end();
    }

    /// A fault that lasts longer than the age: each span is told, or waits in the spool.
    fn stays(self) {
        let folder = tempfile::tempdir().unwrap();
        let backend = Backend::start(self.kind, folder.path().join("out"));
        let sender = self.sender(&backend, (MS(60), MS(200)), folder.path().join("spool"));
        backend.set(Some(self.fault));
        sender.destination().deliver(&spans(1..=10));
        // The spool may give records up for as long as it keeps the others, so no count ends this.
        let began = Instant::now();
        while sender.told().1 > 0 && began.elapsed() < MS(300) {
            thread::sleep(MS(5));
        }
        let (told, pending) = sender.told();
        assert_eq!((told + pending, backend.taken().len()), (10, 0));
        match &sender {
            Sender::Memory(_) => assert_eq!(told, 10),
            Sender::Spool(spooled) => {
                assert_eq!(spooled.spool_counts().dead_letters, told);
                assert_eq!(spooled.undelivered().is_some(), told > 0);
            }
        }
        backend.end();
    }
}

#[test]
fn each_fault_protocol_and_storage_loses_nothing_or_tells_it() {
    let mut cells = Vec::new();
    for has_spool in [false, true] {
        for &fault in FAULTS.iter().filter(|fault| size(0, 1) == 1 || fault.is_quick()) {
            for kind in [Kind::Http, Kind::Grpc, Kind::Zipkin] {
                cells.push(Cell { fault, kind, has_spool });
            }
        }
        cells.push(Cell { fault: Fault::Refused, kind: Kind::File, has_spool });
    }
    let runs = cells.iter().flat_map(|&cell| [(cell, true), (cell, false)]);
    let next = Mutex::new(runs.collect::<Vec<_>>());
    let failed = Mutex::new(Vec::new());
    // Nearly all of the time is spent waiting.
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                loop {
                    let Some((cell, passes)) = next.lock().unwrap().pop() else { return };
                    let run = || if passes { cell.passes() } else { cell.stays() };
                    if std::panic::catch_unwind(run).is_err() {
                        let ends = if passes { "that passes" } else { "that stays" };
                        failed.lock().unwrap().push(format!("{cell:?} {ends}"));
                    }
                }
            });
        }
    });
    assert_eq!(*failed.lock().unwrap(), [""; 0]);
}

/// Rows of delay and rate: a distant server gets spans as fast as they come. Sent one a round trip,
/// the second row would need 100 s for the spans of one second.
#[test]
fn a_distant_server_keeps_up() {
    for (delay, requests, spans_each) in [(100, 66, 40), (200, 500, 40)] {
        let (server, folder) = (Moody::start(Mood::Late(delay)), tempfile::tempdir().unwrap());
        let otlp = Backend::Http(server.clone()).destination(Kind::Http, (PATIENCE, PATIENCE));
        let spooled = Spooled::builder(folder.path()).with_mode(SpoolMode::Durable).open(otlp).unwrap();
        let began = Instant::now();
        for request in 0..requests {
            let due = Duration::from_secs(1) * request / requests;
            thread::sleep(due.saturating_sub(began.elapsed()));
            let first = u64::from(request * spans_each);
            assert_eq!(spooled.deliver(&spans(first + 1..=first + u64::from(spans_each))).lost.total(), 0);
        }
        // Nothing waits longer than a second on an idle machine, and this one may be busy.
        assert_eq!(spooled.drain(Duration::from_secs(3)), 0, "{delay} ms, {requests} requests a second");
        assert_eq!(server.taken().0.len() as u64, u64::from(requests * spans_each));
        server.set(Mood::Ended);
    }
}

/// Rows of dead letters beyond their room: a server that refuses everything. Each span is told, in
/// this process and by the ledger that stays.
#[test]
fn dead_letters_beyond_their_room_stay_counted() {
    for room in [0, 2_000, 1 << 20] {
        let (server, folder) = (Moody::start(Mood::Busy(400, None)), tempfile::tempdir().unwrap());
        let settings = Settings::default().with_segment_bytes(1_000).with_dead_letter_bytes(room);
        let open = || {
            let otlp = Backend::Http(server.clone()).destination(Kind::Http, (PATIENCE, PATIENCE));
            Spooled::builder(folder.path()).with_settings(settings.clone()).open(otlp).unwrap()
        };
        let spooled = open();
        (0..50).for_each(|batch| drop(spooled.deliver(&spans(batch * 10 + 1..=batch * 10 + 10))));
        assert_eq!(spooled.drain(PATIENCE), 0);
        let ledger = spooled.ledger();
        assert_eq!(ledger.dead + ledger.thrown_away, 500, "{room} bytes: {ledger:?}");
        assert_eq!(ledger.thrown_away > 0, room < 1 << 20, "{room} bytes: {ledger:?}");
        let told = spooled.undelivered().unwrap();
        let thrown = format!("{} spans lost (thrown away to free space)", ledger.thrown_away);
        assert_eq!(told.contains(&thrown), ledger.thrown_away > 0, "{told}");
        drop(spooled);
        // The next process says the same.
        let next = open();
        assert_eq!((next.ledger(), next.undelivered()), (ledger, Some(told)));
        server.set(Mood::Ended);
    }
}

/// A server that takes only some requests for good, with the answer that it gives to others. The
/// first three are those of the Collector.
const LIMITS: &[(&str, usize, &str)] = &[
    (
        "400, too large, protobuf",
        1_000,
        "HTTP/1.1 400 X\r\ncontent-type: application/x-protobuf\r\ncontent-length: 32\r\n\r\n\
         \x08\x03\x12\x1chttp: request body too large",
    ),
    (
        "400, too large, JSON",
        1_000,
        "HTTP/1.1 400 X\r\ncontent-type: application/json\r\ncontent-length: 52\r\n\r\n\
         {\"code\":3, \"message\":\"http: request body too large\"}",
    ),
    (
        "400, no compression, protobuf",
        usize::MAX,
        "HTTP/1.1 400 X\r\ncontent-type: application/x-protobuf\r\ncontent-length: 38\r\n\r\n\
         \x08\x03\x12\x22unsupported Content-Encoding: gzip",
    ),
    ("413", 1_000, "HTTP/1.1 413 X\r\ncontent-length: 0\r\n\r\n"),
    ("415", usize::MAX, "HTTP/1.1 415 X\r\ncontent-length: 0\r\n\r\n"),
];

/// A limit of a server costs no span, over each protocol, with and without a spool.
#[test]
fn each_limit_of_a_server_costs_no_span() {
    let retry = Retry::default().with_initial_delay(MS(5)).with_max_age(PATIENCE);
    let otlp = |protocol, url: String, compression| {
        let builder = Otlp::builder().with_protocol(protocol).with_endpoint(url).with_retry(retry);
        Box::new(builder.with_compression(compression).build().unwrap()) as Box<dyn Destination>
    };
    let check =
        |name: &str, has_spool, destination: Box<dyn Destination>, taken: &dyn Fn() -> BTreeSet<u64>| {
            let folder = tempfile::tempdir().unwrap();
            let sender = match has_spool {
                true => Sender::Spool(Spooled::builder(folder.path()).open(destination).unwrap()),
                false => Sender::Memory(destination),
            };
            for first in [1, 65] {
                sender.destination().deliver(&spans(first..first + 64));
            }
            wait_until("everything is settled", || sender.told() == (0, 0));
            assert_eq!(taken(), (1..=128).collect(), "{name}, spool {has_spool}");
        };
    for has_spool in [false, true] {
        for &(name, bytes_max, answer) in LIMITS {
            let compression = if bytes_max == usize::MAX { Compression::Gzip } else { Compression::None };
            let server = Moody::start(Mood::Limited(bytes_max, answer));
            let taken = || server.taken().0.into_iter().collect();
            check(name, has_spool, otlp(Protocol::HttpProtobuf, server.url(), compression), &taken);
            server.set(Mood::Ended);
            let server = Moody::start(Mood::Limited(bytes_max, answer));
            let builder = Zipkin::builder().with_endpoint(server.url() + "/api/v2/spans");
            let zipkin = builder.with_retry(retry).with_compression(compression).build().unwrap();
            check(name, has_spool, Box::new(zipkin), &|| server.taken().0.into_iter().collect());
            server.set(Mood::Ended);
        }
        for sink in [GrpcSink::with([], None, 1_000), GrpcSink::plain()] {
            let url = format!("http://{}", sink.address());
            let taken = || sink.requests().iter().flat_map(|(_, request)| numbers(request)).collect();
            check("gRPC", has_spool, otlp(Protocol::Grpc, url, Compression::Zstd), &taken);
        }
    }
}
