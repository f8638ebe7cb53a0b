//! Names and attributes of requests, by OpenTelemetry's conventions.

use std::convert::Infallible;
use std::future::ready;

use astracer_testing::{attribute, world};
use astracer_tower::{InjectLayer, RequestSpanLayer, client_span};
use axum::Router;
use axum::body::Body;
use axum::extract::MatchedPath;
use axum::routing::get;
use http::{Request, Response};
use tower::util::{ServiceExt as _, service_fn};
use tower_layer::Layer as _;

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// axum gives no route to requests of a nested service, nor to those of a nested router's fallback.
#[test]
fn requests_without_a_route_are_named_by_prefix() {
    let files = service_fn(|_: Request<Body>| ready(Ok::<_, Infallible>(Response::new(Body::empty()))));
    let api = Router::new().route("/orders/{id}", get(async || "an order")).fallback(async || "no such call");
    let own = RequestSpanLayer::new(|request| request.get::<MatchedPath>().map(MatchedPath::as_str));
    let router = Router::new()
        .nest_service("/files", files)
        .nest("/api", api.clone())
        .nest("/api/v2", api)
        .route("/health", get(async || "ok"))
        .layer(own.with_prefixes(["/api", "/files/", "/api/v2"]));
    let world = world(|builder| builder);
    for (path, name) in [
        ("/health", "GET /health"),
        ("/api/orders/7", "GET /api/orders/{id}"),
        ("/api/v2/orders/7", "GET /api/v2/orders/{id}"),
        ("/api/nothing/7", "GET /api/{*rest}"),
        ("/api/v2/nothing/7", "GET /api/v2/{*rest}"),
        ("/files/a/b.txt", "GET /files/{*rest}"),
        ("/files", "GET /files"),
        ("/filesystem", "GET"),
        ("/", "GET"),
    ] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let spans = world.run(|| drop(run(router.clone().oneshot(request))));
        let [span] = &spans[..] else { panic!("{path}: {spans:?}") };
        assert_eq!(span.name, name, "{path}");
        let route = attribute(span, "http.route").map(|route| route.to_string());
        assert_eq!(route.as_deref(), name.strip_prefix("GET "), "{path}");
        assert_eq!(attribute(span, "url.path").unwrap().to_string(), path);
        world.collector.take();
    }
}

#[test]
fn a_call_has_the_attributes_of_a_client_span() {
    let get = Request::builder;
    let check = |request: http::request::Builder, expected: &str| {
        let world = world(|builder| builder);
        let spans = world.run(|| drop(client_span(&request.body(()).unwrap())));
        let [span] = &spans[..] else { panic!("{spans:?}") };
        let mut text = format!("{}, {:?}", span.name, span.span_kind);
        for attribute in &span.attributes {
            text += &format!(", {}={}", attribute.key, attribute.value);
        }
        assert_eq!(text, expected);
    };
    check(
        get().uri("http://shop:8080/orders/7?full=1"),
        "GET, Client, http.request.method=GET, server.address=shop, server.port=8080, \
         url.full=http://shop:8080/orders/7?full=1",
    );
    check(
        get().uri("https://[::1]/"),
        "GET, Client, http.request.method=GET, server.address=::1, server.port=443, url.full=https://[::1]/",
    );
    // The secrets that the conventions name.
    check(
        get().uri("https://ann:secret@shop/a?sig=secret&b=1&Signature=x&X-Goog-Signature=y&AWSAccessKeyId=z"),
        "GET, Client, http.request.method=GET, server.address=shop, server.port=443, \
         url.full=https://REDACTED:REDACTED@shop/a?sig=REDACTED&b=1&Signature=REDACTED&X-Goog-Signature=REDACTED&AWSAccessKeyId=REDACTED",
    );
    check(
        get().uri("http://token@shop/"),
        "GET, Client, http.request.method=GET, server.address=shop, server.port=80, url.full=http://REDACTED@shop/",
    );
    // On a connection of hyper's, the URI has no server.
    check(
        get().uri("/orders/7").header("host", "shop:8080"),
        "GET, Client, http.request.method=GET, server.address=shop, server.port=8080, url.path=/orders/7",
    );
    check(get().method("BREW").uri("/pot"), "HTTP, Client, http.request.method=_OTHER, url.path=/pot");
    check(
        Request::post("http://shop:50051/shop.Orders/Find").header("content-type", "application/grpc+proto"),
        "shop.Orders/Find, Client, rpc.system=grpc, rpc.service=shop.Orders, rpc.method=Find, \
         server.address=shop, server.port=50051",
    );
}

/// The request carries the context of its own span, and a handler's span in the same process is
/// below it.
#[test]
fn a_request_carries_the_context_of_its_client_span() {
    let world = world(|builder| builder);
    let remote = astracer_tower::RemoteParentLayer::new(world.astracer.propagator());
    let server = RequestSpanLayer::default().with_remote_parent(remote);
    let network = service_fn(move |request: Request<String>| {
        let answer =
            service_fn(|_: Request<String>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
        let apart = opentelemetry::Context::new().attach();
        let answer = server.layer(answer).oneshot(request);
        drop(apart);
        answer
    });
    let client = InjectLayer::new(world.astracer.propagator()).with_client_span().layer(network);
    let request = Request::get("http://shop/").body(String::new()).unwrap();
    let spans = world.run(|| {
        let _outer = tracing::info_span!("outer").entered();
        drop(run(client.oneshot(request)));
    });
    let names: Vec<_> = spans.iter().map(|span| (&*span.name, &span.span_kind)).collect();
    let [server, client, outer] = &spans[..] else { panic!("{names:?}") };
    assert_eq!(server.parent_span_id, client.span_context.span_id(), "{names:?}");
    assert_eq!(client.parent_span_id, outer.span_context.span_id(), "{names:?}");
}
