//! Spans of requests to a server, named by route.
//!
//! A sampler counts roots by their name. Spans that are all named `request` would share one key,
//! and spans named by path would have one key for each id; a route gives each kind of request its
//! own. Names and attributes follow OpenTelemetry's conventions for HTTP and gRPC servers.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, ready};

use http::{Extensions, Method, Request, Response, StatusCode};
use opentelemetry::Context;
use tower_service::Service;
use tracing::Span;
use tracing::field::Empty;

use crate::remote_parent::{RemoteParentLayer, attach};

/// The span of a request to a server, for tower-http's `TraceLayer::make_span_with` and the like.
/// It has the level INFO and the target `http_server`.
///
/// The name is `GET /orders/{id}` for this method and route, `GET` without a route, and
/// `package.Service/Method` for gRPC. Pass the route's pattern, never the request's path.
///
/// ```
/// let request = http::Request::post("/orders/17").body(())?;
/// let span = astracer_tower::request_span(&request, Some("/orders/{id}"));
/// # drop(span);
/// # Ok::<(), http::Error>(())
/// ```
pub fn request_span<B>(request: &Request<B>, route: Option<&str>) -> Span {
    let path = request.uri().path();
    if is_grpc(request) {
        let name = path.trim_start_matches('/');
        let (service, method) = name.rsplit_once('/').unwrap_or(("", name));
        return tracing::info_span!(
            target: TARGET,
            "grpc",
            otel.name = name,
            otel.kind = "server",
            rpc.system = "grpc",
            rpc.service = service,
            rpc.method = method,
            rpc.grpc.status_code = Empty,
            http.response.status_code = Empty,
            otel.status_code = Empty,
            "error.type" = Empty,
        );
    }
    let method = known(request.method());
    let verb = if method == OTHER { "HTTP" } else { method };
    let gap = if route.is_some() { " " } else { "" };
    tracing::info_span!(
        target: TARGET,
        "http",
        otel.name = format_args!("{verb}{gap}{}", route.unwrap_or_default()),
        otel.kind = "server",
        http.request.method = method,
        http.route = route,
        url.path = path,
        http.response.status_code = Empty,
        otel.status_code = Empty,
        "error.type" = Empty,
    )
}

const TARGET: &str = "http_server";

/// Stands for every method that is not a standard one: the conventions keep a client from choosing
/// names of spans.
const OTHER: &str = "_OTHER";

fn known(method: &Method) -> &str {
    match method.as_str() {
        known @ ("GET" | "POST" | "PUT" | "DELETE" | "HEAD" | "OPTIONS" | "CONNECT" | "PATCH" | "TRACE"
        | "QUERY") => known,
        _ => OTHER,
    }
}

fn is_grpc<B>(request: &Request<B>) -> bool {
    let kind = request.headers().get(http::header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Records a response's status: server errors fail the span, others do not.
fn record<B>(span: &Span, response: &Response<B>) {
    if span.is_disabled() {
        return;
    }
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    // gRPC answers errors without a message by headers alone. Other statuses are in trailers.
    let grpc = response.headers().get("grpc-status").and_then(|code| code.to_str().ok()?.parse().ok());
    if let Some(code) = grpc {
        span.record("rpc.grpc.status_code", code);
        if GRPC_ERRORS.contains(&code) {
            fail(span, &code.to_string());
        }
    }
    if status.is_server_error() {
        fail(span, status.as_str());
    }
}

/// The codes that the conventions count as errors of the server: UNKNOWN, DEADLINE_EXCEEDED,
/// UNIMPLEMENTED, INTERNAL, UNAVAILABLE and DATA_LOSS.
const GRPC_ERRORS: [i64; 6] = [2, 4, 12, 13, 14, 15];

fn fail(span: &Span, kind: &str) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", kind);
}

type Route = dyn for<'a> Fn(&'a Extensions) -> Option<&'a str> + Send + Sync;

/// A tower layer for servers: each request gets a span named by its route, below the caller's span
/// if the headers name one. It replaces [`RemoteParentLayer`] together with a layer that makes
/// spans, and records the response's status.
///
/// axum puts a request's route among its extensions:
///
/// ```
/// use astracer_tower::RequestSpanLayer;
/// # struct MatchedPath(String);
/// # impl MatchedPath { fn as_str(&self) -> &str { &self.0 } }
///
/// let layer = RequestSpanLayer::new(|request| request.get::<MatchedPath>().map(MatchedPath::as_str));
/// // axum: Router::new().route("/orders/{id}", get(order)).layer(layer)
/// # drop(layer);
/// ```
///
/// For gRPC, whose spans are named by the method that is called, use
/// [`RequestSpanLayer::default`]. The span ends when the response's headers are ready; spans of a
/// streaming body that begin inside it are exported with it if they end before it does.
#[derive(Clone)]
pub struct RequestSpanLayer {
    remote: RemoteParentLayer,
    route: Arc<Route>,
}

impl Default for RequestSpanLayer {
    /// Without routes: spans of HTTP requests are named by their method alone.
    fn default() -> Self {
        Self::new(|_| None)
    }
}

impl RequestSpanLayer {
    /// Names spans by the route that the function finds among a request's extensions.
    pub fn new(route: impl for<'a> Fn(&'a Extensions) -> Option<&'a str> + Send + Sync + 'static) -> Self {
        RequestSpanLayer { remote: RemoteParentLayer::global(), route: Arc::new(route) }
    }

    /// Reads the caller's context through this layer; by default with OpenTelemetry's global
    /// propagator.
    #[must_use]
    pub fn with_remote_parent(self, remote: RemoteParentLayer) -> Self {
        RequestSpanLayer { remote, ..self }
    }
}

impl fmt::Debug for RequestSpanLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestSpanLayer").field("remote", &self.remote).finish_non_exhaustive()
    }
}

service! {
    /// A service whose requests have spans; made by [`RequestSpanLayer`].
    RequestSpan of RequestSpanLayer
}

impl<S, A, B> Service<Request<A>> for RequestSpan<S>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = RequestSpanFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let parent = self.layer.remote.extract(request.headers());
        let guard = parent.as_ref().and_then(attach);
        let span = request_span(&request, (self.layer.route)(request.extensions()));
        let future = span.in_scope(|| self.inner.call(request));
        drop(guard);
        RequestSpanFuture { future, span, parent }
    }
}

pin_project_lite::pin_project! {
    /// The future of [`RequestSpan`]: polled inside the request's span.
    #[derive(Debug)]
    pub struct RequestSpanFuture<F> {
        #[pin]
        future: F,
        span: Span,
        parent: Option<Context>,
    }
}

impl<F, B, E> Future for RequestSpanFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        // If a filter disables the span, spans inside are still the caller's children.
        let _guard = this.parent.as_ref().and_then(attach);
        let response = {
            let _entered = this.span.enter();
            let response = ready!(this.future.poll(cx));
            match &response {
                Ok(response) => record(this.span, response),
                Err(_) => fail(this.span, StatusCode::INTERNAL_SERVER_ERROR.as_str()),
            }
            response
        };
        // The span has ended when the caller goes on: layers outside may ask what became of it.
        *this.span = Span::none();
        Poll::Ready(response)
    }
}
