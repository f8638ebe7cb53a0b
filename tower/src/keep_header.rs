//! The header `astracer-keep`, by which processes inform each other of traces that they kept late.
//! Its value is a list of trace ids.
//!
//! A server adds the header to its response if it kept the request's trace late. A client adds it
//! to its next request to a server, with the traces that it kept since the last one. The receiver
//! keeps its own recorded parts of these traces, and announces them in turn. If the weight of a
//! trace is known, it follows the id (`;th=c;rv=ce6d1a75832a2f`), and all parts get it.
//!
//! If keys are boosted ([`Boost`](astracer_sdk::Boost)), the response also names the request's
//! trace if it went wrong in this process or in one that it called: an id followed by `;boost`,
//! whether or not the trace was kept. The caller boosts the key of its local root. Both sides are
//! off until their layer is installed, and a client announces traces only to the peers that it is
//! given.
//!
//! A request's span may end with the response's body, after the headers. So a server polls the body
//! once before it hands over the headers: a body that is complete in memory has ended then. If the
//! body ends later, and with trailers as in gRPC, the header is among the trailers.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{self, Poll, ready};

use astracer_sdk::{Announced, Announcement, Handle};
use bytes::Buf as _;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use opentelemetry::TraceId;
use opentelemetry::trace::TraceContextExt as _;
use tower_layer::Layer as _;
use tower_service::Service;

use crate::peers::Peers;
use crate::remote_parent::RemoteParentLayer;

/// The header's name.
pub const KEEP_HEADER: HeaderName = HeaderName::from_static("astracer-keep");

/// Follows the id of a trace that went wrong.
const BOOST: &str = ";boost";

/// Keeps the traces that a response lists, and notes those that went wrong in the called process.
fn keep_answered(handle: &Handle, headers: &HeaderMap) {
    let Some(list) = list(headers) else { return };
    // A request has one trace, so a response names one.
    let Some(trace_id) = list.split(',').find_map(troubled_of) else {
        handle.keep_for_caller(&list);
        return;
    };
    handle.note_callee_trouble(trace_id);
    let kept: Vec<&str> = list.split(',').filter(|item| troubled_of(item).is_none()).collect();
    if !kept.is_empty() {
        handle.keep_for_caller(&kept.join(","));
    }
}

/// The trace that an item says went wrong: an id of 32 hexadecimal digits, followed by the mark.
fn troubled_of(item: &str) -> Option<TraceId> {
    let id = item.trim().strip_suffix(BOOST)?.trim();
    let is_id = id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    TraceId::from_hex(id).ok().filter(|trace_id| is_id && *trace_id != TraceId::INVALID)
}

/// The header's lines as one list; `None` without the header. A line that is not text counts as one
/// malformed id.
fn list(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(KEEP_HEADER).iter().map(|line| line.to_str().unwrap_or_default());
    let lines: Vec<&str> = lines.collect();
    (!lines.is_empty()).then(|| lines.join(","))
}

/// A tower layer for servers. It keeps the traces that callers announce, and reports to a caller if
/// the trace of its request was kept late. Put it outside the layers that make the request's span
/// and that attach its context.
///
/// The report is in the response's headers if the request's span has ended by the body's first
/// frame, and else in its trailers. A stream without trailers, such as a long response over
/// HTTP/1.1, reports nothing.
///
/// ```
/// use astracer_sdk::Astracer;
/// use astracer_tower::{KeepLayer, RemoteParentLayer};
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
    /// Keeps traces through `handle`. `remote` reads a request's trace id.
    pub fn new(handle: Handle, remote: RemoteParentLayer) -> Self {
        KeepLayer { handle, remote }
    }

    /// Keeps the traces that a request's headers announce, and returns the request's trace id. For
    /// servers without tower, such as those on hyper alone: pass the result to
    /// [`KeepLayer::on_response`] when the response is ready.
    pub fn on_request(&self, headers: &HeaderMap) -> Option<TraceId> {
        if let Some(list) = list(headers) {
            self.handle.keep_for_caller(&list);
        }
        let parent = self.remote.extract(headers)?;
        let trace_id = parent.span().span_context().trace_id();
        (trace_id != TraceId::INVALID).then_some(trace_id)
    }

    /// Adds the header to a response, or to its trailers, if the request's trace was kept late, or
    /// went wrong and the caller's key is to be boosted. Returns whether it did.
    pub fn on_response(&self, trace_id: Option<TraceId>, headers: &mut HeaderMap) -> bool {
        let Some(trace_id) = trace_id else { return false };
        let text = match (self.handle.was_kept_late(trace_id), self.handle.reports_trouble(trace_id)) {
            (false, false) => return false,
            (true, false) => trace_id.to_string(),
            (false, true) => format!("{trace_id}{BOOST}"),
            (true, true) => format!("{trace_id},{trace_id}{BOOST}"),
        };
        HeaderValue::from_str(&text).map(|value| headers.insert(KEEP_HEADER, value)).is_ok()
    }
}

service! {
    /// A service that reads and writes the header; made by [`KeepLayer`].
    Keep of KeepLayer
}

impl<S, A, B> Service<Request<A>> for Keep<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Body,
{
    type Response = Response<KeepBody<B>>;
    type Error = S::Error;
    type Future = KeepFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let trace_id = self.layer.on_request(request.headers());
        let exchange = Exchange::Server(self.layer.clone(), trace_id);
        KeepFuture { future: self.inner.call(request), exchange }
    }
}

/// A tower layer for clients. It announces to the given peers which traces were kept late since the
/// last request, and keeps the traces that their responses announce.
///
/// A peer is the authority of a request's URI, without user information, or else its `host` header:
/// for example `payments:8080`, case-insensitive. Requests through tonic's channel have neither:
/// see [`KeepCallsLayer::with_unnamed_peer`].
#[derive(Clone)]
pub struct KeepCallsLayer {
    handle: Handle,
    peers: Peers<AnnouncedCount>,
}

impl KeepCallsLayer {
    /// Announces nothing until peers are added.
    pub fn new(handle: Handle) -> Self {
        KeepCallsLayer { handle, peers: Peers::default() }
    }

    /// Also announces traces in requests that name no peer, for a client with a single server. Such
    /// requests are those through tonic's channel, which adds the authority further inside, and
    /// those on hyper's connections.
    #[must_use]
    pub fn with_unnamed_peer(self) -> Self {
        KeepCallsLayer { peers: self.peers.with_unnamed(self.handle.add_peer()), ..self }
    }

    /// Also announces traces to this peer, and keeps those that it announces.
    #[must_use]
    pub fn with_peer(self, peer: impl Into<String>) -> Self {
        KeepCallsLayer { peers: self.peers.with(peer, self.handle.add_peer()), ..self }
    }

    /// The number of traces that wait to be announced to this peer, or to the unnamed one for `""`.
    pub fn waiting(&self, peer: &str) -> u64 {
        let Announcement { traces, waiting, .. } = self.handle.announcement_after(self.announced(peer));
        traces.len() as u64 + waiting
    }

    fn announced(&self, peer: &str) -> u64 {
        self.peers.named(peer).map_or(u64::MAX, |peer| peer.load(Ordering::Relaxed))
    }

    /// Announces traces to a peer in requests of their own, for a client that may call it less
    /// often than every half of the time for which it holds its parts
    /// ([`Tail::hold`](astracer_sdk::Tail::hold), 30 s with strata). Looks after each `pause`, and
    /// sends `request` through `client` for as long as traces wait. Never ends: spawn it, abort the
    /// task when the service stops, and then call [`KeepCallsLayer::announce_waiting`].
    ///
    /// `client` is the one below this layer. A request that fails is repeated after the next pause.
    ///
    /// ```
    /// # use astracer_tower::KeepCallsLayer;
    /// # use std::{convert::Infallible, future::ready, time::Duration};
    /// # use http::{Request, Response};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let astracer = astracer_sdk::Astracer::builder().build().unwrap();
    /// # let client = tower::service_fn(|_: Request<String>| {
    /// #     ready(Ok::<_, Infallible>(Response::new(String::new())))
    /// # });
    /// let layer = KeepCallsLayer::new(astracer.handle.clone()).with_peer("payments:8080");
    /// let request = || Request::head("http://payments:8080/").body(String::new()).unwrap();
    /// let announcing = tokio::spawn(layer.clone().announce_to("payments:8080", client, request, || {
    ///     tokio::time::sleep(Duration::from_secs(10))
    /// }));
    /// # announcing.abort();
    /// # }
    /// ```
    pub async fn announce_to<S, A, B, P>(
        self,
        peer: impl Into<String>,
        client: S,
        request: impl Fn() -> Request<A>,
        pause: impl Fn() -> P,
    ) where
        S: Service<Request<A>, Response = Response<B>>,
        B: Body,
        P: Future<Output = ()>,
    {
        let peer = peer.into();
        let mut client = self.layer(client);
        loop {
            pause().await;
            while self.sends(&peer, &mut client, request()).await {}
        }
    }

    /// Announces what waits for a peer at once, as [`KeepCallsLayer::announce_to`] does after a
    /// pause. Ends when nothing waits, or when a request fails.
    ///
    /// Call it when the service stops, after its last request: otherwise the peer never learns of
    /// the traces kept since the last call. Do so before the
    /// [shutdown](astracer_sdk::Handle::shutdown), which ends all announcements and counts what
    /// still waits in [`TailStats::unannounced`](astracer_sdk::TailStats::unannounced). A peer may
    /// not answer: bound the time.
    ///
    /// ```
    /// # use astracer_tower::KeepCallsLayer;
    /// # use std::{convert::Infallible, future::ready, time::Duration};
    /// # use http::{Request, Response};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let astracer = astracer_sdk::Astracer::builder().build().unwrap();
    /// # let client = tower::service_fn(|_: Request<String>| {
    /// #     ready(Ok::<_, Infallible>(Response::new(String::new())))
    /// # });
    /// # let layer = KeepCallsLayer::new(astracer.handle.clone()).with_peer("payments:8080");
    /// # let request = || Request::head("http://payments:8080/").body(String::new()).unwrap();
    /// // The server has ended.
    /// let announced = layer.announce_waiting("payments:8080", client, request);
    /// let _ = tokio::time::timeout(Duration::from_secs(5), announced).await;
    /// let ended = astracer.handle.shutdown(Duration::from_secs(5));
    /// # ended.unwrap();
    /// # }
    /// ```
    pub async fn announce_waiting<S, A, B>(&self, peer: &str, client: S, request: impl Fn() -> Request<A>)
    where
        S: Service<Request<A>, Response = Response<B>>,
        B: Body,
    {
        let mut client = self.layer(client);
        while self.sends(peer, &mut client, request()).await {}
    }

    /// Sends the request if traces wait for the peer. Returns whether it then knows of more.
    async fn sends<S, A, B>(&self, peer: &str, client: &mut KeepCalls<S>, request: Request<A>) -> bool
    where
        S: Service<Request<A>, Response = Response<B>>,
        B: Body,
    {
        let announced = self.announced(peer);
        if self.waiting(peer) > 0 && poll_fn(|cx| client.poll_ready(cx)).await.is_ok() {
            drop(client.call(request).await);
        }
        self.announced(peer) != announced
    }

    fn announce(&self, peer: &AnnouncedCount, headers: &mut HeaderMap) -> Option<SentAnnouncement> {
        let announced = peer.load(Ordering::Relaxed);
        let Announcement { traces, all, unannounced, .. } = self.handle.announcement_after(announced);
        // If several requests start at once, only one carries the announcement. Relaxed: the number
        // guards no other memory; the ids were read under a lock.
        if traces.is_empty()
            || peer.compare_exchange(announced, all, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return None;
        }
        let named = traces.len() as u64;
        let traces: Vec<String> = traces.iter().map(Announced::to_string).collect();
        if let Ok(value) = HeaderValue::from_str(&traces.join(",")) {
            headers.insert(KEEP_HEADER, value);
        }
        let (handle, peer) = (self.handle.clone(), peer.clone());
        Some(SentAnnouncement { handle, peer, announced, all, named, unannounced, is_confirmed: false })
    }
}

impl fmt::Debug for KeepCallsLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepCallsLayer")
            .field("peers", &self.peers.names().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

service! {
    /// A client that writes and reads the header; made by [`KeepCallsLayer`].
    KeepCalls of KeepCallsLayer
}

impl<S> KeepCalls<S> {
    /// The inner client.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, A, B> Service<Request<A>> for KeepCalls<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Body,
{
    type Response = Response<KeepBody<B>>;
    type Error = S::Error;
    type Future = KeepFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let exchange = match self.layer.peers.of(&request).map(|(_, announced)| announced) {
            Some(peer) => {
                let announcement = self.layer.announce(peer, request.headers_mut());
                Exchange::Client(self.layer.handle.clone(), announcement)
            }
            None => Exchange::None,
        };
        KeepFuture { future: self.inner.call(request), exchange }
    }
}

#[derive(Debug)]
enum Exchange {
    Server(KeepLayer, Option<TraceId>),
    Client(Handle, Option<SentAnnouncement>),
    None,
}

/// The number of traces announced to a peer, which its [`Handle`] knows of.
type AnnouncedCount = Arc<AtomicU64>;

/// An announcement on its way to a peer. If it is dropped without a response, by an error or
/// because the caller stopped waiting, it does not count: the next request repeats it, unless
/// another request has announced more since.
#[derive(Debug)]
struct SentAnnouncement {
    handle: Handle,
    peer: AnnouncedCount,
    /// The number of announced traces before this request, and including it.
    announced: u64,
    all: u64,
    /// The traces of that difference that the request names, and those that it leaves out. A trace
    /// of several parts counts once.
    named: u64,
    unannounced: u64,
    is_confirmed: bool,
}

impl Drop for SentAnnouncement {
    fn drop(&mut self) {
        if self.is_confirmed {
            return self.handle.count_unannounced(self.unannounced);
        }
        let (peer, all) = (&self.peer, self.all);
        if peer.compare_exchange(all, self.announced, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            self.handle.count_unannounced(self.named + self.unannounced);
        }
    }
}

pin_project_lite::pin_project! {
    /// The future of [`Keep`] and [`KeepCalls`].
    #[derive(Debug)]
    pub struct KeepFuture<F> {
        #[pin]
        future: F,
        exchange: Exchange,
    }
}

impl<F, B, E> Future for KeepFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<KeepBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.future.poll(cx));
        let exchange = std::mem::replace(this.exchange, Exchange::None);
        Poll::Ready(result.map(|response| {
            let (mut parts, body) = response.into_parts();
            let mut body = KeepBody { body: Box::pin(body), first: None, exchange: Exchange::None };
            body.exchange = match exchange {
                Exchange::Server(layer, Some(trace_id)) => {
                    body.look_ahead(cx);
                    match layer.on_response(Some(trace_id), &mut parts.headers) {
                        true => Exchange::None,
                        false => Exchange::Server(layer, Some(trace_id)),
                    }
                }
                Exchange::Client(handle, announcement) => {
                    if let Some(mut announcement) = announcement {
                        announcement.is_confirmed = true;
                    }
                    keep_answered(&handle, &parts.headers);
                    Exchange::Client(handle, None)
                }
                _ => Exchange::None,
            };
            Response::from_parts(parts, body)
        }))
    }
}

/// The body of a response through [`Keep`] and [`KeepCalls`]: the body inside, with the header
/// added to its trailers or read from them.
#[derive(Debug)]
#[allow(clippy::type_complexity, reason = "the result of a poll, as `Body` writes it")]
pub struct KeepBody<B: Body> {
    body: Pin<Box<B>>,
    /// Already polled: a frame, an error, or the end.
    first: Option<Option<Result<Frame<B::Data>, B::Error>>>,
    exchange: Exchange,
}

impl<B: Body> KeepBody<B> {
    fn look_ahead(&mut self, cx: &mut task::Context<'_>) {
        if !self.body.is_end_stream()
            && let Poll::Ready(first) = self.body.as_mut().poll_frame(cx)
        {
            self.first = Some(first);
        }
    }
}

// The body inside is pinned in its own allocation, and what was polled is not pinned.
impl<B: Body> Unpin for KeepBody<B> {}

impl<B: Body + Default> Default for KeepBody<B> {
    fn default() -> Self {
        KeepBody { body: Box::pin(B::default()), first: None, exchange: Exchange::None }
    }
}

impl<B: Body> Body for KeepBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut frame = match self.first.take() {
            Some(first) => first,
            None => ready!(self.body.as_mut().poll_frame(cx)),
        };
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            match &self.exchange {
                Exchange::Server(layer, trace_id) => {
                    layer.on_response(*trace_id, trailers);
                }
                Exchange::Client(handle, _) => keep_answered(handle, trailers),
                Exchange::None => {}
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.first {
            Some(first) => first.is_none(),
            None => self.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let first = self.first.as_ref().and_then(|first| first.as_ref()?.as_ref().ok()?.data_ref());
        if let Some(first) = first {
            let first = first.remaining() as u64;
            // A hint's lower bound must never be above the upper one.
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper.saturating_add(first));
            }
            hint.set_lower(hint.lower().saturating_add(first));
        }
        hint
    }
}
