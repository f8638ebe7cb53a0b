//! Spans of calls to other services, with names and attributes by OpenTelemetry's conventions for
//! HTTP and gRPC clients.

use std::fmt;
use std::task::{self, Poll};

use http::uri::Authority;
use http::{Request, Response, Uri};
use http_body::Body;
use tower_service::Service;
use tracing::Span;
use tracing::field::Empty;

use crate::call::{RequestSpanBody, RequestSpanFuture};
use crate::inject::InjectLayer;
use crate::request_span::{grpc_names, method_names};
use crate::status::{Outcome, Protocol, Side};

/// The span of a call to another service. It has the level INFO and the target `http_client`.
///
/// The name is `GET` for this method, and `package.Service/Method` for gRPC. `url.full` is recorded
/// without user name, password and the signatures of signed URLs.
///
/// [`ClientSpanLayer`] makes this span for each call, and ends it with the response's body.
pub fn client_span<B>(request: &Request<B>) -> Span {
    begin(request, Protocol::of(request.headers()))
}

fn begin<B>(request: &Request<B>, protocol: Protocol) -> Span {
    let uri = request.uri();
    let named = match uri.authority() {
        Some(_) => None,
        None => request.headers().get(http::header::HOST),
    };
    let named = named.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let authority = uri.authority().or(named.as_ref());
    let server = authority.map(|authority| authority.host().trim_matches(['[', ']']));
    let port = authority.and_then(Authority::port_u16).or_else(|| match uri.scheme_str()? {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    });
    if protocol != Protocol::Http {
        let (name, service, method) = grpc_names(uri.path());
        return tracing::info_span!(
            target: TARGET,
            "grpc",
            otel.name = name,
            otel.kind = "client",
            rpc.system = "grpc",
            rpc.service = service,
            rpc.method = method,
            server.address = server,
            server.port = port,
            rpc.grpc.status_code = Empty,
            http.response.status_code = Empty,
            otel.status_code = Empty,
            otel.status_description = Empty,
            "error.type" = Empty,
        );
    }
    let (method, verb) = method_names(request.method());
    tracing::info_span!(
        target: TARGET,
        "http",
        otel.name = verb,
        otel.kind = "client",
        http.request.method = method,
        server.address = server,
        server.port = port,
        url.full = uri.scheme().map(|_| display(FullUrl(uri))),
        url.path = uri.scheme().is_none().then(|| uri.path()),
        http.response.status_code = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty,
        "error.type" = Empty,
    )
}

const TARGET: &str = "http_client";

/// A URL without its secrets: those that the conventions name for `url.full`.
struct FullUrl<'a>(&'a Uri);

impl fmt::Display for FullUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FullUrl(uri) = self;
        let authority = uri.authority().map_or("", Authority::as_str);
        let (secret, host) = match authority.rsplit_once('@') {
            Some((user, host)) if user.contains(':') => ("REDACTED:REDACTED@", host),
            Some((_, host)) => ("REDACTED@", host),
            None => ("", authority),
        };
        write!(f, "{}://{secret}{host}{}", uri.scheme_str().unwrap_or_default(), uri.path())?;
        for (at, part) in uri.query().into_iter().flat_map(|query| query.split('&')).enumerate() {
            f.write_str(if at == 0 { "?" } else { "&" })?;
            match part.split_once('=') {
                Some((name @ ("AWSAccessKeyId" | "Signature" | "sig" | "X-Goog-Signature"), _)) => {
                    write!(f, "{name}=REDACTED")?;
                }
                _ => f.write_str(part)?,
            }
        }
        Ok(())
    }
}

/// A tower layer for clients: each call gets a span, and its request carries the context of that
/// span. Made by [`InjectLayer::with_client_span`].
///
/// The span lasts until the response's body ends, fails or is dropped. An error fails it: an HTTP
/// status of 400 or above, a gRPC status other than OK, in headers or trailers, a call without a
/// response, and a body that fails.
///
/// ```
/// use astracer_tower::InjectLayer;
///
/// let layer = InjectLayer::global().with_client_span();
/// // hyper: layer.layer(client)
/// // tonic: GreeterClient::new(layer.layer(channel))
/// # drop(layer);
/// ```
#[derive(Clone, Debug)]
pub struct ClientSpanLayer {
    inject: InjectLayer,
}

impl InjectLayer {
    /// Also makes a span for each call, whose context the request carries.
    pub fn with_client_span(self) -> ClientSpanLayer {
        ClientSpanLayer { inject: self }
    }
}

service! {
    /// A client whose calls have spans; made by [`ClientSpanLayer`].
    ClientSpan of ClientSpanLayer
}

impl<S> ClientSpan<S> {
    /// The client inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, A, B> Service<Request<A>> for ClientSpan<S>
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

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let protocol = Protocol::of(request.headers());
        let span = begin(&request, protocol);
        let future = span.in_scope(|| {
            self.layer.inject.inject(request.headers_mut());
            self.inner.call(request)
        });
        RequestSpanFuture::new(future, span, None, Outcome::new(Side::Client, protocol))
    }
}
