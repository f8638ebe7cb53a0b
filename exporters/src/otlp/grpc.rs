//! OTLP over gRPC.
//!
//! tonic's connection lives on a thread of its own with a single-threaded tokio runtime. So callers
//! need no runtime, and the connection is maintained between calls. A call passes its message to
//! that thread and waits for the response.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderName, HeaderValue};
use opentelemetry::Context;
use tokio::sync::mpsc as jobs;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use super::codec::Encoded;
use super::config::{OtlpBuilder, Signal};
use crate::compression::Compression;
use crate::config::ConfigError;
use crate::endpoint::shown;
use crate::probe::{Peer, Speaks};
use crate::refusal::Refusal;
use astracer_model::destination::{ErrorKind, ExportError};

fn method(signal: Signal) -> PathAndQuery {
    PathAndQuery::from_static(match signal {
        Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    })
}

/// A connection to a server, made when it is first needed.
pub(super) struct Client {
    /// Unbounded, but never longer than the number of callers, because each waits for its response.
    jobs: jobs::UnboundedSender<Job>,
    uri: Uri,
    peer: Peer,
}

struct Job {
    message: Bytes,
    compression: Compression,
    timeout: Duration,
    answer: mpsc::SyncSender<Result<Bytes, Status>>,
}

/// The connection for calls. HTTP/2 keeps a connection whose peer has silently gone until TCP gives
/// up, which takes a quarter of an hour. So after a call without a response a new connection is
/// made, unless another call got a response meanwhile.
struct Line {
    endpoint: Endpoint,
    /// The compression of responses that is accepted.
    compression: Option<CompressionEncoding>,
    state: Mutex<LineState>,
}

struct LineState {
    grpc: tonic::client::Grpc<Channel>,
    /// The number of connections made so far.
    connections: u64,
    /// The number of responses so far, over all connections.
    answers: u64,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("uri", &self.target()).finish_non_exhaustive()
    }
}

impl Client {
    pub(super) fn new(
        uri: Uri,
        headers: Vec<(HeaderName, HeaderValue)>,
        builder: &OtlpBuilder,
    ) -> Result<Self, ConfigError> {
        let endpoint = Endpoint::from(uri.clone())
            .connect_timeout(builder.sending.timeout)
            // The flow-control windows are as large as a request, so that a request does not wait
            // for window updates.
            .initial_connection_window_size(1 << 20)
            .initial_stream_window_size(1 << 20)
            .user_agent(concat!("astracer/", env!("CARGO_PKG_VERSION")));
        let endpoint = endpoint.map_err(|error| ConfigError::new("endpoint", error.to_string()))?;
        let peer = Peer::new(&uri, Speaks::Http2);
        #[cfg(feature = "tls")]
        let (endpoint, peer) = if uri.scheme_str() == Some("https") {
            let refused = |reason: String| ConfigError::new("certificates", reason);
            let config = builder.sending.tls.client_config().map_err(refused)?;
            let endpoint = match builder.sending.tls.for_grpc().map_err(refused)? {
                (tls, Some(verifier)) => endpoint.tls_config_with_verifier(tls, verifier),
                (tls, None) => endpoint.tls_config(tls),
            };
            (endpoint.map_err(|error| refused(error.to_string()))?, peer.over_tls(config))
        } else {
            (endpoint, peer)
        };
        let metadata = MetadataMap::from_headers(headers.into_iter().collect());
        let compression = encoding(builder.sending.compression);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ConfigError::new("runtime", error.to_string()))?;
        let (sender, mut receiver) = jobs::unbounded_channel::<Job>();
        let method = method(builder.signal());
        let work = async move {
            // Ends when the client is dropped.
            let line = Arc::new(Line::new(endpoint, compression));
            while let Some(job) = receiver.recv().await {
                tokio::spawn(job.run(Arc::clone(&line), method.clone(), metadata.clone()));
            }
        };
        let run = move || {
            // The HTTP/2 implementation creates spans. If they were recorded, each export would
            // produce spans for the next export, without end.
            let _suppressed = Context::enter_telemetry_suppressed_scope();
            // The runtime must be dropped before the guard: connections create spans when they end.
            let runtime = runtime;
            runtime.block_on(work);
        };
        let spawned = thread::Builder::new().name("astracer-otlp".to_owned()).spawn(run);
        spawned.map_err(|error| ConfigError::new("thread", error.to_string()))?;
        Ok(Client { jobs: sender, uri, peer })
    }

    pub(super) fn target(&self) -> String {
        shown(&self.uri)
    }

    /// Opens a connection to find the cause of an unclear failure.
    pub(super) fn diagnose(&self, error: ExportError) -> ExportError {
        self.peer.diagnose(error)
    }

    /// Sends a message once.
    pub(super) fn call(
        &self,
        message: Bytes,
        compression: Compression,
        timeout: Duration,
    ) -> Result<Bytes, ExportError> {
        let (answer, answered) = mpsc::sync_channel(1);
        let job = Job { message, compression, timeout, answer };
        let gone =
            || ExportError::new(ErrorKind::UnexpectedAnswer, self.target(), "the gRPC thread has ended");
        self.jobs.send(job).map_err(|_| gone())?;
        // The other thread enforces the timeout.
        let result = answered.recv().map_err(|_| gone())?;
        result.map_err(|status| self.explain(&status, compression))
    }

    /// Returns the failure of a response that has the status of a success and is not OTLP.
    pub(super) fn not_otlp(&self) -> ExportError {
        let detail = "gRPC Ok: the message is not a response of OTLP";
        ExportError::new(ErrorKind::UnexpectedAnswer, self.target(), detail).doubtful(None)
    }

    /// Classifies a failed call.
    fn explain(&self, status: &Status, compression: Compression) -> ExportError {
        let message = status.message();
        let retry_after = status.get_details_retry_info().and_then(|info| info.retry_delay);
        let of = |kind| ExportError::new(kind, self.target(), described(status));
        if let Some(error) = status.source().and_then(|source| self.of_transport(source, &of)) {
            return error;
        }
        // An HTTP response without a gRPC status, as tonic reports it. If it has a body, tonic uses
        // the text as the message.
        if message.contains("grpc-status header missing")
            || message.contains("while receiving response with status")
        {
            return match status.code() {
                Code::Unauthenticated => of(ErrorKind::Unauthenticated).doubtful(retry_after),
                Code::PermissionDenied => of(ErrorKind::Forbidden).doubtful(retry_after),
                Code::Unavailable => of(ErrorKind::Unavailable).retryable(retry_after),
                _ => of(ErrorKind::HttpPort).doubtful(retry_after),
            };
        }
        let is_compressed = compression != Compression::None;
        Refusal { said: message, retry_after, is_compressed }.of_grpc(status.code(), of)
    }

    /// Classifies a broken connection; `None` if the failure is of another kind.
    fn of_transport(
        &self,
        source: &(dyn Error + 'static),
        of: &dyn Fn(ErrorKind) -> ExportError,
    ) -> Option<ExportError> {
        #[cfg(feature = "tls")]
        if let Some(error) = crate::tls::of_error(source) {
            return Some(crate::tls::explain(&self.target(), error));
        }
        let mut causes = std::iter::successors(Some(source), |&error| error.source());
        let of_io = |io: &io::Error| match io.kind() {
            io::ErrorKind::ConnectionRefused => Some(of(ErrorKind::NothingListens).retryable(None)),
            io::ErrorKind::TimedOut => Some(of(ErrorKind::TimedOut).retryable(None)),
            _ => None,
        };
        if let Some(error) = causes.find_map(|cause| of_io(cause.downcast_ref()?)) {
            return Some(error);
        }
        if causes_have_no_address(source) {
            return Some(of(ErrorKind::UnknownHost).retryable(None));
        }
        // A server that does not speak HTTP/2 also closes the connection, or responds with bytes
        // that cannot be parsed: see `diagnose`.
        Some(of(ErrorKind::ConnectionLost).retryable(None))
    }
}

impl Line {
    /// Creates a line that connects on the first call.
    fn new(endpoint: Endpoint, compression: Option<CompressionEncoding>) -> Self {
        let grpc = grpc(&endpoint, compression);
        let state = LineState { grpc, connections: 1, answers: 0 };
        Line { endpoint, compression, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a new connection, unless there was a new connection or a response since the counts
    /// were `connections` and `answers`. Calls in progress on the old connection keep it.
    fn renew(&self, connections: u64, answers: u64) {
        let mut state = self.lock();
        if (state.connections, state.answers) == (connections, answers) {
            state.grpc = grpc(&self.endpoint, self.compression);
            state.connections += 1;
        }
    }
}

/// The name of a compression for tonic.
fn encoding(compression: Compression) -> Option<CompressionEncoding> {
    match compression {
        Compression::None => None,
        #[cfg(feature = "gzip")]
        Compression::Gzip => Some(CompressionEncoding::Gzip),
        #[cfg(feature = "zstd")]
        Compression::Zstd => Some(CompressionEncoding::Zstd),
    }
}

fn grpc(endpoint: &Endpoint, compression: Option<CompressionEncoding>) -> tonic::client::Grpc<Channel> {
    let grpc = tonic::client::Grpc::new(endpoint.connect_lazy());
    match compression {
        None => grpc,
        Some(encoding) => grpc.accept_compressed(encoding),
    }
}

impl Job {
    async fn run(self, line: Arc<Line>, method: PathAndQuery, metadata: MetadataMap) {
        let Job { message, compression, timeout, answer } = self;
        let late = Status::deadline_exceeded("no response in time");
        let (grpc, connections, answers) = {
            let state = line.lock();
            (state.grpc.clone(), state.connections, state.answers)
        };
        let grpc = match encoding(compression) {
            None => grpc,
            Some(encoding) => grpc.send_compressed(encoding),
        };
        let result = tokio::time::timeout(timeout, call(grpc, method, metadata, message)).await;
        match result {
            Ok(_) => line.lock().answers += 1,
            Err(_) => line.renew(connections, answers),
        }
        // The caller waits for this, so the send does not fail.
        let _ = answer.send(result.unwrap_or(Err(late)));
    }
}

async fn call(
    mut grpc: tonic::client::Grpc<Channel>,
    method: PathAndQuery,
    metadata: MetadataMap,
    message: Bytes,
) -> Result<Bytes, Status> {
    grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
    let mut request = Request::new(message);
    *request.metadata_mut() = metadata;
    let response = grpc.unary(request, method, Encoded).await?;
    Ok(response.into_inner())
}

/// Returns the text of a status and its causes.
fn described(status: &Status) -> String {
    let mut text = format!("gRPC {:?}: {}", status.code(), status.message());
    let mut cause = status.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// True if the host's name could not be resolved. The resolver's error has no type of its own.
fn causes_have_no_address(source: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(source), |&error| error.source())
        .any(|cause| cause.to_string().contains("failed to lookup address"))
}
