//! Spans of requests to a server, named by route.
//!
//! A sampler counts roots by their name. Spans that are all named `request` would share one key,
//! and spans named by path would have one key for each id; a route gives each kind of request its
//! own. Names and attributes follow OpenTelemetry's conventions for HTTP and gRPC servers.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::task::{self, Poll};

use http::{Extensions, Method, Request, Response};
use http_body::Body;
use tower_service::Service;
use tracing::Span;
use tracing::field::Empty;

use crate::call::{RequestSpanBody, RequestSpanFuture};
use crate::remote_parent::{RemoteParentLayer, attach};
use crate::status::{Outcome, Protocol, Side};

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
    begin(request, route, Protocol::of(request.headers()))
}

fn begin<B>(request: &Request<B>, route: Option<&str>, protocol: Protocol) -> Span {
    let path = request.uri().path();
    if protocol != Protocol::Http {
        let (name, service, method) = grpc_names(path);
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
            otel.status_description = Empty,
            "error.type" = Empty,
        );
    }
    let (method, verb) = method_names(request.method());
    let mut buffer = [0; 96];
    tracing::info_span!(
        target: TARGET,
        "http",
        otel.name = &*route.map_or(verb.into(), |route| joined(&mut buffer, verb, route)),
        otel.kind = "server",
        http.request.method = method,
        http.route = route,
        url.path = path,
        http.response.status_code = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty,
        "error.type" = Empty,
    )
}

const TARGET: &str = "http_server";

/// The name of a request with a route. Joined by hand, because each request pays for it, and
/// formatting takes 270 instructions more (callgrind, 2026-11-29).
fn joined<'a>(buffer: &'a mut [u8; 96], verb: &str, route: &str) -> Cow<'a, str> {
    let (gap, end) = (verb.len(), verb.len() + 1 + route.len());
    if let Some(text) = buffer.get_mut(..end) {
        text[..gap].copy_from_slice(verb.as_bytes());
        text[gap] = b' ';
        text[gap + 1..].copy_from_slice(route.as_bytes());
        if let Ok(text) = std::str::from_utf8(text) {
            return text.into();
        }
    }
    format!("{verb} {route}").into()
}

/// A method as an attribute, and in a name. The conventions keep a client from choosing names of
/// spans: every method that is not a standard one is `_OTHER` and `HTTP`.
pub(crate) fn method_names(method: &Method) -> (&str, &str) {
    match method.as_str() {
        known @ ("GET" | "POST" | "PUT" | "DELETE" | "HEAD" | "OPTIONS" | "CONNECT" | "PATCH" | "TRACE"
        | "QUERY") => (known, known),
        _ => ("_OTHER", "HTTP"),
    }
}

/// The name, the service and the method of a gRPC call to this path.
pub(crate) fn grpc_names(path: &str) -> (&str, &str, &str) {
    let name = path.trim_start_matches('/');
    let (service, method) = name.rsplit_once('/').unwrap_or(("", name));
    (name, service, method)
}

type Route = dyn for<'a> Fn(&'a Extensions) -> Option<&'a str> + Send + Sync;

/// A tower layer for servers: each request gets a span named by its route, below the caller's span
/// if the headers name one. It replaces [`RemoteParentLayer`] together with a layer that makes
/// spans, and records the response's status.
///
/// The span lasts until the response's body ends, fails or is dropped, and spans of the body are
/// below it. A server's error fails it: an HTTP status of 500 or above, a gRPC status that the
/// conventions count as the server's, in headers or trailers, and a body that fails.
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
/// [`RequestSpanLayer::default`].
#[derive(Clone)]
pub struct RequestSpanLayer {
    remote: RemoteParentLayer,
    route: Arc<Route>,
    /// Routes of whole prefixes, which end with [`REST`].
    prefixes: Arc<[String]>,
}

/// Stands for the rest of a path in a route, as axum writes it.
const REST: &str = "/{*rest}";

impl Default for RequestSpanLayer {
    /// Without routes: spans of HTTP requests are named by their method alone.
    fn default() -> Self {
        Self::new(|_| None)
    }
}

impl RequestSpanLayer {
    /// Names spans by the route that the function finds among a request's extensions.
    pub fn new(route: impl for<'a> Fn(&'a Extensions) -> Option<&'a str> + Send + Sync + 'static) -> Self {
        let remote = RemoteParentLayer::global();
        RequestSpanLayer { remote, route: Arc::new(route), prefixes: Arc::default() }
    }

    /// Names requests without a route by the longest of these prefixes of their paths, for
    /// services that a router only forwards to: below `/files` a route is `/files/{*rest}`.
    ///
    /// axum gives no route to requests of `nest_service`, and of the fallback of a nested router.
    ///
    /// ```
    /// use astracer_tower::RequestSpanLayer;
    ///
    /// let layer = RequestSpanLayer::default().with_prefixes(["/files", "/api/v2"]);
    /// // axum: Router::new().nest_service("/files", files).nest("/api/v2", api).layer(layer)
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn with_prefixes<T: AsRef<str>>(self, prefixes: impl IntoIterator<Item = T>) -> Self {
        let route = |prefix: T| format!("{}{REST}", prefix.as_ref().trim_end_matches('/'));
        let mut prefixes: Vec<String> = prefixes.into_iter().map(route).collect();
        prefixes.sort_by_key(|route| std::cmp::Reverse(route.len()));
        RequestSpanLayer { prefixes: prefixes.into(), ..self }
    }

    fn route<'a, B>(&'a self, request: &'a Request<B>) -> Option<&'a str> {
        (self.route)(request.extensions()).or_else(|| {
            let path = request.uri().path();
            let is_below = |route: &&String| {
                let rest = path.strip_prefix(route.trim_end_matches(REST));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            self.prefixes.iter().find(is_below).map(String::as_str)
        })
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
    B: Body,
    B::Error: fmt::Display,
{
    type Response = Response<RequestSpanBody<B>>;
    type Error = S::Error;
    type Future = RequestSpanFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let parent = self.layer.remote.extract(request.headers());
        let guard = parent.as_ref().and_then(attach);
        let protocol = Protocol::of(request.headers());
        let span = begin(&request, self.layer.route(&request), protocol);
        let future = span.in_scope(|| self.inner.call(request));
        drop(guard);
        RequestSpanFuture::new(future, span, parent, Outcome::new(Side::Server, protocol))
    }
}
