//! Baggage between services over TCP: reqwest calls axum, directly and through a service that has
//! only OpenTelemetry's stock propagators.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use astracer::baggage::{Applications, Flows, Namespace, Registry, flow};
use astracer_sdk::Astracer;
use astracer_tower::{AnswerLayer, CallLayer, InjectLayer, RemoteParentLayer, RequestSpanLayer};
use axum::Router;
use axum::routing::get;
use http::{HeaderMap, Request, Response};
use opentelemetry::propagation::{TextMapCompositePropagator, TextMapPropagator as _};
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use tower::{Layer as _, ServiceExt as _};
use tracing::dispatcher::with_default;
use tracing::{Dispatch, Instrument as _, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

/// A service of ours, with a namespace for notes.
#[derive(Clone)]
struct Ours {
    flows: Flows,
    notes: Namespace,
    astracer: Astracer,
    dispatch: Dispatch,
}

fn ours(sampler: &str) -> Ours {
    let registry = Registry::default();
    let notes = registry.register("notes", 0).expect("a free name");
    let flows = Flows::new(Applications::new(&registry).with_tenants("tenant.id"));
    let builder = Astracer::builder().with_sampler(sampler.parse().expect("a sampler"));
    let astracer = builder
        .with_observer(Arc::new(flows.clone()))
        .with_exporter(astracer_testing::Collector::default())
        .build()
        .expect("a layer");
    // Without the spans of hyper and reqwest.
    let targets = tracing_subscriber::filter::Targets::new()
        .with_target("http_server", tracing::Level::INFO)
        .with_target(env!("CARGO_CRATE_NAME"), tracing::Level::INFO);
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(astracer.layer.clone()).with(targets));
    Ours { flows, notes, astracer, dispatch }
}

impl Ours {
    fn add(&self, note: &str) {
        flow::with(|baggage| baggage.add(&self.notes, b"", note.as_bytes())).expect("a request");
    }

    fn seen(&self) -> Vec<String> {
        let text = |note: &[u8]| String::from_utf8(note.to_vec()).expect("text");
        flow::with(|baggage| baggage.get(&self.notes, b"").map(text).collect()).expect("a request")
    }

    /// Answers `/` at once and `/never` not at all.
    fn serve(&self) -> SocketAddr {
        let (work, never) = (self.clone(), self.clone());
        let remote = RemoteParentLayer::new(self.astracer.propagator());
        let note = |service: &Ours| {
            assert_eq!(service.seen(), ["front"]);
            service.add("back");
        };
        let router = Router::new()
            .route("/", get(async move || note(&work)))
            .route(
                "/never",
                get(async move || {
                    note(&never);
                    std::future::pending::<()>().await;
                }),
            )
            .layer(RequestSpanLayer::default().with_remote_parent(remote))
            .layer(AnswerLayer::new(self.flows.clone()));
        serve(router, self.dispatch.clone())
    }

    /// Calls a peer in a root span. Returns whether there was a response.
    fn call(&self, peer: SocketAddr, path: &str, time_out: Option<Duration>) -> bool {
        let calls = CallLayer::new(self.flows.clone()).with_peer(peer.to_string());
        let inject = InjectLayer::new(self.astracer.propagator());
        let work = async {
            self.add("front");
            flow::set("tenant.id", "acme").expect("a request");
            let client = reqwest::Client::builder();
            let client = time_out.into_iter().fold(client, reqwest::ClientBuilder::timeout).build();
            let client = client.expect("a client");
            let client = tower::service_fn(move |request: Request<reqwest::Body>| {
                let client = client.clone();
                async move { client.execute(request.try_into()?).await.map(Response::<reqwest::Body>::from) }
            });
            let request = Request::get(format!("http://{peer}{path}")).body(reqwest::Body::default());
            let response = inject.layer(calls.layer(client)).oneshot(request.expect("a request")).await;
            (response.is_ok_and(|response| response.status() == 200), self.seen())
        };
        let (is_answered, seen) =
            with_default(&self.dispatch, || runtime().block_on(work.instrument(info_span!("front"))));
        let is_merged = self.flows.stats().messages.merged > 0;
        assert_eq!(seen, if is_merged { vec!["back", "front"] } else { vec!["front"] });
        is_answered
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Serves on a thread of its own, until the process ends.
fn serve(router: Router, dispatch: Dispatch) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        with_default(&dispatch, || {
            runtime().block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
                axum::serve(listener, router).await
            })
        })
    });
    address
}

#[test]
fn reqwest_calls_axum() {
    let (front, back) = (ours("always"), ours("never"));
    assert!(front.call(back.serve(), "/", None));
    let stats = front.flows.stats();
    assert_eq!((stats.joined, stats.messages.merged, stats.open), (1, 1, 0));
    assert_eq!(tenant(&back), ("acme".to_owned(), 1));
}

#[test]
fn a_call_of_reqwest_times_out() {
    let (front, back) = (ours("always"), ours("never"));
    // The server never answers, however long that takes.
    assert!(!front.call(back.serve(), "/never", Some(Duration::from_millis(50))));
    let stats = front.flows.stats();
    assert_eq!((stats.dropped, stats.messages.merged, stats.open), (1, 0, 0));
    assert!(stats.messages.opaque.is_empty());
}

/// The stock service passes the tenant and our member on, but not the request for an answer.
#[test]
fn behind_a_stock_service_the_tenant_arrives() {
    for sampler in ["always", "never"] {
        let (front, back) = (ours(sampler), ours("always"));
        let next = back.serve();
        let stock =
            Router::new().route("/", get(async move |headers: HeaderMap| pass_on(&headers, next).await));
        let stock = serve(stock, Dispatch::none());
        assert!(front.call(stock, "/", None));
        let stats = front.flows.stats();
        let opaque: Vec<(String, u64)> = stats.messages.opaque.into_iter().collect();
        assert_eq!(opaque, [(stock.to_string(), 1)]);
        assert_eq!((stats.detached, stats.messages.merged), (1, 0));
        // The back has seen the front's notes: it asserts that itself.
        assert_eq!(tenant(&back), ("acme".to_owned(), 1));
        assert_eq!(back.flows.stats().messages.answered, 0);
    }
}

struct Headers(Vec<(String, String)>);

impl opentelemetry::propagation::Injector for Headers {
    fn set(&mut self, key: &str, value: String) {
        self.0.push((key.to_owned(), value));
    }
}

struct Received<'a>(&'a HeaderMap);

impl opentelemetry::propagation::Extractor for Received<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

/// A service with OpenTelemetry's own propagators calls the next one.
async fn pass_on(headers: &HeaderMap, next: SocketAddr) -> Result<(), http::StatusCode> {
    let stock = TextMapCompositePropagator::new(vec![
        Box::new(TraceContextPropagator::new()),
        Box::new(BaggagePropagator::new()),
    ]);
    let context = stock.extract(&Received(headers));
    let mut out = Headers(Vec::new());
    stock.inject_context(&context, &mut out);
    let call = reqwest::Client::new().get(format!("http://{next}/"));
    let call = out.0.into_iter().fold(call, |call, (name, value)| call.header(name, value));
    let response = call.send().await.map_err(|_| http::StatusCode::BAD_GATEWAY)?;
    response.error_for_status().map(|_| ()).map_err(|_| http::StatusCode::BAD_GATEWAY)
}

/// The tenant of the only row, and its calls. The server's request may end after its response.
fn tenant(service: &Ours) -> (String, u64) {
    astracer_testing::wait_until("the request to end", || !service.flows.tenants().rows.is_empty());
    let rows = service.flows.tenants().rows;
    assert_eq!(rows.len(), 1, "{rows:?}");
    (rows[0].tenant.clone(), rows[0].calls)
}
