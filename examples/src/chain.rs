//! Three services for three processes: an axum shop calls a tonic stock service, which asks a bank
//! built on hyper alone two things at once. The layers of `astracer-keep` on both sides of each
//! call tell the other service which traces were kept late, and those of baggage carry the flow of
//! the request along.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use astracer::baggage::critical_path::{
    CriticalPath, CriticalPathRow, ExperimentResult, TimeKind, open_zone,
};
use astracer::baggage::{BranchExt as _, Done, Flows, TenantRow, UnmarkedFork};
use astracer::{
    AnswerLayer, Call, CallLayer, Handle, Inject, InjectLayer, KeepCalls, KeepCallsLayer, KeepLayer,
    RemoteParentFuture, RemoteParentLayer,
};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::uri::PathAndQuery;
use axum::http::{self, Request, Response, StatusCode};
use axum::middleware;
use axum::routing::get;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::{Map, Value, json};
use tokio::net::{TcpListener, TcpStream};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tower_layer::Layer as _;
use tower_service::Service;
use tracing::{Instrument as _, error, info_span, instrument};

use crate::quotes::{connect, unary};
use crate::shop::traced;
use crate::texts::Texts;

type Failure = Box<dyn Error + Send + Sync>;
type Calls<S> = KeepCalls<Inject<Call<S>>>;

/// The baggage of a service.
#[derive(Clone, Debug)]
pub struct Baggage {
    /// The flows of its requests.
    pub flows: Flows,
    /// Whether baggage goes along with its calls.
    pub sends: bool,
}

impl Baggage {
    /// Requests through a tonic channel name no authority yet, so the layer cannot look the peer up
    /// by its name. There is only one.
    fn calls(self, peer: Option<SocketAddr>) -> CallLayer {
        let layer = CallLayer::new(self.flows);
        match peer {
            _ if !self.sends => layer,
            None => layer.with_unnamed_peer(),
            Some(peer) => layer.with_peer(peer.to_string()),
        }
    }
}

/// The critical paths of all requests, by the key of their local roots.
fn critical_paths(flows: &Flows) -> Vec<Value> {
    let rows = flows.critical_path().map(CriticalPath::rows).unwrap_or_default();
    let experiment = |of: &ExperimentResult| {
        json!({
            "name": &*of.name,
            "requests": of.requests,
            "mean_ns": of.total_ns as f64 / of.requests.max(1) as f64,
            "changed_mean_ns": of.changed_ns / of.requests.max(1) as f64,
        })
    };
    let row = |row: &CriticalPathRow| {
        let functions = row.by_function();
        let functions: Map<String, Value> =
            functions.iter().map(|(name, nanos)| (name.to_string(), json!(nanos))).collect();
        let kinds = TimeKind::ALL.iter().map(|kind| (kind.name().to_owned(), json!(row.of_kind(*kind))));
        json!({
            "key": &*row.key,
            "requests": row.requests,
            "total_ns": row.total_ns,
            "p50_ns": row.p50_ns,
            "p95_ns": row.p95_ns,
            "functions_ns": functions,
            "kinds_ns": kinds.collect::<Map<String, Value>>(),
            "experiments": row.experiments.iter().map(experiment).collect::<Vec<Value>>(),
        })
    };
    rows.iter().map(row).collect()
}

/// A line of JSON with the sums by tenant, the callsites at which a `.branch()` is missing, and the
/// critical paths of all requests.
pub fn summary(flows: &Flows) -> String {
    let row = |row: &TenantRow| {
        json!({
            "tenant": row.tenant,
            "resource": row.resource,
            "calls": row.calls,
            "errors": row.errors,
            "wall_ns": row.wall_ns,
            "on_thread_ns": row.on_thread_ns,
            "waiting_ns": row.waiting_ns,
        })
    };
    let tenants: Vec<Value> = flows.tenants().rows.iter().map(row).collect();
    let place = |fork: &UnmarkedFork| json!({ "name": fork.name, "file": fork.file, "line": fork.line });
    let unmarked: Vec<Value> = flows.stats().unmarked.iter().map(place).collect();
    let paths = critical_paths(flows);
    json!({ "tenants": tenants, "unmarked_forks": unmarked, "critical_paths": paths }).to_string()
}

/// The bank declines every order whose id is a multiple of this.
pub const DECLINES: u64 = 5;
/// The shop fails if an order's id modulo 7 is this, after the stock and the bank have succeeded.
pub const FAILS: u64 = 3;

const RESERVE: &str = "/stock.Stock/Reserve";

/// Serves `/orders/{id}` over HTTP, by axum, until `stop` ends.
///
/// # Errors
///
/// If the stock's address is not valid, or the listener fails.
pub async fn shop(
    listener: TcpListener,
    stock: SocketAddr,
    (handle, baggage): (Handle, Baggage),
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Failure> {
    let channel = connect(stock).await.map_err(|error| error.to_string())?;
    let answers = AnswerLayer::new(baggage.flows.clone());
    let peer = KeepCallsLayer::new(handle.clone()).with_unnamed_peer();
    // The server has no such method, but learns what was kept.
    let request = || Request::post("/stock.Stock/Keep").body(Body::empty()).unwrap_or_default();
    let announcing = tokio::spawn(peer.clone().announce_to("", channel.clone(), request, pause));
    let stock = peer.layer(InjectLayer::global().layer(baggage.calls(None).layer(channel.clone())));
    let remote = RemoteParentLayer::global();
    let routes = Router::new()
        .route("/orders/{id}", get(order))
        .with_state(stock)
        .route_layer(middleware::from_fn(traced))
        .route_layer(remote.clone())
        // Outermost, so that the request's span has ended, and the policies have decided, before
        // the response's header is written.
        .route_layer(KeepLayer::new(handle, remote))
        .route_layer(answers);
    axum::serve(listener, routes).with_graceful_shutdown(stop).await?;
    announcing.abort();
    announced(peer.announce_waiting("", channel, request)).await;
    Ok(())
}

async fn order(State(stock): State<Calls<Channel>>, Path(id): Path<u64>) -> Result<String, StatusCode> {
    let span = info_span!("reserve", otel.kind = "client", id);
    let answer = unary(stock, PathAndQuery::from_static(RESERVE), id.to_string()).instrument(span).await;
    let answer = answer.map_err(|_| StatusCode::BAD_GATEWAY)?;
    if id % 7 == FAILS {
        error!("no label could be printed");
        return Err(StatusCode::INTERNAL_SERVER_ERROR);
    }
    Ok(answer)
}

/// Serves `stock.Stock/Reserve` over gRPC, by tonic, until `stop` ends.
///
/// # Errors
///
/// If the server fails.
pub async fn stock(
    incoming: TcpIncoming,
    bank: SocketAddr,
    (handle, baggage): (Handle, Baggage),
    options: Connections,
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let answers = AnswerLayer::new(baggage.flows.clone());
    let peer = KeepCallsLayer::new(handle.clone()).with_peer(bank.to_string());
    let client = Http { address: bank, options, idle: Arc::default() };
    let request = move || Request::get(format!("http://{bank}/")).body(Empty::new()).unwrap_or_default();
    let name = bank.to_string();
    let announcing = tokio::spawn(peer.clone().announce_to(name.clone(), client.clone(), request, pause));
    let bank = baggage.calls(Some(bank)).layer(client.clone());
    let stock = Stock { bank: peer.layer(InjectLayer::global().layer(bank)) };
    let remote = RemoteParentLayer::global();
    let keep = KeepLayer::new(handle, remote.clone());
    let server = Server::builder().layer(answers).layer(keep).layer(remote);
    server.clone().add_service(stock).serve_with_incoming_shutdown(incoming, stop).await?;
    announcing.abort();
    announced(peer.announce_waiting(&name, client, request)).await;
    Ok(())
}

/// A pause between announcements without calls, well below the time for which peers hold their
/// parts.
async fn pause() {
    tokio::time::sleep(Duration::from_secs(10)).await;
}

/// Waits until the traces that a service kept last are announced. It stops even if its peer does
/// not answer; the shutdown counts what is missing.
async fn announced(announcing: impl Future<Output = ()>) {
    let _ = tokio::time::timeout(Duration::from_secs(5), announcing).await;
}

/// The service, shaped like the code that tonic generates.
#[derive(Clone, Debug)]
struct Stock {
    bank: Calls<Http>,
}

impl NamedService for Stock {
    const NAME: &'static str = "stock.Stock";
}

type Pending<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl Service<Request<Body>> for Stock {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pending<Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let reserve = Reserve(self.bank.clone());
        Box::pin(async { Ok(tonic::server::Grpc::new(Texts).unary(reserve, request).await) })
    }
}

struct Reserve(Calls<Http>);

impl tonic::server::UnaryService<String> for Reserve {
    type Response = String;
    type Future = Pending<tonic::Response<String>, tonic::Status>;

    fn call(&mut self, request: tonic::Request<String>) -> Self::Future {
        let span = info_span!("stock.Stock/Reserve", otel.kind = "server", rpc.system = "grpc");
        let bank = self.0.clone();
        Box::pin(
            async move {
                let id = request.into_inner();
                // Branches of the request, so that both calls carry its baggage, and each answer
                // is merged where the results are.
                let limit = ask(bank.clone(), "limits", &id).branch();
                let payment = ask(bank, "payments", &id).branch();
                let (limit, payment) = tokio::join!(limit, payment);
                let (limit, payment) = (Done::join(limit), Done::join(payment));
                // The bank could not be reached.
                let unavailable = |error: Failure| tonic::Status::unavailable(error.to_string());
                limit.map_err(unavailable)?;
                payment.map(tonic::Response::new).map_err(unavailable)
            }
            .instrument(span),
        )
    }
}

/// Asks the bank. A declined card is a normal result for the stock: only the bank's span has an
/// error.
#[instrument(skip(bank), fields(otel.kind = "client"))]
async fn ask(mut bank: Calls<Http>, about: &str, id: &str) -> Result<String, Failure> {
    let mut request = Request::get(format!("/{about}/{id}")).body(Empty::<Bytes>::new())?;
    let host = bank.get_ref().get_ref().get_ref().address.to_string();
    request.headers_mut().insert(http::header::HOST, host.parse()?);
    std::future::poll_fn(|cx| bank.poll_ready(cx)).await?;
    let response = bank.call(request).await?;
    let text = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(text.to_vec())?)
}

/// A client on hyper alone, with one connection for each request, unless it keeps them.
#[derive(Clone, Debug)]
struct Http {
    address: SocketAddr,
    options: Connections,
    /// Connections that are not in use.
    idle: Arc<Mutex<Vec<Connection>>>,
}

/// Options for the stock's connections to the bank.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connections {
    /// Keeps them, in place of a new one for each request.
    pub are_kept: bool,
    /// Calls the time in which they are made `connect` in critical paths.
    pub names_connect: bool,
}

type Connection = client::SendRequest<Empty<Bytes>>;

impl Http {
    async fn connect(&self) -> Result<Connection, Failure> {
        // A part of the span around it, which a recording does not tell apart.
        let _zone = self.options.names_connect.then(|| open_zone("connect"));
        let kept = self.idle.lock().ok().and_then(|mut idle| idle.pop());
        if let Some(mut kept) = kept
            && kept.ready().await.is_ok()
        {
            return Ok(kept);
        }
        let stream = TcpStream::connect(self.address).await?;
        let (sender, connection) = client::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

impl Service<Request<Empty<Bytes>>> for Http {
    type Response = Response<Incoming>;
    type Error = Failure;
    type Future = Pending<Response<Incoming>, Failure>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Empty<Bytes>>) -> Self::Future {
        let client = self.clone();
        Box::pin(async move {
            let mut connection = client.connect().await?;
            let response = connection.send_request(request).await?;
            if client.options.are_kept
                && let Ok(mut idle) = client.idle.lock()
            {
                idle.push(connection);
            }
            Ok(response)
        })
    }
}

/// Serves `/payments/{id}` and `/limits/{id}` over HTTP, on hyper alone.
///
/// # Errors
///
/// If the listener fails.
pub async fn bank(listener: TcpListener, (handle, baggage): (Handle, Baggage)) -> Result<(), Failure> {
    let answers = AnswerLayer::new(baggage.flows);
    let keep = KeepLayer::new(handle, RemoteParentLayer::global());
    loop {
        let (stream, _) = listener.accept().await?;
        let keep = keep.clone();
        let service = tower::service_fn(move |request: Request<Incoming>| {
            let keep = keep.clone();
            async move {
                let (headers, path) = (request.headers(), request.uri().path());
                let trace_id = keep.on_request(headers);
                let answer = async {
                    match path.split('/').nth(1) {
                        Some("limits") => limit(path).await,
                        Some("payments") => payment(path).await,
                        // A request that only announces traces has no span.
                        _ => Response::default(),
                    }
                };
                let mut response = RemoteParentFuture::new(headers, answer).await;
                keep.on_response(trace_id, response.headers_mut());
                Ok::<_, Infallible>(response)
            }
        });
        let service = TowerToHyperService::new(answers.layer(service));
        tokio::spawn(server::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

#[instrument(name = "GET /payments/{id}", fields(otel.kind = "server"))]
async fn payment(path: &str) -> Response<Full<Bytes>> {
    tokio::task::yield_now().await;
    let id: u64 = path.rsplit('/').next().and_then(|id| id.parse().ok()).unwrap_or_default();
    let text = if id.is_multiple_of(DECLINES) {
        error!(id, "card declined");
        "declined"
    } else {
        "paid"
    };
    Response::new(Full::new(text.into()))
}

#[instrument(name = "GET /limits/{id}", fields(otel.kind = "server"))]
async fn limit(path: &str) -> Response<Full<Bytes>> {
    tokio::task::yield_now().await;
    Response::new(Full::new("within the limit".into()))
}
