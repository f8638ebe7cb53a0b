//! Accepts connections up to a limit, serves them, and ends them.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::clients::{self, Client};
use crate::connections::Connection;
use crate::counts::{Counts, Refusal};
use crate::shared::{STANDSTILL, Shared};
use crate::tls::Tls;
use crate::{grpc, hosts, http, metrics};

/// The time that requests in progress have to end at shutdown.
const GRACE: Duration = Duration::from_secs(5);

/// The pause after a failed accept. The usual cause is the open-file limit.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Serves until asked to stop.
pub(crate) async fn run(listeners: Vec<TcpListener>, figures: Option<TcpListener>, shared: Arc<Shared>) {
    let mut accepting = JoinSet::new();
    if let Some(Ok(listener)) = figures.map(tokio::net::TcpListener::from_std) {
        accepting.spawn(metrics::serve(listener, Arc::clone(&shared)));
    }
    for listener in listeners {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { continue };
        accepting.spawn(accept(listener, Arc::clone(&shared)));
    }
    shared.stopped().await;
    // Each task ends when its connections have ended.
    let _ = tokio::time::timeout(GRACE, async { while accepting.join_next().await.is_some() {} }).await;
}

async fn accept(listener: tokio::net::TcpListener, shared: Arc<Shared>) {
    let is_loopback = listener.local_addr().is_ok_and(|own| own.ip().to_canonical().is_loopback());
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = shared.stopped() => break,
            _ = open.join_next(), if !open.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let connection =
                    shared.connections.add(&shared.limits, clients::network(peer.ip()), Instant::now());
                shared.events.connection(connection.is_some());
                // A connection without a place is closed at once, and its sender retries.
                if let Some(connection) = connection {
                    let client = shared.body_memory.client(peer.ip());
                    let place = (connection, client);
                    open.spawn(serve(stream, is_loopback, Arc::clone(&shared), place));
                }
            }
            Err(error) => {
                // Idle connections may hold file handles for minutes, and new files need handles
                // too.
                shared.connections.end_idle();
                shared.events.not_accepted(&error);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}

async fn serve(
    stream: TcpStream,
    is_loopback: bool,
    shared: Arc<Shared>,
    (place, client): (Connection, Client),
) {
    // Responses are small and should be sent immediately.
    let _ = stream.set_nodelay(true);
    let Some(Tls(config)) = shared.tls.clone() else {
        return serve_over(stream, is_loopback, shared, (place, client)).await;
    };
    let handshake = TlsAcceptor::from(config).accept(stream);
    tokio::select! {
        shaken = tokio::time::timeout(shared.limits.arrival_timeout, handshake) => match shaken {
            Ok(Ok(stream)) => serve_over(stream, is_loopback, shared, (place, client)).await,
            // The peer is told by an alert.
            Ok(Err(_)) | Err(_) => shared.counts.failed_handshake(),
        },
        () = shared.stopped() => {}
        () = place.ended(&shared.limits) => shared.counts.failed_handshake(),
    }
}

/// Serves a connection, over TLS or not.
async fn serve_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    is_loopback: bool,
    shared: Arc<Shared>,
    (place, client): (Connection, Client),
) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(shared.limits.arrival_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        // Detects a peer that vanished without closing the connection.
        .keep_alive_interval(Some(shared.limits.arrival_timeout))
        .keep_alive_timeout(shared.limits.arrival_timeout)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    let (limits, requests, common) = (shared.limits.clone(), place.clone(), Arc::clone(&shared));
    let service = service_fn(move |mut request: Request<Incoming>| {
        if is_loopback {
            hosts::mark(&mut request, &common.hosts);
        }
        let (shared, client, busy) = (Arc::clone(&common), client.clone(), requests.busy());
        async move {
            let _busy = busy;
            let unanswered = Unanswered(&shared.counts);
            let answer = if grpc::is_grpc(&request) {
                grpc::answer(&shared, &client, request).await
            } else {
                http::answer(&shared, &client, request).await
            };
            std::mem::forget(unanswered);
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // The connection ended by itself; its sender knows about it.
        _ = connection.as_mut() => return,
        () = shared.stopped() => {}
        () = place.ended(&limits) => {}
    }
    connection.as_mut().graceful_shutdown();
    // A connection with an incomplete head, or an unresponsive HTTP/2 peer, has no request to wait
    // for.
    let idle = async {
        loop {
            tokio::time::sleep(STANDSTILL).await;
            if !place.is_busy() {
                break;
            }
        }
    };
    tokio::select! {
        _ = tokio::time::timeout(GRACE, connection) => {}
        () = idle => {}
    }
}

/// A request in progress, which counts as incomplete if its connection ends first.
struct Unanswered<'c>(&'c Counts);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.refused(Refusal::Incomplete);
    }
}

/// The maximum number of concurrent requests on one connection, so that it cannot monopolise the
/// receiver.
const STREAMS_MAX: u32 = 16;

/// The flow-control window: enough for a batch of the usual size.
const WINDOW_BYTES: u32 = 1 << 20;
