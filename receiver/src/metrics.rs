//! The receiver's figures while it runs, on an address of their own: `/metrics` for Prometheus, and
//! `/health` for load balancers.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use astracer_exporters::{Destination as _, Files};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::answer::{Body, RETRY_AFTER_SECONDS, whole};
use crate::counts::Refusal;
use crate::hosts;
use crate::shared::Shared;

/// The greatest number of connections; further ones wait.
const CONNECTIONS_MAX: usize = 256;
/// The time limit of a connection, which is for one request.
const TIME_MAX: Duration = Duration::from_secs(5);
/// The time limit of a request's head, so that idle connections delay others by a second at most.
const HEAD_MAX: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);

/// Answers requests until the receiver is asked to stop.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let is_loopback = listener.local_addr().is_ok_and(|own| own.ip().to_canonical().is_loopback());
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = shared.stopped() => return,
            _ = open.join_next(), if !open.is_empty() => continue,
            accepted = listener.accept(), if open.len() < CONNECTIONS_MAX => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                drop(open.spawn(tokio::time::timeout(
                    TIME_MAX,
                    connection(stream, is_loopback, Arc::clone(&shared)),
                )))
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn connection(stream: TcpStream, is_loopback: bool, shared: Arc<Shared>) {
    let service = service_fn(|mut request: Request<Incoming>| {
        if is_loopback {
            hosts::mark(&mut request, &shared.hosts);
        }
        let response = answer(&shared, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut builder = http1::Builder::new();
    builder.keep_alive(false).timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
    // A client that disconnects is not an error.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

fn answer(shared: &Shared, request: &Request<Incoming>) -> Response<Body> {
    if let Err(refused) = hosts::check(request.extensions()) {
        return text(StatusCode::FORBIDDEN, refused.message);
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let mut response = text(StatusCode::OK, figures(shared));
            let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            response
        }
        (&Method::GET | &Method::HEAD, "/health") => health(shared),
        (&Method::GET | &Method::HEAD, _) => {
            text(StatusCode::NOT_FOUND, "unknown path: use /metrics or /health".to_owned())
        }
        _ => text(StatusCode::METHOD_NOT_ALLOWED, "use GET".to_owned()),
    }
}

/// 503 while requests are refused because their records cannot be written. A refusal counts for as
/// long as senders are asked to wait; after that only the next request shows whether it lasts.
fn health(shared: &Shared) -> Response<Body> {
    match shared.events.refusing(Duration::from_secs(RETRY_AFTER_SECONDS)) {
        None => text(StatusCode::OK, "accepting".to_owned()),
        Some(reason) => text(StatusCode::SERVICE_UNAVAILABLE, format!("refusing requests: {reason}")),
    }
}

fn text(status: StatusCode, message: String) -> Response<Body> {
    let mut message = message;
    if !message.ends_with('\n') {
        message.push('\n');
    }
    let mut response = Response::new(whole(message));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// The figures in Prometheus's text format, version 0.0.4.
fn figures(shared: &Shared) -> String {
    let mut out = Text(String::new());
    let received = shared.counts.read();
    out.counter("receive_requests", "Requests that were recorded, completely or in part.", received.requests);
    out.counter("receive_spans", "Spans written to files.", received.spans);
    out.counter("receive_logs", "Log records written to files.", received.logs);
    out.counter(
        "receive_rejected_spans",
        "Spans that could not be read in requests that were recorded.",
        received.rejected,
    );
    out.counter(
        "receive_rejected_logs",
        "Log records that could not be read in requests that were recorded.",
        received.logs_rejected,
    );
    let reasons = Refusal::ALL.iter().map(|&reason| (reason.slug(), received.refused(reason)));
    out.by_reason("receive_refused_requests", "Requests that were refused as a whole.", reasons);
    out.counter(
        "receive_failed_handshakes",
        "Connections whose TLS handshake failed, or did not end in time.",
        received.failed_handshakes,
    );
    let of_logs = |count: fn(&Files) -> u64| shared.logs.as_ref().map_or(0, count);
    out.counter(
        "receive_lost_spans",
        "Acknowledged spans whose file was removed or shortened while it was written.",
        shared.files.spans_removed(),
    );
    out.counter(
        "receive_lost_logs",
        "Acknowledged log records whose file was removed or shortened while it was written.",
        of_logs(Files::spans_removed),
    );
    let bytes = shared.files.total_bytes() + of_logs(Files::total_bytes);
    out.gauge("receive_files_bytes", "Size of all files in bytes, as stored.", bytes);
    out.gauge("receive_connections", "Open connections of senders.", shared.connections.open() as u64);
    if let Some(spool) = &shared.forward {
        let (counts, ledger) = (spool.counter().read(), spool.ledger());
        // The sums of the spool's ledger, in all runs: acknowledged is the sum of the others.
        out.counter("forward_acknowledged_spans", "Spans taken to be passed on.", ledger.acknowledged);
        out.counter("forward_sent_spans", "Spans that the other server accepted.", ledger.passed_on);
        let lost = [
            ("expired", ledger.expired),
            ("damaged", ledger.damaged),
            ("thrown_away", ledger.thrown_away),
            ("unrecorded", ledger.unrecorded),
        ];
        let help = "Spans that the other server will not get; unrecorded: of before the ledger, or it did.";
        out.by_reason("forward_lost_spans", help, lost.into_iter());
        out.counter(
            "forward_queued_again_spans",
            "Rejected spans that were acknowledged anew, to be sent again.",
            ledger.queued_again,
        );
        out.counter("forward_retries", "Requests that were sent again.", counts.retries);
        out.gauge("forward_waiting_spans", "Spans that wait in the spool.", ledger.waiting);
        let oldest = spool.oldest().map_or(0, |age| age.as_secs());
        out.gauge("forward_oldest_seconds", "Age of the oldest of these spans, in seconds.", oldest);
        let is_down = u64::from(counts.waiting.is_some());
        out.gauge("forward_down", "1 while the other server accepts none, or cannot be reached.", is_down);
        out.gauge("forward_dead_spans", "Rejected spans in the spool's dead letters.", ledger.dead);
    }
    out.0
}

struct Text(String);

impl Text {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP astracer_{name} {help}\n# TYPE astracer_{name} {kind}");
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        let name = format!("{name}_total");
        self.head(&name, help, "counter");
        let _ = writeln!(self.0, "astracer_{name} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "gauge");
        let _ = writeln!(self.0, "astracer_{name} {value}");
    }

    /// A counter with a label. Reasons are slugs, so they need no escaping.
    fn by_reason(&mut self, name: &str, help: &str, values: impl Iterator<Item = (&'static str, u64)>) {
        let name = format!("{name}_total");
        self.head(&name, help, "counter");
        for (reason, value) in values {
            let _ = writeln!(self.0, "astracer_{name}{{reason=\"{reason}\"}} {value}");
        }
    }
}
