//! Faults of the network and the server, over real sockets. Delays are scaled down by
//! configuration: an outage of a minute with the defaults takes 200 ms here.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use astracer_exporters::spool::Settings;
use astracer_exporters::{Destination, ErrorKind, Otlp, Protocol, Retry, Spooled};
use astracer_model::{Span, SpanId, TraceId};
use astracer_testing::{BadServer, Reply};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;

use super::wire::numbers;

pub(crate) use astracer_testing::Behaviour as Mood;

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A server that records the numbers of the spans it accepted.
#[derive(Clone)]
pub(crate) struct Moody {
    server: BadServer,
    taken: Arc<Mutex<Vec<u64>>>,
}

impl Moody {
    pub(crate) fn start(mood: Mood) -> Self {
        let taken = Arc::<Mutex<Vec<u64>>>::default();
        let own = Arc::clone(&taken);
        let take = move |body: &[u8]| {
            let found = match body.first() {
                // Zipkin's JSON is a list.
                Some(b'[') => zipkin_numbers(body),
                _ => numbers(&ExportTraceServiceRequest::decode(body).unwrap()),
            };
            own.lock().unwrap().extend(found);
            Reply::status(200)
        };
        Moody { server: BadServer::start(mood, take), taken }
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.server.set(mood);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// The number of requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.server.requests()
    }

    /// The numbers of the accepted spans, without repetitions, and the number of repetitions.
    pub(crate) fn taken(&self) -> (Vec<u64>, usize) {
        let mut taken = self.taken.lock().unwrap().clone();
        let all = taken.len();
        taken.sort_unstable();
        taken.dedup();
        let again = all - taken.len();
        (taken, again)
    }
}

/// The numbers of the spans in Zipkin's JSON.
fn zipkin_numbers(body: &[u8]) -> Vec<u64> {
    let spans: Vec<serde_json::Value> = serde_json::from_slice(body).unwrap();
    spans.iter().map(|span| u64::from_str_radix(span["id"].as_str().unwrap(), 16).unwrap()).collect()
}

pub(crate) fn spans(numbers: impl Iterator<Item = u64>) -> Vec<Span<'static>> {
    let span =
        |id| Span { trace_id: TraceId(7), span_id: SpanId(id), name: "work".into(), ..Span::default() };
    numbers.map(span).collect()
}

pub(crate) fn otlp(server: &Moody) -> Otlp {
    let retry = Retry::default().with_initial_delay(MS(5)).with_max_delay(MS(40)).with_max_age(MS(20_000));
    let retry = retry.with_max_server_delay(MS(1_000));
    let builder = Otlp::builder().with_protocol(Protocol::HttpProtobuf).with_endpoint(server.url());
    builder.with_timeout(MS(100)).with_retry(retry).build().unwrap()
}

/// Temporary faults, without and with a spool: every span arrives, and nothing is counted as lost.
/// Spans may arrive again if the response to a request was lost.
#[test]
fn faults_that_pass_cost_no_span() {
    for (mood, comes_again) in [
        (Mood::Stopped, false),
        (Mood::Busy(503, None), false),
        (Mood::Busy(429, None), false),
        (Mood::Busy(429, Some(0)), false),
        (Mood::Busy(503, Some(1)), false),
        (Mood::Hangs, false),
        (Mood::Slow, true),
        (Mood::Resets, false),
        (Mood::HalfClosed, true),
        (Mood::Garbage, false),
        (Mood::Page, false),
        (Mood::Busy(302, None), false),
        (Mood::Busy(401, None), false),
        (Mood::Busy(404, Some(0)), false),
        (Mood::Busy(408, None), false),
        (Mood::Busy(500, None), false),
        // A pause of nearly 300 years is shortened.
        (Mood::Busy(503, Some(9_000_000_000)), false),
    ] {
        for has_spool in [false, true] {
            let server = Moody::start(Mood::Takes);
            let folder = tempfile::tempdir().unwrap();
            let destination: Box<dyn Destination> = if has_spool {
                let spooled = Spooled::builder(folder.path()).with_direct_timeout(MS(20));
                Box::new(spooled.open(otlp(&server)).unwrap())
            } else {
                Box::new(otlp(&server))
            };
            let passes = {
                let server = server.clone();
                thread::spawn(move || {
                    thread::sleep(MS(20));
                    server.set(mood);
                    thread::sleep(MS(200));
                    server.set(Mood::Takes);
                })
            };
            let begun = Instant::now();
            let mut made = 0;
            // Traffic before, during and after the fault.
            while begun.elapsed() < MS(300) || !passes.is_finished() {
                let outcome = destination.deliver(&spans(made + 1..=made + 10));
                assert_eq!(
                    (outcome.delivery.accepted, outcome.lost.total()),
                    (10, 0),
                    "{mood:?} {outcome:?}"
                );
                made += 10;
                thread::sleep(MS(5));
            }
            passes.join().unwrap();
            destination.shut_down(Duration::from_secs(20)).unwrap();
            drop(destination);
            if has_spool {
                // Spans that were left at the shutdown are sent by the next process.
                let next = Spooled::builder(folder.path()).open(otlp(&server)).unwrap();
                assert_eq!(next.drain(Duration::from_secs(20)), 0, "{mood:?}");
            }
            let (taken, again) = server.taken();
            assert_eq!(taken, Vec::from_iter(1..=made), "{mood:?}, spool {has_spool}");
            assert!(comes_again || has_spool || again == 0, "{mood:?}: {again} spans came again");
        }
    }
}

/// The same over gRPC, with a server that goes away (GOAWAY), and one that answers with the
/// statuses of HTTP, as proxies do.
#[test]
fn faults_of_grpc_that_pass_cost_no_span() {
    for mood in [
        Mood::GoesAway,
        Mood::Busy(503, None),
        Mood::Busy(429, Some(1)),
        Mood::Garbage,
        Mood::Hangs,
        Mood::HalfClosed,
        Mood::Late(200),
        Mood::Stopped,
    ] {
        let (server, folder) = (Moody::start(mood), tempfile::tempdir().unwrap());
        let retry = Retry::default().with_initial_delay(MS(5)).with_max_delay(MS(40));
        let builder = Otlp::builder().with_protocol(Protocol::Grpc).with_endpoint(server.url());
        let otlp = builder.with_timeout(MS(100)).with_retry(retry).build().unwrap();
        let spooled = Spooled::builder(folder.path()).with_direct_timeout(MS(20)).open(otlp).unwrap();
        for batch in 0..4 {
            assert_eq!(spooled.deliver(&spans(batch * 10 + 1..=batch * 10 + 10)).lost.total(), 0);
        }
        thread::sleep(MS(100));
        assert_eq!((spooled.pending(), spooled.counter().read().sent), (40, 0), "{mood:?}");
        server.set(Mood::Takes);
        assert_eq!(spooled.drain(Duration::from_secs(20)), 0, "{mood:?}");
        assert_eq!(server.taken().0, Vec::from_iter(1..=40), "{mood:?}");
        server.set(Mood::Ended);
    }
}

/// If a server asks for a pause, all batches observe it.
#[test]
fn a_server_that_asks_for_silence_gets_it() {
    let server = Moody::start(Mood::Busy(503, Some(1)));
    let otlp = otlp(&server);
    let begun = Instant::now();
    thread::scope(|scope| {
        for batch in 0..4 {
            let otlp = &otlp;
            scope.spawn(move || otlp.send(&spans(batch * 10 + 1..=batch * 10 + 10)).unwrap());
        }
        thread::sleep(MS(500));
        // At most four requests were in progress when the first response came.
        let requests = server.requests();
        assert!(requests <= 4, "{requests}");
        server.set(Mood::Takes);
    });
    assert!(begun.elapsed() >= MS(1_000));
    assert_eq!(server.taken().0, Vec::from_iter(1..=40));
}

/// A name that cannot be resolved may be resolved later, so spans wait.
#[test]
fn a_name_that_is_gone_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere =
        Otlp::builder().with_protocol(Protocol::HttpProtobuf).with_endpoint("http://gone.invalid:4318");
    let spooled = Spooled::builder(folder.path()).open(nowhere.build().unwrap()).unwrap();
    assert_eq!(spooled.deliver(&spans(1..=10)).delivery.accepted, 10);
    assert_eq!(spooled.pending(), 10);
    let waiting = spooled.counter().read().waiting.unwrap();
    assert_eq!(waiting.kind(), ErrorKind::UnknownHost, "{waiting}");
    spooled.shut_down(Duration::ZERO).unwrap();
    drop(spooled);
    // The server is back, on another port.
    let server = Moody::start(Mood::Takes);
    let spooled = Spooled::builder(folder.path()).open(otlp(&server)).unwrap();
    assert_eq!(spooled.drain(Duration::from_secs(20)), 0);
    assert_eq!(server.taken(), (Vec::from_iter(1..=10), 0));
}

/// A shutdown during an outage leaves everything in the spool: nothing is counted as lost or
/// becomes a dead letter.
#[test]
fn a_shutdown_during_an_outage_leaves_the_spans_to_the_next_process() {
    let (server, folder) = (Moody::start(Mood::Stopped), tempfile::tempdir().unwrap());
    for round in 0..10 {
        let spooled = Spooled::builder(folder.path()).open(otlp(&server)).unwrap();
        let outcome = spooled.deliver(&spans(round * 10 + 1..=round * 10 + 10));
        assert_eq!(outcome.delivery.accepted, 10);
        thread::sleep(MS(2 * round));
        spooled.shut_down(MS(1)).unwrap();
        thread::sleep(MS(5));
        assert_eq!((spooled.pending(), spooled.counter().read().lost.total()), (10 * round + 10, 0));
    }
    server.set(Mood::Takes);
    let spooled = Spooled::builder(folder.path()).open(otlp(&server)).unwrap();
    assert_eq!(spooled.drain(Duration::from_secs(20)), 0);
    assert_eq!(server.taken().0, Vec::from_iter(1..=100));
}

/// A shutdown during a pause, or during the first request after it, drains like any other. It once
/// ended immediately and left all waiting spans behind.
#[test]
fn a_shutdown_drains_a_spool_whose_destination_is_just_back() {
    // The server recovers but is slow; or it asks for a pause of a second and then recovers.
    for (fault, then) in [(Mood::Stopped, Mood::Late(300)), (Mood::Busy(503, Some(1)), Mood::Takes)] {
        let (server, folder) = (Moody::start(fault), tempfile::tempdir().unwrap());
        let builder = Otlp::builder().with_protocol(Protocol::HttpProtobuf).with_endpoint(server.url());
        let retry = Retry::default().with_initial_delay(MS(5)).with_max_delay(MS(40));
        let spooled =
            Spooled::builder(folder.path()).open(builder.with_retry(retry).build().unwrap()).unwrap();
        for batch in 0..4 {
            let outcome = spooled.deliver(&spans(batch * 10 + 1..=batch * 10 + 10));
            assert_eq!((outcome.delivery.accepted, spooled.pending()), (10, batch * 10 + 10));
        }
        server.set(then);
        while server.requests() == 0 {
            thread::sleep(MS(1));
        }
        spooled.shut_down(Duration::from_secs(30)).unwrap();
        assert_eq!((spooled.pending(), server.taken()), (0, (Vec::from_iter(1..=40), 0)), "{fault:?}");
    }
}

/// A shutdown does not wait for a pause that is longer than its timeout, nor for a destination that
/// keeps failing.
#[test]
fn a_shutdown_waits_for_no_destination_that_stays_away() {
    for mood in [Mood::Stopped, Mood::Busy(503, None), Mood::Busy(503, Some(3_600))] {
        let (server, folder) = (Moody::start(mood), tempfile::tempdir().unwrap());
        let spooled = Spooled::builder(folder.path()).open(otlp(&server)).unwrap();
        assert_eq!(spooled.deliver(&spans(1..=10)).delivery.accepted, 10);
        let begun = Instant::now();
        spooled.shut_down(Duration::from_secs(300)).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(100), "{mood:?} {:?}", begun.elapsed());
        assert_eq!((spooled.pending(), spooled.counter().read().lost.total()), (10, 0), "{mood:?}");
    }
}

#[test]
fn two_processes_do_not_share_a_spool() {
    let (server, folder) = (Moody::start(Mood::Takes), tempfile::tempdir().unwrap());
    let _first = Spooled::builder(folder.path()).open(otlp(&server)).unwrap();
    let error = Spooled::builder(folder.path()).open(otlp(&server)).unwrap_err();
    assert!(error.detail().contains("another process uses this folder"), "{error}");
    assert!(!error.to_string().contains("disk"), "{error}");
}

/// A spool that is full, because of the disk or its own limit, rejects spans. The service
/// continues, and every span is counted.
#[test]
fn a_spool_without_space_counts_what_it_cannot_take() {
    let (server, folder) = (Moody::start(Mood::Stopped), tempfile::tempdir().unwrap());
    let settings = Settings::default().with_max_bytes(2_000);
    let spooled = Spooled::builder(folder.path()).with_settings(settings).open(otlp(&server)).unwrap();
    let mut lost = 0;
    for batch in 0..50 {
        let outcome = spooled.deliver(&spans(batch * 10 + 1..=batch * 10 + 10));
        assert_eq!(outcome.delivery.accepted + outcome.lost.of(ErrorKind::Full), 10, "{outcome:?}");
        lost += outcome.lost.total();
    }
    assert!(lost > 0 && spooled.pending() > 0 && lost + spooled.pending() == 500);
    server.set(Mood::Takes);
    assert_eq!(spooled.drain(Duration::from_secs(20)), 0);
    assert_eq!(server.taken().0.len() as u64 + lost, 500);
}

/// A folder that somebody removed or made unreadable while it was in use.
#[test]
fn a_spool_whose_folder_is_removed_counts_what_it_cannot_take() {
    let (server, folder) = (Moody::start(Mood::Stopped), tempfile::tempdir().unwrap());
    let spooled = Spooled::builder(folder.path()).open(otlp(&server)).unwrap();
    assert_eq!(spooled.deliver(&spans(1..=10)).delivery.accepted, 10);
    std::fs::remove_dir_all(folder.path()).unwrap();
    let outcome = spooled.deliver(&spans(11..=20));
    assert_eq!((outcome.delivery.accepted, outcome.lost.of(ErrorKind::File)), (0, 10), "{outcome:?}");
}
