//! The header by which processes tell each other of traces that they kept late: `astracer-keep`, a
//! list of trace ids.
//!
//! A server tells its caller in its answer that it kept the request's trace; a client tells a
//! server with its next request which traces it kept since the last one. Whoever is told keeps its
//! own recorded parts, and tells on. Both sides are off until their layer is put in place, and a
//! client tells only the peers that it is given.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{self, Poll, ready};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use opentelemetry::TraceId;
use opentelemetry::trace::TraceContextExt as _;
use tower_layer::Layer;
use tower_service::Service;

use crate::handle::Handle;
use crate::remote_parent::RemoteParentLayer;
use crate::tail::News;

/// The header's name.
pub const KEEP_HEADER: HeaderName = HeaderName::from_static("astracer-keep");

/// Keeps what the headers ask for; returns the number of ids.
fn hear(handle: &Handle, headers: &HeaderMap) -> usize {
    // Several lines are one list. One that is no text is no id, and counted as such.
    let lines = headers.get_all(KEEP_HEADER).iter().map(|line| line.to_str().unwrap_or_default());
    let lines: Vec<&str> = lines.collect();
    if lines.is_empty() { 0 } else { handle.keep_for_caller(&lines.join(",")) }
}

/// A tower layer for servers: hears from callers which traces to keep, and tells a caller if the
/// trace of its request was kept late. Put it outside of the layers that make the request's span
/// and that attach its context.
///
/// ```
/// use astracer_sdk::{Astracer, KeepLayer, RemoteParentLayer};
///
/// let astracer = Astracer::builder().with_tail("error".parse()?).build()?;
/// let remote = RemoteParentLayer::new(astracer.propagator());
/// let layer = KeepLayer::new(astracer.handle.clone(), remote.clone());
/// // axum: Router::new().route(..).layer(remote).layer(layer)
/// // tonic: Server::builder().layer(layer).layer(remote).add_service(..)
/// # drop((layer, remote));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct KeepLayer {
    handle: Handle,
    remote: RemoteParentLayer,
}

impl KeepLayer {
    /// Keeps by this handle; `remote` reads a request's trace id.
    pub fn new(handle: Handle, remote: RemoteParentLayer) -> Self {
        KeepLayer { handle, remote }
    }

    /// Hears what a request's headers ask for, and returns the trace of the request. For servers
    /// without tower, such as those on hyper alone, which call [`KeepLayer::answer`] with it in the
    /// end.
    pub fn hear(&self, headers: &HeaderMap) -> Option<TraceId> {
        hear(&self.handle, headers);
        let parent = self.remote.extract(headers)?;
        let trace_id = parent.span().span_context().trace_id();
        (trace_id != TraceId::INVALID).then_some(trace_id)
    }

    /// Tells the caller that its request's trace was kept late, if it was.
    pub fn answer(&self, trace_id: Option<TraceId>, headers: &mut HeaderMap) {
        if let Some(trace_id) = trace_id.filter(|trace_id| self.handle.was_kept_late(*trace_id))
            && let Ok(value) = HeaderValue::from_str(&trace_id.to_string())
        {
            headers.insert(KEEP_HEADER, value);
        }
    }
}

impl<S> Layer<S> for KeepLayer {
    type Service = Keep<S>;

    fn layer(&self, inner: S) -> Keep<S> {
        Keep { inner, layer: self.clone() }
    }
}

/// A service that hears and tells; made by [`KeepLayer`].
#[derive(Clone, Debug)]
pub struct Keep<S> {
    inner: S,
    layer: KeepLayer,
}

impl<S, A, B> Service<Request<A>> for Keep<S>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = KeepFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let trace_id = self.layer.hear(request.headers());
        let ended = Ended::Served(self.layer.clone(), trace_id);
        KeepFuture { future: self.inner.call(request), ended }
    }
}

/// A tower layer for clients: tells the peers that it is given which traces were kept late since
/// the last request, and hears from their answers which to keep.
///
/// A peer is the authority of a request's URI, without a user, or its header `host`:
/// `payments:8080`, in capitals or not. Requests through tonic's channel have neither: see
/// [`KeepCallsLayer::with_unnamed_peer`].
#[derive(Clone)]
pub struct KeepCallsLayer {
    handle: Handle,
    /// The number of traces that each has heard of.
    peers: Arc<BTreeMap<String, Heard>>,
    /// The same of the peer whose requests name none.
    unnamed: Option<Heard>,
}

impl KeepCallsLayer {
    /// Tells nobody, until peers are added.
    pub fn new(handle: Handle) -> Self {
        KeepCallsLayer { handle, peers: Arc::default(), unnamed: None }
    }

    /// Tells the server of a client that has only one, too, whose requests name none: those through
    /// tonic's channel, which adds the authority further inside, and those of hyper's connections.
    #[must_use]
    pub fn with_unnamed_peer(self) -> Self {
        KeepCallsLayer { unnamed: Some(Arc::default()), ..self }
    }

    /// Tells this peer, too, and hears what it answers.
    #[must_use]
    pub fn with_peer(self, peer: impl Into<String>) -> Self {
        let known = self.peers.iter().map(|(peer, heard)| (peer.clone(), heard.clone()));
        let all = known.chain([(peer.into(), Heard::default())]);
        KeepCallsLayer { peers: Arc::new(all.collect()), ..self }
    }

    fn tell(&self, peer: &Heard, headers: &mut HeaderMap) -> Option<Told> {
        let heard = peer.load(Ordering::Relaxed);
        let News { ids, all, untold } = self.handle.news_after(heard);
        // Of requests at the same time, one tells.
        if ids.is_empty() || peer.compare_exchange(heard, all, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return None;
        }
        let named = ids.len() as u64;
        let ids: Vec<String> = ids.iter().map(TraceId::to_string).collect();
        if let Ok(value) = HeaderValue::from_str(&ids.join(",")) {
            headers.insert(KEEP_HEADER, value);
        }
        let (handle, peer) = (self.handle.clone(), peer.clone());
        Some(Told { handle, peer, heard, all, named, untold, is_answered: false })
    }

    fn peer<A>(&self, request: &Request<A>) -> Option<&Heard> {
        let authority = request.uri().authority().map(|authority| authority.as_str());
        let host = || request.headers().get(http::header::HOST)?.to_str().ok();
        let Some(named) = authority.or_else(host) else { return self.unnamed.as_ref() };
        // Without the user's name before it.
        let named = named.rsplit('@').next().unwrap_or(named);
        let peer = self.peers.iter().find(|(peer, _)| peer.eq_ignore_ascii_case(named));
        peer.map(|(_, heard)| heard)
    }
}

impl fmt::Debug for KeepCallsLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepCallsLayer").field("peers", &self.peers.keys()).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for KeepCallsLayer {
    type Service = KeepCalls<S>;

    fn layer(&self, inner: S) -> KeepCalls<S> {
        KeepCalls { inner, layer: self.clone() }
    }
}

/// A client that tells and hears; made by [`KeepCallsLayer`].
#[derive(Clone, Debug)]
pub struct KeepCalls<S> {
    inner: S,
    layer: KeepCallsLayer,
}

impl<S> KeepCalls<S> {
    /// The client inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, A, B> Service<Request<A>> for KeepCalls<S>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = KeepFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let ended = match self.layer.peer(&request) {
            Some(peer) => {
                let told = self.layer.tell(peer, request.headers_mut());
                Ended::Called(self.layer.handle.clone(), told)
            }
            None => Ended::Nobody,
        };
        KeepFuture { future: self.inner.call(request), ended }
    }
}

/// The use of an answer's headers.
#[derive(Debug)]
enum Ended {
    Served(KeepLayer, Option<TraceId>),
    Called(Handle, Option<Told>),
    Nobody,
}

/// The number of traces that a peer has heard of.
type Heard = Arc<AtomicU64>;

/// A request that tells a peer. Dropped without an answer, by an error or by whoever waited no
/// longer, it has told nobody: the next request tells again, unless another one has told more
/// since.
#[derive(Debug)]
struct Told {
    handle: Handle,
    peer: Heard,
    /// The number before, and with this request.
    heard: u64,
    all: u64,
    /// The traces among them that it names, and the others. A trace of several parts is one.
    named: u64,
    untold: u64,
    is_answered: bool,
}

impl Told {
    fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let goes_back =
            || self.peer.compare_exchange(self.all, self.heard, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if self.is_answered {
            self.handle.count_untold(self.untold);
        } else if !goes_back() {
            self.handle.count_untold(self.named + self.untold);
        }
    }
}

pin_project_lite::pin_project! {
    /// The future of [`Keep`] and [`KeepCalls`].
    #[derive(Debug)]
    pub struct KeepFuture<F> {
        #[pin]
        future: F,
        ended: Ended,
    }
}

impl<F, B, E> Future for KeepFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let mut answer = ready!(this.future.poll(cx));
        match (this.ended, &mut answer) {
            (Ended::Served(layer, trace_id), Ok(response)) => {
                layer.answer(*trace_id, response.headers_mut());
            }
            (Ended::Called(handle, told), Ok(response)) => {
                if let Some(told) = told.take() {
                    told.answered();
                }
                hear(handle, response.headers());
            }
            (Ended::Called(_, told), Err(_)) => *told = None,
            _ => {}
        }
        Poll::Ready(answer)
    }
}
