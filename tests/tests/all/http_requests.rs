//! Requests through axum and tower: spans and keys by route, and context out of one service and
//! into the next.

use std::collections::BTreeMap;
use std::time::Duration;

use astracer_sdk::{Astracer, Builder, ContextMode};
use astracer_testing::Collector;
use astracer_tower::{
    Inject, InjectLayer, RemoteParentLayer, RequestSpanLayer, inject, record_response, record_trailers,
    request_span,
};
use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Path};
use axum::routing::get;
use http::{HeaderMap, Request, StatusCode};
use opentelemetry::SpanId;
use opentelemetry::trace::{SpanKind, Status};
use opentelemetry_sdk::trace::SpanData;
use tower::{Layer as _, Service as _, ServiceExt as _};
use tower_http::trace::TraceLayer;
use tracing::dispatcher::with_default;
use tracing::{Dispatch, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

struct World {
    dispatch: Dispatch,
    collector: Collector,
    astracer: Astracer,
}

fn world(sampler: &str, change: impl FnOnce(Builder) -> Builder) -> World {
    let collector = Collector::default();
    let builder = Astracer::builder().with_sampler(sampler.parse().expect("a sampler"));
    let astracer = change(builder).with_exporter(collector.clone()).build().expect("a layer");
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(astracer.layer.clone()));
    World { dispatch, collector, astracer }
}

impl World {
    fn send(&self, router: Router, paths: &[&str]) -> Vec<StatusCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let send = |path: &&str| {
            let request = Request::get(*path).body(Body::empty()).expect("a request");
            runtime.block_on(router.clone().oneshot(request)).expect("the router never fails").status()
        };
        with_default(&self.dispatch, || paths.iter().map(send).collect())
    }

    fn spans(&self) -> Vec<SpanData> {
        self.astracer.handle.flush(Duration::from_secs(60)).expect("exported");
        self.collector.take()
    }

    /// The calls of each key.
    fn keys(&self) -> BTreeMap<String, u64> {
        let snapshot = self.astracer.handle.snapshot().expect("bump decides by key");
        snapshot.keys.into_iter().map(|known| (known.key, known.counts.seen())).collect()
    }
}

const BUMP: &str = "bump:lambda=10,min=0.01,window=1h";

fn router() -> Router {
    let order = async |Path(id): Path<u32>| match id {
        13 => Err(StatusCode::SERVICE_UNAVAILABLE),
        id => Ok(id.to_string()),
    };
    Router::new().route("/orders/{id}", get(order)).route("/health", get(async || "ok"))
}

fn route(request: &http::Extensions) -> Option<&str> {
    request.get::<MatchedPath>().map(MatchedPath::as_str)
}

fn names(keys: &[(&str, u64)]) -> BTreeMap<String, u64> {
    keys.iter().map(|(key, calls)| ((*key).to_owned(), *calls)).collect()
}

/// The README's lines with a plain `TraceLayer`, and with the two ways that docs/http.md shows.
#[test]
fn two_routes_are_two_keys_with_each_kind_of_layer() {
    let paths: Vec<String> = (0..40).flat_map(|id| [format!("/orders/{id}"), "/health".to_owned()]).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let make_span = |request: &Request<Body>| request_span(request, route(request.extensions()));
    let plain = router().layer(TraceLayer::new_for_http());
    let make_span = TraceLayer::new_for_http().make_span_with(make_span);
    let named = router().layer(make_span.on_response(record_response).on_eos(record_trailers));
    let own = router().layer(RequestSpanLayer::new(route));
    for (router, orders) in [(plain, "GET /orders/*"), (named, "GET /orders/{id}"), (own, "GET /orders/{id}")]
    {
        for start in [astracer_sdk::Start::WhenUsed, astracer_sdk::Start::AtOnce] {
            let world = world(BUMP, |builder| builder.with_start(start));
            world.send(router.clone(), &paths);
            assert_eq!(world.keys(), names(&[("GET /health", 40), (orders, 40)]), "{start:?}");
        }
    }
}

fn attribute(span: &SpanData, name: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
    found.map(|attribute| attribute.value.to_string()).unwrap_or_default()
}

/// Names, kinds, attributes and statuses follow OpenTelemetry's conventions for HTTP servers.
#[test]
fn a_request_span_has_the_route_and_the_status() {
    let world = world("always", |builder| builder);
    let paths = ["/orders/7?full=1", "/orders/13", "/nowhere"];
    let statuses = world.send(router().layer(RequestSpanLayer::new(route)), &paths);
    assert_eq!(statuses.iter().map(StatusCode::as_u16).collect::<Vec<_>>(), [200, 503, 404]);
    let spans = world.spans();
    let seen = |span: &SpanData| {
        let of = ["http.request.method", "http.route", "url.path", "http.response.status_code", "error.type"];
        assert_eq!(span.span_kind, SpanKind::Server);
        (span.name.to_string(), of.map(|name| attribute(span, name)).join(" "), span.status.clone())
    };
    let expected = [
        ("GET /orders/{id}", "GET /orders/{id} /orders/7 200 ", Status::Unset),
        ("GET /orders/{id}", "GET /orders/{id} /orders/13 503 503", Status::error("")),
        ("GET", "GET  /nowhere 404 ", Status::Unset),
    ];
    let expected = expected.map(|(name, of, status)| (name.to_owned(), of.to_owned(), status));
    assert_eq!(spans.iter().map(seen).collect::<Vec<_>>(), expected);
}

/// A made-up method does not get into names, and gRPC is named by its method.
#[test]
fn other_requests_have_names_that_clients_do_not_choose() {
    let world = world("always", |builder| builder);
    let grpc = Request::post("/shop.Orders/Find").header("content-type", "application/grpc+proto");
    let odd = Request::builder().method("BREW").uri("/pot");
    let failed = http::Response::builder().header("grpc-status", "13").body(String::new());
    let failed = failed.expect("a response");
    let ok = http::Response::new(String::new());
    with_default(&world.dispatch, || {
        for (request, response) in [(grpc, failed), (odd, ok)] {
            let service = tower::service_fn(move |_| std::future::ready(Ok::<_, ()>(response.clone())));
            let service = RequestSpanLayer::default().layer(service);
            let request = request.body(()).expect("a request");
            futures(service.oneshot(request)).expect("a response");
        }
    });
    let spans = world.spans();
    let [grpc, odd] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((&*grpc.name, &grpc.status), ("shop.Orders/Find", &Status::error("")));
    let of = ["rpc.system", "rpc.service", "rpc.method", "rpc.grpc.status_code", "error.type"];
    assert_eq!(of.map(|name| attribute(grpc, name)), ["grpc", "shop.Orders", "Find", "13", "13"]);
    assert_eq!((&*odd.name, attribute(odd, "http.request.method")), ("HTTP", "_OTHER".to_owned()));
}

fn futures<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// A client's span is the parent of the server's span, and the handler's span is below that,
/// whatever the context mode; a dropped trace is propagated as dropped.
#[test]
fn context_goes_out_of_a_client_and_into_a_server() {
    for mode in [ContextMode::Recording, ContextMode::Ids, ContextMode::Off] {
        let client = world("always", |builder| builder.with_context_mode(mode));
        let server = world("never", |builder| builder);
        let (out, remote) = (client.astracer.propagator(), server.astracer.propagator());
        let handler = Router::new()
            .route("/stock", get(async || info_span!("handler").in_scope(|| "ok")))
            .layer(RequestSpanLayer::new(route).with_remote_parent(RemoteParentLayer::new(remote)));
        let mut request = Request::get("/stock").body(Body::empty()).expect("a request");
        // The client ends at the network, where only the headers go on.
        let network = tower::service_fn(async |request: Request<Body>| Ok::<_, ()>(request));
        let mut network: Inject<_> = InjectLayer::new(out).layer(network);
        let call = with_default(&client.dispatch, || {
            info_span!("call", otel.kind = "client").in_scope(|| network.call(request))
        });
        request = futures(call).expect("a request");
        assert!(request.headers().contains_key("traceparent"), "{mode:?}");
        with_default(&server.dispatch, || futures(handler.oneshot(request))).expect("a response");
        let (caller, spans) = (client.spans(), server.spans());
        let ids: Vec<_> = spans.iter().map(|span| (&*span.name, span.parent_span_id)).collect();
        let [handler, request] = ["handler", "GET /stock"].map(|name| {
            spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("{mode:?} {ids:?}"))
        });
        assert_eq!(handler.parent_span_id, request.span_context.span_id(), "{mode:?} {ids:?}");
        assert_eq!(request.parent_span_id, caller[0].span_context.span_id(), "{mode:?} {ids:?}");
        assert_eq!(request.span_context.trace_id(), caller[0].span_context.trace_id());
    }
    let dropping = world("never", |builder| builder);
    opentelemetry::global::set_text_map_propagator(dropping.astracer.propagator());
    let mut headers = HeaderMap::new();
    inject(&mut headers);
    assert!(headers.is_empty(), "outside of spans nothing is written: {headers:?}");
    let mut metadata = tonic::metadata::MetadataMap::new();
    with_default(&dropping.dispatch, || {
        info_span!("dropped").in_scope(|| info_span!("below").in_scope(|| inject(metadata.as_mut())));
    });
    let parent = metadata.get("traceparent").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let flags = u8::from_str_radix(&parent[53..], 16).expect("flags");
    assert!(parent.starts_with("00-") && flags & 1 == 0, "not sampled: {parent}");
    assert_ne!(&parent[36..52], SpanId::INVALID.to_string());
    assert!(dropping.spans().is_empty());
}
