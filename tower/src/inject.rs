//! Writes the current span's context into the headers of outgoing requests.
//!
//! The counterpart of [`remote_parent`](crate::remote_parent()) for callers: clients on tower take
//! [`InjectLayer`], and other clients call [`inject`] on a request's headers.

use std::task::{self, Poll};

use astracer_sdk::outgoing_context;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use opentelemetry::propagation::{Injector, TextMapPropagator};
use tower_service::Service;

use crate::remote_parent::{Propagation, parsed};

/// Writes the current span's context into a request's headers, by OpenTelemetry's global
/// propagator. Headers of the same names are replaced. Without a current span nothing is written.
///
/// ```
/// # #[tracing::instrument]
/// # fn call() -> http::Request<()> {
/// let mut request = http::Request::new(());
/// astracer_tower::inject(request.headers_mut());
/// // reqwest: inject(request.headers_mut()), with a `reqwest::Request`
/// // tonic:   inject(request.metadata_mut().as_mut()), with a `tonic::Request`
/// # request
/// # }
/// # call();
/// ```
pub fn inject(headers: &mut HeaderMap) {
    InjectLayer::global().inject(headers);
}

struct Outgoing<'a>(&'a mut HeaderMap);

impl Injector for Outgoing<'_> {
    fn set(&mut self, key: &str, value: String) {
        if key == "traceparent" {
            // A request that is passed on may carry the state that its own caller sent, and no new
            // one may follow.
            self.0.remove("tracestate");
        }
        let name = parsed(key).cloned().map_or_else(|| HeaderName::try_from(key), Ok);
        // A propagator of the service's own may write what no header can hold.
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

/// A tower layer for clients, which calls [`inject`] on each request: for hyper's clients, for
/// tonic's channels, and for every other service that takes `http::Request`.
///
/// The context is that of the span in which the service is called. So make the span of the call
/// first, or let [`InjectLayer::with_client_span`] make it.
///
/// ```
/// use astracer_tower::InjectLayer;
/// use tower_layer::Layer as _;
/// # use std::convert::Infallible;
/// # use std::future::{Ready, ready};
/// # use std::task::{Context, Poll};
/// # #[derive(Clone)]
/// # struct Channel;
/// # impl tower_service::Service<http::Request<()>> for Channel {
/// #     type Response = http::Request<()>;
/// #     type Error = Infallible;
/// #     type Future = Ready<Result<http::Request<()>, Infallible>>;
/// #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> { Poll::Ready(Ok(())) }
/// #     fn call(&mut self, request: http::Request<()>) -> Self::Future { ready(Ok(request)) }
/// # }
/// # let channel = Channel;
///
/// let channel = InjectLayer::global().layer(channel);
/// // tonic: GreeterClient::new(channel)
/// # tower_service::Service::call(&mut channel.clone(), http::Request::new(()));
/// ```
#[derive(Clone, Debug, Default)]
pub struct InjectLayer {
    propagation: Propagation,
}

impl InjectLayer {
    /// Writes headers with this propagator, for example
    /// [`Astracer::propagator`](astracer_sdk::Astracer::propagator).
    pub fn new(propagator: impl TextMapPropagator + Send + Sync + 'static) -> Self {
        InjectLayer { propagation: Propagation::new(propagator) }
    }

    /// Writes headers with OpenTelemetry's global propagator.
    pub fn global() -> Self {
        Self::default()
    }

    pub(crate) fn inject(&self, headers: &mut HeaderMap) {
        let context = outgoing_context();
        self.propagation.with(|propagator| propagator.inject_context(&context, &mut Outgoing(headers)));
    }
}

service! {
    /// A client whose requests carry the current span's context; made by [`InjectLayer`].
    Inject of InjectLayer
}

impl<S> Inject<S> {
    /// The client inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, B> Service<Request<B>> for Inject<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        self.layer.inject(request.headers_mut());
        self.inner.call(request)
    }
}
