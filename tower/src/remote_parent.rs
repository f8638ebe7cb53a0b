//! Attaches the caller's context around a request, before its span begins.
//!
//! For servers that use the types of the `http` crate: axum and tonic take [`RemoteParentLayer`],
//! and a hyper service runs in a [`RemoteParentFuture`].

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use http::header::GetAll;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, ContextGuard, global};
use tower_service::Service;

/// Returns the context that a request's headers carry, read by OpenTelemetry's global propagator.
/// `None` if they contain none of the propagator's headers. B3 is read in both of its forms.
///
/// See [`RemoteParentFuture::new`] for a future that runs with it.
pub fn remote_parent(headers: &HeaderMap) -> Option<Context> {
    RemoteParentLayer::global().extract(headers)
}

#[derive(Clone, Default)]
pub(crate) struct Propagation {
    /// `None`: the global one.
    own: Option<Arc<dyn TextMapPropagator + Send + Sync>>,
}

impl Propagation {
    pub(crate) fn new(propagator: impl TextMapPropagator + Send + Sync + 'static) -> Self {
        Propagation { own: Some(Arc::new(propagator)) }
    }

    pub(crate) fn with<T>(&self, mut f: impl FnMut(&dyn TextMapPropagator) -> T) -> T {
        match &self.own {
            Some(own) => f(&**own),
            None => global::get_text_map_propagator(f),
        }
    }
}

impl fmt::Debug for Propagation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.own.is_some() { "own" } else { "global" })
    }
}

/// The header names that our propagators read, parsed in advance: parsing a name takes longer than
/// looking it up.
static NAMES: [HeaderName; 8] = [
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("baggage"),
    HeaderName::from_static("b3"),
    HeaderName::from_static("x-b3-traceid"),
    HeaderName::from_static("x-b3-spanid"),
    HeaderName::from_static("x-b3-sampled"),
    HeaderName::from_static("x-b3-flags"),
];

const B3: std::ops::Range<usize> = 3..8;

pub(crate) fn parsed(name: &str) -> Option<&'static HeaderName> {
    NAMES.iter().find(|known| known.as_str() == name)
}

pub(crate) struct Headers<'a>(pub(crate) &'a HeaderMap);

impl Headers<'_> {
    fn all(&self, name: &str) -> GetAll<'_, HeaderValue> {
        match parsed(name) {
            Some(name) => self.0.get_all(name),
            None => self.0.get_all(name),
        }
    }

    /// Whether a header is present that may be read by a propagator that writes this one. A
    /// propagator's `fields` are the headers it writes, but those of B3 read both forms and write
    /// one.
    fn has_any_form(&self, name: &str) -> bool {
        let has = |names: &[HeaderName]| names.iter().any(|name| self.0.contains_key(name));
        match NAMES.iter().position(|known| known.as_str() == name) {
            Some(at) if B3.contains(&at) => has(&NAMES[B3]),
            Some(at) => has(&NAMES[at..=at]),
            None => self.0.contains_key(name),
        }
    }
}

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.all(key).iter().next()?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }

    fn get_all(&self, key: &str) -> Option<Vec<&str>> {
        let values: Vec<&str> = self.all(key).iter().filter_map(|value| value.to_str().ok()).collect();
        (!values.is_empty()).then_some(values)
    }
}

/// A tower layer that attaches the caller's context around each request, so that spans inside are
/// the caller's children. Put it outside the layer that makes the request's span.
///
/// Inside a span of this process that already belongs to the caller's trace, nothing is attached:
/// a second layer further in changes nothing. tonic's `Server::trace_fn` makes its span outside all
/// layers, so that span needs its parent itself:
///
/// ```
/// use astracer_sdk::OpenTelemetrySpanExt as _;
/// use astracer_tower::remote_parent;
///
/// let trace = |request: &http::Request<()>| {
///     let span = tracing::info_span!("grpc", otel.kind = "server");
///     if let Some(parent) = remote_parent(request.headers()) {
///         let _ = span.set_parent(parent); // an error: the span has already begun
///     }
///     span
/// };
/// // Server::builder().trace_fn(trace).add_service(..)
/// # let _ = trace;
/// ```
///
/// ```
/// use astracer_sdk::Astracer;
/// use astracer_tower::RemoteParentLayer;
///
/// let astracer = Astracer::builder().build()?;
/// let layer = RemoteParentLayer::new(astracer.propagator());
/// // axum: Router::new().route(..).layer(layer)
/// // tonic: Server::builder().layer(layer).add_service(..)
/// # drop(layer);
/// # Ok::<(), astracer_sdk::BuildError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RemoteParentLayer {
    propagation: Propagation,
}

impl RemoteParentLayer {
    /// Reads headers with this propagator, for example
    /// [`Astracer::propagator`](astracer_sdk::Astracer::propagator).
    pub fn new(propagator: impl TextMapPropagator + Send + Sync + 'static) -> Self {
        RemoteParentLayer { propagation: Propagation::new(propagator) }
    }

    /// Reads headers with OpenTelemetry's global propagator.
    pub fn global() -> Self {
        Self::default()
    }

    pub(crate) fn extract(&self, headers: &HeaderMap) -> Option<Context> {
        let headers = Headers(headers);
        self.propagation.with(|propagator| {
            let is_there = propagator.fields().any(|name| headers.has_any_form(name));
            is_there.then(|| propagator.extract(&headers))
        })
    }
}

/// Attaches the caller's context, unless a span of this process that belongs to the caller's trace
/// is current: a layer or span further out has read the same headers, and spans inside belong below
/// that span. The caller's own span may also be current, when a process calls itself.
pub(crate) fn attach(parent: &Context) -> Option<ContextGuard> {
    let span = parent.span();
    let caller = span.span_context();
    let is_inside = caller.is_valid()
        && Context::map_current(|current| {
            let span = current.span();
            let here = span.span_context();
            here.trace_id() == caller.trace_id() && here.span_id() != caller.span_id() && !here.is_remote()
        });
    (!is_inside).then(|| parent.clone().attach())
}

service! {
    /// A service that runs with the caller's context attached; made by [`RemoteParentLayer`].
    RemoteParent of RemoteParentLayer
}

impl<S, B> Service<Request<B>> for RemoteParent<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = RemoteParentFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let parent = self.layer.extract(request.headers());
        // A service may begin its span in `call` or in the future, so attach the context in both.
        let guard = parent.as_ref().and_then(attach);
        let future = self.inner.call(request);
        drop(guard);
        RemoteParentFuture { future, parent }
    }
}

pin_project_lite::pin_project! {
    /// The future of [`RemoteParent`]: the caller's context is current while it is polled.
    #[derive(Debug)]
    pub struct RemoteParentFuture<F> {
        #[pin]
        future: F,
        parent: Option<Context>,
    }
}

impl<F> RemoteParentFuture<F> {
    /// Runs a future with the context that the headers carry, read by OpenTelemetry's global
    /// propagator. For servers without tower, such as those on hyper alone:
    ///
    /// ```
    /// use astracer_tower::RemoteParentFuture;
    /// # async fn handle(_: http::Request<()>) -> http::Response<()> { http::Response::new(()) }
    ///
    /// async fn serve(request: http::Request<()>) -> http::Response<()> {
    ///     let headers = request.headers().clone();
    ///     RemoteParentFuture::new(&headers, handle(request)).await
    /// }
    /// # let _ = serve;
    /// ```
    pub fn new(headers: &HeaderMap, future: F) -> Self {
        RemoteParentFuture { future, parent: remote_parent(headers) }
    }
}

impl<F: Future> Future for RemoteParentFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _guard = this.parent.as_ref().and_then(attach);
        this.future.poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use astracer_sdk::{Astracer, Propagator};

    use super::*;

    #[test]
    fn the_names_of_our_propagators_are_parsed_before() {
        use Propagator::{B3, B3Multi, Baggage, TraceContext};
        let of = |all: &[Propagator]| {
            Astracer::builder().with_enabled(false).with_propagators(all).build().unwrap().propagator()
        };
        let propagator = of(&[TraceContext, Baggage, B3, B3Multi]);
        let unknown: Vec<&str> = propagator.fields().filter(|name| parsed(name).is_none()).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        let both = of(&[B3, B3Multi]);
        let forms: BTreeSet<&str> = NAMES[super::B3].iter().map(HeaderName::as_str).collect();
        assert_eq!(both.fields().collect::<BTreeSet<_>>(), forms);
    }
}
