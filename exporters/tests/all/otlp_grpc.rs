//! OTLP over gRPC, against tonic's own server.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use astracer_exporters::{
    Compression, Destination as _, ErrorKind, Exporter, Otlp, OtlpBuilder, Protocol, Retry, spans,
};
use astracer_model::span::Resource;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_sdk::trace::SpanExporter;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::otlp_http::{at_once, send};
use super::{sample, wire};

type Answer = Result<ExportTraceServiceResponse, Status>;

#[derive(Default)]
struct State {
    answers: VecDeque<Answer>,
    requests: Vec<(MetadataMap, ExportTraceServiceRequest)>,
    /// The answer to every request.
    fault: Option<Status>,
}

/// A server that returns the given answers, and then success.
#[derive(Clone)]
pub(crate) struct GrpcSink {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
}

#[tonic::async_trait]
impl TraceService for GrpcSink {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let (metadata, _, message) = request.into_parts();
        let mut state = self.state.lock().unwrap();
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        state.requests.push((metadata, message));
        state.answers.pop_front().unwrap_or(Ok(ExportTraceServiceResponse::default())).map(Response::new)
    }
}

impl GrpcSink {
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::with(answers, None, 4 << 20)
    }

    /// Uses TLS, or accepts only messages of at most this many bytes.
    pub(crate) fn with(
        answers: impl IntoIterator<Item = Answer>,
        tls: Option<ServerTlsConfig>,
        bytes_max: usize,
    ) -> Self {
        let decompresses = |service: TraceServiceServer<GrpcSink>| {
            service.accept_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Zstd)
        };
        Self::serving(answers, tls, move |service| decompresses(service).max_decoding_message_size(bytes_max))
    }

    /// Takes messages only without compression.
    pub(crate) fn plain() -> Self {
        Self::serving([], None, |service| service)
    }

    fn serving(
        answers: impl IntoIterator<Item = Answer>,
        tls: Option<ServerTlsConfig>,
        with: impl FnOnce(TraceServiceServer<GrpcSink>) -> TraceServiceServer<GrpcSink> + Send + 'static,
    ) -> Self {
        let state =
            Arc::new(Mutex::new(State { answers: answers.into_iter().collect(), ..State::default() }));
        let (sender, address) = mpsc::channel();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let incoming =
                    tonic::transport::server::TcpIncoming::bind(([127, 0, 0, 1], 0).into()).unwrap();
                let address = incoming.local_addr().unwrap();
                let sink = GrpcSink { state: shared, address };
                sender.send(address).unwrap();
                let service = with(TraceServiceServer::new(sink)).send_compressed(CompressionEncoding::Gzip);
                let mut server = Server::builder();
                if let Some(tls) = tls {
                    server = server.tls_config(tls).unwrap();
                }
                server.serve_with_incoming(service, incoming).await.unwrap();
            });
        });
        GrpcSink { state, address: address.recv().unwrap() }
    }

    pub(crate) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://localhost:{}", self.address.port())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers every request with this status, and records none.
    pub(crate) fn set_fault(&self, fault: Option<Status>) {
        self.state.lock().unwrap().fault = fault;
    }

    pub(crate) fn requests(&self) -> Vec<(MetadataMap, ExportTraceServiceRequest)> {
        self.state.lock().unwrap().requests.clone()
    }
}

pub(crate) fn otlp(sink: &GrpcSink) -> OtlpBuilder {
    Otlp::builder().with_protocol(Protocol::Grpc).with_endpoint(sink.url("http")).with_retry(at_once())
}

#[test]
fn a_span_arrives_field_by_field_however_compressed() {
    let compressions =
        [(Compression::None, None), (Compression::Gzip, Some("gzip")), (Compression::Zstd, Some("zstd"))];
    for (compression, encoding) in compressions {
        let sink = GrpcSink::new([]);
        let builder = otlp(&sink).with_compression(compression).with_header("x-tenant", "blue");
        let mut exporter = Exporter::new(builder.build().unwrap());
        exporter.set_resource(&sample::resource());
        futures_executor::block_on(exporter.export(vec![sample::full()])).unwrap();
        let (metadata, message) = sink.requests().remove(0);
        assert_eq!(wire::without_nan(message), wire::full());
        assert_eq!(metadata.get("x-tenant").unwrap(), "blue");
        assert_eq!(metadata.get("grpc-encoding").map(|value| value.to_str().unwrap()), encoding);
        assert!(metadata.get("user-agent").unwrap().to_str().unwrap().starts_with("astracer/"));
        assert_eq!(exporter.counter().read().sent, 1);
    }
}

/// Tokio forbids waiting for a runtime inside another one, so the exporter's runtime has its own
/// thread.
#[test]
fn it_works_inside_another_runtime() {
    let sink = GrpcSink::new([]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let otlp = runtime.block_on(async {
        let otlp = otlp(&sink).build().unwrap();
        assert_eq!(send(&otlp, 1..=3).unwrap().accepted, 3);
        otlp
    });
    drop(runtime);
    assert_eq!(send(&otlp, 4..=5).unwrap().accepted, 2);
    let all: Vec<_> = sink.requests().iter().flat_map(|(_, message)| wire::numbers(message)).collect();
    assert_eq!(all, [1, 2, 3, 4, 5]);
}

#[test]
fn what_the_server_rejects_is_counted() {
    let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message: "no".to_owned() };
    let sink = GrpcSink::new([Ok(ExportTraceServiceResponse { partial_success: Some(partial) })]);
    let otlp = otlp(&sink).build().unwrap();
    let delivery = send(&otlp, 1..=5).unwrap();
    assert_eq!((delivery.accepted, delivery.rejected, &*delivery.message), (2, 3, "no"));
    assert_eq!((otlp.counter().read().sent, otlp.counter().read().rejected), (2, 3));
}

/// Checks whether a failure that OTLP's specification calls retryable is retried; `Ok` contains the
/// number of attempts.
#[track_caller]
fn check(first: Status, expected: Result<usize, ErrorKind>) {
    let code = first.code();
    let sink = GrpcSink::new([Err(first)]);
    let otlp = otlp(&sink).build().unwrap();
    let sent = send(&otlp, 1..=2).map(|_| sink.requests().len());
    assert_eq!(sent, expected, "{code:?}");
    assert_eq!(otlp.counter().read().lost.total(), if expected.is_ok() { 0 } else { 2 });
}

#[test]
fn what_may_pass_is_sent_again() {
    let retryable = [
        Code::Cancelled,
        Code::DeadlineExceeded,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unavailable,
        Code::DataLoss,
    ];
    for code in retryable {
        check(Status::new(code, ""), Ok(2));
    }
    for code in [Code::InvalidArgument, Code::FailedPrecondition, Code::AlreadyExists] {
        check(Status::new(code, "no"), Err(ErrorKind::BadRequest));
    }
    let asks = |delay| {
        let details = ErrorDetails::with_retry_info(Some(delay));
        Status::with_error_details(Code::ResourceExhausted, "slow down", details)
    };
    check(asks(Duration::ZERO), Ok(2));
    // The requested pause exceeds the deadline.
    check(asks(Duration::from_secs(3600)), Err(ErrorKind::Throttled));
}

#[test]
fn the_servers_requested_delay_is_reported() {
    let details = ErrorDetails::with_retry_info(Some(Duration::from_millis(86_400_007)));
    let sink = GrpcSink::new([Err(Status::with_error_details(Code::Unavailable, "restarting", details))]);
    let batch = [sample::plain(1, 1)];
    let error =
        otlp(&sink).build().unwrap().send(&spans(&batch, &Arc::new(Resource::service("a")))).unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_millis(86_400_007)));
    assert!(error.to_string().contains("gRPC Unavailable: restarting"), "{error}");
}

#[test]
fn a_server_with_a_smaller_limit_gets_smaller_requests() {
    let sink = GrpcSink::with([], None, 100);
    let otlp = otlp(&sink).build().unwrap();
    assert_eq!(send(&otlp, 1..=10).unwrap().accepted, 10);
    let all: Vec<_> = sink.requests().iter().flat_map(|(_, message)| wire::numbers(message)).collect();
    assert_eq!(all, Vec::from_iter(1..=10));
}

#[test]
fn a_server_with_a_limit_that_no_span_keeps_says_so() {
    let sink = GrpcSink::with([], None, 20);
    let otlp = otlp(&sink).build().unwrap();
    assert_eq!(send(&otlp, 1..=10), Err(ErrorKind::TooLarge));
    assert_eq!(otlp.counter().read().lost.of(ErrorKind::TooLarge), 10);
}

#[test]
fn large_calls_are_split_below_what_servers_take() {
    let sink = GrpcSink::with([], None, 2_000);
    let otlp = otlp(&sink).with_max_request_bytes(2_000).build().unwrap();
    assert_eq!(send(&otlp, 1..=100).unwrap().accepted, 100);
    let all: Vec<_> = sink.requests().iter().flat_map(|(_, message)| wire::numbers(message)).collect();
    assert_eq!(all, Vec::from_iter(1..=100));
}

/// Forwards the bytes of `from` while `passes` returns true; after that it reads them and forwards
/// nothing.
fn relay(mut from: TcpStream, mut to: TcpStream, passes: impl Fn() -> bool + Send + 'static) {
    thread::spawn(move || {
        let mut part = [0; 4 << 10];
        while let Ok(read @ 1..) = from.read(&mut part) {
            if passes() && to.write_all(&part[..read]).is_err() {
                return;
            }
        }
    });
}

/// If the server has moved, or a firewall has forgotten the connection, nobody reports it; a new
/// connection works.
#[test]
fn a_connection_without_answers_is_made_anew() {
    let sink = GrpcSink::new([]);
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // Connections below this number are dead.
    let alive = Arc::new(AtomicUsize::new(0));
    let (server, living) = (sink.address, Arc::clone(&alive));
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (near, far) = (stream.unwrap(), TcpStream::connect(server).unwrap());
            let living = Arc::clone(&living);
            let passes = move || number >= living.load(Ordering::SeqCst);
            relay(near.try_clone().unwrap(), far.try_clone().unwrap(), passes.clone());
            relay(far, near, passes);
        }
    });
    let retry = Retry::default().with_initial_delay(Duration::from_millis(10)).with_max_delay(Duration::ZERO);
    let builder = Otlp::builder().with_protocol(Protocol::Grpc).with_endpoint(url);
    let builder = builder.with_timeout(Duration::from_millis(500));
    let otlp = builder.with_retry(retry.with_max_age(Duration::from_secs(20))).build().unwrap();
    for number in 1..=3 {
        assert_eq!(send(&otlp, number..=number).map(|delivery| delivery.accepted), Ok(1), "{number}");
        alive.fetch_add(1, Ordering::SeqCst);
    }
}
