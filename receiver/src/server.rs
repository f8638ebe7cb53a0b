//! Connections: accepted up to a limit, served, and ended.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::task::JoinSet;

use crate::counts::Counts;
use crate::{Limits, grpc, http};
use astracer_exporters::Files;

/// What is under way at the end has so long.
const GRACE: Duration = Duration::from_secs(5);

/// A pause after an accept that failed, for lack of file handles mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) files: Files,
    pub(crate) counts: Counts,
    /// What problems name as their file.
    pub(crate) file: Arc<str>,
    requests: Semaphore,
}

impl Shared {
    pub(crate) fn new(limits: Limits, files: Files) -> Self {
        let requests = Semaphore::new(limits.requests_max.clamp(1, Semaphore::MAX_PERMITS));
        Self { limits, files, counts: Counts::default(), file: "request".into(), requests }
    }

    /// Waits until one more request may be read. Without a permit a request's body stays with its sender.
    pub(crate) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed, so there always is one.
        self.requests.acquire().await.ok()
    }
}

/// Serves until told to stop.
pub(crate) async fn run(
    listeners: Vec<TcpListener>,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    let connections =
        Arc::new(Semaphore::new(shared.limits.connections_max.clamp(1, Semaphore::MAX_PERMITS)));
    let mut accepting = JoinSet::new();
    for listener in listeners {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { continue };
        let (shared, connections, stopped) = (Arc::clone(&shared), Arc::clone(&connections), stopped.clone());
        accepting.spawn(accept(listener, shared, connections, stopped));
    }
    let _ = stopped.wait_for(|stopped| *stopped).await;
    // Each gives back when its connections have ended.
    let _ = tokio::time::timeout(GRACE, async { while accepting.join_next().await.is_some() {} }).await;
}

async fn accept(
    listener: tokio::net::TcpListener,
    shared: Arc<Shared>,
    connections: Arc<Semaphore>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut open = JoinSet::new();
    loop {
        let next = async {
            let permit = Arc::clone(&connections).acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => break,
            _ = open.join_next(), if !open.is_empty() => continue,
            next = next => next,
        };
        match accepted {
            Ok((stream, _)) => {
                let (shared, stopped) = (Arc::clone(&shared), stopped.clone());
                open.spawn(async move {
                    serve(stream, shared, stopped).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}

async fn serve(stream: TcpStream, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    // Answers are small, and wanted at once.
    let _ = stream.set_nodelay(true);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(shared.limits.arrival_max);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(u32::try_from(shared.limits.requests_max).unwrap_or(u32::MAX))
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move {
            let answer = if grpc::is_grpc(&request) {
                grpc::answer(&shared, request).await
            } else {
                http::answer(&shared, request).await
            };
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // A sender that broke off has noticed itself.
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// What a sender may send ahead of our reading: a batch of usual size.
const WINDOW_BYTES: u32 = 1 << 20;
